"""The guard of a test that only replays: each thing it may not do is refused, with the line."""

import contextlib
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from offbook.determinism.guard import guard_replay
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


def open_low(folder: Path) -> None:
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


def store(folder: Path) -> None:
    sqlite3.connect(folder / "db").close()


TRIES = [
    (connect, "reached for the network: 127.0.0.1:9"),
    (listen, "opened a port: 127.0.0.1:0"),
    (send, "reached for the network: 127.0.0.1:9"),
    (look_up, "looked up a host: example.invalid"),
    (start, "started a process"),
    (write, "wrote the file"),
    (append, "wrote the file"),
    (open_low, "wrote the file"),
    (make, "changed the file"),
    (move, "changed the file"),
    (remove, "changed the file"),
    (link, "changed the file"),
    (remove_tree, "changed the file"),
    (store, "changed the file"),
]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "there.txt").write_text("")
    return folder


@pytest.mark.parametrize("attempt, what", TRIES, ids=[attempt.__name__ for attempt, _ in TRIES])
def test_what_a_replay_may_not_do_is_refused_with_its_line(
    attempt: Callable[[Path], None], what: str, outside: Path
):
    before = sorted(outside.iterdir())
    first = attempt.__code__.co_firstlineno
    with guard_replay() as guard, pytest.raises(IsolationError, match=what) as raised:
        attempt(outside)
    file, line = raised.value.where.partition(" in ")[0].rsplit(":", 1)
    assert Path(file) == HERE
    assert first < int(line) <= first + 3
    assert guard.broken == [raised.value]
    assert sorted(outside.iterdir()) == before


@pytest.mark.parametrize("attempt", [write, append, open_low, make, move, remove, link, store])
def test_below_its_own_folder_it_may(attempt: Callable[[Path], None], outside: Path):
    with guard_replay(allow=[outside]) as guard:
        attempt(outside)
    assert guard.broken == []


def test_it_may_remove_a_folder_of_its_own(outside: Path):
    with guard_replay(allow=[outside.parent]):
        shutil.rmtree(outside)
    assert not outside.exists()


def test_a_neighbour_with_a_longer_name_is_not_its_own(outside: Path):
    with guard_replay(allow=[outside.parent / "out"]), pytest.raises(IsolationError):
        write(outside)


def test_a_link_out_of_its_own_folder_leads_outside(outside: Path, tmp_path: Path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "link").symlink_to(outside)
    with guard_replay(allow=[own]), pytest.raises(IsolationError, match="outside"):
        write(own / "link")


def test_reading_and_the_sink_are_free(outside: Path):
    with guard_replay() as guard:
        (outside / "there.txt").read_text()
        Path(os.devnull).write_text("x")
        with socket.socket():
            pass
    assert guard.broken == []


def test_what_was_swallowed_is_still_known(outside: Path):
    with guard_replay() as guard, contextlib.suppress(IsolationError):
        write(outside)
    assert len(guard.broken) == 1


def test_afterwards_everything_is_free_again(outside: Path):
    with guard_replay():
        pass
    write(outside)
    assert (outside / "a.txt").exists()


def test_bans_can_be_lifted():
    with guard_replay(network=True, processes=True) as guard:
        listen(HERE)
    assert guard.broken == []
