"""The cost of Offbook for a project that has it installed and does not use it.

Budgets: the plugin adds less than 5 ms of CPU to a pytest run that does not use it; `import
offbook` takes less than 60 ms; `offbook --help` costs less than `pytest --version`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 25
BIN = Path(sys.executable).parent


def cpu(*command: str, cwd: str | None = None) -> float:
    """Return the CPU milliseconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, cwd=cwd)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def compare(*commands: tuple[str, ...], cwd: str | None = None) -> list[float]:
    """Return the least cost of each command, measured in turns."""
    costs: list[list[float]] = [[] for _ in commands]
    for _ in range(ROUNDS):
        for command, figures in zip(commands, costs, strict=True):
            figures.append(cpu(*command, cwd=cwd))
    return [min(figures) for figures in costs]


def main() -> int:
    """Measure, print, and return 1 if a budget is exceeded."""
    python = sys.executable
    pytest = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # other plugins would add noise
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users have compiled bytecode
    with tempfile.TemporaryDirectory() as folder:
        test = Path(folder) / "test_nothing.py"
        test.write_text("def test_nothing():\n    assert True\n")
        with_plugin, without = compare(
            (*pytest, "-p", "pytest_offbook.plugin", str(test)), (*pytest, str(test)), cwd=folder
        )
    empty, imported = compare((python, "-c", "pass"), (python, "-c", "import offbook"))
    helped, version = compare(
        (str(BIN / "offbook"), "--help"), (python, "-m", "pytest", "--version")
    )
    lines = [
        ("plugin, unused", with_plugin - without, with_plugin - without < 5),
        ("import offbook", imported - empty, imported - empty < 60),
        ("offbook --help", helped, helped < version),
        ("  pytest --version", version, True),
    ]
    for name, millis, holds in lines:
        print(f"{name:30} {millis:8.1f} ms  {'ok' if holds else 'OVER BUDGET'}")
    return 0 if all(holds for *_, holds in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
