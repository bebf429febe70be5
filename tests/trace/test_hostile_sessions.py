"""Malformed sessions and outputs cause no crash, in any view of a trace."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks import CheckContext, evaluate_all
from offbook.reports import collect_suite
from offbook.trace import (
    EventFilter,
    OutputScanner,
    Trace,
    build_timeline,
    join_output,
    list_records,
    scan_output,
    summarize,
)
from tests.checks.test_assertions import CASES

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
NAMES = [
    *["bus.publish", "_meta.iteration", "_meta.termination", "process.output", "process.exit"],
    *["ux.terminal.write", "tool.call", "tool.result", "tool.blocked", "iteration.summary"],
]
FIELDS = [
    *["topic", "payload", "n", "hat", "reason", "iterations", "elapsed_secs", "exit_code", "code"],
    *["text", "stream", "bytes", "data", "event", "stdout", "tool", "input", "call_id", "cost_usd"],
]
rows = st.fixed_dictionaries(
    {
        "ts": st.integers(0, 2**40),
        "event": st.sampled_from(NAMES),
        "data": st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=5),
    }
)
FILTERS = [
    EventFilter(),
    EventFilter(topics=("*", "a.*")),
    EventFilter(event_types=("bus.publish",), after_iteration=0, before_iteration=9),
    EventFilter(payload_pattern="a|1"),
]
ASSERTIONS: list[dict[str, Any]] = [
    {"type": kind, **fields}
    for kind, fields, _ in CASES
    if "path" not in fields and not kind.startswith(("scratchpad", "snapshot"))
]


@given(st.lists(rows | json_values, max_size=12), st.binary(max_size=20))
def test_any_session_can_be_summarized_checked_and_reported(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], tail: bytes
):
    path = tmp_path_factory.mktemp("hostile") / "session.jsonl"
    lines = [json.dumps(row).encode() + b"\n" for row in records]
    path.write_bytes(b"".join(lines) + tail)
    trace = Trace(path, count=True)
    summary = summarize(trace)
    assert summary.total_events + len(trace.faults) <= len(lines) + tail.count(b"\n") + 1
    for event_filter in FILTERS:
        page = list_records(Trace(path), event_filter, 5)
        assert page.total_matched <= summary.total_events
        build_timeline(Trace(path), event_filter)
    join_output(Trace(path))
    verdicts = evaluate_all(ASSERTIONS, CheckContext(Trace(path)))
    assert len(verdicts) == len(ASSERTIONS)
    collect_suite(Trace(path), "hostile")


@given(st.text(st.sampled_from('<event topic="a.b" target=/>LOOP_COMPLETE\n x'), max_size=200))
def test_event_tags_of_any_output_are_complete(text: str):
    for tag in scan_output(text).tags:
        assert tag.payload == tag.payload.strip()
        assert "</event>" not in tag.payload
    assert scan_output(text).ends_with("LOOP_COMPLETE") in {True, False}
    assert not scan_output(text).ends_with("  ")


@given(
    st.lists(
        st.text(st.sampled_from('<event topic="a.b" target=/>\n x'), max_size=9)
        | st.sampled_from(['<event topic="a">', "</event>", "LOOP_COMPLETE", "\nLOOP_COMPLETE\n"]),
        max_size=12,
    )
)
def test_an_output_in_parts_has_the_same_events_as_the_whole(parts: list[str]):
    whole = scan_output("".join(parts))
    scanner = OutputScanner()
    for part in parts:
        scanner.feed(part)
    assert scanner.tags == whole.tags
    assert scanner.ends_with("LOOP_COMPLETE") == whole.ends_with("LOOP_COMPLETE")
