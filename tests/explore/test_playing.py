"""Behaviours are played one after the other in one folder, and write a trace only if it is kept."""

from __future__ import annotations

import asyncio
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from offbook import session
from offbook.errors import InvariantBroken
from offbook.explore import explore
from offbook.explore.playing import FOLDER, Job, Stage, describe_state
from offbook.runs import Rehearsal, Run
from offbook.trace import Event, Events, KeptEvents, Trace
from tests.explore.worlds import MOCKS, PROMPT, broken_shop, never_twice


def writing_world() -> tuple[Rehearsal, Rehearsal]:
    """Return a session whose only tool leaves files, folders and links in its folder."""

    def extension(api: Any) -> None:
        @api.tool("note", parameters={"type": "object", "properties": {}})
        def note(params: Any, ctx: Any) -> str:
            Path(ctx.cwd, "folder").mkdir(exist_ok=True)
            Path(ctx.cwd, "folder", "note.txt").write_text("a note")
            Path(ctx.cwd, "..", "outside.txt").write_text("a note")
            return "ok"

    rehearsal = session(extensions=[extension], mock_tools=MOCKS)
    return rehearsal, rehearsal


def test_each_behaviour_begins_in_an_empty_folder():
    before: list[list[Path]] = []

    def world() -> Any:
        rehearsal, state = writing_world()
        before.append([*rehearsal.cwd.iterdir(), *rehearsal.cwd.parent.glob("*.txt")])
        return rehearsal, state

    written: list[bool] = []

    def note_files(_: Run, rehearsal: Rehearsal) -> None:
        written.append(any(rehearsal.cwd.iterdir()))

    explore(world, "Note it", note_files, runs=30, deadline=None)
    assert any(written)
    assert not any(before)


def test_two_rehearsals_at_once_have_different_folders():
    folders: list[tuple[Path, Path]] = []

    def world() -> Any:
        other, _ = writing_world()
        rehearsal, state = writing_world()
        folders.append((other.cwd, rehearsal.cwd))
        other.dispose(failed=True)
        return rehearsal, state

    explore(world, "Note it", runs=3, deadline=None)
    assert all(one != other for one, other in folders)


def test_the_folder_is_removed_after_the_search():
    folders: list[Path] = []

    def note_folder(_: Run, rehearsal: Rehearsal) -> None:
        folders.append(rehearsal.cwd)

    explore(writing_world, "Note it", note_folder, runs=3, deadline=None)
    assert not any(folder.parent.exists() for folder in folders)


def count_traces(runs: int) -> int:
    written: list[bool] = []

    def world() -> Any:
        rehearsal, _ = writing_world()
        return rehearsal, rehearsal

    def note_trace(_: Run, rehearsal: Rehearsal) -> None:
        written.append(rehearsal.trace.is_file())

    explore(world, "Note it", note_trace, runs=runs, deadline=None)
    return sum(written)


def test_only_the_last_behaviour_writes_a_trace():
    assert count_traces(5) == 1


def test_every_behaviour_writes_a_trace_if_all_traces_are_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OFFBOOK_COLLECT_TRACES", str(tmp_path))
    assert count_traces(5) == 5
    assert len([*tmp_path.iterdir()]) == 5


def test_the_trace_is_that_of_the_smallest_script(tmp_path: Path):
    path = tmp_path / "found.jsonl"
    with pytest.raises(InvariantBroken):
        explore(broken_shop, PROMPT, never_twice, runs=200, trace=path)
    calls = [event.data["tool"] for event in Trace(path) if event.event == "tool.call"]
    assert calls == ["refund", "refund"]


def test_a_task_that_the_agent_left_running_ends_with_its_behaviour():
    tasks: list[asyncio.Task[Any]] = []

    def world() -> Any:
        def extension(api: Any) -> None:
            @api.tool("start", parameters={"type": "object", "properties": {}})
            async def start(params: Any, ctx: Any) -> str:
                tasks.append(asyncio.create_task(asyncio.sleep(3600)))
                return "started"

        running = [task for task in tasks if not task.done()]
        assert not running
        return session(extensions=[extension], mock_tools=MOCKS)

    explore(world, "Start it", runs=30, deadline=None)
    assert tasks
    assert all(task.cancelled() for task in tasks)


