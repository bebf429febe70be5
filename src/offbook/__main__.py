"""`python -m offbook` is `offbook`."""

from offbook.surfaces.cli import main

if __name__ == "__main__":
    main()
