"""Signals wake an event loop, and nothing is left of that afterwards."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from offbook.determinism.signal_wakeup import SignalWakeup


@pytest.fixture
def wakeup() -> Iterator[SignalWakeup]:
    loop = asyncio.new_event_loop()
    wakeup = SignalWakeup(loop)
    yield wakeup
    wakeup.close()
    loop.close()


def current_wakeup() -> int:
    """Return the file that signals write to now, or -1."""
    current = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(current)
    return current


@pytest.fixture
def own() -> Iterator[int]:
    """The file of another part of the program."""
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        yield writer.fileno()
        signal.set_wakeup_fd(-1)


def test_the_file_that_was_set_before_is_restored(wakeup: SignalWakeup, own: int):
    signal.set_wakeup_fd(own)
    with wakeup.active():
        assert current_wakeup() not in {own, -1}
    assert current_wakeup() == own


def test_the_file_that_an_agent_sets_is_kept(wakeup: SignalWakeup, own: int):
    with wakeup.active():
        signal.set_wakeup_fd(own)
    assert current_wakeup() == own


def test_it_has_no_effect_in_another_thread(wakeup: SignalWakeup):
    entered: list[bool] = []

    def enter() -> None:
        with wakeup.active():
            entered.append(True)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered == [True]
    assert current_wakeup() == -1


def test_no_file_is_left_open():
    loop = asyncio.new_event_loop()
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    SignalWakeup(loop).close()
    again = os.pipe()
    assert again == (reader, writer)
    for end in again:
        os.close(end)
    loop.close()