def test_the_events_of_a_reply_are_kept_with_the_others(monkeypatch: pytest.MonkeyPatch):
    alone: list[str] = []
    keep = KeptEvents.keep

    def note(kept: KeptEvents, event: Event) -> None:
        alone.append(event.event)
        keep(kept, event)

    monkeypatch.setattr(KeptEvents, "keep", note)
    with Stage(lambda: session(mock_tools=MOCKS), (PROMPT,), ()) as stage:
        for number in range(10):
            stage.play(Job(seed=f"0:{number}", steps=3))
    assert "model.request" not in alone
    assert "model.reply" not in alone


def test_another_user_wants_the_same_in_other_words_at_the_beginning_or_at_the_end():
    prompts: set[str] = set()
    with Stage(lambda: session(mock_tools=MOCKS), (PROMPT,), ()) as stage:
        for seed in range(40):
            behaviour = stage.play(Job(seed=str(seed), steps=1))
            prompts |= {move.prompt for move in behaviour.moves if move.prompt}
    assert prompts == {f"Once more: {PROMPT}", f"{PROMPT} (once more)"}


def test_a_state_has_the_files_of_a_folder_and_values_such_as_dates(tmp_path: Path):
    def describe(state: Any) -> str:
        return describe_state(state, [])

    empty = describe(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    one = describe(tmp_path)
    (tmp_path / "a.txt").write_text("b")
    assert len({empty, one, describe(tmp_path)}) == 3
    assert describe([date(2026, 3, 2), Decimal("1.5")]) != describe([date(2026, 3, 3), Decimal(2)])


def test_an_error_of_the_search_itself_is_no_crash_of_the_agent(monkeypatch: pytest.MonkeyPatch):
    def fail_at(*_: object) -> None:
        raise TypeError("of the search")

    # In a file of the search.
    code = fail_at.__code__.replace(co_filename=str(FOLDER / "generated_model.py"))
    fail_at.__code__ = code
    monkeypatch.setattr("offbook.explore.generated_model.GeneratedModel._choose", fail_at)
    with pytest.raises(TypeError, match="of the search"):
        explore(broken_shop, PROMPT, runs=3, deadline=None)


def strange_world() -> Rehearsal:
    """Return a session that changes inputs, blocks calls and fails, each for some values."""

    def extension(api: Any) -> None:
        @api.tool("count", parameters={"type": "object", "properties": {"to": {"type": "integer"}}})
        def count(params: dict[str, Any], ctx: Any) -> str:
            if params.get("to") == 0:
                return {"content": "not from 0", "is_error": True}  # pyright: ignore[reportReturnType]
            return f"counted to {params.get('to')}"

        @api.on("tool_call")
        def guard(event: Any, ctx: Any) -> Any:
            if event.tool == "bash":
                return {"block": True, "reason": "no shell"}
            return {"input": {"to": 3}} if event.input.get("to") == 2 else None

        @api.on("tool_result")
        def shout(event: Any, ctx: Any) -> Any:
            return {"content": event.result.text.upper()} if event.input.get("to") == 1 else None

    return session(extensions=[extension], mock_tools=MOCKS)


@pytest.mark.parametrize("world", [strange_world, lambda: broken_shop()[0]], ids=["hooks", "plain"])
def test_results_and_changes_are_the_same_before_and_after_all_events_are_decoded(world: Any):
    seen: set[str] = set()
    with Stage(world, (PROMPT,), (), (Exception,)) as stage:
        for number in range(80):
            stage.play(Job(seed=f"0:{number}", steps=5))
            run = stage.last_run
            assert run is not None
            results, changes, new = run.events.tool_results, run.changes, run.events.new_messages
            decoded = Events(run.events.all)
            assert results == decoded.tool_results
            assert changes == decoded.changes
            assert new == decoded.new_messages
            assert run.events.count("tool.call") == len(decoded.named("tool.call"))
            seen |= {event.event for event in decoded.all}
    assert "tool.result" in seen
    if world is strange_world:
        assert {"tool.blocked", "hook.tool_call"} <= seen
