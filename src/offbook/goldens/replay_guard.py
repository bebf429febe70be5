"""Limits for a test that only replays: no network, no process, no file elsewhere, little time.

    with guard_replay(allow=[folder]) as guard, time_budget(0.1, __file__) as watch:
        ...                     # a forbidden operation raises IsolationError with the user's line
    guard.violations            # the same errors, also if they were swallowed
    watch.over, watch.line      # too slow, and the line that was running then

The guard applies to the thread that opened it and to the threads that are started while it is open.
It sees Python code. `native_libraries` are the loaded libraries that it cannot see into.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Timer, get_ident
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

from offbook.determinism.network_guard import is_ip_address
from offbook.determinism.run_context import (
    apply_patch,
    call_site,
    propagate_to_threads,
    thread_variable,
    watch_audit_events,
)
from offbook.errors import IsolationError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
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
    "socket.getnameinfo": "looked up a host",
}
PROCESSES: dict[str, str] = dict.fromkeys(
    (
        "subprocess.Popen", "os.system", "os.posix_spawn", "os.spawn", "os.exec", "os.fork",
        "os.forkpty", "pty.spawn",
    ),
    "started a process, which cannot be watched",
)  # fmt: skip
# the position of a path in the arguments, and that of the folder which it is relative to
CHANGES = {
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.setxattr": ((0, None),),
    "os.removexattr": ((0, None),),
    "sqlite3.connect": ((0, None),),
}
# these change an entry of a folder, so that a link is not followed
ENTRY_CHANGES = {"os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink"}
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SINKS = {os.devnull, "/dev/tty", ":memory:", ""}
CACHE = "__pycache__"  # Python writes bytecode there
CACHE_WRITERS = ("<frozen importlib", str(Path("_pytest", "assertion", "rewrite.py")))
SQLITE_OK, SQLITE_DENY, SQLITE_ATTACH = 0, 1, 24

# functions of the C library, which Python code can call with ctypes
NATIVE_FUNCTIONS = {
    "bind", "connect", "creat", "execv", "execve", "fopen", "fork", "forkpty", "getaddrinfo",
    "listen", "mkdir", "open", "openat", "popen", "posix_spawn", "rename", "send", "sendmsg",
    "sendto", "syscall", "system", "unlink", "vfork",
}  # fmt: skip
NATIVE_LIBRARIES = (
    "MySQLdb", "confluent_kafka", "curl_cffi", "grpc", "oracledb", "psycopg2", "psycopg_binary",
    "psycopg_c", "pycurl", "pymssql", "pyodbc", "uvloop", "zmq",
)  # fmt: skip

_guard_of_thread = thread_variable("offbook_replay_guard")


def native_libraries() -> list[str]:
    """Return the imported libraries that use the network in native code, unseen by a guard."""
    return [name for name in NATIVE_LIBRARIES if name in sys.modules]


@contextmanager
def guard_replay(
    *, allow: Iterable[Path | str] = (), network: bool = False, processes: bool = False
) -> Generator[ReplayGuard]:
    """Refuse the operations that a test must not do if it only replays.

    It may write below the folders of `allow`; `network` and `processes` permit those.
    """
    guard = ReplayGuard(allow)
    handlers: dict[Callable[..., None], Iterable[str]] = {
        guard.check_open: {"open"},
        guard.check_change: CHANGES,
        guard.check_native: {"ctypes.dlsym"},
    }
    # Python does not announce these
    patches: list[tuple[object, str, Callable[..., Any]]] = [
        (os, name, guard.check_special_file) for name in ("mkfifo", "mknod") if hasattr(os, name)
    ]
    with suppress(ImportError):  # Python can be built without SQLite
        import sqlite3
        import sqlite3.dbapi2

        patches += [
            (module, "connect", guard.check_attached) for module in (sqlite3, sqlite3.dbapi2)
        ]
    if not network:
        handlers[guard.check_network] = NETWORK
        patches.append((socket.socket, "listen", guard.check_listen))
    if not processes:
        handlers[guard.check_process] = PROCESSES
        if os.name == "posix":
            import _posixsubprocess

            # multiprocessing starts its processes with it
            patches.append((_posixsubprocess, "fork_exec", guard.check_spawn))
    with ExitStack() as stack:
        for owner, name, wrapper in patches:
            stack.callback(apply_patch(owner, name, wrapper))
        stack.enter_context(propagate_to_threads())
        stack.callback(_guard_of_thread.reset, _guard_of_thread.set(guard))
        stops = [watch_audit_events(events, handler) for handler, events in handlers.items()]
        try:
            yield guard
        finally:
            guard.closed = True
            stopped = [stop() for stop in stops]
            if not all(stopped):
                guard.violations.append(IsolationError("a test removed the guard of replay tests"))


class ReplayGuard:
    """The folders that may be written, and the violations so far."""

    def __init__(self, allow: Iterable[Path | str]) -> None:
        folders = {str(form) for path in allow for form in (Path(path), Path(path).resolve())}
        self._allowed = tuple(sorted(folders))
        self._thread = get_ident()
        self._older_threads = set(sys._current_frames())  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - also threads that `threading` does not know
        self.permitted: list[str] | None = None  # a list in a pause
        self.closed = False
        self.violations: list[IsolationError] = []

    @contextmanager
    def paused(self) -> Generator[list[str]]:
        """Permit everything in this block, and list it."""
        before, self.permitted = self.permitted, []
        try:
            yield self.permitted
        finally:
            self.permitted = before

    def _responsible(self) -> ReplayGuard | None:
        """Return the guard of the running thread, or None if the thread is not a test's."""
        if get_ident() == self._thread:
            return None if self.closed else self
        guard: ReplayGuard | None = _guard_of_thread.get()
        if guard is None:  # a thread that was not started by `threading`
            return None if get_ident() in self._older_threads else self
        # a thread that outlives its test: the violation is not one of the test that runs now
        return guard if guard is self or guard.closed else None

    def check_network(self, event: str, args: tuple[Any, ...]) -> None:
        """Refuse to reach the network, or a socket file outside of the allowed folders."""
        lookup = event.startswith("socket.get")
        address: Any = args[0] if lookup else args[1]
        if address is None and not lookup:
            return  # a message over a connection that exists
        if event == "socket.getaddrinfo" and address and is_ip_address(os.fsdecode(address)):
            return  # an IP address needs no look-up
        if not lookup and isinstance(address, (str, bytes, bytearray)):
            name = os.fsdecode(bytes(address) if isinstance(address, bytearray) else address)
            if name.startswith("\0"):
                self._violate(f"connected to the socket {name[1:]!r}")
            else:
                self._check_path(name, None, "connected to the socket")
            return
        match address:
            # urllib3 does this when it is imported, to learn about IPv6; `listen` opens the port
            case (_, 0, *_) if event == "socket.bind" and args[0].type == socket.SOCK_STREAM:
                return
            case (host, port, *_):  # IPv6 has two more fields
                detail = f"{host}:{port}"
            case _:
                detail = str(address)
        self._violate(f"{NETWORK[event]}: {detail}")

    def check_listen(self, original: Callable[..., Any], sock: socket.socket, *args: Any) -> None:
        """Refuse to listen on a port that the system chooses."""
        if sock.family != socket.AF_UNIX:
            self._violate("opened a port: any")
        original(sock, *args)

    def check_process(self, event: str, args: tuple[Any, ...]) -> None:
        """Refuse another process, except the one that ends what agents leave running."""
        from offbook.subjects.process import starts_watcher

        if starts_watcher(event, args):
            return
        command = [str(argument) for argument in args if argument][:1]
        self._violate(": ".join([PROCESSES[event], *command]))

    def check_spawn(self, original: Callable[..., Any], *args: Any) -> Any:
        """Refuse a process that Python does not announce."""
        self._violate(f"{PROCESSES['os.fork']}: {args[0]}")
        return original(*args)

    def check_native(self, _event: str, args: tuple[Any, ...]) -> None:
        """Refuse to call the C library directly."""
        if args[1] in NATIVE_FUNCTIONS:
            self._violate(f"called {args[1]} with ctypes, which cannot be watched")

    def check_open(self, _event: str, args: tuple[Any, ...]) -> None:
        """Refuse to open a file for writing outside of the allowed folders."""
        path, mode, flags = args
        # os.open has flags and no mode
        writes = any(letter in mode for letter in "wax+") if mode else bool(flags & WRITE_FLAGS)
        if writes:
            self._check_path(path, None, "wrote the file")

    def check_change(self, event: str, args: tuple[Any, ...]) -> None:
        """Refuse to create, change or remove a file outside of the allowed folders."""
        for position, folder_position in CHANGES[event]:
            folder = None if folder_position is None else args[folder_position]
            path = args[position]
            if event == "sqlite3.connect":
                path = _database_file(path)
            self._check_path(path, folder, "changed the file", follow=event not in ENTRY_CHANGES)

    def check_special_file(
        self, original: Callable[..., Any], path: Any, *args: Any, **named: Any
    ) -> None:
        """Refuse to create a pipe or a device outside of the allowed folders."""
        self._check_path(path, named.get("dir_fd"), "changed the file", follow=False)
        original(path, *args, **named)

    def check_attached(self, original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Refuse to attach a file outside of the allowed folders to a database."""
        connection = original(*args, **named)

        def authorize(action: int, file: str | None, *_: object) -> int:
            try:  # VACUUM INTO attaches a file, too
                if action == SQLITE_ATTACH and file is None:
                    self._violate("attached a database by a parameter, which cannot be checked")
                elif action == SQLITE_ATTACH:
                    self._check_path(_database_file(file), None, "changed the file")
            except IsolationError:
                return SQLITE_DENY  # SQLite raises its own exception, and the guard keeps this one
            return SQLITE_OK

        if self._responsible() is self:
            connection.set_authorizer(authorize)
        return connection

    def _check_path(
        self, path: Any, folder: int | None, action: str, *, follow: bool = True
    ) -> None:
        if isinstance(path, int):
            return  # an open file: it was checked when it was opened
        name = os.fsdecode(path)
        if name in SINKS:
            return
        whole = Path(name)
        if folder is not None and folder >= 0 and not whole.is_absolute():
            try:  # relative to the folder of a file descriptor
                whole = Path(f"/proc/self/fd/{folder}").readlink() / name
            except OSError:
                return
        whole = whole.absolute()
        absolute = str(whole.resolve() if follow else whole.parent.resolve() / whole.name)
        if absolute in SINKS or _is_bytecode(absolute):
            return
        if not any(absolute == own or absolute.startswith(own + os.sep) for own in self._allowed):
            self._violate(f"{action} {absolute}")

    def _violate(self, action: str) -> None:
        guard = self._responsible()
        if guard is None:
            return
        where = call_site()
        if guard.permitted is not None:
            guard.permitted.append(f"{action} ({where})")
            return
        error = IsolationError(
            f"a test that only replays {action}",
            where=where,
            hint="write below tmp_path, replay a recording, or change the mark of the test",
        )
        guard.violations.append(error)
        raise error


def _database_file(database: Any) -> Any:
    """Return the file that SQLite writes for a database; an empty name if it writes none."""
    name = os.fsdecode(database)
    if not name.startswith("file:"):
        return database
    path, _, query = name.removeprefix("file:").partition("?")
    options = parse_qs(query.partition("#")[0])
    if path == ":memory:" or options.get("mode", [""])[-1] in {"memory", "ro"}:
        return ""
    path = unquote(path)
    return "/" + path.removeprefix("//").partition("/")[2] if path.startswith("//") else path


def _is_bytecode(path: str) -> bool:
    """Return whether Python or pytest itself writes this file, for the modules they import."""
    if CACHE not in Path(path).parts[-2:]:
        return False
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the only way to see the caller
    skipped = (__file__, os.__file__, watch_audit_events.__code__.co_filename)
    while frame is not None and frame.f_code.co_filename in {*skipped, "<frozen os>"}:
        frame = frame.f_back
    file = frame.f_code.co_filename if frame else ""
    return file.startswith(CACHE_WRITERS[0]) or file.endswith(CACHE_WRITERS[1])


# --- Time

SCHEDULE = Path("/proc/thread-self/schedstat")
NANOS = 1_000_000_000


class Stopwatch:
    """The time that was spent, and the line that was running when the budget was used up."""

    def __init__(self, seconds: float, file: str) -> None:
        self.seconds = seconds
        self.spent = 0.0
        self.line = ""
        self.uncounted = 0.0
        self._file = file
        self._thread = get_ident()

    @property
    def over(self) -> bool:
        """True if it took longer than the budget."""
        return self.spent > self.seconds

    @contextmanager
    def paused(self) -> Generator[None]:
        """Do not count the time of this block."""
        started = _now()
        try:
            yield
        finally:
            self.uncounted += _now() - started

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
    started, waited = _now(), seconds_waiting_for_cpu()
    timer.start()
    try:
        yield watch
    finally:
        timer.cancel()
        watch.spent = _now() - started - (seconds_waiting_for_cpu() - waited) - watch.uncounted


def _now() -> float:
    """Return the monotonic time, also in a test that replaces the functions of `time`."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)  # freezegun and time-machine leave it alone


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


# --- A network namespace for this process (Linux): it has loopback only, also for native code. An
# audit hook sees Python code only. The kernel sees every library: gRPC, uvloop, psycopg, curl.

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1


def leave_network() -> None:
    """Move this process, and all that it starts, into a separate network. There is no way back.

    Call it before a second thread is started.
    """
    hint = "run it in a container without network, or on Linux: unshare --net --map-root-user …"
    if sys.platform != "linux":
        raise UsageError(f"no network namespaces on {sys.platform}", hint=hint)
    import ctypes
    import fcntl

    user, group = os.getuid(), os.getgid()
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    if unshare(CLONE_NEWNET):  # not permitted: only in a user namespace
        if unshare(CLONE_NEWUSER | CLONE_NEWNET):
            reason = os.strerror(ctypes.get_errno())
            raise UsageError(f"cannot create a network namespace: {reason}", hint=hint)
        # without these the process would belong to `nobody`
        process = Path("/proc/self")
        (process / "setgroups").write_text("deny")
        (process / "uid_map").write_text(f"{user} {user} 1")
        (process / "gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP))
