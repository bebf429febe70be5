"""Each way to change a file, to reach the network or to start a process is refused."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import sys
import threading
import types
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import IsolationError
from offbook.goldens import (
    Stopwatch,
    guard_replay,
    native_libraries,
    seconds_waiting_for_cpu,
    time_budget,
)
from offbook.goldens import replay_guard as home

FILE = str(Path(__file__))


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return an allowed folder, which is the current one, and another."""
    for name in ("own", "other"):
        (tmp_path / name / "empty").mkdir(parents=True)
        (tmp_path / name / "file").write_text("x")
    monkeypatch.chdir(tmp_path / "own")
    return tmp_path / "own", tmp_path / "other"


# Each of these changes an entry of the folder; the names are relative to it.
CHANGES: dict[str, Callable[[Any, Any], object]] = {
    "mkdir": lambda path, fd: os.mkdir(path / "new", dir_fd=fd),
    "remove": lambda path, fd: os.remove(path / "file", dir_fd=fd),
    "unlink": lambda path, fd: os.unlink(path / "file", dir_fd=fd),
    "rmdir": lambda path, fd: os.rmdir(path / "empty", dir_fd=fd),
    "rename from": lambda path, fd: os.rename(path / "file", "moved", src_dir_fd=fd),
    "rename to": lambda path, fd: os.rename("file", path / "moved", dst_dir_fd=fd),
    "replace to": lambda path, fd: os.replace("file", path / "file", dst_dir_fd=fd),
    "link": lambda path, fd: os.link("file", path / "hard", dst_dir_fd=fd),
    "symlink": lambda path, fd: os.symlink("file", path / "soft", dir_fd=fd),
    "chmod": lambda path, fd: os.chmod(path / "file", 0o600, dir_fd=fd),
    "chown": lambda path, fd: os.chown(path / "file", os.getuid(), os.getgid(), dir_fd=fd),
    "utime": lambda path, fd: os.utime(path / "file", dir_fd=fd),
    "mkfifo": lambda path, fd: os.mkfifo(path / "pipe", dir_fd=fd),
    "mknod": lambda path, fd: os.mknod(path / "node", dir_fd=fd),
}
NO_FOLDER = Path()


@contextlib.contextmanager
def opened(folder: Path) -> Generator[int]:
    number = os.open(folder, os.O_RDONLY)
    try:
        yield number
    finally:
        os.close(number)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_another_folder_is_refused_and_in_the_own_one_allowed(
    folders: tuple[Path, Path], name: str
):
    own, other = folders
    with guard_replay(allow=[own]) as guard:
        with pytest.raises(IsolationError, match=r"changed the file .*/other/"):
            CHANGES[name](other, None)
        CHANGES[name](own, None)
    assert len(guard.violations) == 1
    assert sorted(path.name for path in other.iterdir()) == ["empty", "file"]


@pytest.mark.parametrize("name", CHANGES)
def test_a_name_is_relative_to_its_open_folder(folders: tuple[Path, Path], name: str):
    own, other = folders
    with opened(other) as there, opened(own) as here, guard_replay(allow=[own]) as guard:
        with pytest.raises(IsolationError, match=r"changed the file .*/other/"):
            CHANGES[name](NO_FOLDER, there)
        CHANGES[name](NO_FOLDER, here)
    assert len(guard.violations) == 1
    assert sorted(path.name for path in other.iterdir()) == ["empty", "file"]


def test_a_folder_that_replaces_the_standard_input_is_no_allowed_one(folders: tuple[Path, Path]):
    own, other = folders
    standard_input = os.dup(0)
    with opened(other) as there:
        os.dup2(there, 0)
        try:
            with guard_replay(allow=[own]), pytest.raises(IsolationError, match="/other/new"):
                os.mkdir("new", dir_fd=0)
        finally:
            os.dup2(standard_input, 0)
            os.close(standard_input)


CONTENTS: dict[str, Callable[[Path], object]] = {
    "truncate": lambda path: os.truncate(path, 0),
    "setxattr": lambda path: os.setxattr(path, "user.x", b"1"),
    "removexattr": lambda path: os.removexattr(path, "user.x"),
}


@pytest.mark.parametrize("change", CONTENTS.values(), ids=CONTENTS)
def test_the_content_of_another_file_is_not_changed(
    folders: tuple[Path, Path], change: Callable[[Path], object]
):
    own, other = folders
    with guard_replay(allow=[own]) as guard:
        with pytest.raises(IsolationError, match="changed the file"):
            change(other / "file")
        with contextlib.suppress(OSError):  # not every file system has attributes
            change(own / "file")
    assert len(guard.violations) == 1
    assert (other / "file").read_text() == "x"


