"""A suite with the coverage of its agents on, against the same suite without.

Budget: at most 5 % more CPU. Both are measured in turns, each as a new process of pytest; the
least of the rounds is compared.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 5
SUITE = """
import pytest
from offbook import call, say, when

def shop(api):
    @api.tool("find_order")
    def find_order(params, ctx):
        return "order 7"

@pytest.mark.parametrize("number", range(400))
def test_order(offbook, number):
    steps = [call("find_order"), call("find_order"), say("Done.")]
    offbook.session(extensions=[shop]).run(when("Find order 7", steps))
"""
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider")


def cpu(folder: str, *options: str) -> float:
    """Return the CPU seconds of one run of the suite."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*PYTEST, *options], check=True, capture_output=True, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure, print, and return 1 if the budget is exceeded."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_shop.py").write_text(SUITE, encoding="utf-8")
        Path(folder, "pytest.ini").write_text(
            "[pytest]\nasyncio_default_fixture_loop_scope = function\n", encoding="utf-8"
        )
        rounds = [(cpu(folder), cpu(folder, "--offbook-coverage")) for _ in range(ROUNDS)]
    without, measured = (min(column) for column in zip(*rounds, strict=True))
    more = measured / without - 1
    print(f"400 tests: {without:.2f} s of CPU, with coverage {measured:.2f} s: {more:+.1%}")
    return int(more > 0.05)


if __name__ == "__main__":
    sys.exit(main())
