"""A tape finds tools that are not deterministic, and lists what it cannot repeat."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.tools import tool as langchain_tool

from offbook import Cassette, Playbook, Recording, call, drive, say, session, when
from offbook.errors import CheckFailed
from offbook.sources.cassette import load_cassette
from offbook.sources.cassette.maintenance import describe_limits
from tests.subjects.frameworks.test_tool_runners import openai_loop

DRIVE, SESSION = cast("Any", drive), cast("Any", session)
SCRIPT = [
    when(
        "Go",
        [
            call("find_order", {"number": 7}),
            [call("find_order", {"number": 8}), call("find_order", {"number": 7})],
            say("Done."),
        ],
    )
]
Find = Callable[[int], str]


def in_session(find: Find, source: Any) -> None:
    def answer(params: Any) -> str:
        return find(params["number"])

    with SESSION(mock_tools={"find_order": answer}, source=source) as rehearsal:
        rehearsal.run("Go")


def in_loop(find: Find, source: Any) -> None:
    def find_order(number: int) -> str:
        """Find an order."""
        return find(number)

    look = cast("Any", langchain_tool)(find_order)

    def agent(prompt: str) -> str:
        return openai_loop(prompt, look.run)

    with DRIVE(agent, source=source) as rehearsal:
        rehearsal.run("Go")


AGENTS = {"a session": in_session, "a loop": in_loop}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def tape(run: Callable[[Any], object], path: Path, script: Any = SCRIPT) -> Cassette:
    playbook = Playbook()
    playbook.load(*script)
    with Recording(playbook, path, tracks="all") as source:
        run(source)
    return Cassette(path)


def counting() -> Find:
    """Return a tool that returns something else for order 8 in each run."""
    seen: list[int] = []

    def find(number: int) -> str:
        seen.append(number)
        return f"order 8, seen {seen.count(8)} times" if number == 8 else f"order {number}"

    return find


@pytest.mark.parametrize("agent", AGENTS)
def test_a_tool_that_is_not_deterministic_is_found(agent: str, tmp_path: Path):
    run = partial(AGENTS[agent], counting())
    compared = tape(run, tmp_path / "tape.yaml").compare_tools(run)
    (change,) = compared.changes
    assert (compared.calls, change.deterministic) == (3, False)
    assert str(change).splitlines() == [
        'find_order {"number":8}: not deterministic',
        "  recorded: order 8, seen 1 times",
        "  first:    order 8, seen 2 times",
        "  second:   order 8, seen 3 times",
    ]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_tool_that_is_deterministic_has_no_change(agent: str, tmp_path: Path):
    run = partial(AGENTS[agent], lambda number: f"order {number}")
    compared = tape(run, tmp_path / "tape.yaml").compare_tools(run)
    assert (compared.calls, compared.changes) == (3, ())


def test_a_tool_that_changed_since_the_recording_is_deterministic(tmp_path: Path):
    recorded = tape(partial(in_session, lambda number: f"order {number}"), tmp_path / "tape.yaml")
    compared = recorded.compare_tools(partial(in_session, lambda number: f"ORDER {number}"))
    assert [change.deterministic for change in compared.changes] == [True, True, True]
    assert "changed since the recording" in str(compared.changes[0])


def test_a_tape_without_tools_compares_nothing(tmp_path: Path):
    run = partial(in_loop, lambda number: f"order {number}")
    recorded = tape(run, tmp_path / "tape.yaml", [when("Go", [say("Done.")])])
    with pytest.raises(CheckFailed, match="no tool returned a result"):
        recorded.compare_tools(run)


# --- What a tape cannot repeat


def write_file(folder: Path) -> None:
    (folder / "note.txt").write_text("x")


def remove_file(folder: Path) -> None:
    (folder / "note.txt").unlink(missing_ok=True)


def start_process(_: Path) -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def call_native(_: Path) -> None:
    import ctypes

    assert ctypes.CDLL(None).getpid() == os.getpid()


def read_file(folder: Path) -> None:
    (folder / "note.txt").read_text()


EFFECTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a file": (write_file, r"find_order wrote .*/note\.txt"),
    "a removed file": (remove_file, r"find_order removed .*/note\.txt"),
    "a process": (start_process, "find_order started the process python"),
    "native code": (call_native, "find_order called getpid in native code"),
}


def limits_of(effect: Callable[[Path], None], tmp_path: Path) -> list[str]:
    (tmp_path / "note.txt").write_text("before")

    def find(number: int) -> str:
        effect(tmp_path)
        return f"order {number}"

    tape(partial(in_loop, find), tmp_path / "tape.yaml")
    return describe_limits(load_cassette(tmp_path / "tape.yaml"))


@pytest.mark.parametrize("name", EFFECTS)
def test_a_tape_lists_the_effects_of_its_tools(name: str, tmp_path: Path):
    effect, expected = EFFECTS[name]
    limits = limits_of(effect, tmp_path)
    assert any(re.match(f"{expected}.*, which a replay does not repeat", line) for line in limits)


def test_a_tool_that_only_reads_has_no_effects(tmp_path: Path):
    assert limits_of(read_file, tmp_path) == []