@pytest.mark.parametrize("change", ["chmod", "utime"])
def test_a_change_follows_a_link(folders: tuple[Path, Path], change: str):
    own, other = folders
    (own / "file").unlink()
    (own / "file").symlink_to(other / "file")
    with guard_replay(allow=[own]), pytest.raises(IsolationError, match=r"/other/file"):
        CHANGES[change](own, None)


LINKS: dict[str, Callable[[Path], object]] = {
    "mkdir": lambda link: link.mkdir(),
    "remove": lambda link: link.unlink(),
    "rmdir": lambda link: link.rmdir(),
    "rename from": lambda link: link.rename("moved"),
    "rename to": lambda link: Path("file").rename(link),
    "link": lambda link: link.hardlink_to("file"),
    "symlink": lambda link: link.symlink_to("file"),
    "mkfifo": lambda link: os.mkfifo(link, 0o600),
}


@pytest.mark.parametrize("change", LINKS.values(), ids=LINKS)
def test_a_change_of_a_folder_does_not_follow_a_link(
    folders: tuple[Path, Path], change: Callable[[Path], object]
):
    own, other = folders
    (own / "link").symlink_to(other / "file")
    (other / "link").symlink_to(own / "file")
    with guard_replay(allow=[own]) as guard:
        with pytest.raises(IsolationError, match="/other/link"):
            change(other / "link")
        with contextlib.suppress(OSError):  # the name exists, or is no folder
            change(own / "link")
    assert len(guard.violations) == 1


@pytest.mark.parametrize("make", ["mkfifo", "mknod"])
def test_a_special_file_in_the_allowed_folder_is_created(folders: tuple[Path, Path], make: str):
    with guard_replay(allow=[folders[0]]):
        getattr(os, make)(folders[0] / "new")
    assert (folders[0] / "new").exists()


@pytest.mark.parametrize("name", [os.devnull, "/dev/tty"])
def test_a_device_that_keeps_nothing_may_be_written(name: str):
    with guard_replay() as guard:
        guard.check_open("open", (name, "w", 0))
    assert guard.violations == []


@pytest.mark.parametrize("mode", ["w", "a", "x", "r+", "wb"])
def test_each_mode_that_writes_is_refused(folders: tuple[Path, Path], mode: str):
    path = folders[1] / ("new" if mode == "x" else "file")
    with guard_replay(), pytest.raises(IsolationError, match="wrote the file"):
        path.open(mode)


@pytest.mark.parametrize(
    "flags", [os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_RDWR | os.O_APPEND]
)
def test_each_flag_that_writes_is_refused(folders: tuple[Path, Path], flags: int):
    with guard_replay(), pytest.raises(IsolationError, match="wrote the file"):
        os.open(folders[1] / "file", flags)


def test_reading_is_allowed(folders: tuple[Path, Path]):
    with guard_replay() as guard:
        os.close(os.open(folders[1] / "file", os.O_RDONLY))
        (folders[1] / "file").read_bytes()
        (folders[1] / "file").open("rt").close()
    assert guard.violations == []


NATIVE = [
    *("bind", "connect", "creat", "execv", "execve", "fopen", "fork", "forkpty", "getaddrinfo"),
    *("listen", "mkdir", "open", "openat", "popen", "posix_spawn", "rename", "send", "sendmsg"),
    *("sendto", "syscall", "system", "unlink", "vfork"),
]


@pytest.mark.parametrize("function", NATIVE)
def test_a_function_of_the_c_library_is_refused(function: str):
    with (
        guard_replay() as guard,
        pytest.raises(IsolationError, match=f"called {function} with ctypes"),
    ):
        guard.check_native("ctypes.dlsym", (None, function))


def test_a_harmless_function_of_the_c_library_is_allowed():
    with guard_replay() as guard:
        guard.check_native("ctypes.dlsym", (None, "getpid"))
    assert guard.violations == []


LIBRARIES = [
    *("MySQLdb", "confluent_kafka", "curl_cffi", "grpc", "oracledb", "psycopg2", "psycopg_binary"),
    *("psycopg_c", "pycurl", "pymssql", "pyodbc", "uvloop", "zmq"),
]


def test_the_loaded_libraries_that_no_guard_can_see_into_are_named(
    monkeypatch: pytest.MonkeyPatch,
):
    for name in LIBRARIES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert native_libraries() == []
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    assert native_libraries() == LIBRARIES


