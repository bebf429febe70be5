"""How a run ends: one verdict and one reason in its trace, and what it leaves running."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from ast import literal_eval
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbook.errors import Interrupted, OffbookError, ScriptError
from offbook.trace.events import PROCESS_EXIT, RUN_END, FileLine, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from offbook.trace.events import Event
    from offbook.trace.hub import Hub

_TURN = re.compile(r"(?:when|role)\((?P<text>'.*'|\".*\")", re.DOTALL)
_FILE_AND_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)")


def emit_failure(hub: Hub, error: BaseException, **data: int) -> None:
    """Emit the verdict and the end of a run that failed with this error."""
    if isinstance(error, Interrupted):
        reason = str(error)
    elif isinstance(error, (asyncio.CancelledError, KeyboardInterrupt)):
        reason = "interrupted: Ctrl-C, or the task of the run was cancelled"
    else:
        reason = f"{type(error).__name__}: {error}"
    if isinstance(error, ScriptError):
        verdict = Verdict("playbook consumed", "fail", str(error))
    else:
        verdict = Verdict("run finished", "error", reason)
    where = error.where if isinstance(error, OffbookError) else ""
    hub.emit_verdict(verdict, place_of_error(where, hub.place))
    hub.emit(RUN_END, {"ok": False, "error": reason, **data})


def place_of_error(where: str, place: FileLine | None) -> FileLine | None:
    """Return the line that the location of an error names, such as `when('Refund order 7')`.

    Without a name in it, or if the file does not contain it, it is the place that is known.
    """
    named = _FILE_AND_LINE.fullmatch(where)
    if named is not None and Path(named["file"]).is_file():
        return FileLine(named["file"], int(named["line"]))
    turn = _TURN.match(where)
    if place is None or place.line or turn is None:
        return place
    words = str(literal_eval(turn["text"])).removesuffix("…").splitlines()[:1]
    try:
        lines = Path(place.file).read_text("utf-8", "replace").splitlines()
    except OSError:
        return place
    found = (number for number, line in enumerate(lines, 1) for text in words if text in line)
    return FileLine(place.file, next(found, 0))


TERMINATION = (signal.SIGTERM, signal.SIGHUP)
_running: list[tuple[int, Hub]] = []  # the runs in progress, with the id of their process
_watchers: list[object] = []


def watch_termination() -> Callable[[], None]:
    """Let SIGTERM and SIGHUP first end the runs in progress; return a function that stops it.

    Once for many runs: to set a handler takes longer than to emit an event. A handler of the user
    is kept.
    """
    watcher = object()
    _watchers.append(watcher)
    _replace_handlers(signal.SIG_DFL, _terminate)

    def stop() -> None:
        if watcher in _watchers:
            _watchers.remove(watcher)
            if not _watchers:
                _replace_handlers(_terminate, signal.SIG_DFL)

    return stop


@contextmanager
def record_termination(hub: Hub) -> Generator[None]:
    """Emit the end of this run if SIGTERM or SIGHUP ends the process in this block."""
    entry = (os.getpid(), hub)
    _running.append(entry)
    try:
        yield
    finally:
        _running.remove(entry)


def _terminate(number: int, _frame: object) -> None:
    for process, hub in tuple(_running):
        if process == os.getpid():  # else a fork of it: the run goes on in the parent
            emit_failure(hub, Interrupted(number))
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _replace_handlers(old: object, new: Any) -> None:
    if threading.current_thread() is threading.main_thread():  # others may not set handlers
        for number in TERMINATION:
            if signal.getsignal(number) is old:
                signal.signal(number, new)


# --- What an agent leaves running when it returns: threads, tasks and processes. Only an agent that
# did not follow its script is asked: the work is then often still to come.

# The idle threads of a pool wait for work; they have none.
POOLS = ("asyncio_", "AnyIO", "ThreadPoolExecutor")


def list_running() -> set[object]:
    """Return the threads of this process and the tasks of this event loop."""
    return {*threading.enumerate(), *asyncio.all_tasks()}


def describe_left_behind(before: set[object], events: Iterable[Event]) -> str:
    """Return what runs now and did not before, and the processes that had to be ended."""
    parts: list[str] = []
    for running in list_running() - before:
        if isinstance(running, threading.Thread) and not running.name.startswith(POOLS):
            parts.append(f"the thread {running.name}")
        elif isinstance(running, asyncio.Task):
            parts.append(f"the task {running.get_name()}")
    left = [pid for event in events if event.event == PROCESS_EXIT for pid in _leaked(event)]
    if left:
        parts.append(f"{len(left)} process{'es' * (len(left) != 1)} in the background, now ended")
    return ", ".join(sorted(parts))


def _leaked(event: Event) -> list[int]:
    return event.data.get("leaked") or []
