"""For `accelerate launch -m contml.cli`."""

from contml.cli import main

main()
