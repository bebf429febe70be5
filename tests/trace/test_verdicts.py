"""A verdict is an event, and only pass and warn are green."""

import pytest

from offbook.trace.events import Event, Verdict, VerdictStatus, emit_verdict, read_verdicts
from offbook.trace.hub import Hub


@pytest.mark.parametrize(
    "status, colour",
    [("pass", "green"), ("warn", "green"), ("fail", "red"), ("no_data", "red"), ("error", "red")],
)
def test_a_run_is_green_only_with_pass_or_warn(status: VerdictStatus, colour: str):
    assert Verdict("c", status).holds is (colour == "green")


def test_a_verdict_told_to_the_hub_comes_back_from_its_event():
    hub = Hub()
    heard: list[Event] = []
    hub.subscribe(heard.append)
    verdict = emit_verdict(hub, Verdict("c", "fail", "why", {"a": 1}, [2], {"file": "x"}))
    emit_verdict(hub, Verdict("odd", "pass", actual=object))
    hub.emit("other")
    first, second = read_verdicts(heard)
    assert first == verdict
    assert second.actual == "<class 'object'>"