@pytest.mark.parametrize(
    "event, arguments, message",
    [
        ("socket.connect", (None, ("host", 80)), "connected to the network: host:80$"),
        ("socket.connect", (None, ("::1", 80, 0, 0)), "connected to the network: ::1:80$"),
        ("socket.bind", (None, ("", 80)), "opened a port: :80$"),
        ("socket.sendto", (None, ("host", 80)), "connected to the network: host:80$"),
        ("socket.sendmsg", (None, ("host", 80)), "connected to the network: host:80$"),
        ("socket.getaddrinfo", ("host", 80), "looked up a host: host$"),
        ("socket.getaddrinfo", (None, 80), "looked up a host: None$"),
        ("socket.gethostbyname", ("host",), "looked up a host: host$"),
        ("socket.gethostbyname", ("127.0.0.1",), "looked up a host: 127.0.0.1$"),
        ("socket.gethostbyaddr", ("host",), "looked up a host: host$"),
        ("socket.getnameinfo", (("host", 80),), "looked up a host: host:80$"),
        ("socket.connect", (None, "\0name"), "connected to the socket 'name'$"),
        ("socket.connect", (None, b"/s"), "connected to the socket /s$"),
        ("socket.connect", (None, bytearray(b"/s")), "connected to the socket /s$"),
    ],
)
def test_each_way_into_the_network_is_named(event: str, arguments: Any, message: str):
    with guard_replay() as guard:
        with pytest.raises(IsolationError) as raised:
            sys.audit(event, *arguments)
        with pytest.raises(IsolationError):
            guard.check_network(event, arguments)
    assert f"{raised.value.what}$".endswith(message)


@pytest.mark.parametrize(
    "event, arguments",
    [
        ("socket.sendmsg", (None, None)),
        ("socket.getaddrinfo", ("127.0.0.1", 80)),
        ("socket.getaddrinfo", (b"::1", 80)),
    ],
)
def test_what_needs_no_network_is_allowed(event: str, arguments: Any):
    with guard_replay() as guard:
        guard.check_network(event, arguments)
    assert guard.violations == []


@pytest.mark.parametrize(
    "event",
    [
        *("subprocess.Popen", "os.system", "os.posix_spawn", "os.spawn", "os.exec", "os.fork"),
        *("os.forkpty", "pty.spawn"),
    ],
)
def test_each_way_to_start_a_process_is_refused_with_the_command(event: str):
    with guard_replay(network=True), pytest.raises(IsolationError) as raised:
        sys.audit(event, None, "command", "folder")
    assert raised.value.what == (
        "a test that only replays started a process, which cannot be watched: command"
    )


def test_a_process_without_a_command_is_refused():
    with guard_replay(), pytest.raises(IsolationError) as raised:
        sys.audit("os.fork")
    assert raised.value.what.endswith("started a process, which cannot be watched")


def test_with_processes_allowed_the_network_is_still_refused():
    with guard_replay(processes=True), pytest.raises(IsolationError):
        sys.audit("socket.connect", None, ("host", 80))
    with guard_replay(network=True, processes=True) as guard:
        sys.audit("socket.connect", None, ("host", 80))
        sys.audit("os.fork")
    assert guard.violations == []


def test_a_socket_of_a_file_may_listen(tmp_path: Path):
    with guard_replay(allow=[tmp_path]) as guard, socket.socket(socket.AF_UNIX) as sock:
        with contextlib.chdir(tmp_path):
            sock.bind("s")
        sock.listen()
    assert guard.violations == []


@pytest.mark.parametrize("module", ["sqlite3", "sqlite3.dbapi2"])
def test_a_database_of_each_module_cannot_attach_another_file(
    folders: tuple[Path, Path], module: str
):
    with (
        guard_replay(allow=[folders[0]]) as guard,
        contextlib.closing(sys.modules[module].connect(":memory:")) as database,
        pytest.raises(sqlite3.DatabaseError),
    ):
        database.execute(f"ATTACH '{folders[1]}/db' AS other")
    assert len(guard.violations) == 1


@pytest.mark.parametrize(
    "database, file",
    [
        ("plain.db", "plain.db"),
        (b"plain.db", b"plain.db"),
        ("file:a.db", "a.db"),
        ("file:a.db?mode=rwc", "a.db"),
        ("file:a.db?mode=ro", ""),
        ("file:a.db?mode=rwc&mode=memory", ""),
        ("file:a.db?cache=shared#mode=ro", "a.db"),
        ("file::memory:", ""),
        ("file:///a.db", "/a.db"),
        ("file://localhost/a.db", "/a.db"),
        ("file:/a.db", "/a.db"),
        ("file:a%20b.db", "a b.db"),
    ],
)
def test_the_file_of_a_database_uri(database: Any, file: Any):
    assert home._database_file(database) == file  # pyright: ignore[reportPrivateUsage]


