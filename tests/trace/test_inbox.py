"""An inbox keeps the messages for one run until it takes them."""

import asyncio

from offbook.trace.channels import Inbox

PATIENCE = 5.0


async def test_an_inbox_serves_whoever_waits_longest_first():
    inbox = Inbox()
    tasks = [asyncio.create_task(inbox.pop()) for _ in range(2)]
    await asyncio.sleep(0)
    inbox.push("one")
    inbox.push("two")
    inbox.push("three")
    assert await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE) == ["one", "two"]
    assert inbox.drain() == ["three"]
    assert inbox.drain() == []


async def test_an_inbox_yields_even_when_a_message_is_there():
    inbox, order = Inbox(), list[str]()
    inbox.push("one")

    async def take() -> None:
        async for message in inbox:
            order.append(message)
            return

    task = asyncio.create_task(take())
    await asyncio.sleep(0)
    order.append("another's turn")
    await asyncio.wait_for(task, PATIENCE)
    assert order == ["another's turn", "one"]


async def test_a_message_for_a_reader_that_was_cancelled_is_not_lost():
    inbox = Inbox()
    task = asyncio.create_task(inbox.pop())
    await asyncio.sleep(0)
    inbox.push("one")
    task.cancel()
    await asyncio.wait([task])
    task = asyncio.create_task(inbox.pop())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    inbox.push("two")
    assert inbox.drain() == ["one", "two"]
