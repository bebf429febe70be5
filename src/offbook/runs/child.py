"""A function in a new process, which can be killed with everything that it has started.

An agent may hang in a busy loop, in C code or with a handler for every signal: only another process
can end it. `Child` is for one function; the workers of a search and of an eval run are made of
`fork_process` and messages.
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
from functools import cache
from typing import TYPE_CHECKING, Any

from offbook.determinism.run_context import is_library
from offbook.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DUMP = signal.SIGUSR2  # writes the stacks of a process
GRACE = 1.0  # seconds in which a process writes its stacks, or ends by itself
MAX_STACKS = 100_000  # bytes
BLOCK = 1 << 16
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


def end_process(pid: int, grace: float = 0) -> int:
    """Kill a fork and what it has started; return its exit code.

    It has `grace` seconds to end by itself.
    """
    ends = time.monotonic() + grace
    while not _has_ended(pid) and time.monotonic() < ends:
        time.sleep(0.002)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):  # it has not called setsid yet
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


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


# --- One function


class Child:
    """A fork of this process that calls a function, and sends its value.

    What it prints is dropped. `temp` is its folder for temporary files.
    """

    def __init__(self, function: Callable[[], object], temp: str) -> None:
        self.started = time.monotonic()
        self.pipe, send = os.pipe()
        self._content = b""
        self._stacks = StackFile(temp)

        def work() -> None:
            os.close(self.pipe)
            self._stacks.register()
            tempfile.tempdir = temp
            _drop_output()
            content = _call(function)
            while content:
                content = content[os.write(send, content) :]

        self._pid = fork_process(work)
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
        return self._stacks.find_place(self._pid)

    def end(self) -> int:
        """Kill the child and what it has started; return its exit code."""
        os.close(self.pipe)
        self._stacks.close()
        return end_process(self._pid, GRACE if self._content else 0)  # it is about to end by itself


def wait_for(children: Sequence[Child], seconds: float) -> list[Child]:
    """Return the children that have sent something or ended, after this time at the latest."""
    poll = select.poll()
    by_pipe = {child.pipe: child for child in children}
    for pipe in by_pipe:
        poll.register(pipe, select.POLLIN)
    return [by_pipe[pipe] for pipe, _ in poll.poll(max(0, seconds) * 1000)]


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
