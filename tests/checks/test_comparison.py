"""Comparison of two traces: volatile values are no differences, everything else is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offbook.checks import (
    ComparedRow,
    Comparison,
    TraceComparison,
    compare_paths,
    compare_traces,
    render_comparison,
)
from offbook.errors import FormatError, UsageError
from offbook.runs import session
from offbook.sources.playbook import call, say, when
from offbook.trace import Event, Redaction, read_trace

NOW = 1_790_000_000_000  # 2026-09-21


def reply(text: str, number: int = 1, **data: Any) -> Event:
    blocks = [{"type": "text", "text": text}]
    return Event(
        NOW, "model.reply", {"exchange": f"x{number}", "blocks": blocks, "stop": "stop", **data}
    )


def called(tool: str, call_id: str = "call_1a", ts: int = NOW, **arguments: Any) -> Event:
    return Event(ts, "tool.call", {"call_id": call_id, "tool": tool, "input": arguments, "step": 1})


def result(tool: str, text: str, call_id: str = "call_1a", **data: Any) -> Event:
    content = [{"type": "text", "text": text}]
    fields = {"call_id": call_id, "tool": tool, "content": content, "is_error": False, **data}
    return Event(NOW, "tool.result", fields)


def differing(comparison: TraceComparison) -> list[ComparedRow]:
    return [row for row in comparison.rows if row.differs]


# ----------------------------------------------------------------------------------- properties

texts = st.sampled_from(["find", "refund", "order 7", "2026-09-21T10:00:00Z", "call_77aa88bb", ""])
events = st.one_of(
    st.builds(reply, texts, usage=st.just({"input": 3, "output": 1})),
    st.builds(called, st.sampled_from(["find", "refund"]), id=st.integers(0, 3)),
    st.builds(result, st.sampled_from(["find", "refund"]), texts),
    texts.map(lambda text: Event(NOW, "ui.notify", {"text": text})),
    texts.map(lambda text: Event(NOW, "model.request", {"new": [], "system": text})),
)


@given(st.lists(events, max_size=30))
def test_a_trace_does_not_differ_from_itself(trace: list[Event]):
    comparison = compare_traces(trace, trace)
    assert comparison.same
    assert comparison.first_divergence is None
    assert not differing(comparison)


@given(st.lists(events, max_size=30), events, st.data())
def test_an_inserted_event_is_one_difference(trace: list[Event], event: Event, data: st.DataObject):
    position = data.draw(st.integers(0, len(trace)))
    longer = [*trace[:position], event, *trace[position:]]
    assert [row.state for row in differing(compare_traces(trace, longer))] == ["added"]
    assert [row.state for row in differing(compare_traces(longer, trace))] == ["removed"]


# Calls and answers that differ from each other, so that the first divergence is known.
distinct_events = st.lists(st.integers(0, 10**6), unique=True, min_size=2, max_size=20).map(
    lambda numbers: [
        called("find", f"call_{number}", order=f"n{number}") if number % 2 else reply(f"n{number}")
        for number in numbers
    ]
)


def first_divergence(before: list[Event], after: list[Event]) -> tuple[int | None, str]:
    comparison = compare_traces(before, after)
    index = comparison.first_divergence
    return index, "" if index is None else comparison.rows[index].state


@given(distinct_events, st.data())
def test_the_first_divergence_is_the_removed_or_inserted_event(
    trace: list[Event], data: st.DataObject
):
    position = data.draw(st.integers(0, len(trace) - 1))
    shorter = [*trace[:position], *trace[position + 1 :]]
    assert first_divergence(trace, shorter) == (position, "removed")
    assert first_divergence(shorter, trace) == (position, "added")


@given(distinct_events, st.data())
def test_the_first_divergence_of_a_moved_event_is_where_the_order_changes(
    trace: list[Event], data: st.DataObject
):
    start, end = sorted(data.draw(st.sets(st.integers(0, len(trace) - 1), min_size=2, max_size=2)))
    moved = [*trace[:start], *trace[start + 1 : end + 1], trace[start], *trace[end + 1 :]]
    assert first_divergence(trace, moved)[0] == start
    assert first_divergence(moved, trace)[0] == start


@given(distinct_events, st.data())
def test_the_first_divergence_of_a_changed_argument_is_its_call(
    trace: list[Event], data: st.DataObject
):
    position = data.draw(st.integers(0, len(trace)))
    before = [*trace[:position], called("refund", order="one"), *trace[position:]]
    after = [*trace[:position], called("refund", order="two"), *trace[position:]]
    assert first_divergence(before, after) == (position, "changed")


@given(st.lists(events, max_size=20), st.lists(events, max_size=20))
def test_every_event_is_in_one_row(before: list[Event], after: list[Event]):
    rows = compare_traces(before, after).rows
    assert sum(row.before is not None for row in rows) == len(before)
    assert sum(row.after is not None for row in rows) == len(after)


notified = Event(NOW, "ui.notify", {"text": "find"})


@example(
    [result("find", "refund"), notified, called("find", id=2)],
    [notified, result("find", "refund"), called("find", id=2)],
)
@given(st.lists(events, max_size=20), st.lists(events, max_size=20))
def test_a_comparison_is_the_same_in_both_directions(before: list[Event], after: list[Event]):
    assert compare_traces(before, after).same == compare_traces(after, before).same


@given(st.lists(events, max_size=6), st.data())
def test_another_order_is_judged_the_same_in_both_directions(
    trace: list[Event], data: st.DataObject
):
    after = data.draw(st.permutations(trace))
    assert compare_traces(trace, after).same == compare_traces(after, trace).same


def asked(head: str) -> Event:
    return Event(NOW, "model.request", {"new": [], "head": head})


# ------------------------------------------------------------------------------ volatile values

VOLATILE: dict[str, tuple[list[Event], list[Event]]] = {
    "the id of a call": ([called("find", "call_1a")], [called("find", "toolu_2b")]),
    "the time of an event": ([called("find", ts=NOW)], [called("find", ts=NOW + 5000)]),
    "a time of the run in a text": (
        [result("clock", "it is 2026-09-21T14:13:20Z")],
        [result("clock", "it is 2026-09-21T15:00:00+00:00")],
    ),
    "a Unix time of the run": (
        [called("save", at=NOW // 1000)],
        [called("save", at=NOW // 1000 + 60)],
    ),
    "the duration of a tool": ([result("test", "in 0.12s")], [result("test", "in 3.4s")]),
    "a measured field": (
        [result("test", "ok", details={"elapsed_ms": 5, "code": 0})],
        [result("test", "ok", details={"elapsed_ms": 7, "code": 0})],
    ),
    "a temporary folder": (
        [called("read", path="/tmp/pytest-1/a.txt")],  # noqa: S108 - a text
        [called("read", path="/tmp/pytest-2/a.txt")],  # noqa: S108 - a text
    ),
    "an id that is renamed throughout": (
        [result("new", "order req_1111111"), called("pay", order="req_1111111")],
        [result("new", "order req_2222222"), called("pay", order="req_2222222")],
    ),
    "the tokens of a reply": (
        [reply("hi", usage={"input": 1, "output": 1})],
        [reply("hi", usage={"input": 9, "output": 1})],
    ),
    "the digests of the heads": (
        [asked("00aa11bb22cc33dd"), asked("44ee55ff66aa77bb"), asked("00aa11bb22cc33dd")],
        [asked("99aa11bb22cc33dd"), asked("88ee55ff66aa77bb"), asked("99aa11bb22cc33dd")],
    ),
    "the order in which parallel tools end": (
        [called("a", "c1"), called("b", "c2"), result("a", "1", "c1"), result("b", "2", "c2")],
        [called("a", "c1"), called("b", "c2"), result("b", "2", "c2"), result("a", "1", "c1")],
    ),
    "the correlation id of a watched run": (
        [Event(NOW, "ui.notify", {"text": "hi"})],
        [Event(NOW, "ui.notify", {"text": "hi"}, context={"correlation_id": "ab" * 16})],
    ),
    "the parts in which output arrives": (
        [Event(NOW, "process.output", {"stream": "stdout", "text": "hello"})],
        [
            Event(NOW, "process.output", {"stream": "stdout", "text": "he"}),
            Event(NOW, "process.output", {"stream": "stdout", "text": "llo"}),
        ],
    ),
}


@pytest.mark.parametrize("name", VOLATILE)
def test_a_volatile_value_is_no_difference(name: str):
    before, after = VOLATILE[name]
    assert not differing(compare_traces(before, after))


DIFFERENT: dict[str, tuple[list[Event], list[Event], str, str]] = {
    "another tool": ([called("find")], [called("refund")], "removed", "tools"),
    "another argument": ([called("find", id=7)], [called("find", id=8)], "changed", "arguments"),
    "a further argument": ([called("find")], [called("find", id=8)], "changed", "arguments"),
    "a date that is no time of the run": (
        [called("book", day="2031-05-01T10:00")],
        [called("book", day="2031-05-02T10:00")],
        "changed",
        "arguments",
    ),
    "a duration as an argument": (
        [called("sleep", time="5s")],
        [called("sleep", time="10s")],
        "changed",
        "arguments",
    ),
    "another answer": ([reply("yes")], [reply("no")], "changed", "answers"),
    "another result": ([result("f", "1")], [result("f", "2")], "changed", "results"),
    "a result that is an error": (
        [result("f", "1")],
        [result("f", "1", is_error=True)],
        "changed",
        "results",
    ),
    "another status of a check": (
        [Event(NOW, "check.verdict", {"check": "c", "status": "pass"})],
        [Event(NOW, "check.verdict", {"check": "c", "status": "fail"})],
        "changed",
        "verdicts",
    ),
    "the head of another request": (
        [asked("00aa11bb22cc33dd"), asked("44ee55ff66aa77bb"), asked("00aa11bb22cc33dd")],
        [asked("00aa11bb22cc33dd"), asked("44ee55ff66aa77bb"), asked("44ee55ff66aa77bb")],
        "changed",
        "requests",
    ),
    "calls in another order": (
        [called("find"), called("refund")],
        [called("refund"), called("find")],
        "added",
        "tools",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_difference_has_its_state_and_its_kind(name: str):
    before, after, state, kind = DIFFERENT[name]
    comparison = compare_traces(before, after)
    first = comparison.rows[comparison.first_divergence or 0]
    assert (first.state, first.kind) == (state, kind)
    assert comparison.differences[kind] == len(differing(comparison))


def test_an_id_that_replaces_two_ids_is_a_difference():
    """The agent that pays for the wrong order: all values look alike, one is not the right one."""
    found = result("new", "order req_1111111 and req_2222222")
    before = [found, called("pay", order="req_1111111")]
    after = [found, called("pay", order="req_2222222")]
    row = differing(compare_traces(before, after))[0]
    assert [(change.before, change.after) for change in row.changes] == [
        ("req_1111111", "req_2222222")
    ]


def test_results_of_different_turns_are_not_moved():
    before = [reply("a"), result("f", "1"), reply("b"), reply("c")]
    after = [reply("a"), reply("b"), reply("c"), result("f", "1")]
    states = {row.state for row in differing(compare_traces(before, after))}
    assert states == {"removed", "added"}


def test_an_output_that_is_not_the_last_answer_is_a_difference():
    """The agent that returns an earlier text of the model instead of its answer."""
    replies = [reply("Let me look."), reply("Done.")]
    before, after = (
        [*replies, Event(NOW, "_meta.run_end", {"ok": True, "output": output})]
        for output in ("Done.", "Let me look.")
    )
    assert len(differing(compare_traces(before, after))) == 1


def test_a_redaction_hides_a_difference():
    redaction = Redaction({"patterns": {"port": r"port \d+"}})
    before, after = [result("serve", "on port 1")], [result("serve", "on port 2")]
    assert not compare_traces(before, after).same
    assert compare_traces(before, after, redaction=redaction).same


# ------------------------------------------------------------------------------ traces on disk


def record(path: Path, *steps: Any) -> Path:
    with session(trace=path) as rehearsal:
        rehearsal.run(when("Greet me", [*steps, say("Done.")]))
    return path


def test_two_sessions_of_one_script_are_the_same(tmp_path: Path):
    steps = [call("bash", {"command": "pwd; date -Iseconds; mktemp -d"})]
    before, after = (record(tmp_path / name, *steps) for name in ("a.jsonl", "b.jsonl"))
    assert compare_paths(before, after).same


def test_a_changed_command_is_one_argument_and_one_result(tmp_path: Path):
    before = record(tmp_path / "a.jsonl", call("bash", {"command": "echo a"}))
    after = record(tmp_path / "b.jsonl", call("bash", {"command": "echo b"}))
    trace = compare_paths(before, after).traces[0]
    assert trace.differences == {"arguments": 1, "results": 1}
    assert trace.rows[trace.first_divergence or 0].changes[0].path == ".input.command"


def test_figures_have_tokens_calls_and_time_of_both(tmp_path: Path):
    before = record(tmp_path / "a.jsonl")
    after = record(tmp_path / "b.jsonl", call("bash", {"command": "exit 3"}))
    figures = compare_paths(before, after).figures
    assert (figures.before.tool_calls, figures.after.tool_calls) == (0, 1)
    assert (figures.before.requests, figures.after.requests) == (1, 2)
    assert (figures.before.input_tokens or 0) < (figures.after.input_tokens or 0)
    assert figures.before.cost_usd is None
    assert figures.after.seconds is not None


def test_folders_are_paired_by_the_names_of_their_traces(tmp_path: Path):
    for folder, names in {"before": ["x/a", "b"], "after": ["x/a", "c"]}.items():
        for name in names:
            record(tmp_path / folder / f"{name}.jsonl")
    comparison = compare_paths(tmp_path / "before", tmp_path / "after")
    assert [trace.name for trace in comparison.traces] == ["x/a.jsonl"]
    assert (comparison.only_before, comparison.only_after) == (["b.jsonl"], ["c.jsonl"])
    assert not comparison.same


def test_the_json_is_read_back_as_the_same_structs(tmp_path: Path):
    before = record(tmp_path / "a.jsonl", call("bash", {"command": "echo a"}))
    comparison = compare_paths(before, record(tmp_path / "b.jsonl"))
    decoded = msgspec.json.decode(msgspec.json.encode(comparison), type=Comparison, strict=True)
    assert decoded == comparison


def test_the_text_shows_the_first_divergence_and_both_values(tmp_path: Path):
    before = record(tmp_path / "a.jsonl", call("bash", {"command": "echo a"}))
    after = record(tmp_path / "b.jsonl", call("bash", {"command": "echo b"}))
    text = "\n".join(render_comparison(compare_paths(before, after)))
    assert text.startswith("2 differences (1 in arguments, 1 in results); the first at event 5")
    assert '.input.command: "echo a" → "echo b"' in text


BAD_INPUT = {
    "a missing trace": ("missing.jsonl", "no such trace"),
    "a file and a folder": ("folder", "cannot compare a file with a folder"),
    "a trace without events": ("empty.jsonl", "no events in this trace"),
    "a damaged trace": ("damaged.jsonl", "damaged.jsonl:1"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_an_error_and_not_a_difference(case: str, tmp_path: Path):
    name, message = BAD_INPUT[case]
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "damaged.jsonl").write_text("not json\n{}\n")
    good = record(tmp_path / "good.jsonl")
    with pytest.raises((UsageError, FormatError), match=message):
        compare_paths(good, tmp_path / name)


def test_folders_without_traces_are_an_error(tmp_path: Path):
    with pytest.raises(UsageError, match="no traces"):
        compare_paths(tmp_path, tmp_path)


def test_a_trace_of_two_thousand_events_is_compared(tmp_path: Path):
    before, _ = read_trace(record(tmp_path / "a.jsonl", call("bash", {"command": "echo a"})))
    long = [event for _ in range(200) for event in before]
    comparison = compare_traces(long, [*long[:999], called("more"), *long[999:]])
    assert [row.state for row in differing(comparison)] == ["added"]
