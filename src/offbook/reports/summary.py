"""A trace in numbers, for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from offbook.trace import events

if TYPE_CHECKING:
    from collections.abc import Iterable


class RunSummary(msgspec.Struct):
    """One run: of what, how long its script was, and how it ended; `ok` is None if it did not."""

    subject: str = ""
    turns: int = 0
    ok: bool | None = None
    error: str = ""


class Summary(msgspec.Struct):
    """What happened, counted."""

    events: int = 0
    runs: list[RunSummary] = []
    replies: int = 0
    model_errors: int = 0
    tools: dict[str, int] = {}
    blocked: int = 0
    tool_errors: int = 0
    ui: int = 0
    verdicts: list[dict[str, Any]] = []


def summarize(trace: Iterable[events.Event]) -> Summary:
    """Count what happened; nothing but runs and verdicts is kept."""
    summary = Summary()
    for event in trace:
        summary.events += 1
        _count(summary, event)
    return summary


def _count(summary: Summary, event: events.Event) -> None:
    data = event.data
    match event.event:
        case events.RUN_START:
            summary.runs.append(RunSummary(data.get("subject", ""), data.get("turns", 0)))
        case events.RUN_END if summary.runs:
            summary.runs[-1].ok = bool(data.get("ok"))
            summary.runs[-1].error = data.get("error", "")
        case events.REPLY:
            summary.replies += 1
        case events.ERROR:
            summary.model_errors += 1
        case events.TOOL_CALL:
            tool = str(data.get("tool"))
            summary.tools[tool] = summary.tools.get(tool, 0) + 1
        case events.TOOL_BLOCKED:
            summary.blocked += 1
        case events.TOOL_RESULT:
            summary.tool_errors += bool(data.get("is_error"))
        case name if name.startswith("ui."):
            summary.ui += 1
        case events.VERDICT:
            summary.verdicts.append(data)
        case _:
            pass
