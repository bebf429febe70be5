"""Iterating over a hub: from its making, each iteration all events, until the hub closes."""

import asyncio
import threading

import pytest

from offbook.errors import DeadlineExceeded, RunError
from offbook.trace.event_bus import Bus


async def test_what_is_emitted_before_the_first_await_is_not_lost():
    bus = Bus()
    events = bus.listen()
    bus.emit("one")
    assert (await anext(events)).event == "one"


async def test_two_iterations_both_see_all_in_order():
    bus = Bus()
    first, second = bus.listen(), bus.listen("t*")
    for name in ("one", "two", "three"):
        bus.emit(name)
    bus.close()
    assert [event.event async for event in first] == ["one", "two", "three"]
    assert [event.event async for event in second] == ["two", "three"]


async def test_closing_the_hub_ends_an_iteration_that_waits():
    bus = Bus()

    async def collect() -> list[str]:
        return [event.event async for event in bus]

    task = asyncio.create_task(collect())
    await asyncio.sleep(0)
    bus.emit("one")
    await asyncio.sleep(0)
    bus.close()
    assert await task == ["one"]


async def test_breaking_out_ends_the_subscription():
    bus = Bus()

    async def take_one() -> str:
        async for event in bus:
            return event.event
        return ""

    task = asyncio.create_task(take_one())
    await asyncio.sleep(0)
    assert bus.listeners == 1
    bus.emit("one")
    assert await task == "one"
    assert bus.listeners == 0


async def test_leaving_the_block_of_an_iteration_ends_it():
    bus = Bus()
    with bus.listen() as events:
        bus.emit("one")
    bus.emit("two")
    assert [event.event async for event in events] == ["one"]


async def test_an_iteration_hears_another_thread():
    bus = Bus()
    waiting = bus.wait_for("far", timeout=5)
    threading.Thread(target=bus.emit, args=("far",)).start()
    assert (await waiting).event == "far"


async def test_waiting_has_a_deadline():
    bus = Bus()
    with pytest.raises(DeadlineExceeded, match=r"no event passed 'agent:\*' within 0.01 s"):
        await bus.wait_for("agent:*", timeout=0.01)
    with bus.listen(timeout=0.01) as events, pytest.raises(DeadlineExceeded):
        await anext(events)
    assert bus.listeners == 0


async def test_waiting_starts_when_it_is_asked_for_not_when_it_is_awaited():
    bus = Bus()
    waiting = bus.wait_for("one")
    bus.emit("zero")
    bus.emit("one")
    assert (await waiting).seq == 2


async def test_waiting_on_a_hub_that_closes_is_an_error():
    bus = Bus()
    waiting = bus.wait_for("one")
    bus.close()
    with pytest.raises(RunError, match="closed while somebody waited for 'one'"):
        await waiting


async def test_a_waiter_that_was_cancelled_harms_nobody():
    bus = Bus()
    task = asyncio.create_task(bus.wait_for("one"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    bus.emit("one")
    assert bus.errors == []
