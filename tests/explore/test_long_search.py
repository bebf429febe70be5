"""A long search: several processes, a limit of time, and a corpus for later searches."""

from __future__ import annotations

import json
import os
import pickle
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest

from offbook import session
from offbook.errors import FormatError, InvariantBroken, UsageError
from offbook.explore import (
    Corpus,
    Exploration,
    GeneratedCall,
    Move,
    Place,
    StoredScript,
    choose_opening,
    explore,
)
from offbook.runs.engines import Engine, LocalEngine, RunJobs, SetupOf
from offbook.trace.events import read_verdicts
from offbook.trace.reader import Trace
from tests.explore.worlds import MOCKS, PROMPT, broken_shop, fixed_shop, never_twice


def find(world: Any, *invariants: Any, **options: Any) -> Exploration:
    """Return the exploration, with or without findings."""
    try:
        return explore(world, PROMPT, *invariants, **options)
    except InvariantBroken as error:
        return cast("Exploration", error.exploration)


# --- Several processes


def test_the_same_seed_finds_the_same_with_several_processes():
    one, three = (find(broken_shop, never_twice, runs=45, jobs=jobs) for jobs in (1, 3))
    assert [f.script for f in one.findings] == [f.script for f in three.findings] != []
    assert (one.behaviours, one.states, one.called) == (
        three.behaviours,
        three.states,
        three.called,
    )


def test_the_behaviours_are_played_by_several_processes():
    def world() -> Any:
        return session(mock_tools=MOCKS), os.getpid()

    assert len(find(world, runs=30, jobs=3).states) == 3


def hanging_world() -> Any:
    def extension(api: Any) -> None:
        @api.tool("wait")
        def wait(params: Any, ctx: Any) -> str:
            threading.Event().wait()
            return "never"

    return session(extensions=[extension], mock_tools=MOCKS)


class OtherMachine(Engine, frozen=True):
    """An engine that gets the function as a cluster does: as a pickle."""

    address: str = ""

    def open(
        self,
        function: Callable[[Any], object],
        timeout_of: Callable[[Any], float],
        setup_of: SetupOf,
    ) -> AbstractContextManager[RunJobs]:
        sent = pickle.loads(pickle.dumps((function, setup_of)))  # noqa: S301 - of this test
        return LocalEngine(2, ahead=1).open(sent[0], timeout_of, sent[1])


@pytest.fixture
def other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offbook.runs.ray_engine.RayEngine", OtherMachine)


@pytest.mark.usefixtures("other_machine")
def test_the_same_seed_finds_the_same_on_a_cluster(tmp_path: Path):
    one = find(broken_shop, never_twice, runs=45, trace=tmp_path / "one.jsonl")
    other = find(broken_shop, never_twice, runs=45, engine="ray", trace=tmp_path / "other.jsonl")
    assert [f.script for f in one.findings] == [f.script for f in other.findings] != []
    assert (one.behaviours, one.states, one.called) == (
        other.behaviours,
        other.states,
        other.called,
    )
    assert other.trace == str(tmp_path / "other.jsonl")


@pytest.mark.usefixtures("other_machine")
@pytest.mark.parametrize("options", [{"jobs": 2}, {"engine": "ray"}])
def test_a_hang_in_one_of_several_processes_is_found_once(options: Any):
    found = find(hanging_world, runs=6, deadline=1, **options)
    assert [finding.invariant for finding in found.findings] == ["no hang"]
    assert 'call("wait"' in found.findings[0].script
    assert found.behaviours == 6


# --- A limit of time


def test_a_search_ends_after_its_minutes():
    found = find(fixed_shop, never_twice, minutes=0.01)
    assert found.seconds >= 0.6
    assert found.behaviours > 0
    assert sum(found.states_per_minute) == len(found.states) > 0


def test_the_number_of_behaviours_still_limits_a_search_with_minutes():
    assert find(fixed_shop, never_twice, minutes=5, runs=7).behaviours == 7


# --- The corpus


def test_a_search_keeps_the_scripts_that_reached_something_new(tmp_path: Path):
    found = find(fixed_shop, never_twice, runs=40, corpus=tmp_path)
    scripts = Corpus(tmp_path).scripts
    assert 0 < len(scripts) == found.kept < 40
    assert "tool refund: succeeded" in found.reached
    assert {*found.reached} == {what for script in scripts for what in script.reached}


def test_each_script_has_a_trace(tmp_path: Path):
    find(fixed_shop, never_twice, runs=20, corpus=tmp_path)
    names = {path.stem for path in tmp_path.glob("*.json")}
    assert names == {path.stem for path in tmp_path.glob("*.jsonl")} != set()


def read_statuses(folder: Path) -> set[tuple[str, str]]:
    """Return the checks in the traces of a corpus, each with its status."""
    events = [event for path in folder.glob("*.jsonl") for event in Trace(path)]
    return {(each.check, each.status) for each in read_verdicts(events)}


def test_the_trace_of_a_script_that_broke_an_invariant_has_the_failed_check(tmp_path: Path):
    find(broken_shop, never_twice, runs=30, corpus=tmp_path)
    failed = {check for check, status in read_statuses(tmp_path) if status != "pass"}
    assert failed == {"never_twice"}


