"""A tape is shrunk to the interactions that show its failure, and the short tape replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from offbook import Cassette, Playbook, Recording, call, say, session, when
from offbook.errors import RunError, UsageError
from offbook.exchange import ToolCall
from offbook.sources.cassette import load_cassette
from offbook.sources.cassette.rerunning import failure_of
from tests.runs.shrunk_failures import FAILURES, record_failure


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@pytest.mark.parametrize("name", FAILURES)
def test_a_recorded_failure_is_shrunk(name: str, tmp_path: Path):
    failure = FAILURES[name]
    record_failure(failure, tmp_path / "long.yaml")
    tape = Cassette(tmp_path / "long.yaml", tracks="model,people")
    shrunk = tape.shrink(failure.test, tmp_path / "short.yaml")
    short = load_cassette(tmp_path / "short.yaml")
    assert (shrunk.interactions, len(short)) == (failure.shortest, failure.shortest)
    assert short.header.tracks == ("model", "tools", "people", "http", "clock", "files")
    # A strict replay, so no request of the short tape differs.
    replay = Cassette(short, tracks="model,people")
    assert failure_of(failure.test)(replay) == shrunk.failure
    assert not replay.diverged


def test_calls_of_a_reply_are_left_out(tmp_path: Path):
    failure = FAILURES["a card number in a note"]
    record_failure(failure, tmp_path / "long.yaml")
    Cassette(tmp_path / "long.yaml").shrink(failure.test, tmp_path / "short.yaml")
    first, _ = load_cassette(tmp_path / "short.yaml")
    assert [block for block in first.response.blocks if isinstance(block, ToolCall)] == [
        ToolCall(ANY, "note", {"text": "card 4242"})
    ]


# --- With the tools of the tape


def find_twice(api: Any) -> None:
    @api.tool("find")
    def find(_params: Any, _: Any) -> str:  # pyright: ignore[reportUnusedFunction]
        raise AssertionError("the tool ran")


def answered_apart(source: Any) -> None:
    with session(extension_factories=[find_twice], source=source) as rehearsal:
        run = rehearsal.run("Go")
    assert "lost" not in [result.text for result in run.results("find")]


def test_the_tools_of_the_tape_answer_while_it_is_shrunk(tmp_path: Path):
    def find(params: Any) -> str:
        return "lost" if params["number"] == 6 else "found"

    script = Playbook()
    script.load(when("Go", [*(call("find", {"number": n}) for n in range(9)), say("Done.")]))
    with (
        Recording(script, tmp_path / "long.yaml", tracks="all") as source,
        session(mock_tools={"find": find}, source=source) as rehearsal,
    ):
        rehearsal.run("Go")
    tape = Cassette(tmp_path / "long.yaml", tracks="all")
    shrunk = tape.shrink(answered_apart, tmp_path / "short.yaml")
    assert shrunk.interactions == 2
    (tool,) = [tool for item in load_cassette(shrunk.path) for tool in item.tools]
    assert (tool.input, tool.result) == ({"number": 6}, "lost")


# --- What cannot be shrunk


def test_a_run_that_passes_has_nothing_to_shrink(tmp_path: Path):
    failure = FAILURES["a refund twice"]
    record_failure(failure, tmp_path / "long.yaml")
    with pytest.raises(UsageError, match="the replay of the whole tape does not fail"):
        Cassette(tmp_path / "long.yaml").shrink(lambda _: None, tmp_path / "short.yaml")
    assert not (tmp_path / "short.yaml").exists()


def test_an_existing_file_is_kept(tmp_path: Path):
    record_failure(FAILURES["too many requests"], tmp_path / "long.yaml")
    with pytest.raises(UsageError, match="exists already"):
        Cassette(tmp_path / "long.yaml").shrink(print, tmp_path / "long.yaml")


def test_an_agent_that_is_not_deterministic_is_reported(tmp_path: Path):
    failure = FAILURES["too many requests"]
    record_failure(failure, tmp_path / "long.yaml")
    runs: list[Any] = []

    def fails_once(source: Any) -> None:
        runs.append(source)
        if len(runs) == 1:
            raise LookupError("once")

    with pytest.raises(RunError, match="the agent is not deterministic"):
        Cassette(tmp_path / "long.yaml").shrink(fails_once, tmp_path / "short.yaml")
    assert not (tmp_path / "short.yaml").exists()
