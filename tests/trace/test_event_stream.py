"""Iterating over a hub: from its making, each iteration all events, until the hub closes."""

import asyncio
import threading

import pytest

from offbook.errors import DeadlineExceeded, RunError
from offbook.trace.hub import Hub


async def test_what_is_emitted_before_the_first_await_is_not_lost():
    hub = Hub()
    events = hub.listen()
    hub.emit("one")
    assert (await anext(events)).event == "one"


async def test_two_iterations_both_see_all_in_order():
    hub = Hub()
    first, second = hub.listen(), hub.listen("t*")
    for name in ("one", "two", "three"):
        hub.emit(name)
    hub.close()
    assert [event.event async for event in first] == ["one", "two", "three"]
    assert [event.event async for event in second] == ["two", "three"]


async def test_closing_the_hub_ends_an_iteration_that_waits():
    hub = Hub()

    async def collect() -> list[str]:
        return [event.event async for event in hub]

    task = asyncio.create_task(collect())
    await asyncio.sleep(0)
    hub.emit("one")
    await asyncio.sleep(0)
    hub.close()
    assert await task == ["one"]


async def test_breaking_out_ends_the_subscription():
    hub = Hub()

    async def take_one() -> str:
        async for event in hub:
            return event.event
        return ""

    task = asyncio.create_task(take_one())
    await asyncio.sleep(0)
    assert hub.listener_count == 1
    hub.emit("one")
    assert await task == "one"
    assert hub.listener_count == 0


async def test_leaving_the_block_of_an_iteration_ends_it():
    hub = Hub()
    with hub.listen() as events:
        hub.emit("one")
    hub.emit("two")
    assert [event.event async for event in events] == ["one"]


async def test_an_iteration_hears_another_thread():
    hub = Hub()
    waiting = hub.wait_for("far", timeout=5)
    threading.Thread(target=hub.emit, args=("far",)).start()
    assert (await waiting).event == "far"


async def test_waiting_has_a_deadline():
    hub = Hub()
    with pytest.raises(DeadlineExceeded, match=r"no event matched 'agent:\*' within 0.01 s"):
        await hub.wait_for("agent:*", timeout=0.01)
    with hub.listen(timeout=0.01) as events, pytest.raises(DeadlineExceeded):
        await anext(events)
    assert hub.listener_count == 0


async def test_waiting_starts_when_it_is_asked_for_not_when_it_is_awaited():
    hub = Hub()
    waiting = hub.wait_for("one")
    hub.emit("zero")
    hub.emit("one")
    assert (await waiting).seq == 2


async def test_waiting_on_a_hub_that_closes_is_an_error():
    hub = Hub()
    waiting = hub.wait_for("one")
    hub.close()
    with pytest.raises(RunError, match="was closed while waiting for 'one'"):
        await waiting


async def test_a_waiter_that_was_cancelled_harms_nobody():
    hub = Hub()
    task = asyncio.create_task(hub.wait_for("one"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    hub.emit("one")
    assert hub.errors == []
