"""The ways out of a command: each is closed, or caught by the namespace and named on the page."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.matrix.trap import Trap, catch
from tests.runs.escaping_command import NODE, NODE_SEALED, NUMBERS, PYTHON, PYTHON_SEALED

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "determinism.md"
CLOSED, SEALED = [*PYTHON, *NODE], [*PYTHON_SEALED, *NODE_SEALED]


def find_ways_out(folder: Path, mode: str) -> set[int]:
    """Return the numbers of the ways that led out of a command."""
    trap = Trap()
    program = [sys.executable, "-m", "tests.runs.escaping_command", str(folder), mode]
    assert catch(program, trap) == 0
    found: set[int] = set()
    for line in trap.caught:
        # a name, an address, or an address that was looked up
        name = re.search(r"\be(\d+)\.unknown", line) or re.search(r"192\.0\.2\.(\d+)\b", line)
        reverse = re.search(r"\b(\d+)\.2\.0\.192\.in-addr", line)
        match = reverse or name
        assert match, line
        found.add(int(match[1]))
    return found


@pytest.fixture(scope="module")
def ways_out(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[int]]:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-Urn", "true"], check=False).returncode:
        pytest.skip("no network namespaces here")
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    return {
        mode: find_ways_out(tmp_path_factory.mktemp(mode), mode) for mode in ("plain", "sealed")
    }


@pytest.mark.parametrize("way", CLOSED)
def test_a_way_out_of_a_command_is_closed(way: str, ways_out: dict[str, set[int]]) -> None:
    assert NUMBERS[way] not in ways_out["plain"]


@pytest.mark.parametrize("way", SEALED)
def test_a_way_out_that_is_open_is_caught_by_the_namespace_and_documented(
    way: str, ways_out: dict[str, set[int]]
) -> None:
    assert NUMBERS[way] in ways_out["plain"]
    assert way.removesuffix(" of Node") in PAGE.read_text()


def test_nothing_leaves_a_sealed_command(ways_out: dict[str, set[int]]):
    assert ways_out["sealed"] == set()
