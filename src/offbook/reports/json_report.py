"""JSON for programs: the suites with all their fields, and the counts of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, SubElement, tostring

import msgspec

from offbook.reports.report import Suite, join_suites, render_value
from offbook.trace import events
from offbook.trace.executions import EXECUTION_EVENTS, ExecutionReader

if TYPE_CHECKING:
    from collections.abc import Iterable


class JsonReport:
    """All fields of the suites, as JSON."""

    suffix = "json"

    def render(self, *suites: Suite) -> str:
        """Return the JSON of one suite; of several, the totals and then each suite."""
        report = _suite_fields(join_suites(suites))
        if len(suites) != 1:
            report |= {"cases": [], "suites": [_suite_fields(suite) for suite in suites]}
            # A suite without a passed case is not green, although the cases of all would be.
            report["green"] = bool(suites) and all(suite.green for suite in suites)
        return msgspec.json.format(render_value(report).encode()).decode() + "\n"


def _suite_fields(suite: Suite) -> dict[str, Any]:
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
        "changes": [{"fact": change.fact, **change.as_dict()} for change in suite.changes],
        "cases": suite.cases,
    }


class RunCounts(msgspec.Struct):
    """One run: its subject, the length of its script and its end; `ok` is None if it has none."""

    subject: str = ""
    turns: int = 0
    ok: bool | None = None
    error: str = ""


class TraceCounts(msgspec.Struct):
    """The numbers of replies, tool calls, errors and so on in a trace."""

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
    """Count the events of a trace; only runs and verdicts are kept in memory."""
    counts = TraceCounts()
    tools = ExecutionReader(keep=False)
    for event in trace:
        counts.events += 1
        if event.event in EXECUTION_EVENTS:
            _count_tool(counts, tools, event)
        data = event.data
        match event.event:
            case events.RUN_START:
                counts.runs.append(RunCounts(data.get("subject", ""), data.get("turns", 0)))
            # An end without a start: the beginning of the trace is missing.
            case events.RUN_END if counts.runs:
                counts.runs[-1].ok = bool(data.get("ok"))
                counts.runs[-1].error = data.get("error", "")
            case events.REPLY:
                counts.replies += 1
            case events.ERROR:
                counts.model_errors += 1
            case events.TOOL_BLOCKED:
                counts.blocked += 1
            case name if name.startswith("ui."):
                counts.ui += 1
            case events.VERDICT:
                counts.verdicts.append(data)
            case _:
                pass
    return counts


def _count_tool(counts: TraceCounts, tools: ExecutionReader, event: events.Event) -> None:
    """Count a tool that ran, or failed."""
    execution = tools.on_event(event)
    # A trace of an earlier version says only that the model called it.
    old = event.event == events.TOOL_CALL and "observed" not in event.data
    counted = execution is not None and event is execution.started
    if execution is not None and execution.call is not None:
        counted = counted and execution.call.data.observed is not events.UNSET
    if old or counted:
        tool = str(event.data.get("tool"))
        counts.tools[tool] = counts.tools.get(tool, 0) + 1
    if execution is not None and execution.seen:
        if event.event == events.TOOL_END and event.data.get("ran") is not False:
            counts.tool_errors += execution.failed is True
        elif event.event == events.TOOL_END:  # it was refused, and its result is an error
            counts.tools[execution.tool] -= 1
            counts.tools = {tool: count for tool, count in counts.tools.items() if count}
    elif event.event == events.TOOL_RESULT:
        counts.tool_errors += bool(event.data.get("is_error"))


# --- A badge: the counts of all suites as a small SVG image

LABEL = "offbook"
GREEN, RED, GREY = "#2da44e", "#cf222e", "#57606a"
CHARACTER_WIDTH = 7  # of Verdana at 11 px, on average
PADDING = 6
HEIGHT = 20


class BadgeReport:
    """The counts as SVG: green only if something passed and nothing failed."""

    suffix = "svg"

    def render(self, *suites: Suite) -> str:
        """Return the SVG document."""
        total = join_suites(suites)
        failed = total.count("failed") + total.count("error")
        counts = {"failed": failed, "passed": total.count("passed"), "skipped": 0}
        if not failed and not counts["passed"]:
            counts["skipped"] = total.count("skipped")
        parts = [f"{count} {word}" for word, count in counts.items() if count]
        value = ", ".join(parts) or "no results"
        green = bool(suites) and all(suite.green for suite in suites)
        return _draw(value, RED if failed else GREEN if green else GREY)


def _draw(value: str, colour: str) -> str:
    label_width, value_width = (
        len(text) * CHARACTER_WIDTH + 2 * PADDING for text in (LABEL, value)
    )
    width = label_width + value_width
    root = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": str(width),
            "height": str(HEIGHT),
            "role": "img",
            "aria-label": f"{LABEL}: {value}",
        },
    )
    SubElement(root, "title").text = f"{LABEL}: {value}"
    for x, size, fill in ((0, label_width, "#24292f"), (label_width, value_width, colour)):
        box = {"x": str(x), "width": str(size), "height": str(HEIGHT), "fill": fill}
        SubElement(root, "rect", box)
    font = {"font-family": "Verdana,DejaVu Sans,sans-serif", "font-size": "11", "fill": "#ffffff"}
    for x, text in ((PADDING, LABEL), (label_width + PADDING, value)):
        # The width is given, so that the text fits in any font.
        length = {"x": str(x), "y": "14", "textLength": str(len(text) * CHARACTER_WIDTH)}
        SubElement(root, "text", font | length).text = text
    return tostring(root, encoding="unicode") + "\n"
