"""The suite as it is, in JSON: for machines that want everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from offbook.reports.report import Suite, join, render_value
from offbook.trace import events

if TYPE_CHECKING:
    from collections.abc import Iterable


# --- The suite as it is, in JSON: for machines that want everything.


class JsonReport:
    """Everything, as JSON."""

    suffix = "json"

    def render(self, *suites: Suite) -> str:
        """The JSON of suites; of several, all numbers first, then each."""
        told = _tell(join(suites))
        if len(suites) != 1:
            told = {**told, "cases": [], "suites": [_tell(suite) for suite in suites]}
            told["green"] = bool(suites) and all(suite.green for suite in suites)
        return msgspec.json.format(render_value(told).encode()).decode() + "\n"


def _tell(suite: Suite) -> dict[str, Any]:
    return {
        "name": suite.name,
        "tests": len(suite.cases),
        "passed": suite.count("passed"),
        "failed": suite.count("failed"),
        "errors": suite.count("error"),
        "skipped": suite.count("skipped"),
        "green": suite.green,
        "flaky": any(case.flaky for case in suite.cases),
        "duration_secs": (suite.stop - suite.start) / 1000,
        "trace": suite.trace,
        "cases": suite.cases,
    }


# --- A trace in numbers, for machines.


class RunCounts(msgspec.Struct):
    """One run: of what, how long its script was, and how it ended; `ok` is None if it did not."""

    subject: str = ""
    turns: int = 0
    ok: bool | None = None
    error: str = ""


class TraceCounts(msgspec.Struct):
    """What happened, counted."""

    events: int = 0
    runs: list[RunCounts] = []
    replies: int = 0
    model_errors: int = 0
    tools: dict[str, int] = {}
    blocked: int = 0
    tool_errors: int = 0
    ui: int = 0
    verdicts: list[dict[str, Any]] = []


def count_events(trace: Iterable[events.Event]) -> TraceCounts:
    """Count what happened; nothing but runs and verdicts is kept."""
    summary = TraceCounts()
    for event in trace:
        summary.events += 1
        _count(summary, event)
    return summary


def _count(summary: TraceCounts, event: events.Event) -> None:
    data = event.data
    match event.event:
        case events.RUN_START:
            summary.runs.append(RunCounts(data.get("subject", ""), data.get("turns", 0)))
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
