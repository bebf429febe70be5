"""How a run ends in its trace: one verdict and one reason, whatever ended it."""

from __future__ import annotations

import os
import signal
import threading
from asyncio import CancelledError
from typing import TYPE_CHECKING, Any

from offbook.errors import Interrupted, ScriptError
from offbook.trace.events import RUN_END, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.trace.hub import Hub


def emit_failure(hub: Hub, error: BaseException, **data: int) -> None:
    """Emit the verdict and the end of a run that failed with this error."""
    if isinstance(error, Interrupted):
        reason = str(error)
    elif isinstance(error, (CancelledError, KeyboardInterrupt)):
        reason = "interrupted: Ctrl-C, or the task of the run was cancelled"
    else:
        reason = f"{type(error).__name__}: {error}"
    if isinstance(error, ScriptError):
        verdict = Verdict("playbook consumed", "fail", str(error))
    else:
        verdict = Verdict("run finished", "error", reason)
    hub.emit_verdict(verdict)
    hub.emit(RUN_END, {"ok": False, "error": reason, **data})


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


class _RunRecord:
    """An entry of `_running` in a `with` block. For each prompt, so it is not a generator."""

    __slots__ = ("_entry",)

    def __init__(self, hub: Hub) -> None:
        self._entry = (os.getpid(), hub)

    def __enter__(self) -> None:
        _running.append(self._entry)

    def __exit__(self, *_: object) -> None:
        _running.remove(self._entry)


def record_termination(hub: Hub) -> _RunRecord:
    """Emit the end of this run if SIGTERM or SIGHUP ends the process in a `with` block."""
    return _RunRecord(hub)


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
