"""A test that only replays: no network, no other process, no file outside its own folder.

    with guarded(allow=[folder]) as guard:
        ...                     # whatever reaches out in here raises, with the line that did it
    guard.broken                # the same errors, also when somebody swallowed them

It watches the whole process while it holds. What native code does on its own is not seen.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer, get_ident
from typing import TYPE_CHECKING, Any

from offbook.determinism import network_guard
from offbook.determinism.network_guard import is_ip_address
from offbook.determinism.thread_context import call_site
from offbook.errors import IsolationError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from types import FrameType


# --- A test that only replays: no network, no other process, no file outside its own folder.

NETWORK = {
    "socket.connect": "reached for the network",
    "socket.bind": "opened a port",
    "socket.sendto": "reached for the network",
    "socket.sendmsg": "reached for the network",
    "socket.getaddrinfo": "looked up a host",
    "socket.gethostbyname": "looked up a host",
    "socket.gethostbyaddr": "looked up a host",
}
PROCESSES = dict.fromkeys(
    ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork"),
    "started a process, whose doings nobody can see",
)
# where the path stands among the arguments, and where the folder that it is relative to
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
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SINKS = {os.devnull, "/dev/tty", ":memory:", ""}
CACHE = "__pycache__"  # Python keeps there what it compiled


class ReplayGuard:
    """What may be written, and what was tried in spite of it."""

    def __init__(self, allow: Iterable[Path | str]) -> None:
        folders = {str(path) for given in allow for path in (Path(given), Path(given).resolve())}
        self._allowed = tuple(sorted(folders))
        self.broken: list[IsolationError] = []

    def refuse(self, event: str, args: tuple[Any, ...]) -> None:
        """Refuse the network, or another process."""
        if event == "socket.connect" and isinstance(args[1], (str, bytes)):
            return  # a socket that is a file on this machine
        if event == "socket.getaddrinfo" and is_ip_address(os.fsdecode(args[0] or "")):
            return  # an address needs no look-up
        detail = _address(args) if event in NETWORK else _command(args)
        self._break(f"{(NETWORK | PROCESSES)[event]}: {detail}")

    def check_open(self, _event: str, args: tuple[Any, ...]) -> None:
        """Refuse to open a file for writing elsewhere."""
        path, mode, flags = args
        writes = any(sign in mode for sign in "wax+") if mode else bool(flags & WRITING)
        if writes and not isinstance(path, int):
            self._check(path, None, "wrote")

    def check_change(self, event: str, args: tuple[Any, ...]) -> None:
        """Refuse to make, move or remove something elsewhere."""
        for at, within in CHANGES[event]:
            folder = None if within is None else args[within]
            self._check(args[at], folder, "changed")

    def _check(self, path: Any, folder: int | None, doing: str) -> None:
        whole = _absolute(os.fsdecode(path), folder)
        if whole is None or whole in SINKS or CACHE in whole:
            return
        if not any(whole == own or whole.startswith(own + os.sep) for own in self._allowed):
            self._break(f"{doing} the file {whole}")

    def _break(self, what: str) -> None:
        error = IsolationError(
            f"a test that only replays {what}",
            where=call_site(),
            hint="write below tmp_path, replay what was recorded, or mark the test otherwise",
        )
        self.broken.append(error)
        raise error


def _absolute(path: str, folder: int | None) -> str | None:
    """The whole path; nothing where the folder that it is relative to cannot be told."""
    if path in SINKS:
        return path
    if folder is None or folder < 0 or Path(path).is_absolute():
        return str(Path(path).absolute().resolve(strict=False))
    try:
        return str(Path(f"/proc/self/fd/{folder}").readlink() / path)
    except OSError:
        return None


def _address(args: tuple[Any, ...]) -> str:
    told = args[0] if isinstance(args[0], (str, bytes)) or len(args) == 1 else args[1]
    return f"{told[0]}:{told[1]}" if isinstance(told, tuple) and len(told) > 1 else str(told)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - an address of any family


def _command(args: tuple[Any, ...]) -> str:
    return str(next((one for one in args if one), ""))


@contextmanager
def guard_replay(
    *, allow: Iterable[Path | str] = (), network: bool = False, processes: bool = False
) -> Generator[ReplayGuard]:
    """Refuse everything in here that a test may not do which only replays.

    Below the folders of `allow` it may write; `network` and `processes` lift those bans.
    """
    guard = ReplayGuard(allow)
    with ExitStack() as stack:
        stack.callback(network_guard.watch_audit_events({"open"}, guard.check_open))
        stack.callback(network_guard.watch_audit_events(CHANGES, guard.check_change))
        if not network:
            stack.callback(network_guard.watch_audit_events(NETWORK, guard.refuse))
        if not processes:
            stack.callback(network_guard.watch_audit_events(PROCESSES, guard.refuse))
        yield guard


# --- How long something may take, and where it was when the time was up.

SCHEDULE = Path("/proc/thread-self/schedstat")
NANOS = 1_000_000_000


class Stopwatch:
    """What was spent, and the line that was at work when the budget was."""

    def __init__(self, seconds: float, blame: str) -> None:
        self.seconds = seconds
        self.spent = 0.0
        self.line = ""
        self._blame = blame
        self._thread = get_ident()

    @property
    def over(self) -> bool:
        """Whether it took too long."""
        return self.spent > self.seconds

    def look(self) -> None:
        """Remember the line at work now, in the file that is to blame."""
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the only way to see another thread
        self.line = _line_in(self._blame, frame) or _line_of_tasks(self._blame, frame)


@contextmanager
def time_budget(seconds: float, blame: str) -> Generator[Stopwatch]:
    """Measure what happens in here; `blame` is the file whose line is named when it is too long."""
    watch = Stopwatch(seconds, blame)
    timer = Timer(seconds, watch.look)
    timer.daemon = True
    began, waited = time.perf_counter(), seconds_waiting_for_cpu()
    timer.start()
    try:
        yield watch
    finally:
        timer.cancel()
        watch.spent = time.perf_counter() - began - (seconds_waiting_for_cpu() - waited)


def seconds_waiting_for_cpu() -> float:
    """For how long this thread could have run and was not let, as far as the system tells."""
    try:
        return int(SCHEDULE.read_bytes().split()[1]) / NANOS
    except (OSError, IndexError, ValueError):
        return 0.0


def _line_in(file: str, frame: FrameType | None) -> str:
    while frame is not None:
        if frame.f_code.co_filename == file:
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _line_of_tasks(file: str, frame: FrameType | None) -> str:
    """The line in the file at which a task of the event loop waits, which this thread runs."""
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
