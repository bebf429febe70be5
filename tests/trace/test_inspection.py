"""Summaries, timelines and outputs of sessions, those of Ralph included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from offbook.trace import (
    Event,
    EventFilter,
    Trace,
    build_timeline,
    join_output,
    output_text,
    scan_output,
    summarize,
)


@pytest.mark.external
def test_every_recording_of_ralph_reads_as_expected(shared_data: Path):
    expected: dict[str, Any] = json.loads((shared_data / "ralph/EXPECTED.json").read_text())
    checked = 0
    for name, wanted in expected.items():
        trace = Trace(shared_data / "ralph" / name)
        events = list(trace)
        if wanted["kind"] == "other":
            assert trace.faults, name
            continue
        checked += 1
        assert not trace.faults, name
        assert len(events) == wanted["lines"], name
        if wanted["kind"] == "events":
            assert [event.data["topic"] for event in events] == wanted["topics"], name
            continue
        result = summarize(events)
        summary = wanted["summary"]
        assert result.total_events == summary["records"], name
        for field in ("by_type", "by_topic", "iterations", "hats_used", "hat_sequence"):
            assert getattr(result, field) == summary[field], (name, field)
        assert result.duration_secs == pytest.approx(summary["duration_secs"]), name
        assert result.termination == summary["termination"], name
        text = join_output(events)
        assert text == wanted["terminal_text"], name
        assert scan_output(text).ends_with("LOOP_COMPLETE") is wanted["text_promise"], name
        assert [tag.topic for tag in scan_output(text).tags] == wanted["xml_topics"], name
        assert smoke(events) == wanted["smoke"], name
    assert checked


def smoke(events: list[Event]) -> dict[str, Any]:
    """Return what Ralph's own smoke test reports: it reads chunk by chunk, up to the promise."""
    report: dict[str, Any] = {"termination": "FixtureExhausted", "iterations": 0, "bytes": 0}
    topics: list[str] = []
    for output in filter(None, map(output_text, events)):
        report["bytes"] += len(output[1].encode())
        topics += [tag.topic for tag in scan_output(output[1]).tags]
        if "LOOP_COMPLETE" in topics:
            report["termination"] = "Completed"
            break
        report["iterations"] += 1
    return {**report, "events": len(topics), "topics": topics}


def test_nested_and_flat_terminal_events_give_the_same_output(tmp_path: Path):
    inner = '{"bytes":"aGk=","stdout":true,"offset_ms":0}'
    flat = f'{{"ts":1,"event":"ux.terminal.write","data":{inner}}}\n'
    nested = f'{{"ts":1,"event":"ux.terminal.write","data":{{"data":{inner},"event":"x"}}}}\n'
    path = tmp_path / "session.jsonl"
    path.write_text(flat + nested)
    assert join_output(Trace(path)) == "hihi"


def test_the_timeline_includes_iterations_without_events(tmp_path: Path):
    path = tmp_path / "session.jsonl"
    rows: list[dict[str, Any]] = [
        {"ts": 0, "event": "bus.publish", "data": {"topic": "task.start"}},
        {"ts": 0, "event": "_meta.iteration", "data": {"n": 1, "hat": "a"}},
        {"ts": 10, "event": "bus.publish", "data": {"topic": "x.y"}},
        {"ts": 30, "event": "_meta.iteration", "data": {"n": 2, "hat": "b"}},
        {"ts": 50, "event": "_meta.termination", "data": {}},
        {"ts": 900, "event": "check.verdict", "data": {}},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    timeline = build_timeline(Trace(path), EventFilter())
    assert [(e.iteration, e.hat, e.topics, e.duration_ms) for e in timeline] == [
        (1, "a", ["x.y"], 30),
        (2, "b", [], 20),
    ]
    assert [entry.events for entry in timeline] == [["task.start → x.y"], []]
