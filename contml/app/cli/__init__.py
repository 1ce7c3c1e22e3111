"""The command line: `contml`, or `python -m contml`."""

from contml.app.cli.commands import main as main
