"""The limits of a test that only replays: forbidden operations raise, and slow code is located."""

import _thread
import asyncio
import contextlib
import ctypes
import importlib
import multiprocessing
import os
import pty
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite

from offbook.determinism import watch_audit_events
from offbook.errors import IsolationError
from offbook.goldens import Stopwatch, guard_replay, seconds_waiting_for_cpu, time_budget

HERE = Path(__file__)


def connect(_: Path) -> None:
    with socket.socket() as sock:
        sock.connect(("127.0.0.1", 9))


def bind(_: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 9))


def receive(_: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))


def listen_anywhere(_: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()


def send(_: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("127.0.0.1", 9))


def look_up(_: Path) -> None:
    socket.getaddrinfo("example.invalid", 80)


def start(_: Path) -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def write(folder: Path) -> None:
    (folder / "a.txt").write_text("x")


def append(folder: Path) -> None:
    with (folder / "there.txt").open("a"):
        pass


def open_with_flags(folder: Path) -> None:
    os.close(os.open(folder / "a.txt", os.O_WRONLY | os.O_CREAT))


def make(folder: Path) -> None:
    (folder / "sub").mkdir()


def move(folder: Path) -> None:
    (folder / "there.txt").rename(folder / "b.txt")


def remove(folder: Path) -> None:
    (folder / "there.txt").unlink()


def link(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "there.txt")


def remove_tree(folder: Path) -> None:
    shutil.rmtree(folder)


def open_database(folder: Path) -> None:
    sqlite3.connect(folder / "db").close()


def listen_unbound(_: Path) -> None:
    with socket.socket() as sock:
        sock.listen()


def name_address(_: Path) -> None:
    socket.getnameinfo(("127.0.0.1", 9), 0)


def connect_to_socket_file(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(folder / "there.txt"))


def fork_with_terminal(_: Path) -> None:
    pty.fork()


def spawn_with_terminal(_: Path) -> None:
    pty.spawn(["true"])


def spawn_with_multiprocessing(_: Path) -> None:
    multiprocessing.get_context("spawn").Process(target=print).start()


def call_native_code(_: Path) -> None:
    ctypes.CDLL(None).system(b"true")


def write_in_cache(folder: Path) -> None:
    (folder / "__pycache__.txt").write_text("x")


def write_bytecode_by_hand(folder: Path) -> None:
    (folder / "__pycache__" / "a.pyc").write_text("x")


def change_mode(folder: Path) -> None:
    (folder / "there.txt").chmod(0o600)


def change_time(folder: Path) -> None:
    os.utime(folder / "there.txt")


def make_pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


OPERATIONS = [
    (listen_unbound, "opened a port: any"),
    (name_address, "looked up a host: 127.0.0.1:9"),
    (connect_to_socket_file, "connected to the socket"),
    (fork_with_terminal, "started a process"),
    (spawn_with_terminal, "started a process"),
    (spawn_with_multiprocessing, "started a process"),
    (call_native_code, "called system with ctypes"),
    (write_in_cache, "wrote the file"),
    (write_bytecode_by_hand, "wrote the file"),
    (change_mode, "changed the file"),
    (change_time, "changed the file"),
    (make_pipe, "changed the file"),
    (connect, "connected to the network: 127.0.0.1:9"),
    (bind, "opened a port: 127.0.0.1:9"),
    (receive, "opened a port: 127.0.0.1:0"),
    (listen_anywhere, "opened a port: any"),
    (send, "connected to the network: 127.0.0.1:9"),
    (look_up, "looked up a host: example.invalid"),
    (start, "started a process"),
    (write, "wrote the file"),
    (append, "wrote the file"),
    (open_with_flags, "wrote the file"),
    (make, "changed the file"),
    (move, "changed the file"),
    (remove, "changed the file"),
    (link, "changed the file"),
    (remove_tree, "changed the file"),
    (open_database, "changed the file"),
]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "there.txt").write_text("")
    return folder


@pytest.mark.parametrize(
    "operation, message", OPERATIONS, ids=[operation.__name__ for operation, _ in OPERATIONS]
)
def test_a_forbidden_operation_is_refused_with_its_line(
    operation: Callable[[Path], None], message: str, outside: Path
):
    before = sorted(outside.iterdir())
    first = operation.__code__.co_firstlineno
    with guard_replay() as guard, pytest.raises(IsolationError, match=message) as raised:
        operation(outside)
    file, line = raised.value.where.partition(" in ")[0].rsplit(":", 1)
    assert Path(file) == HERE
    assert first < int(line) <= first + 3
    assert guard.violations == [raised.value]
    assert sorted(outside.iterdir()) == before


def test_a_socket_bound_to_any_port_opens_none_until_it_listens():
    with guard_replay() as guard, socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
    assert guard.violations == []


@pytest.mark.parametrize(
    "operation", [write, append, open_with_flags, make, move, remove, link, open_database]
)
def test_the_allowed_folder_may_be_written(operation: Callable[[Path], None], outside: Path):
    with guard_replay(allow=[outside]) as guard:
        operation(outside)
    assert guard.violations == []


