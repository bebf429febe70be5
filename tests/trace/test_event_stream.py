"""Iterating over a hub: each stream gets all events from its creation until the hub closes."""

import asyncio
import threading

import pytest

from offbook.errors import DeadlineExceeded, RunError
from offbook.trace import Hub


async def test_events_emitted_before_the_first_await_are_not_lost():
    hub = Hub()
    events = hub.listen()
    hub.emit("one")
    assert (await anext(events)).event == "one"


async def test_two_streams_both_get_all_events_in_order():
    hub = Hub()
    first, second = hub.listen(), hub.listen("t*")
    for name in ("one", "two", "three"):
        hub.emit(name)
    hub.close()
    assert [event.event async for event in first] == ["one", "two", "three"]
    assert [event.event async for event in second] == ["two", "three"]


async def test_closing_the_hub_ends_a_waiting_stream():
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


async def test_leaving_the_block_of_a_stream_ends_it():
    hub = Hub()
    with hub.listen() as events:
        hub.emit("one")
    hub.emit("two")
    assert [event.event async for event in events] == ["one"]


async def test_a_stream_gets_the_events_of_another_thread():
    hub = Hub()
    waiting = hub.wait_for("far", timeout=300)
    threading.Thread(target=hub.emit, args=("far",)).start()
    assert (await waiting).event == "far"


async def test_waiting_has_a_timeout():
    hub = Hub()
    with pytest.raises(DeadlineExceeded, match=r"no event matched 'agent:\*' within 0.01 s"):
        await hub.wait_for("agent:*", timeout=0.01)
    with hub.listen(timeout=0.01) as events, pytest.raises(DeadlineExceeded):
        await anext(events)
    assert hub.listener_count == 0


async def test_wait_for_counts_from_its_call_and_not_from_its_await():
    hub = Hub()
    waiting = hub.wait_for("one")
    hub.emit("zero")
    hub.emit("one")
    assert (await waiting).seq == 2


async def test_waiting_on_a_hub_that_is_closed_is_an_error():
    hub = Hub()
    waiting = hub.wait_for("one")
    hub.close()
    with pytest.raises(RunError, match="was closed while waiting for 'one'"):
        await waiting


async def test_a_cancelled_waiter_causes_no_error():
    hub = Hub()
    task = asyncio.create_task(hub.wait_for("one"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    hub.emit("one")
    assert hub.errors == []
