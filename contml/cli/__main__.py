"""For `accelerate launch -m contml.cli`."""

from contml.cli import main

if __name__ == "__main__":
    main()
