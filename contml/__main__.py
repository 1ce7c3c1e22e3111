"""For `accelerate launch -m contml`."""

from contml.app.cli import main

if __name__ == "__main__":
    main()
