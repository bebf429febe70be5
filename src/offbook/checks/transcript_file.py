"""Transcripts to audit: an Offbook trace, or the event log of Harn (`index`, `type`, …)."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from offbook.errors import FormatError
from offbook.files import parse_json, read_text
from offbook.trace.events import (
    AGENT_END,
    BUDGET_EXHAUSTED,
    FEEDBACK,
    HANDOFF,
    LOOP_STUCK,
    PLAN,
    REQUEST,
    TOOL_CALL,
    TOOL_RESULT,
    Event,
)
from offbook.trace.reader import Trace, raise_if_corrupt

if TYPE_CHECKING:
    from pathlib import Path

# The events of Harn that an audit reads, by their names in a trace. One iteration of its loop is
# one request to the model.
HARN_EVENTS = {
    "iteration_start": REQUEST,
    "iteration_end": AGENT_END,
    "tool_call": TOOL_CALL,
    "tool_call_update": TOOL_RESULT,
    "plan": PLAN,
    "orchestration_decision": PLAN,  # its newer name
    "handoff": HANDOFF,
    "feedback_injected": FEEDBACK,
    "budget_exhausted": BUDGET_EXHAUSTED,
    "loop_stuck": LOOP_STUCK,
}


def read_transcript(path: Path) -> list[Event]:
    """Return the events of a file, or of all `event_log*.jsonl` in a folder by their index."""
    if not path.is_dir():
        return parse_transcript(read_text(path), path)
    files = sorted(path.glob("event_log*.jsonl"))
    if not files:
        raise FormatError("no event_log*.jsonl in this folder", path=path)
    events = [event for file in files for event in parse_transcript(read_text(file), file)]
    return sorted(events, key=attrgetter("seq"))


def parse_transcript(text: str, path: Path) -> list[Event]:
    """Return the events in a text; its first line decides which of the two formats it has."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise FormatError("the transcript is empty", path=path)
    first = parse_json(lines[0][1], path, lines[0][0])
    if not isinstance(first, dict) or "type" not in first or "event" in first:
        trace = Trace(path)
        torn = 0 if text.endswith("\n") else lines[-1][0]
        read = (trace.read_line(line.encode(), n, torn=n == torn) for n, line in lines)
        events = [event for event in read if event is not None]
        raise_if_corrupt(trace.faults, path)
        return events
    events: list[Event] = []
    for number, line in lines:
        last = events[-1].ts if events else None
        events.append(_convert(parse_json(line, path, number), path, number, last))
    return events


def _convert(value: Any, path: Path, line: int, last: int | None) -> Event:
    if not isinstance(value, dict) or not isinstance(cast("Any", value).get("type"), str):
        raise FormatError("expected an object with a 'type'", path=path, line=line)
    fields = cast("dict[str, Any]", value)
    kind = fields["type"]
    name = HARN_EVENTS.get(kind, f"harn.{kind}")
    data: dict[str, Any] = {k: v for k, v in fields.items() if k not in {"index", "type"}}
    if name == TOOL_CALL:
        data = {
            "tool": fields.get("tool_name", ""),
            "input": fields.get("raw_input") or {},
            "call_id": fields.get("tool_call_id", ""),
        }
    elif name == TOOL_RESULT:
        data["tool"] = fields.get("tool_name", "")
        data["is_error"] = fields.get("status") == "failed"
    elif name == PLAN:
        data = {"plan": fields.get("plan", fields.get("decision"))}
    elif name == HANDOFF:
        handoff = fields.get("handoff")
        data = cast("dict[str, Any]", handoff) if isinstance(handoff, dict) else {}
    context = {"sessionId": fields["session_id"]} if fields.get("session_id") else {}
    if fields.get("cost_usd") is not None:
        data["cost_usd"] = fields["cost_usd"]
    # An event without a time gets that of the event before it.
    ts = fields.get("emitted_at_ms", last or 0)
    return Event(int(ts), name, data, fields.get("index", line - 1), context=context)
