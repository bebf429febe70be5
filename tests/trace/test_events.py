"""Verdicts are events, and only pass and warn let a run pass."""

import pytest

from offbook.trace import Event, Hub, Verdict, VerdictStatus, read_verdicts


@pytest.mark.parametrize(
    "status, passes",
    [("pass", "yes"), ("warn", "yes"), ("fail", "no"), ("no_data", "no"), ("error", "no")],
)
def test_a_run_passes_only_with_pass_or_warn(status: VerdictStatus, passes: str):
    assert Verdict("c", status).holds is (passes == "yes")


def test_an_emitted_verdict_can_be_read_back_from_its_event():
    hub, events = Hub(), list[Event]()
    hub.subscribe(events.append)
    verdict = Verdict("c", "fail", "why", {"a": 1}, [2], {"file": "x"})
    hub.emit_verdict(verdict)
    hub.emit_verdict(Verdict("odd", "pass", actual=object))
    hub.emit("other")
    first, second = read_verdicts(events)
    assert first == verdict
    assert second.actual == "<class 'object'>"