def test_a_trace_of_the_corpus_has_the_checks_that_every_run_shows(tmp_path: Path):
    find(fixed_shop, never_twice, runs=5, corpus=tmp_path, without=["crash"])
    passed = {check for check, _ in read_statuses(tmp_path)}
    assert passed == {"never_twice", "no hang", "no endless loop", "no invalid request"}


def test_a_finding_is_played_first_by_a_later_search(tmp_path: Path):
    first = find(broken_shop, never_twice, runs=30, corpus=tmp_path)
    later = find(broken_shop, never_twice, runs=1, seed=5, corpus=tmp_path)
    assert [f.script for f in later.findings] == [f.script for f in first.findings] != []
    assert later.findings[0].run == -1


def test_the_message_says_that_a_script_of_the_corpus_found_it(tmp_path: Path):
    find(broken_shop, never_twice, runs=30, corpus=tmp_path)
    with pytest.raises(InvariantBroken, match="found by a script of the corpus"):
        explore(broken_shop, PROMPT, never_twice, runs=1, corpus=tmp_path)


def test_a_fixed_agent_passes_with_the_scripts_of_the_broken_one(tmp_path: Path):
    find(broken_shop, never_twice, runs=30, corpus=tmp_path)
    assert not find(fixed_shop, never_twice, runs=10, corpus=tmp_path).findings


def renamed_shop() -> Any:
    def extension(api: Any) -> None:
        @api.tool("pay_back")
        def pay_back(params: Any, ctx: Any) -> str:
            return "paid"

    return session(extensions=[extension], mock_tools=MOCKS)


def test_a_script_for_a_tool_that_is_gone_is_counted_and_does_not_end_the_search(tmp_path: Path):
    find(fixed_shop, never_twice, runs=40, corpus=tmp_path)
    found = find(renamed_shop, runs=5, corpus=tmp_path)
    assert found.gave_up["OutdatedScript"] > 0
    assert not found.findings


def test_some_behaviours_begin_with_the_moves_of_a_stored_script():
    moves = (Move((GeneratedCall("refund", {"number": 7}),)), Move(text="Done."))
    scripts = [StoredScript(PROMPT, (Move(fault="reset@1"), *moves, Move(prompt="More")))]
    openings = [choose_opening(scripts, f"0:{number}") for number in range(50)]
    assert all(opening in openings for opening in ((), moves[:1], moves))
    assert all(opening == moves[: len(opening)] for opening in openings)


@pytest.mark.parametrize(
    "arguments",
    [
        {"number": 7, "text": "é"},
        {"id": Place(2, as_text=True), "items": [Place(0)]},
        {"text": "half \ud83d"},
        {"amount": 1e308},
    ],
)
def test_a_script_is_read_as_it_was_stored(tmp_path: Path, arguments: Any):
    script = StoredScript(PROMPT, (Move((GeneratedCall("refund", arguments),)),), ("a",), "b")
    Corpus(tmp_path).add(script)
    assert Corpus(tmp_path).scripts == [script]


@pytest.mark.parametrize(
    "change, error",
    [
        ({"version": 2}, FormatError),
        ({"format": "other"}, FormatError),
        ({"moves": [{"stop": "no such"}]}, FormatError),
        ({"extra": 1}, FormatError),
    ],
)
def test_a_file_that_is_no_script_is_refused_with_its_name(
    tmp_path: Path, change: Any, error: type[Exception]
):
    corpus = Corpus(tmp_path)
    corpus.add(StoredScript(PROMPT, (Move(text="Done."),), ("a",)))
    (path,) = tmp_path.glob("*.json")
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **change}), "utf-8")
    with pytest.raises(error, match=path.name):
        Corpus(tmp_path)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"jobs": 0}, "jobs must be 1 or more"),
        ({"minutes": 0}, "minutes more than 0"),
        ({"jobs": 2, "deadline": None}, "jobs needs a deadline"),
        ({"jobs": 2, "depth": 2}, "depth excludes"),
        ({"corpus": "corpus", "depth": 2}, "depth excludes"),
        ({"engine": "ray", "depth": 2}, "depth excludes"),
        ({"engine": "ray", "deadline": None}, "engine needs a deadline"),
        ({"engine": "rey"}, "no such engine 'rey'"),
        ({"address": "10.0.0.5:6379"}, "--address is that of a Ray cluster"),
    ],
)
def test_wrong_options_of_a_long_search_are_refused(options: Any, message: str):
    with pytest.raises(UsageError, match=message):
        explore(fixed_shop, PROMPT, **options)


# --- Half a character


def noting_world() -> Any:
    texts: list[str] = []

    def extension(api: Any) -> None:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}

        @api.tool("note", description="Note a text.", parameters=schema)
        def note(params: Any, ctx: Any) -> str:
            texts.append(params.get("text", ""))
            return "noted"

    return session(extensions=[extension], mock_tools=MOCKS), texts


def test_a_script_with_half_a_character_is_played_again_and_shrunk():
    def is_whole(_: Any, texts: list[str]) -> bool:
        return "\ud83d" not in texts

    found = find(noting_world, is_whole, runs=300, values={"text": ["\ud83d", "a"]})
    assert [finding.repeats for finding in found.findings] == [True]