def test_a_guard_that_was_removed_in_part_is_a_violation():
    registry: Any = getattr(home.watch_audit_events, "__self__")  # noqa: B009 - no part of its type
    before = registry._handlers
    with guard_replay() as guard:
        registry._handlers = {
            name: handlers for name, handlers in registry._handlers.items() if name != "open"
        }
    registry._handlers = before
    assert len(guard.violations) == 1


def test_an_operation_in_a_pause_is_listed_with_its_line(folders: tuple[Path, Path]):
    with guard_replay() as guard, guard.paused() as listed:
        (folders[1] / "file").write_text("y")
    [entry] = listed
    assert entry.startswith(f"wrote the file {(folders[1] / 'file').resolve()} ({FILE}:")
    assert guard.permitted is None


def test_after_an_inner_pause_the_outer_one_continues(folders: tuple[Path, Path]):
    with guard_replay() as guard, guard.paused() as outer:
        with guard.paused() as inner:
            (folders[1] / "file").write_text("y")
        (folders[1] / "file").write_text("z")
    assert (len(outer), len(inner)) == (1, 1)


def test_a_violation_has_a_hint(folders: tuple[Path, Path]):
    with guard_replay(), pytest.raises(IsolationError) as raised:
        (folders[1] / "file").write_text("y")
    assert raised.value.hint == (
        "write below tmp_path, replay a recording, or change the mark of the test"
    )


def test_the_spent_time_is_what_passed_without_pauses_and_waiting(monkeypatch: pytest.MonkeyPatch):
    times = iter([10.0, 11.0, 13.0, 20.0])  # start, a pause of two seconds, end
    waiting = iter([1.0, 4.0])
    monkeypatch.setattr(home, "_now", lambda: next(times))
    monkeypatch.setattr(home, "seconds_waiting_for_cpu", lambda: next(waiting))
    with time_budget(100, FILE) as watch, watch.paused():
        pass
    assert (watch.uncounted, watch.spent) == (2.0, 5.0)


@pytest.mark.parametrize("spent, over", [(1.0, False), (1.1, True)])
def test_a_budget_may_be_used_up(spent: float, *, over: bool):
    watch = Stopwatch(1.0, FILE)
    watch.spent = spent
    assert watch.over is over


def test_no_timer_is_left_after_the_block():
    with time_budget(100, FILE):
        [timer] = [
            thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)
        ]
        assert timer.daemon
    timer.join(300)
    assert not timer.is_alive()


@pytest.mark.parametrize(
    "content, seconds", [("1 2500000000 3", 2.5), ("1", 0.0), ("a b c", 0.0), (None, 0.0)]
)
def test_the_time_without_a_cpu_is_read_from_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, seconds: float
):
    if content is not None:
        (tmp_path / "schedstat").write_text(content)
    monkeypatch.setattr(home, "SCHEDULE", tmp_path / "schedstat")
    assert seconds_waiting_for_cpu() == seconds


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="not measured here")
def test_linux_measures_the_time_without_a_cpu():
    assert seconds_waiting_for_cpu() > 0


def test_a_process_that_is_permitted_is_started():
    def start(*words: str) -> str:
        return " ".join(words)

    with guard_replay() as guard:
        with pytest.raises(IsolationError, match=r"started a process.*: one"):
            guard.check_spawn(start, "one", "two")
        with guard.paused():
            assert guard.check_spawn(start, "one", "two") == "one two"


def test_a_file_that_is_written_through_a_link_is_the_other_one(folders: tuple[Path, Path]):
    own, other = folders
    (own / "link").symlink_to(other / "file")
    with guard_replay(allow=[own]), pytest.raises(IsolationError, match=r"wrote .*/other/file"):
        (own / "link").write_text("y")


def test_no_time_is_spent_before_the_end():
    assert (Stopwatch(0.5, FILE).spent, Stopwatch(0.5, FILE).over) == (0.0, False)


def test_code_in_no_event_loop_that_runs_no_line_of_the_file_has_no_line():
    watch = Stopwatch(0.5, "shop.py")
    watch.line = "unknown"
    watch.sample()
    assert watch.line == ""
