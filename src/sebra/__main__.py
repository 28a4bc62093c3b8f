"""`python -m sebra` is the command `sebra`."""

from sebra.cli.main import main

if __name__ == "__main__":
    main()