def test_a_folder_in_the_allowed_folder_may_be_removed(outside: Path):
    with guard_replay(allow=[outside.parent]):
        shutil.rmtree(outside)
    assert not outside.exists()


def test_a_folder_whose_name_begins_like_the_allowed_one_is_not_allowed(outside: Path):
    with guard_replay(allow=[outside.parent / "out"]), pytest.raises(IsolationError):
        write(outside)


def test_a_link_from_the_allowed_folder_to_another_is_not_allowed(outside: Path, tmp_path: Path):
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "link").symlink_to(outside)
    with guard_replay(allow=[allowed]), pytest.raises(IsolationError, match="outside"):
        write(allowed / "link")


def test_reading_and_dev_null_are_allowed(outside: Path):
    with guard_replay() as guard:
        (outside / "there.txt").read_text()
        Path(os.devnull).write_text("x")
        with socket.socket():
            pass
    assert guard.violations == []


@pytest.mark.parametrize(
    "statement", ["ATTACH '{}/db' AS other", "VACUUM INTO '{}/db'", "ATTACH ? AS x"]
)
def test_a_database_cannot_attach_a_file_elsewhere(outside: Path, statement: str):
    values = (str(outside / "db"),) if "?" in statement else ()
    with (
        guard_replay() as guard,
        contextlib.closing(sqlite3.connect(":memory:")) as database,
        pytest.raises(sqlite3.DatabaseError, match="authoriz"),
    ):
        database.execute(statement.format(outside), values)
    assert len(guard.violations) == 1
    assert not (outside / "db").exists()


def test_a_database_may_attach_a_file_in_the_allowed_folder(outside: Path):
    with (
        guard_replay(allow=[outside]) as guard,
        contextlib.closing(sqlite3.connect(":memory:")) as database,
    ):
        database.execute(f"ATTACH '{outside}/db' AS other")
    assert guard.violations == []


@pytest.mark.parametrize(
    "uri",
    ["file::memory:?cache=shared", "file:name?mode=memory&cache=shared", "file:{}?mode=ro#part"],
)
def test_a_database_in_memory_or_read_only_is_allowed(outside: Path, uri: str):
    file = outside / "there.txt"
    with guard_replay() as guard:
        sqlite3.connect(uri.format(file), uri=True).close()
    assert guard.violations == []


def test_a_database_uri_of_a_file_elsewhere_is_refused(outside: Path):
    with guard_replay(), pytest.raises(IsolationError, match="changed the file"):
        sqlite3.connect(f"file://localhost{outside}/db?mode=rwc", uri=True)


def test_an_open_file_may_be_truncated(outside: Path):
    with guard_replay(allow=[outside]) as guard, (outside / "a.txt").open("w") as file:
        os.ftruncate(file.fileno(), 10)
    assert guard.violations == []


def test_a_link_in_the_allowed_folder_may_be_removed(outside: Path, tmp_path: Path):
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "link").symlink_to(outside)
    with guard_replay(allow=[allowed]) as guard:
        (allowed / "link").unlink()
    assert guard.violations == []


def test_socket_files_in_the_allowed_folder_and_socket_pairs_are_allowed():
    with tempfile.TemporaryDirectory() as folder, guard_replay(allow=[folder]) as guard:
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind(f"{folder}/s")
            server.listen()
            client.connect(f"{folder}/s")
        left, right = socket.socketpair()
        with left, right:
            left.sendmsg([b"x"])
    assert guard.violations == []


