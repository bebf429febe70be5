"""The bridge runs coroutines from plain functions."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.runs import SyncBridge, in_event_loop

PROGRAM = """
from offbook import say, session, when

with session() as rehearsal:
    rehearsal.run(when("Hi", [say("Hello!")]))
"""


async def is_in_loop() -> bool:
    return in_event_loop()


def test_a_running_event_loop_is_detected():
    assert not in_event_loop()
    bridge = SyncBridge()
    assert bridge.run(is_in_loop())
    bridge.close()


async def get_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_all_calls_of_a_bridge_and_the_next_bridge_run_in_one_loop():
    bridge = SyncBridge()
    first = bridge.run(get_loop())
    assert bridge.run(get_loop()) is first
    bridge.close()
    bridge.close()
    following = SyncBridge()
    assert following.run(get_loop()) is first
    following.close()


async def leave_a_task() -> None:
    LEFT.append(asyncio.create_task(asyncio.Event().wait()))


async def leave_a_timer() -> None:
    asyncio.get_running_loop().call_later(60, print)


async def leave_a_thread() -> None:
    await asyncio.to_thread(int)


async def leave_a_generator() -> None:
    async def count() -> AsyncGenerator[int]:
        yield 1

    LEFT.append(generator := count())
    await anext(generator)


async def leave_a_connection() -> None:
    one, other = socket.socketpair()
    LEFT.extend((one, other))
    asyncio.get_running_loop().add_reader(one, int)


LEFT: list[object] = []
LEAVING = [
    leave_a_task,
    leave_a_timer,
    leave_a_thread,
    leave_a_generator,
    leave_a_connection,
]


@pytest.mark.parametrize("leave", LEAVING)
def test_a_loop_in_which_something_was_left_is_closed(
    leave: Callable[[], Coroutine[Any, Any, None]],
):
    bridge = SyncBridge()
    loop = bridge.run(get_loop())
    bridge.run(leave())
    bridge.close()
    assert loop.is_closed()
    for left in LEFT:
        if isinstance(left, socket.socket):
            left.close()
    LEFT.clear()


def test_a_callback_that_was_left_runs_before_the_loop_is_used_again():
    ran: list[str] = []

    async def leave_a_callback() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, ran.append, "the callback of a callback")

    bridge = SyncBridge()
    bridge.run(leave_a_callback())
    bridge.close()
    assert ran == ["the callback of a callback"]


def test_a_timer_that_ended_is_not_left():
    async def wait() -> asyncio.AbstractEventLoop:
        LEFT.append(asyncio.get_running_loop().call_later(0, int))
        await asyncio.sleep(0.001)
        return asyncio.get_running_loop()

    bridge = SyncBridge()
    loop = bridge.run(wait())
    bridge.close()
    LEFT.clear()
    assert not loop.is_closed()


def test_two_open_bridges_have_two_loops():
    one, two = SyncBridge(), SyncBridge()
    loops = {one.run(get_loop()), two.run(get_loop())}
    one.close()
    two.close()
    assert sorted(loop.is_closed() for loop in loops) == [False, True]


def test_a_bridge_in_another_thread_has_a_loop_of_its_own():
    bridge = SyncBridge()
    loops = [bridge.run(get_loop())]
    bridge.close()

    def run() -> None:
        other = SyncBridge()
        loops.append(other.run(get_loop()))
        other.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert [loop.is_closed() for loop in loops] == [False, True]


def test_a_fork_has_a_loop_of_its_own():
    bridge = SyncBridge()
    loop = bridge.run(get_loop())
    bridge.close()
    child = os.fork()
    if child == 0:
        os._exit(SyncBridge().run(get_loop()) is loop)
    assert os.waitpid(child, 0)[1] == 0


def test_a_variable_of_one_bridge_is_unknown_to_the_next():
    variable = ContextVar("variable", default="unset")

    async def set_it() -> None:
        variable.set("of the first bridge")

    async def get_it() -> str:
        return variable.get()

    bridge = SyncBridge()
    bridge.run(set_it())
    assert bridge.run(get_it()) == "of the first bridge"
    bridge.close()
    following = SyncBridge()
    assert following.run(get_it()) == "unset"
    following.close()


def test_the_loop_of_a_bridge_is_the_current_one_until_it_is_closed():
    for _ in range(2):  # a new loop, and the one that is used again
        bridge = SyncBridge()
        loop = bridge.run(get_loop())
        assert asyncio.get_event_loop() is loop
        bridge.close()


def test_no_loop_is_the_current_one_after_a_bridge_was_closed():
    bridge = SyncBridge()
    bridge.run(is_in_loop())
    bridge.close()
    with pytest.raises(RuntimeError, match="no current event loop"):
        asyncio.get_event_loop()


def test_a_bridge_that_runs_in_another_thread_is_refused_with_a_fix():
    started, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        await asyncio.to_thread(ended.wait)

    bridge = SyncBridge()
    thread = threading.Thread(target=lambda: bridge.run(wait()))
    thread.start()
    started.wait()
    try:
        with pytest.raises(UsageError, match="another thread is running this rehearsal") as raised:
            bridge.run(get_loop())
    finally:
        ended.set()
        thread.join()
        bridge.close()
    assert "open a rehearsal in each thread" in str(raised.value)


def test_an_exception_is_passed_on():
    async def boom() -> None:
        raise LookupError("boom")

    bridge = SyncBridge()
    with pytest.raises(LookupError, match="boom"):
        bridge.run(boom())
    bridge.close()


def test_the_idle_loop_is_closed_at_the_end_of_the_process():
    ended = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


BLOCKED = """
import signal, sys, threading
from offbook import drive, say, when

def agent(prompt):
    print("blocked", flush=True)
    threading.Event().wait()

try:
    with drive(agent) as rehearsal:
        rehearsal.run(when("Hi", [say("Hello!")]))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_agent_that_blocks_its_thread_does_not_survive_ctrl_c():
    blocked = subprocess.Popen(
        [sys.executable, "-c", BLOCKED],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - no other thread runs here
    )
    assert blocked.stdout is not None
    with blocked, blocked.stdout as output:
        assert output.readline() == "blocked\n"
        blocked.send_signal(signal.SIGINT)
        assert output.read() == "interrupted\n"
    assert blocked.returncode == 0


def test_the_exception_of_a_thread_is_raised_where_it_is_awaited():
    bridge = SyncBridge()
    with pytest.raises(ValueError, match="invalid literal"):
        bridge.run(asyncio.to_thread(int, "x"))
    assert bridge.run(asyncio.to_thread(int, "7")) == 7
    bridge.close()
