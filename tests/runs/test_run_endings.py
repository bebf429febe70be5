"""However a run fails, its trace ends with one verdict and one reason."""

import asyncio
import json
import multiprocessing
import signal
import sys
import threading
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from offbook import call, session, when
from offbook.errors import Interrupted, RunError, ScriptExhausted
from offbook.runs import (
    describe_left_behind,
    emit_failure,
    enter_run,
    list_running,
    place_of_error,
    watch_termination,
)
from offbook.trace import PROCESS_EXIT, RUN_END, VERDICT, Event, FileLine, Hub
from tests.forked import run_python

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


def test_the_end_of_a_failed_command_has_its_exit_code(hub: Hub, events: list[Event]):
    emit_failure(hub, ValueError("no"), exit=3)
    assert events[-1].data == {"ok": False, "exit": 3, "error": "ValueError: no"}


@pytest.fixture
def watched() -> Iterator[None]:
    """Watch for signals, as an open rehearsal does."""
    stop = watch_termination()
    yield
    stop()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_the_reason_and_still_ends_the_process(
    hub: Hub,
    events: list[Event],
    number: signal.Signals,
    watched: None,
    monkeypatch: pytest.MonkeyPatch,
):
    raised: list[tuple[int, object]] = []

    def note(number: int) -> None:
        raised.append((number, signal.getsignal(number)))

    with enter_run(hub):
        handler = signal.getsignal(number)
        assert callable(handler)
        monkeypatch.setattr(signal, "raise_signal", note)
        handler(number, None)
    assert events[-1].event == RUN_END
    assert number.name in events[-1].data["error"]
    assert raised == [(number, signal.SIG_DFL)]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_a_forked_child_does_not_end_the_run_of_its_parent(
    hub: Hub, events: list[Event], number: signal.Signals, watched: None, tmp_path: Path
):
    hub.subscribe(lambda event: (tmp_path / "events").write_text(event.event))
    with enter_run(hub):
        process = multiprocessing.get_context("fork").Process(
            target=signal.raise_signal, args=(number,)
        )
        process.start()
        process.join()
    assert process.exitcode == -number
    assert not (tmp_path / "events").exists()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_between_two_runs_ends_none_of_them(
    hub: Hub,
    events: list[Event],
    number: signal.Signals,
    watched: None,
    monkeypatch: pytest.MonkeyPatch,
):
    with enter_run(hub):
        handler = signal.getsignal(number)
    assert callable(handler)
    raised: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    handler(number, None)
    assert events == []


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_has_its_default_action_again_after_the_last_rehearsal(number: signal.Signals):
    first, second = watch_termination(), watch_termination()
    first()
    assert signal.getsignal(number) is not signal.SIG_DFL
    second()
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.parametrize("number", SIGNALS)
def test_the_handler_of_a_user_is_kept(number: signal.Signals):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        stop = watch_termination()
        assert signal.getsignal(number) is signal.SIG_IGN
        stop()
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_handler_that_the_agent_sets_is_kept(number: signal.Signals):
    stop = watch_termination()
    before = signal.signal(number, signal.SIG_IGN)
    try:
        stop()
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, signal.SIG_DFL)
    assert before is not signal.SIG_IGN


def test_a_rehearsal_in_another_thread_sets_no_handler():
    handlers: list[object] = []

    def run() -> None:
        stop = watch_termination()
        handlers.extend(map(signal.getsignal, SIGNALS))
        stop()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [signal.SIG_DFL, signal.SIG_DFL]


def test_a_rehearsal_of_another_thread_does_not_keep_this_one_from_setting_handlers():
    stops: list[Callable[..., None]] = []
    thread = threading.Thread(target=lambda: stops.append(watch_termination()))
    thread.start()
    thread.join()
    stops.append(watch_termination())
    handlers = [signal.getsignal(number) for number in SIGNALS]
    for stop in stops:
        stop()
    assert signal.SIG_DFL not in handlers


POOLED = ("asyncio_0", "asyncio-waitpid-0", "AnyIO worker thread", "ThreadPoolExecutor-0_0")


async def test_the_threads_and_tasks_that_did_not_run_before_are_left_behind():
    end = threading.Event()
    before = list_running()
    threads = [threading.Thread(target=end.wait, name=name) for name in ("worker", *POOLED)]
    for thread in threads:
        thread.start()
    task = asyncio.create_task(asyncio.Event().wait(), name="sleeper")
    assert describe_left_behind(before, []) == "the task sleeper, the thread worker"
    assert describe_left_behind(list_running(), []) == ""
    end.set()
    for thread in threads:
        thread.join()
    task.cancel()


