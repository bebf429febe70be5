"""However a run fails, its trace ends with one verdict and one reason."""

import signal
import threading
from asyncio import CancelledError

import pytest

from offbook.errors import Interrupted, ScriptExhausted
from offbook.runs.run_endings import emit_failure, record_termination
from offbook.trace.events import RUN_END, VERDICT, Event
from offbook.trace.hub import Hub

SIGNALS = [signal.SIGTERM, signal.SIGHUP]
CTRL_C = "interrupted: Ctrl-C, or the task of the run was cancelled"


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def hub(events: list[Event]) -> Hub:
    hub = Hub()
    hub.subscribe(events.append)
    return hub


@pytest.mark.parametrize(
    "error, check, status, message, reason",
    [
        (ValueError("no"), "run finished", "error", "ValueError: no", "ValueError: no"),
        (KeyboardInterrupt(), "run finished", "error", CTRL_C, CTRL_C),
        (CancelledError(), "run finished", "error", CTRL_C, CTRL_C),
        (
            Interrupted(signal.SIGTERM),
            "run finished",
            "error",
            str(Interrupted(signal.SIGTERM)),
            str(Interrupted(signal.SIGTERM)),
        ),
        (ScriptExhausted("end"), "playbook consumed", "fail", "end", "ScriptExhausted: end"),
    ],
)
def test_a_failed_run_ends_with_its_verdict_and_its_reason(
    hub: Hub,
    events: list[Event],
    error: BaseException,
    check: str,
    status: str,
    message: str,
    reason: str,
):
    emit_failure(hub, error)
    assert [event.event for event in events] == [VERDICT, RUN_END]
    assert events[0].data == {"check": check, "status": status, "message": message}
    assert events[1].data == {"ok": False, "error": reason}


def test_the_end_of_a_failed_run_has_the_data_of_its_caller(hub: Hub, events: list[Event]):
    emit_failure(hub, ValueError("no"), exit_code=3)
    assert events[-1].data["exit_code"] == 3


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_the_reason_and_still_ends_the_process(
    hub: Hub, events: list[Event], number: signal.Signals, monkeypatch: pytest.MonkeyPatch
):
    raised: list[tuple[int, object]] = []

    def note(number: int) -> None:
        raised.append((number, signal.getsignal(number)))

    with record_termination(hub):
        handler = signal.getsignal(number)
        assert callable(handler)
        monkeypatch.setattr(signal, "raise_signal", note)
        handler(number, None)
    assert events[-1].event == RUN_END
    assert number.name in events[-1].data["error"]
    assert raised == [(number, signal.SIG_DFL)]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_has_its_default_action_again_after_the_run(hub: Hub, number: signal.Signals):
    with record_termination(hub):
        assert signal.getsignal(number) is not signal.SIG_DFL
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.parametrize("number", SIGNALS)
def test_the_handler_of_a_user_is_kept(hub: Hub, number: signal.Signals):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with record_termination(hub):
            assert signal.getsignal(number) is signal.SIG_IGN
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_a_run_in_another_thread_sets_no_handler(hub: Hub):
    handlers: list[object] = []

    def run() -> None:
        with record_termination(hub):
            handlers.extend(map(signal.getsignal, SIGNALS))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [signal.SIG_DFL, signal.SIG_DFL]
