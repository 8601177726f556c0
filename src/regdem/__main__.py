"""`python -m regdem`: the same as the `regdem` command."""

from regdem.cli.main import main

if __name__ == "__main__":
    main()
