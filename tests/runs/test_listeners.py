"""Listeners of a rehearsal's hub: they hear it live, and what they raise fails the run."""

import asyncio
from collections.abc import Callable

import pytest

from offbook import say, session, when
from offbook.trace.events import Event

HELLO = when("Hello", [say("Hi.")])


def test_a_listener_hears_events_while_they_happen():
    heard: list[str] = []
    with session() as rehearsal:
        rehearsal.hub.subscribe(lambda event: heard.append(event.event), ["agent.*"])
        rehearsal.run(HELLO)
        assert heard == ["agent.start", "agent.end"]


def fail(event: Event) -> None:
    raise ValueError("broken listener")


async def fail_later(event: Event) -> None:
    await asyncio.sleep(0)
    raise ValueError("broken listener")


@pytest.mark.parametrize("listener", [fail, fail_later])
async def test_what_a_listener_raises_fails_the_run(listener: Callable[[Event], object]):
    async with session() as rehearsal:
        rehearsal.hub.subscribe(listener, "agent.start")
        with pytest.raises(ValueError, match="broken listener"):
            await rehearsal.run(HELLO)


@pytest.mark.parametrize("listener", [fail, fail_later])
async def test_unless_errors_are_allowed(listener: Callable[[Event], object]):
    async with session() as rehearsal:
        rehearsal.hub.allow_errors = True
        rehearsal.hub.subscribe(listener, "agent.start")
        await rehearsal.run(HELLO)
        assert len(rehearsal.hub.errors) == 1


@pytest.mark.parametrize("listener", [fail, fail_later])
async def test_what_a_listener_raises_at_the_end_fails_the_end(
    listener: Callable[[Event], object],
):
    rehearsal = await session(mock_tools={"never": "used"})
    await rehearsal.run(HELLO)
    rehearsal.hub.subscribe(listener, "check.verdict")
    with pytest.raises(ValueError, match="broken listener"):
        await rehearsal.dispose()
