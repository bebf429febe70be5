"""Every variation of a session that Ralph may write is read like the plain event."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from offbook.checks import CheckContext, evaluate_all
from offbook.sources.importers import read_trace
from offbook.trace import EventFilter, Trace, TraceSummary, join_output, list_records, summarize


def row(name: str, data: Any, ts: int) -> dict[str, Any]:
    return {"ts": ts, "event": name, "data": data}


def write(text: str | bytes, ts: int) -> dict[str, Any]:
    raw = text.encode() if isinstance(text, str) else text
    data = {"bytes": base64.b64encode(raw).decode(), "stdout": True, "offset_ms": 0}
    return row("ux.terminal.write", data, ts)


def publish(topic: Any, ts: int, **more: Any) -> dict[str, Any]:
    return row("bus.publish", {"topic": topic, **more}, ts)


ENDS = {"reason": "CompletionPromise", "iterations": 1, "elapsed_secs": 4.0, "ux_writes": 1}
PLAIN = [
    row("_meta.loop_start", {"prompt_file": "", "max_iterations": 3, "ux_mode": "cli"}, 1000),
    write("hi there\n", 2000),
    row("_meta.iteration", {"n": 1, "elapsed_ms": 5, "hat": "planner"}, 3000),
    publish("build.task", 4000, payload="x", source=None, target=None),
    row("_meta.termination", ENDS, 5000),
]
ASSERTIONS: list[dict[str, Any]] = [
    {"type": "exit_code", "expected": 0},
    {"type": "hat_sequence", "hats": ["planner"]},
    {"type": "event_sequence", "topics": ["build.task"]},
    {"type": "stdout_contains", "pattern": "hi there"},
    {"type": "duration", "max_secs": 4},
]


def encode(rows: list[Any]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in rows)


def save(tmp_path: Path, text: str | list[Any]) -> Path:
    path = tmp_path / "session.jsonl"
    path.write_bytes((text if isinstance(text, str) else encode(text)).encode())
    return path


def summarize_checked(path: Path) -> TraceSummary:
    """Return the summary of a session without faults; it is the same in blocks and line by line."""
    trace = Trace(path, count=True)
    summary = summarize(trace)
    assert not trace.faults
    assert summary == summarize(list(Trace(path)))
    return summary


ENCODINGS: dict[str, str] = {
    "Windows line ends": encode(PLAIN).replace("\n", "\r\n"),
    "byte order mark": "\ufeff" + encode(PLAIN),
    "blank lines": encode(PLAIN).replace("\n", "\n\n   \n"),
    "no last line end": encode(PLAIN).rstrip("\n"),
    "times as texts": encode([{**event, "ts": str(event["ts"])} for event in PLAIN]),
    "times with a fraction": encode([{**event, "ts": event["ts"] + 0.5} for event in PLAIN]),
    "times as dates": encode(
        [
            {**event, "ts": f"1970-01-01T00:00:0{event['ts'] // 1000}.000000000+00:00"}
            for event in PLAIN
        ]
    ),
    "numbers for ids": encode([{**event, "id": 7, "parent": None, "seq": "3"} for event in PLAIN]),
    "unknown contexts": encode([{**event, "context": "main", "session": 4} for event in PLAIN]),
    "no context at all": encode([{**event, "context": None} for event in PLAIN]),
    "data within data": encode(
        [
            {**event, "data": {"event": event["event"], "data": event["data"]}}
            if event["event"].startswith("ux.")
            else event
            for event in PLAIN
        ]
    ),
}


@pytest.mark.parametrize("text", ENCODINGS.values(), ids=ENCODINGS)
def test_another_encoding_gives_the_same_summary(tmp_path: Path, text: str):
    path = save(tmp_path, text)
    assert summarize_checked(path) == summarize_checked(save_plain(tmp_path))
    assert join_output(Trace(path)) == "hi there\n"
    assert {verdict.status for verdict in evaluate_all(ASSERTIONS, CheckContext(Trace(path)))} == {
        "pass"
    }
    [turn] = read_trace(path)
    assert (turn.hat, turn.reply.text) == ("planner", "hi there\n")


def save_plain(tmp_path: Path) -> Path:
    (tmp_path / "plain").mkdir(exist_ok=True)
    return save(tmp_path / "plain", PLAIN)


@pytest.mark.parametrize(
    "data, expected", [(None, {}), ("a text", {"value": "a text"}), ([1], {"value": [1]}), ({}, {})]
)
def test_an_unknown_event_is_kept_with_any_data(tmp_path: Path, data: Any, expected: Any):
    path = save(tmp_path, [*PLAIN[:2], row("custom.thing", data, 2500), *PLAIN[2:]])
    assert summarize_checked(path).by_type["custom.thing"] == 1
    [record] = list_records(Trace(path), EventFilter(event_types=("custom.thing",)), 5).records
    assert record["data"] == expected


@pytest.mark.parametrize(
    "fields, text",
    [
        ({}, ""),
        ({"payload": None}, ""),
        ({"payload": ""}, ""),
        ({"payload": "null"}, "null"),
        ({"payload": {"a": [1]}}, '{"a":[1]}'),
        ({"payload": [1]}, "[1]"),
        ({"payload": 5}, "5"),
        ({"payload": True}, "true"),
    ],
)
def test_a_payload_is_searched_as_text_and_null_as_an_empty_one(
    tmp_path: Path, fields: dict[str, Any], text: str
):
    path = save(tmp_path, [*PLAIN[:4], publish("p.q", 4500, **fields), PLAIN[4]])
    for pattern, holds in ((re.escape(text) or "null", bool(text)), (r"\A\Z", not text)):
        raw = {"type": "event_occurred", "topic": "p.q", "payload_pattern": pattern}
        [verdict] = evaluate_all([raw], CheckContext(Trace(path)))
        assert verdict.holds is holds, pattern
        event_filter = EventFilter(topics=("p.q",), payload_pattern=pattern)
        total = list_records(Trace(path), event_filter, 5).total_matched
        assert total == int(holds) or "payload" not in fields  # then all of its data is searched


def test_a_missing_name_is_empty_and_not_null(tmp_path: Path):
    hatless = row("_meta.iteration", {"n": 2, "hat": None}, 3500)
    path = save(tmp_path, [*PLAIN[:4], hatless, publish(None, 4500), publish(7, 4600), PLAIN[4]])
    summary = summarize_checked(path)
    assert (summary.hats_used, summary.by_topic) == (
        ["planner", ""],
        {"build.task": 1, "": 1, "7": 1},
    )
    assert CheckContext(Trace(path)).hats == ["planner", ""]
    assert CheckContext(Trace(path)).topics == ["build.task", "", "7"]


def test_a_character_split_over_two_writes_is_joined(tmp_path: Path):
    raw = "né✓🙂".encode()
    path = save(tmp_path, [*(write(raw[i : i + 1], i) for i in range(len(raw))), *PLAIN[2:]])
    assert join_output(Trace(path)) == "né✓🙂"
    [verdict] = evaluate_all(
        [{"type": "stdout_contains", "pattern": "^né✓🙂$"}], CheckContext(Trace(path))
    )
    assert (verdict.status, verdict.actual) == ("pass", "né✓🙂")
    assert [turn.reply.text for turn in read_trace(path)] == ["né✓🙂"]


def test_unicode_line_separators_do_not_end_a_line(tmp_path: Path):
    odd = "a\u2028b\x85c\x1cd"
    path = save(tmp_path, [*PLAIN[:4], publish("p.q", 4500, payload=odd), PLAIN[4]])
    assert summarize_checked(path).by_topic["p.q"] == 1
    assert len(read_trace(path)) == 1


def test_lines_of_an_event_file_keep_their_fields(tmp_path: Path):
    rows = [
        {"topic": "a.b", "payload": {"k": 1}, "ts": "2026-02-05T08:09:13.890130179+00:00"},
        {
            "topic": "c",
            "ts": "2026-02-05T08:09:15Z",
            "wave_id": "w",
            "blocked_count": 2,
            "hat": "x",
        },
        {"topic": "no.time", "payload": None},
        {"topic": "odd.time", "ts": "soon", "source": {"a": 1}},
    ]
    path = save(tmp_path, rows)
    summary = summarize_checked(path)
    assert summary.by_topic == {"a.b": 1, "c": 1, "no.time": 1, "odd.time": 1}
    assert summary.duration_secs == pytest.approx(1.11)
    second, third = list(Trace(path))[1:3]
    assert second.data == {
        "topic": "c",
        "payload": None,
        "wave_id": "w",
        "blocked_count": 2,
        "hat": "x",
    }
    assert third.ts == second.ts


def test_a_first_line_without_a_time_does_not_make_the_duration_years(tmp_path: Path):
    path = save(tmp_path, [{"topic": "a"}, {"topic": "b", "ts": "2026-02-05T08:09:15Z"}])
    assert summarize_checked(path).duration_secs == 0
    [verdict] = evaluate_all([{"type": "duration", "max_secs": 9}], CheckContext(Trace(path)))
    assert verdict.status == "no_data"


@pytest.mark.parametrize("payload", [{"cost_usd": 0.5}, '{"cost_usd":0.5,"num_turns":3}'])
def test_the_cost_in_the_summary_of_an_iteration_is_counted(tmp_path: Path, payload: Any):
    summary = {"topic": "iteration.summary", "hat": "loop", "payload": payload}
    cut = {"topic": "iteration.summary", "payload": '{"cost_usd":0.5... [truncated, 900 chars'}
    path = save(tmp_path, [summary, {"topic": "build.task"}, summary, cut])
    assert CheckContext(Trace(path)).cost == 1.0


@pytest.mark.parametrize(
    "line", ['{"ts":null,"event":"x"}', '{"ts":1,"event":5}', '{"ts":"2026","type":{"kind":"x"}}']
)
def test_a_line_in_no_known_format_is_reported_with_its_number(tmp_path: Path, line: str):
    path = save(tmp_path, encode(PLAIN[:2]) + line + "\n" + encode(PLAIN[2:]))
    trace = Trace(path)
    assert len(list(trace)) == len(PLAIN)
    assert [fault.line for fault in trace.faults] == [3]
