"""The limits of a test that only replays: forbidden operations raise, and slow code is located."""

import asyncio
import contextlib
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from offbook.determinism.guard import guard_replay, seconds_waiting_for_cpu, time_budget
from offbook.errors import IsolationError

HERE = Path(__file__)


def connect(_: Path) -> None:
    with socket.socket() as sock:
        sock.connect(("127.0.0.1", 9))


def listen(_: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))


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


OPERATIONS = [
    (connect, "connected to the network: 127.0.0.1:9"),
    (listen, "opened a port: 127.0.0.1:0"),
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
        listen(HERE)
    assert guard.violations == []


FILE = str(HERE)


def test_fast_code_is_within_the_budget():
    with time_budget(5, FILE) as watch:
        pass
    assert not watch.over
    assert watch.line == ""


def test_slow_code_is_located():
    never = threading.Event()
    with time_budget(0.02, FILE) as watch:
        never.wait(0.2)
    line = test_slow_code_is_located.__code__.co_firstlineno + 3
    assert watch.over
    assert watch.line == f"{FILE}:{line}"


def test_a_slow_coroutine_is_located():
    async def wait() -> None:
        await asyncio.sleep(0.2)

    with time_budget(0.02, FILE) as watch:
        asyncio.run(wait())
    assert watch.over
    line = test_a_slow_coroutine_is_located.__code__.co_firstlineno
    assert watch.line in {f"{FILE}:{line + 2}", f"{FILE}:{line + 5}"}


def test_the_time_without_a_cpu_is_never_negative():
    assert seconds_waiting_for_cpu() >= 0
