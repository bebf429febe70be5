"""A fork of this process, which can be killed with everything that it has started.

An agent may hang in a busy loop, in C code or with a handler for every signal: only another process
can end it. The workers of an engine are such forks.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import re
import signal
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from offbook.determinism.run_context import is_library

if TYPE_CHECKING:
    from collections.abc import Callable

DUMP = signal.SIGUSR2  # writes the stacks of a process
GRACE = 1.0  # seconds in which a process writes its stacks
MAX_STACKS = 100_000  # bytes
SIZE = 4  # bytes of the length before each message
PR_SET_PDEATHSIG = 1  # of prctl
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')


# --- A fork of this process


def fork_process(work: Callable[[], object], *, leads_group: bool = True) -> int:
    """Start a fork of this process that calls `work` and then ends; return its id.

    It ends if this process is killed. With `leads_group` it has a new process group, which
    `end_process` kills as a whole, and it gets no Ctrl-C: that is for the parent, which ends it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    _prctl()  # found here once, not in each fork
    with warnings.catch_warnings():
        # A thread of the parent is not in the fork, as after any fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        # Only the fork: it never returns from here, so nothing of the parent runs twice.
        code = 1
        try:
            gc.freeze()  # a collection would copy every page of the parent
            if leads_group:
                os.setsid()
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                for number in (signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)
            end_with(parent)
            work()
            code = 0
        finally:
            os._exit(code)  # threads and exit handlers of the agent may not end
    return pid


def end_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """End this process by a signal if its parent is killed."""
    if (prctl := _prctl()) is not None:
        prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # killed before
        os._exit(1)


@cache
def _prctl() -> Any:
    """Return the function of the C library, on Linux."""
    if sys.platform != "linux":
        return None
    from ctypes import CDLL

    return CDLL(None).prctl


def end_process(pid: int) -> int:
    """Kill a fork and what it has started; return its exit code."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):  # it has not called setsid yet
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


# --- Messages between processes: the length, then the content. multiprocessing.Pipe is slower.


def send_message(pipe: int, content: bytes) -> None:
    """Write a message as a whole."""
    view = memoryview(len(content).to_bytes(SIZE) + content)
    while view:
        view = view[os.write(pipe, view) :]


def receive_message(pipe: int) -> bytes | None:
    """Return the next message, or None if the other process has ended."""
    head = _read(pipe, SIZE)
    return None if head is None else _read(pipe, int.from_bytes(head))


def _read(pipe: int, count: int) -> bytes | None:
    content = b""
    while len(content) < count:
        part = os.read(pipe, count - len(content))
        if not part:
            return None
        content += part
    return content


# --- The place where a process hangs


class StackFile:
    """The file to which a fork writes the stacks of its threads."""

    def __init__(self, folder: str) -> None:
        self._file = tempfile.TemporaryFile("w+", dir=folder)  # noqa: SIM115 - closed in `close`

    def register(self) -> None:
        """Write the stacks of this process whenever it gets the signal."""
        faulthandler.register(DUMP, self._file)

    def find_place(self, pid: int) -> str:
        """Return the innermost line of the user's code that a fork is in, or ""."""
        file = self._file.fileno()
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)  # the fork writes at the same position
        with suppress(ProcessLookupError):
            os.kill(pid, DUMP)
        text, before, ends = b"", b"", time.monotonic() + GRACE
        while (not text or text != before) and time.monotonic() < ends:
            time.sleep(0.01)
            before, text = text, os.pread(file, MAX_STACKS, 0)
        for stack in text.decode("utf-8", "replace").split("\n\n"):
            for line in stack.splitlines():
                if (frame := _FRAME.match(line)) is None:
                    continue
                name, number, function = frame.groups()
                if name == __file__:  # outside are the frames of the process before the fork
                    break
                if not is_library(name):
                    return f"{name}:{number} in {function}"
        return ""

    def close(self) -> None:
        """Close the file."""
        self._file.close()
