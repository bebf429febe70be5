"""The entry point: `offbook`, and `python -m offbook`."""

import gc
import sys

from offbook.capability import WINDOWS
from offbook.version import VERSION

# They run agents in this process: what such an agent has started ends with it.
RUNNERS = {
    *("bench", "checkup", "determinism", "eval", "explore", "golden", "pattern", "scenario"),
    "workspace",
}


def main() -> None:
    """Run the command line; `--version` alone needs none of it."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"offbook {VERSION}\n")
        return
    if sys.platform == "win32":
        sys.exit(f"offbook: {WINDOWS}")
    if sys.argv[1:2] and sys.argv[1] in RUNNERS and "--help" not in sys.argv:
        from offbook.subjects.process_tree import guard

        guard()
    gc.set_threshold(50_000, 20, 20)  # imports make many objects and no garbage
    from offbook.surfaces.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
