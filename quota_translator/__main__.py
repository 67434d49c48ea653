"""`python -m quota_translator`."""

from quota_translator.cli import main

if __name__ == "__main__":
    main()
