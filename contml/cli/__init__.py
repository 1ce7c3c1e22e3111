"""The command line: `contml`, or `python -m contml.cli`."""

from contml.cli.commands import main as main
