"""Reading a trace in blocks gives the same events as reading it line by line."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offbook.errors import FormatError
from offbook.trace import Event, LineFault, Trace, reader

NAMES = ["bus.publish", "_meta.iteration", "ux.terminal.write", "check.verdict", "x"]
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=8))
NESTED = b'{"ts":0,"event":"ux.terminal.write","data":{"event":null,"data":{%s},%s}}'
payloads = st.dictionaries(
    st.sampled_from(["topic", "payload", "cost_usd", "data", "event", "ü"]),
    scalars
    | st.dictionaries(
        st.sampled_from(["topic", "cost_usd"]) | st.text(max_size=3), scalars, max_size=2
    ),
    max_size=4,
)


def encode(ts: int, name: str, data: dict[str, Any], escaped: bool) -> bytes:  # noqa: FBT001 - drawn
    row = {"ts": ts, "event": name, "data": data}
    return json.dumps(row, ensure_ascii=escaped).encode("utf-8", "replace")


events = st.builds(encode, st.integers(0, 1000), st.sampled_from(NAMES), payloads, st.booleans())
broken = st.sampled_from(
    [
        b"",
        b"   ",
        b"{oops",
        b"[1]",
        b"\xff\xfe",
        b'{"ts":1}',
        b'{"ts":1,"event":"x","data":5}',
        b'{"ts":1,"event":"x","data":{}} {"ts":1,"event":"x"}',
        b'{"ts":1,"event":"x",\n"data":{"topic":"a"}}',
        b'{"topic":"build.task","payload":{"a":1},"ts":"2026-01-01T00:00:00Z"}',
        b'{"ts":1,"event":"bus.publish","data":{"topic":"a\x00"}}',
        b'{"ts":1,"event":"x","data":{"a":' + b"[" * 2000 + b"]" * 2000 + b"}}",
        b'{"ts":1,"event":"x","data":' + b'{"a":' * 3000 + b"1" + b"}" * 3001,
    ]
)
files = st.lists(st.one_of(events, events, events, broken), max_size=12).map(b"\n".join)


def read_by_line(raw: bytes) -> tuple[list[Event], list[LineFault]]:
    """Read a trace line by line."""
    trace = Trace("nowhere")
    lines = raw.split(b"\n")
    read = [
        trace.read_line(line, number, torn=number == len(lines))
        for number, line in enumerate(lines, 1)
    ]
    return [event for event in read if event is not None], trace.faults


@given(
    files,
    st.booleans(),
    st.sampled_from([2, 40, 64 * 1024]),
    st.none() | st.sets(st.sampled_from(NAMES)),
    st.sampled_from([(), ("topic",), ("cost_usd", "cost_dollars")]),
)
@example(b'{"ts":1,"event":"x","data":{}} {"ts":1,"event":"x"}', True, 64 * 1024, {"x"}, ())
@example(NESTED % (b"", b'"cost_usd":false'), True, 64 * 1024, set(), ("cost_usd",))
@example(NESTED % (b'"cost_usd":1', b'"topic":1'), True, 64 * 1024, set(), ("cost_usd",))
def test_blocks_give_the_same_events_as_single_lines(
    tmp_path_factory: pytest.TempPathFactory,
    raw: bytes,
    ended: bool,  # noqa: FBT001 - drawn
    size: int,
    names: set[str] | None,
    fields: Sequence[str],
):
    path = tmp_path_factory.mktemp("blocks") / "t.jsonl"
    path.write_bytes(raw + b"\n" * ended)
    expected, faults = read_by_line(path.read_bytes())
    trace = Trace(path, count=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "BLOCK", size)
        selected = list(trace.select(names, fields=fields))
    expected_all = expected
    if names is not None:
        expected = [
            event
            for event in expected_all
            if event.event in names or any(event.data.get(key) is not None for key in fields)
        ]
    assert selected == expected
    assert trace.faults == faults
    assert trace.counts is not None
    assert trace.counts.total() == len(expected_all)
    assert trace.first == (expected_all[0].ts if expected_all else None)


@pytest.mark.parametrize("names", [None, ["bus.publish"], ["other"]])
def test_two_faults_that_cancel_out_are_both_reported(tmp_path: Path, names: list[str] | None):
    """A line of two objects, and an object of two lines: as many objects as lines."""
    rows: list[dict[str, Any]] = [
        {"ts": ts, "event": "bus.publish", "data": {"topic": f"t.{ts}"}} for ts in range(6)
    ]
    lines = [json.dumps(row) for row in rows]
    text = f"{lines[0]}\n{lines[1]} {lines[2]}\n{lines[3]}\n{lines[4][:10]}\n{lines[4][10:]}\n"
    (tmp_path / "t.jsonl").write_text(text + lines[5] + "\n")
    trace = Trace(tmp_path / "t.jsonl")
    topics = [event.data["topic"] for event in trace.select(names)]
    assert topics == (["t.0", "t.3", "t.5"] if names != ["other"] else [])
    assert [fault.line for fault in trace.faults] == [2, 4, 5]


def test_an_iteration_continues_where_the_last_one_stopped(tmp_path: Path):
    rows = [json.dumps({"ts": ts, "event": "x", "data": {}}) + "\n" for ts in range(9)]
    (tmp_path / "t.jsonl").write_text("".join(rows))
    trace = Trace(tmp_path / "t.jsonl")
    first = next(iter(trace))
    assert [first.ts, *(event.ts for event in trace)] == list(range(9))


def test_a_header_in_the_middle_is_checked_and_skipped(tmp_path: Path):
    good = '{"ts":1,"event":"_meta.trace","data":{"format":"offbook.trace","version":1}}\n'
    line = '{"ts":2,"event":"x"}\n'
    (tmp_path / "t.jsonl").write_text(good + line + good + line)
    assert [event.event for event in Trace(tmp_path / "t.jsonl").select(["x"])] == ["x", "x"]
    (tmp_path / "t.jsonl").write_text(good + line + good.replace('"version":1', '"version":"?"'))
    with pytest.raises(FormatError, match="jsonl:3: this is not an Offbook trace"):
        list(Trace(tmp_path / "t.jsonl").select(["x"]))


def test_events_of_a_pipe_are_read_before_the_next_are_written(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pipe_end = os.open(pipe, os.O_RDWR)  # opens at once, and keeps the pipe open
    try:
        os.write(pipe_end, b'{"ts": 1, "event": "handoff", "data": {}}\n')
        assert next(iter(Trace(pipe))).event == "handoff"
    finally:
        os.close(pipe_end)