@pytest.mark.parametrize(
    "name, data, left",
    [
        (PROCESS_EXIT, {"leaked": [4711]}, "1 process in the background, now ended"),
        (PROCESS_EXIT, {"leaked": [4711, 4712]}, "2 processes in the background, now ended"),
        (PROCESS_EXIT, {"leaked": []}, ""),
        (PROCESS_EXIT, {}, ""),
        (RUN_END, {"leaked": [4711]}, ""),
    ],
)
async def test_the_processes_that_had_to_be_ended_are_left_behind(
    hub: Hub, events: list[Event], name: str, data: dict[str, object], left: str
):
    hub.emit(name, data)
    assert describe_left_behind(list_running(), events) == left


def test_the_verdict_of_an_error_has_the_place_that_it_names_or_that_of_the_run(
    hub: Hub, events: list[Event]
):
    hub.place = FileLine("shop.py", 7)
    emit_failure(hub, ValueError("no"))
    emit_failure(hub, RunError("no", where=f"{__file__}:3"))
    contexts = [event.data["context"] for event in events if event.event == VERDICT]
    assert contexts == [FileLine("shop.py", 7).context, FileLine(__file__, 3).context]


def test_a_run_that_a_library_starts_has_no_place():
    code = compile("rehearsal.run(script)", json.__file__, "exec")
    with session() as t:
        with pytest.raises(ScriptExhausted):
            exec(code, {"rehearsal": t, "script": when("Hi", [call("read", {"path": "none"})])})  # noqa: S102 - as a library would
        assert [verdict.context for verdict in t.events.verdicts if not verdict.holds] == [{}]


def test_to_stop_watching_twice_is_allowed():
    first, second = watch_termination(), watch_termination()
    first()
    first()
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    second()


def test_an_open_rehearsal_watches_for_signals_and_a_closed_one_does_not():
    with session(auto_assert=False):
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(
    "where, line",
    [
        ("when('Refund order 7')", 2),
        ('role("summary")', 4),
        ("when('Refund order 9, and then a very long…')", 3),
        ("when('In no line')", 0),
        ("when('In no line\\nrole: summary')", 0),
        ("after when('Refund order 7')", 0),
    ],
)
def test_the_place_of_a_turn_is_its_line_in_the_playbook(tmp_path: Path, where: str, line: int):
    file = tmp_path / "shop.yaml"
    file.write_text(
        "# a playbook\n- when: Refund order 7\n- when: Refund order 9, and then a very long text\n"
        "- role: summary\n"
    )
    assert place_of_error(where, FileLine(str(file))) == FileLine(str(file), line)


def test_a_playbook_that_is_not_utf_8_is_searched_all_the_same(tmp_path: Path):
    file = tmp_path / "shop.yaml"
    file.write_bytes(b"# caf\xe9\n- when: Refund order 7\n")
    found = place_of_error("when('Refund order 7')", FileLine(str(file)))
    assert found == FileLine(str(file), 2)


@pytest.mark.parametrize(
    "where, place",
    [
        ("when('x')", None),
        ("step 3", FileLine("shop.yaml")),
        (f"{__file__}:3, in a comment", FileLine("shop.yaml")),
        ("when('x')", FileLine("no-such-file.yaml")),
        ("when('x')", FileLine("shop.yaml", 7)),
    ],
)
def test_without_a_line_to_find_the_place_of_the_run_stays(where: str, place: FileLine | None):
    assert place_of_error(where, place) == place


RLIMIT_LOCKS = 10  # its value marks the processes of an agent
ENDS = {"passed": ("'seen'", False), "failed": ("1 / 0", False), "interrupted": ("stop()", True)}


@pytest.mark.skipif(sys.platform != "linux", reason="the mark needs Linux")
@pytest.mark.parametrize("end", ENDS)
def test_processes_are_marked_after_the_rehearsal_only_if_it_was_interrupted(end: str):
    look, marked = ENDS[end]
    program = f"""
import resource
from offbook import call, say, session, when

def stop():
    raise KeyboardInterrupt

def look(**_):
    return {look}

resource.setrlimit({RLIMIT_LOCKS}, (resource.RLIM_INFINITY,) * 2)
ended = "passed"
try:
    with session(mock_tools={{"look": look}}) as rehearsal:
        rehearsal.run(when("go", [call("look"), say("Hi.")]))
except KeyboardInterrupt:
    ended = "interrupted"
except Exception:
    ended = "failed"
print(ended, resource.getrlimit({RLIMIT_LOCKS})[0] != resource.RLIM_INFINITY)
"""
    assert run_python("-c", program).stdout.split() == [end, str(marked)]
