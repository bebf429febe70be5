"""The events of a trace are counted."""

from typing import Any

from offbook.reports import RunCounts, TraceCounts, count_events
from offbook.trace import Event

FAILED = {"check": "exit_code", "status": "fail"}
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("_meta.run_end", {"ok": True}),
    ("_meta.run_start", {"subject": "session", "turns": 2}),
    ("model.reply", {}),
    ("tool.call", {"tool": "read"}),
    ("tool.result", {"is_error": False}),
    ("tool.call", {"tool": "bash"}),
    ("tool.result", {"is_error": True}),
    ("tool.call", {"tool": "read"}),
    ("tool.blocked", {}),
    ("model.reply", {}),
    ("model.error", {}),
    ("ui.confirm", {}),
    ("cell.update", {}),
    ("check.verdict", FAILED),
    ("_meta.run_end", {"ok": False, "error": "no"}),
]


def test_all_events_are_counted():
    trace = [Event(0, name, data, number) for number, (name, data) in enumerate(EVENTS)]
    assert count_events(trace) == TraceCounts(
        events=15,
        runs=[RunCounts("session", 2, ok=False, error="no")],
        replies=2,
        model_errors=1,
        tools={"read": 2, "bash": 1},
        blocked=1,
        tool_errors=1,
        ui=1,
        verdicts=[FAILED],
    )
