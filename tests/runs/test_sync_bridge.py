"""One bridge from plain functions to the event loop."""

import asyncio

import pytest

from offbook.runs.sync_bridge import SyncBridge, in_event_loop


async def ask() -> bool:
    return in_event_loop()


def test_whoever_is_in_a_loop_is_told_so():
    assert not in_event_loop()
    bridge = SyncBridge()
    assert bridge.run(ask())
    bridge.close()


def test_the_loop_stays_the_same_until_it_is_closed():
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    bridge = SyncBridge()
    first = bridge.run(loop())
    assert bridge.run(loop()) is first
    bridge.close()
    bridge.close()
    assert first.is_closed()


def test_what_is_raised_comes_through():
    async def boom() -> None:
        raise LookupError("boom")

    bridge = SyncBridge()
    with pytest.raises(LookupError, match="boom"):
        bridge.run(boom())
    bridge.close()
