"""How a target is run: a test, a script, a scenario, or any program; and the model beside it."""

from __future__ import annotations

import sys
from pathlib import Path

from offbook.errors import UsageError

SCENARIOS = {".yaml", ".yml", ".json"}
BESIDE = (".cassette.yaml", ".mocks.jsonl")
PYTEST = ("-m", "pytest", "-q", "--no-header", "-p", "no:randomly", "-p", "no:cacheprovider")
OFFBOOK = ("-m", "offbook", "run", "--jobs", "1", "--reports", "reports")


def find_command(target: str) -> tuple[list[str], Path | None]:
    """The words that run a target, and the cassette or the mocks beside it."""
    name, colons, test = target.partition("::")
    file = Path(name)
    if not file.exists():
        raise UsageError(
            "there is no such target",
            where=target,
            hint="give a pytest node, a script, a scenario or a program",
        )
    place = str(file.resolve())
    if colons or file.is_dir() or (file.suffix == ".py" and file.name.startswith("test_")):
        command = [sys.executable, *PYTEST, place + colons + test]
    elif file.suffix in SCENARIOS:
        command = [sys.executable, *OFFBOOK, place]
    elif file.suffix == ".py":
        command = [sys.executable, place]
    else:
        command = [place]
    stem = file.with_suffix("") if file.suffix else file
    fixtures = (stem.with_name(stem.name + ending) for ending in BESIDE)
    return command, next((path for path in fixtures if path.is_file()), None)
