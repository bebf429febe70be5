"""How a run ends in its trace: one verdict and one reason, whatever ended it."""

from __future__ import annotations

import signal
import threading
from asyncio import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING

from offbook.errors import Interrupted, ScriptError
from offbook.trace.events import RUN_END, Verdict

if TYPE_CHECKING:
    from collections.abc import Generator

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


@contextmanager
def record_termination(hub: Hub) -> Generator[None]:
    """Emit the end of the run if SIGTERM or SIGHUP ends this process, as it does by default."""
    handled: list[int] = []
    if threading.current_thread() is threading.main_thread():  # others may not set handlers
        numbers = (signal.SIGTERM, signal.SIGHUP)
        handled = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]

    def terminate(number: int, _frame: object) -> None:
        emit_failure(hub, Interrupted(number))
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    for number in handled:
        signal.signal(number, terminate)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
