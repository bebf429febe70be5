"""A search finds each planted bug, and reports a short script that fails until it is fixed."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from offbook.errors import InvariantBroken
from offbook.explore import Counterexample, Exploration, explore, render_tests
from tests.explore.planted_bugs import PLANTED, PlantedBug
from tests.forked import forked_command
from tests.thorough import usual_rows

RUNS = 40
RUNS_OF_A_COMMAND = 15  # each is a process
MAX_MESSAGES = 3
# bench/explore_bugs.py has more of these kinds.
FURTHER = (
    "a negative amount, LangChain",
    "an approval for everything, OpenAI Agents",
    "a lost result of a cut stream, OpenAI",
    "an endless loop after an error, Anthropic",
    "a file outside of its folder, command",
)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    # Started here: a search ends what its behaviours start.
    forked_command()


def find(bug: PlantedBug, runs: int) -> Counterexample:
    with pytest.raises(InvariantBroken) as caught:
        explore(
            bug.broken,
            bug.prompt,
            *bug.invariants,
            runs=runs,
            gives_up=bug.gives_up,
            values=bug.values,
        )
    return cast("Exploration", caught.value.exploration).findings[0]


def save(name: str, script: str, path: Path) -> Callable[[], None]:
    """Write the test for a finding; return its function."""
    text = render_tests(
        [(name, script, ())],
        imports=[
            "from tests.explore.planted_bugs import PLANTED",
            "",
            f"bug = PLANTED[{name!r}]",
            f"world = bug.{path.stem}",
        ],
        world="world",
        invariants=["*bug.invariants"],
        gives_up=["*bug.gives_up"],
    )
    path.write_text(text)
    names = runpy.run_path(str(path))
    return next(value for key, value in names.items() if key.startswith("test_"))


@pytest.mark.slow
@pytest.mark.parametrize("name", usual_rows(PLANTED, FURTHER))
def test_a_planted_bug_is_found_shrunk_and_its_saved_test_fails_until_it_is_fixed(
    name: str, tmp_path: Path
):
    finding = find(PLANTED[name], RUNS_OF_A_COMMAND if name.endswith("command") else RUNS)
    assert finding.repeats
    assert len(finding.moves) <= MAX_MESSAGES
    with pytest.raises(InvariantBroken):
        save(name, finding.script, tmp_path / "broken.py")()
    save(name, finding.script, tmp_path / "fixed.py")()
