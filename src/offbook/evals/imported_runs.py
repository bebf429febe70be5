"""Stored runs of other tools as run records: Claude Code, Codex, pi, OTLP and others.

Their traces are read by the importers of the core. A trace of Offbook itself is read directly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec

from offbook.evals.run_record import (
    OUTCOMES,
    RecordUsage,
    RunRecord,
    RunStage,
    StoredRun,
    ToolRecording,
    record_from_trace,
)
from offbook.files import read_text


def read_stored_trace(path: Path, trace_id: str | None = None) -> StoredRun:
    """Return the run record of a trace, of Offbook or of another tool."""
    if is_offbook_trace(path):
        return record_from_trace(path)
    from offbook.sources.importers.conversion import read_trace  # most traces are our own

    exchanges = read_trace(path, trace_id=trace_id)
    replies = [exchange.reply for exchange in exchanges]
    calls = [call for reply in replies for call in reply.calls]
    text = next((reply.text for reply in reversed(replies) if reply.text), None)
    failed = any(exchange.error is not None or exchange.exit_code for exchange in exchanges[-1:])
    end = _last_result(path)
    failed = failed or bool(end.get("is_error"))
    status = "failed" if failed else "completed"
    tokens = _token_totals(end)
    if tokens is None and any(exchange.usage_known for exchange in exchanges):
        inputs = sum(reply.usage.input for reply in replies)
        tokens = inputs, sum(reply.usage.output for reply in replies)
    usage = RecordUsage(
        *(tokens or (None, None)),
        end.get("duration_ms"),
        len(exchanges),
        end.get("total_cost_usd"),
    )
    stage = RunStage(node_id="run", status=status, outcome=OUTCOMES[status], visible_text=text)
    record = RunRecord(
        id=str(end.get("session_id") or path.stem),
        status=status,
        stages=[stage],
        usage=usage,
        tool_recordings=[ToolRecording(call.name, call.id) for call in calls],
        output=text,
    )
    return StoredRun(record, msgspec.to_builtins(record), str(path))


def is_offbook_trace(path: Path) -> bool:
    """Return whether a file has events of Offbook: with a time and a name."""
    first = next((line for line in read_text(path).splitlines() if line.strip()), "")
    try:
        value = msgspec.json.decode(first)
    except msgspec.DecodeError:
        return False  # a document of several lines, or an error that the importers explain
    return isinstance(value, dict) and {"ts", "event"} <= cast("dict[str, Any]", value).keys()


def _token_totals(end: dict[str, Any]) -> tuple[int, int] | None:
    """Return the input and output tokens of a whole run of Claude Code.

    The usage of its single messages is that of their beginning, with one output token.
    """
    usage = end.get("usage")
    if not isinstance(usage, dict):
        return None
    fields = cast("dict[str, Any]", usage)
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    counts = [fields.get(name) or 0 for name in (*names, "output_tokens")]
    if not all(isinstance(count, int) for count in counts):
        return None
    return sum(counts[:-1]), counts[-1]


def _last_result(path: Path) -> dict[str, Any]:
    """Return the summary with which Claude Code ends its output; empty without one."""
    last = next((line for line in reversed(read_text(path).splitlines()) if line.strip()), "")
    try:
        value = msgspec.json.decode(last, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
    return value if value.get("type") == "result" else {}
