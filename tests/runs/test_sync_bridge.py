"""The bridge runs coroutines from plain functions."""

import asyncio

import pytest

from offbook.runs.sync_bridge import SyncBridge, in_event_loop


async def is_in_loop() -> bool:
    return in_event_loop()


def test_a_running_event_loop_is_detected():
    assert not in_event_loop()
    bridge = SyncBridge()
    assert bridge.run(is_in_loop())
    bridge.close()


def test_the_loop_is_the_same_until_it_is_closed():
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    bridge = SyncBridge()
    first = bridge.run(loop())
    assert bridge.run(loop()) is first
    bridge.close()
    bridge.close()
    assert first.is_closed()


def test_an_exception_is_passed_on():
    async def boom() -> None:
        raise LookupError("boom")

    bridge = SyncBridge()
    with pytest.raises(LookupError, match="boom"):
        bridge.run(boom())
    bridge.close()