def test_python_may_write_the_bytecode_of_an_imported_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "guarded_module.py").write_text("x = 1\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    with guard_replay() as guard:
        importlib.import_module("guarded_module")
    assert guard.violations == []
    assert list((tmp_path / "__pycache__").iterdir())


@pytest.fixture
def as_pytest() -> dict[str, Callable[[Path], None]]:
    """Return functions that seem to be those of pytest."""
    source = (
        "import os\n"
        "def write(path):\n    open(path, 'wb').close()\n"
        "def make(path):\n    os.makedirs(path)\n"
    )
    names: dict[str, Any] = {}
    exec(compile(source, rewrite.__file__, "exec"), names)  # noqa: S102 - a file of its own
    return names


def test_pytest_may_write_the_bytecode_of_a_rewritten_module(
    outside: Path, as_pytest: dict[str, Callable[[Path], None]]
):
    cache = outside / "__pycache__"
    with guard_replay() as guard:
        as_pytest["make"](cache)
        as_pytest["write"](cache / "test_shop.pyc")
    assert guard.violations == []


def test_pytest_may_write_no_other_file(
    outside: Path, as_pytest: dict[str, Callable[[Path], None]]
):
    (outside / "__pycache__" / "deeper").mkdir(parents=True)
    for path in (outside / "new", outside / "__pycache__" / "deeper" / "new"):
        with guard_replay(), pytest.raises(IsolationError):
            as_pytest["write"](path)


def test_a_guard_that_the_test_removes_is_a_violation(outside: Path):
    registry: Any = getattr(watch_audit_events, "__self__")  # noqa: B009 - no part of its type
    before = registry._handlers
    with guard_replay() as guard:
        registry._handlers = {}
        write(outside)
    registry._handlers = before
    assert [error.what for error in guard.violations] == [
        "a test removed the guard of replay tests"
    ]


def in_thread(work: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        with contextlib.suppress(IsolationError):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_thread_of_the_test_is_guarded(outside: Path):
    with guard_replay() as guard:
        in_thread(lambda: write(outside)).join()
    assert len(guard.violations) == 1


def test_a_thread_that_threading_does_not_know_is_guarded(outside: Path):
    done = threading.Event()

    def work() -> None:
        with contextlib.suppress(IsolationError):
            write(outside)
        done.set()

    with guard_replay() as guard:
        _thread.start_new_thread(work, ())
        done.wait(300)
    assert len(guard.violations) == 1


def test_a_thread_of_an_earlier_test_is_not_blamed_on_the_next(outside: Path):
    go = threading.Event()
    unguarded = in_thread(lambda: (go.wait(), write(outside)))
    with guard_replay() as earlier:
        guarded = in_thread(lambda: (go.wait(), make(outside)))
    with guard_replay() as guard:
        go.set()
        unguarded.join()
        guarded.join()
    assert guard.violations == []
    assert (outside / "a.txt").exists()
    assert [error.what.split()[-3:-1] for error in earlier.violations] == [["the", "file"]]


OUTLIVES_ITS_GUARD = """
import os, threading
from offbook.goldens.replay_guard import guard_replay

go = threading.Event()
thread = threading.Thread(target=lambda: (go.wait(), os.fork()))
threading.excepthook = lambda _: None
with guard_replay() as earlier:
    thread.start()
with guard_replay() as later:
    go.set()
    thread.join()
print(len(earlier.violations), len(later.violations))
"""


def test_a_thread_is_known_by_its_guard_also_without_the_plugin_of_pytest():
    command = [sys.executable, "-c", OUTLIVES_ITS_GUARD]
    assert subprocess.check_output(command, text=True).split() == ["1", "0"]


def test_everything_is_allowed_in_a_pause(outside: Path):
    with guard_replay() as guard, guard.paused():
        write(outside)
    assert guard.violations == []


def test_a_violation_that_was_swallowed_is_kept(outside: Path):
    with guard_replay() as guard, contextlib.suppress(IsolationError):
        write(outside)
    assert len(guard.violations) == 1


def test_everything_is_allowed_after_the_block(outside: Path):
    with guard_replay():
        pass
    write(outside)
    assert (outside / "a.txt").exists()


def test_network_and_processes_can_be_allowed():
    with guard_replay(network=True, processes=True) as guard:
        bind(HERE)
    assert guard.violations == []


FILE = str(HERE)


def test_fast_code_is_within_the_budget():
    with time_budget(5, FILE) as watch:
        pass
    assert not watch.over
    assert watch.line == ""


def test_time_that_the_test_invents_does_not_count(monkeypatch: pytest.MonkeyPatch):
    with time_budget(5, FILE) as watch:
        for name in ("time", "monotonic", "perf_counter"):
            monkeypatch.setattr(time, name, lambda: 1e9)  # as freezegun does
    monkeypatch.undo()
    assert not watch.over


def test_slow_code_is_located():
    never = threading.Event()
    with time_budget(0.1, FILE) as watch:
        while not watch.line:  # a thread notes it, which may be late
            never.wait(0.3)
    first = test_slow_code_is_located.__code__.co_firstlineno
    assert watch.over
    assert watch.line in {f"{FILE}:{first + line}" for line in (2, 3, 4)}


def test_a_slow_coroutine_is_located():
    async def wait() -> None:
        await asyncio.sleep(0.2)

    with time_budget(0.02, FILE) as watch:
        asyncio.run(wait())
    assert watch.over
    first = test_a_slow_coroutine_is_located.__code__.co_firstlineno
    # On a busy machine the time can be over before the coroutine has begun.
    assert watch.line in {f"{FILE}:{first + line}" for line in (2, 4, 5)}


async def test_a_coroutine_that_waits_while_the_loop_runs_other_code_is_located():
    names: dict[str, Any] = {}
    source = "async def wait(event):\n    await event.wait()\n"
    exec(compile(source, "shop.py", "exec"), names)  # noqa: S102 - a file of its own
    event = asyncio.Event()
    task = asyncio.create_task(names["wait"](event))
    await asyncio.sleep(0)
    watch, unknown = Stopwatch(1, "shop.py"), Stopwatch(1, "bank.py")
    watch.sample()
    unknown.sample()
    event.set()
    await task
    assert (watch.line, unknown.line) == ("shop.py:2", "")


def test_the_time_without_a_cpu_is_never_negative():
    assert seconds_waiting_for_cpu() >= 0
