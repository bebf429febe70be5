"""Listeners of a rehearsal receive events live, and their errors fail the run."""

import asyncio
from collections.abc import Callable

import pytest

from offbook import say, session, when
from offbook.trace import Event

HELLO = when("Hello", [say("Hi.")])


def test_a_listener_receives_events_as_they_are_emitted():
    received: list[str] = []
    with session() as rehearsal:
        rehearsal.hub.subscribe(lambda event: received.append(event.event), ["agent.*"])
        rehearsal.run(HELLO)
        assert received == ["agent.start", "agent.end"]


def fail(event: Event) -> None:
    raise ValueError("broken listener")


async def fail_later(event: Event) -> None:
    await asyncio.sleep(0)
    raise ValueError("broken listener")


@pytest.mark.parametrize("listener", [fail, fail_later])
async def test_an_error_of_a_listener_fails_the_run(listener: Callable[[Event], object]):
    async with session() as rehearsal:
        rehearsal.hub.subscribe(listener, "agent.start")
        with pytest.raises(ValueError, match="broken listener"):
            await rehearsal.run(HELLO)


@pytest.mark.parametrize("listener", [fail, fail_later])
async def test_errors_of_listeners_can_be_allowed(listener: Callable[[Event], object]):
    async with session() as rehearsal:
        rehearsal.hub.allow_errors = True
        rehearsal.hub.subscribe(listener, "agent.start")
        await rehearsal.run(HELLO)
        assert len(rehearsal.hub.errors) == 1


@pytest.mark.parametrize("listener", [fail, fail_later])
async def test_an_error_of_a_listener_fails_dispose(
    listener: Callable[[Event], object],
):
    rehearsal = await session(mock_tools={"never": "used"})
    await rehearsal.run(HELLO)
    rehearsal.hub.subscribe(listener, "check.verdict")
    with pytest.raises(ValueError, match="broken listener"):
        await rehearsal.dispose()
