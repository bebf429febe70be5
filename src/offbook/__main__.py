"""The entry point: `offbook`, and `python -m offbook`."""

import sys

from offbook.version import VERSION


def main() -> None:
    """Run the command line; `--version` alone needs none of it."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"offbook {VERSION}\n")
        return
    from offbook.surfaces.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
