"""Limits for a test that only replays: no network, no process, no file elsewhere, little time.

    with guard_replay(allow=[folder]) as guard, time_budget(0.1, __file__) as watch:
        ...                     # a forbidden operation raises IsolationError with the user's line
    guard.violations            # the same errors, also if they were swallowed
    watch.over, watch.line      # too slow, and the line that was running then

The guard watches the whole process while it is active. It does not see what native code does.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer, get_ident
from typing import TYPE_CHECKING, Any

from offbook.determinism.network_guard import is_ip_address, watch_audit_events
from offbook.determinism.thread_context import call_site
from offbook.errors import IsolationError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from types import FrameType

# --- Forbidden operations, by their audit events

NETWORK = {
    "socket.connect": "connected to the network",
    "socket.bind": "opened a port",
    "socket.sendto": "connected to the network",
    "socket.sendmsg": "connected to the network",
    "socket.getaddrinfo": "looked up a host",
    "socket.gethostbyname": "looked up a host",
    "socket.gethostbyaddr": "looked up a host",
}
PROCESSES: dict[str, str] = dict.fromkeys(
    ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork"),
    "started a process, which cannot be watched",
)
# the position of a path in the arguments, and that of the folder which it is relative to
CHANGES = {
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "sqlite3.connect": ((0, None),),
}
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SINKS = {os.devnull, "/dev/tty", ":memory:", ""}
CACHE = "__pycache__"  # Python writes bytecode there


@contextmanager
def guard_replay(
    *, allow: Iterable[Path | str] = (), network: bool = False, processes: bool = False
) -> Generator[ReplayGuard]:
    """Refuse the operations that a test must not do if it only replays.

    It may write below the folders of `allow`; `network` and `processes` permit those.
    """
    guard = ReplayGuard(allow)
    with ExitStack() as stack:
        stack.callback(watch_audit_events({"open"}, guard.check_open))
        stack.callback(watch_audit_events(CHANGES, guard.check_change))
        if not network:
            stack.callback(watch_audit_events(NETWORK, guard.refuse))
        if not processes:
            stack.callback(watch_audit_events(PROCESSES, guard.refuse))
        yield guard


class ReplayGuard:
    """The folders that may be written, and the violations so far."""

    def __init__(self, allow: Iterable[Path | str]) -> None:
        folders = {str(form) for path in allow for form in (Path(path), Path(path).resolve())}
        self._allowed = tuple(sorted(folders))
        self.violations: list[IsolationError] = []

    def refuse(self, event: str, args: tuple[Any, ...]) -> None:
        """Refuse the network, or another process."""
        if event == "socket.connect" and isinstance(args[1], (str, bytes)):
            return  # a Unix socket is a file of this machine
        if event == "socket.getaddrinfo" and is_ip_address(os.fsdecode(args[0] or "")):
            return  # an IP address needs no look-up
        if event in NETWORK:
            address: Any = (
                args[0] if isinstance(args[0], (str, bytes)) or len(args) == 1 else args[1]
            )
            match address:
                case (host, port, *_):  # IPv6 has two more fields
                    detail = f"{host}:{port}"
                case _:
                    detail = str(address)
            self._violate(f"{NETWORK[event]}: {detail}")
        else:
            command = next((argument for argument in args if argument), "")
            self._violate(f"{PROCESSES[event]}: {command}")

    def check_open(self, _event: str, args: tuple[Any, ...]) -> None:
        """Refuse to open a file for writing outside of the allowed folders."""
        path, mode, flags = args
        # os.open has flags and no mode
        writes = any(letter in mode for letter in "wax+") if mode else bool(flags & WRITE_FLAGS)
        if writes and not isinstance(path, int):
            self._check_path(path, None, "wrote")

    def check_change(self, event: str, args: tuple[Any, ...]) -> None:
        """Refuse to create, move or remove a file outside of the allowed folders."""
        for position, folder_position in CHANGES[event]:
            folder = None if folder_position is None else args[folder_position]
            self._check_path(args[position], folder, "changed")

    def _check_path(self, path: Any, folder: int | None, action: str) -> None:
        name = os.fsdecode(path)
        if name in SINKS:
            return
        if folder is None or folder < 0 or Path(name).is_absolute():
            absolute = str(Path(name).absolute().resolve(strict=False))
        else:
            try:  # relative to the folder of a file descriptor
                absolute = str(Path(f"/proc/self/fd/{folder}").readlink() / name)
            except OSError:
                return
        if absolute in SINKS or CACHE in absolute:
            return
        if not any(absolute == own or absolute.startswith(own + os.sep) for own in self._allowed):
            self._violate(f"{action} the file {absolute}")

    def _violate(self, action: str) -> None:
        error = IsolationError(
            f"a test that only replays {action}",
            where=call_site(),
            hint="write below tmp_path, replay a recording, or change the mark of the test",
        )
        self.violations.append(error)
        raise error


# --- Time

SCHEDULE = Path("/proc/thread-self/schedstat")
NANOS = 1_000_000_000


class Stopwatch:
    """The time that was spent, and the line that was running when the budget was used up."""

    def __init__(self, seconds: float, file: str) -> None:
        self.seconds = seconds
        self.spent = 0.0
        self.line = ""
        self._file = file
        self._thread = get_ident()

    @property
    def over(self) -> bool:
        """True if it took longer than the budget."""
        return self.spent > self.seconds

    def sample(self) -> None:
        """Note the line of the file that the measured thread runs now."""
        innermost = sys._current_frames().get(self._thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the only way to see another thread
        frame = innermost
        while frame is not None:
            if frame.f_code.co_filename == self._file:
                self.line = f"{self._file}:{frame.f_lineno}"
                return
            frame = frame.f_back
        self.line = _line_of_task(self._file, innermost)


@contextmanager
def time_budget(seconds: float, file: str) -> Generator[Stopwatch]:
    """Measure this block; if it takes longer, the stopwatch has the line of `file` at that time.

    The time in which other processes kept this thread from running does not count, where the
    system measures it (Linux).
    """
    watch = Stopwatch(seconds, file)
    timer = Timer(seconds, watch.sample)
    timer.daemon = True
    started, waited = time.perf_counter(), seconds_waiting_for_cpu()
    timer.start()
    try:
        yield watch
    finally:
        timer.cancel()
        watch.spent = time.perf_counter() - started - (seconds_waiting_for_cpu() - waited)


def seconds_waiting_for_cpu() -> float:
    """Return how long this thread was ready to run and had no CPU; 0 if it is unknown."""
    try:
        return int(SCHEDULE.read_bytes().split()[1]) / NANOS
    except (OSError, IndexError, ValueError):
        return 0.0


def _line_of_task(file: str, frame: FrameType | None) -> str:
    """Return the line of the file in which a task of the thread's event loop waits."""
    from asyncio import AbstractEventLoop, all_tasks

    while frame is not None:
        loop: Any = frame.f_locals.get("self")
        if isinstance(loop, AbstractEventLoop):
            lines = (
                f"{file}:{waiting.f_lineno}"
                for task in all_tasks(loop)
                for waiting in task.get_stack()
                if waiting.f_code.co_filename == file
            )
            return next(lines, "")
        frame = frame.f_back
    return ""
