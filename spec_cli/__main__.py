"""`python -m spec_cli`: the command, where its script is not on the path."""

from spec_cli.cli import main

if __name__ == "__main__":
    main()
