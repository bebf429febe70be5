"""A function in a new process, which can be killed with everything that it has started.

An agent may hang in a busy loop, in C code or with a handler for every signal: only another process
can end it.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import re
import select
import signal
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from offbook.determinism.run_context import is_library
from offbook.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DUMP = signal.SIGUSR2  # writes the stacks of a child
GRACE = 1.0  # seconds in which a child writes its stacks
MAX_STACKS = 100_000  # bytes
BLOCK = 1 << 16
PR_SET_PDEATHSIG = 1  # of prctl
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')


class Child:
    """A fork of this process that calls a function, and sends its value.

    What it prints is dropped. It gets no Ctrl-C: that is for the parent, which ends it. `temp` is
    its folder for temporary files.
    """

    def __init__(self, function: Callable[[], object], temp: str) -> None:
        self.started = time.monotonic()
        self.pipe, send = os.pipe()
        self._content = b""
        self._stacks = tempfile.TemporaryFile("w+", dir=temp)  # noqa: SIM115 - closed in `end`
        sys.stdout.flush()
        sys.stderr.flush()
        gc.freeze()  # the collector of the child would copy every page of the parent
        parent = os.getpid()
        with warnings.catch_warnings():
            # A thread of the parent is not in the fork, as after any fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            # Only the child: it never returns from here, so nothing of the parent runs twice.
            try:
                os.close(self.pipe)
                os.setsid()  # a new process group, which is killed as a whole
                _end_with(parent)
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                faulthandler.register(DUMP, self._stacks)
                tempfile.tempdir = temp
                _drop_output()
                _write(send, _call(function))
            finally:
                os._exit(0)  # threads and exit handlers of the agent may not end
        gc.unfreeze()
        os.close(send)

    def read(self) -> bool:
        """Read what the child has sent; return whether it has ended."""
        part = os.read(self.pipe, BLOCK)
        self._content += part
        return not part

    @property
    def value(self) -> Any:
        """The value of the function; None if the child ended without one. Raises its exception."""
        value = pickle.loads(self._content) if self._content else None  # noqa: S301 - written by our own fork
        if isinstance(value, BaseException):
            raise value
        return value

    def find_place(self) -> str:
        """Return the innermost line of the user's code that the child is in, or ""."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, DUMP)
        file = self._stacks.fileno()
        text, before, ends = b"", b"", time.monotonic() + GRACE
        while (not text or text != before) and time.monotonic() < ends:
            time.sleep(0.01)
            before, text = text, os.pread(file, MAX_STACKS, 0)
        for line in text.decode("utf-8", "replace").splitlines():
            frame = _FRAME.match(line)
            if frame is not None and not is_library(frame[1]):
                return f"{frame[1]}:{frame[2]} in {frame[3]}"
        return ""

    def end(self) -> int:
        """Kill the child and what it has started; return its exit code."""
        os.close(self.pipe)
        self._stacks.close()
        pid, status = 0, 0
        if self._content:  # it is about to end by itself
            ends = time.monotonic() + GRACE
            while not pid and time.monotonic() < ends:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
                time.sleep(0 if pid else 0.002)
        elif self._has_ended():
            pid, status = os.waitpid(self._pid, 0)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        if not pid:
            with suppress(ProcessLookupError):  # it has not called setsid yet
                os.kill(self._pid, signal.SIGKILL)
            _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status)

    def _has_ended(self) -> bool:
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return ended is not None


def wait_for(children: Sequence[Child], seconds: float) -> list[Child]:
    """Return the children that have sent something or ended, after this time at the latest."""
    poll = select.poll()
    by_pipe = {child.pipe: child for child in children}
    for pipe in by_pipe:
        poll.register(pipe, select.POLLIN)
    return [by_pipe[pipe] for pipe, _ in poll.poll(max(0, seconds) * 1000)]


def _end_with(parent: int) -> None:
    """End this process if its parent is killed."""
    if sys.platform == "linux":
        from ctypes import CDLL

        CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # killed before
        os._exit(1)


def _call(function: Callable[[], object]) -> bytes:
    """Return the value of a function, or its exception, for another process."""
    try:
        return pickle.dumps(function())
    except BaseException as error:  # noqa: BLE001 - raised in the parent
        return pickle.dumps(RunError(f"a process failed with {type(error).__name__}: {error}"))


def _drop_output() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _write(pipe: int, content: bytes) -> None:
    while content:
        content = content[os.write(pipe, content) :]
