"""What others write and may write: every legal variation of a session reads as the plain one."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from offbook.checks.context import CheckContext
from offbook.checks.registry import evaluate_all
from offbook.sources.importers.conversion import read_trace
from offbook.trace.agent_output import join_output
from offbook.trace.inspection import EventFilter, TraceSummary, list_records, summarize
from offbook.trace.reader import Trace


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


def spell(rows: list[Any]) -> str:
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows)


def keep(tmp_path: Path, text: str | list[Any]) -> Path:
    path = tmp_path / "session.jsonl"
    path.write_bytes((text if isinstance(text, str) else spell(text)).encode())
    return path


def look(path: Path) -> TraceSummary:
    """A summary, by the block and by the line, of a session in which nothing is wrong."""
    trace = Trace(path, count=True)
    summary = summarize(trace)
    assert not trace.faults
    assert summary == summarize(list(Trace(path)))
    return summary


SPELLINGS: dict[str, str] = {
    "line ends of Windows": spell(PLAIN).replace("\n", "\r\n"),
    "a mark before the text": "\ufeff" + spell(PLAIN),
    "blank lines": spell(PLAIN).replace("\n", "\n\n   \n"),
    "no last line end": spell(PLAIN).rstrip("\n"),
    "times as texts": spell([{**one, "ts": str(one["ts"])} for one in PLAIN]),
    "times with a fraction": spell([{**one, "ts": one["ts"] + 0.5} for one in PLAIN]),
    "times as dates": spell(
        [{**one, "ts": f"1970-01-01T00:00:0{one['ts'] // 1000}.000000000+00:00"} for one in PLAIN]
    ),
    "numbers for ids": spell([{**one, "id": 7, "parent": None, "seq": "3"} for one in PLAIN]),
    "contexts of others": spell([{**one, "context": "main", "session": 4} for one in PLAIN]),
    "no context at all": spell([{**one, "context": None} for one in PLAIN]),
    "data within data": spell(
        [
            {**one, "data": {"event": one["event"], "data": one["data"]}}
            if one["event"].startswith("ux.")
            else one
            for one in PLAIN
        ]
    ),
}


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_another_spelling_says_the_same(tmp_path: Path, text: str):
    path = keep(tmp_path, text)
    assert look(path) == look(keep_plain(tmp_path))
    assert join_output(Trace(path)) == "hi there\n"
    assert {verdict.status for verdict in evaluate_all(ASSERTIONS, CheckContext(Trace(path)))} == {
        "pass"
    }
    [told] = read_trace(path)
    assert (told.hat, told.reply.text) == ("planner", "hi there\n")


def keep_plain(tmp_path: Path) -> Path:
    (tmp_path / "plain").mkdir(exist_ok=True)
    return keep(tmp_path / "plain", PLAIN)


@pytest.mark.parametrize(
    "data, told", [(None, {}), ("a text", {"value": "a text"}), ([1], {"value": [1]}), ({}, {})]
)
def test_an_unknown_event_is_kept_whatever_its_data_is(tmp_path: Path, data: Any, told: Any):
    path = keep(tmp_path, [*PLAIN[:2], row("custom.thing", data, 2500), *PLAIN[2:]])
    assert look(path).by_type["custom.thing"] == 1
    [record] = list_records(Trace(path), EventFilter(event_types=("custom.thing",)), 5).records
    assert record["data"] == told


@pytest.mark.parametrize(
    "more, text",
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
def test_a_payload_is_searched_as_text_and_none_is_an_empty_one(
    tmp_path: Path, more: dict[str, Any], text: str
):
    path = keep(tmp_path, [*PLAIN[:4], publish("p.q", 4500, **more), PLAIN[4]])
    for pattern, holds in ((re.escape(text) or "null", bool(text)), (r"\A\Z", not text)):
        raw = {"type": "event_occurred", "topic": "p.q", "payload_pattern": pattern}
        [verdict] = evaluate_all([raw], CheckContext(Trace(path)))
        assert verdict.holds is holds, pattern
        wanted = EventFilter(topics=("p.q",), payload_pattern=pattern)
        found = list_records(Trace(path), wanted, 5).total_matched
        assert found == int(holds) or "payload" not in more  # then all of its data is searched


def test_names_that_are_none_are_not_called_none(tmp_path: Path):
    hatless = row("_meta.iteration", {"n": 2, "hat": None}, 3500)
    path = keep(tmp_path, [*PLAIN[:4], hatless, publish(None, 4500), publish(7, 4600), PLAIN[4]])
    found = look(path)
    assert (found.hats_used, found.by_topic) == (["planner", ""], {"build.task": 1, "": 1, "7": 1})
    assert CheckContext(Trace(path)).hats == ["planner", ""]
    assert CheckContext(Trace(path)).topics == ["build.task", "", "7"]


def test_a_sign_that_is_written_in_two_pieces_is_one(tmp_path: Path):
    raw = "né✓🙂".encode()
    path = keep(tmp_path, [*(write(raw[at : at + 1], at) for at in range(len(raw))), *PLAIN[2:]])
    assert join_output(Trace(path)) == "né✓🙂"
    [verdict] = evaluate_all(
        [{"type": "stdout_contains", "pattern": "^né✓🙂$"}], CheckContext(Trace(path))
    )
    assert (verdict.status, verdict.actual) == ("pass", "né✓🙂")
    assert [told.reply.text for told in read_trace(path)] == ["né✓🙂"]


def test_what_ends_lines_elsewhere_does_not_end_one_here(tmp_path: Path):
    odd = "a\u2028b\x85c\x1cd"
    path = keep(tmp_path, [*PLAIN[:4], publish("p.q", 4500, payload=odd), PLAIN[4]])
    assert look(path).by_topic["p.q"] == 1
    assert len(read_trace(path)) == 1


def test_rows_of_an_event_file_keep_what_they_tell(tmp_path: Path):
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
    path = keep(tmp_path, rows)
    found = look(path)
    assert found.by_topic == {"a.b": 1, "c": 1, "no.time": 1, "odd.time": 1}
    assert found.duration_secs == pytest.approx(1.11)
    second, third = list(Trace(path))[1:3]
    assert second.data == {
        "topic": "c",
        "payload": None,
        "wave_id": "w",
        "blocked_count": 2,
        "hat": "x",
    }
    assert third.ts == second.ts


def test_a_row_without_a_time_before_those_that_have_one_took_no_years(tmp_path: Path):
    path = keep(tmp_path, [{"topic": "a"}, {"topic": "b", "ts": "2026-02-05T08:09:15Z"}])
    assert look(path).duration_secs == 0
    [verdict] = evaluate_all([{"type": "duration", "max_secs": 9}], CheckContext(Trace(path)))
    assert verdict.status == "no_data"


@pytest.mark.parametrize("payload", [{"cost_usd": 0.5}, '{"cost_usd":0.5,"num_turns":3}'])
def test_the_cost_that_a_summary_of_an_iteration_tells_is_counted(tmp_path: Path, payload: Any):
    summary = {"topic": "iteration.summary", "hat": "loop", "payload": payload}
    cut = {"topic": "iteration.summary", "payload": '{"cost_usd":0.5... [truncated, 900 chars'}
    path = keep(tmp_path, [summary, {"topic": "build.task"}, summary, cut])
    assert CheckContext(Trace(path)).cost == 1.0


@pytest.mark.parametrize(
    "line", ['{"ts":null,"event":"x"}', '{"ts":1,"event":5}', '{"ts":"2026","type":{"kind":"x"}}']
)
def test_what_is_no_record_of_anybody_is_told_with_its_line(tmp_path: Path, line: str):
    path = keep(tmp_path, spell(PLAIN[:2]) + line + "\n" + spell(PLAIN[2:]))
    trace = Trace(path)
    assert len(list(trace)) == len(PLAIN)
    assert [fault.line for fault in trace.faults] == [3]
