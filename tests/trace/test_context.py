"""The context of events: it follows awaits and tasks, and never leaks to other tasks."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from offbook.determinism import bind_context
from offbook.trace import Event, Hub


@pytest.fixture
def hub() -> Hub:
    return Hub(session_id="s1")


def test_outside_any_scope_the_context_has_only_the_session(hub: Hub):
    assert hub.current() == {"sessionId": "s1"}
    assert hub.emit("one").context == {"sessionId": "s1"}
    assert Hub().emit("one").context == {}


@pytest.mark.parametrize(
    "override, context",
    [
        (None, {"sessionId": "s1"}),
        ({}, {"sessionId": "s1"}),
        ({"phase": {"name": "Planning"}}, {"sessionId": "s1", "phase": {"name": "Planning"}}),
        ({"sessionId": "s2"}, {"sessionId": "s2"}),
    ],
)
def test_the_context_of_emit_overrides_the_current_one(
    hub: Hub, override: dict[str, Any] | None, context: dict[str, Any]
):
    assert hub.emit("phase:start", context=override).context == context
    assert hub.current() == {"sessionId": "s1"}


def test_nested_scopes_merge_shallowly(hub: Hub):
    with hub.scoped(phase={"name": "Plan", "number": 1}, task={"id": "t"}):
        with hub.scoped(phase={"name": "Act"}):
            assert hub.emit("one").context == {
                "sessionId": "s1",
                "phase": {"name": "Act"},
                "task": {"id": "t"},
            }
        assert hub.current()["phase"] == {"name": "Plan", "number": 1}
    assert hub.current() == {"sessionId": "s1"}


def test_a_scope_belongs_to_one_hub(hub: Hub):
    other = Hub(session_id="s2")
    with hub.scoped(agent="a"), other.scoped(agent="b"):
        assert hub.current() == {"sessionId": "s1", "agent": "a"}
        assert other.current() == {"sessionId": "s2", "agent": "b"}
    assert Hub().current() == {}


async def test_coroutines_in_different_scopes_never_mix(hub: Hub):
    seen: list[tuple[str, str]] = []

    async def work(name: str) -> None:
        with hub.scoped(agent=name):
            for _ in range(3):
                await asyncio.sleep(0)
                seen.append((name, hub.emit("tick").context["agent"]))

    await asyncio.gather(*(work(name) for name in "abc"))
    assert len(seen) == 9
    assert all(name == context for name, context in seen)


async def test_a_task_started_in_a_scope_keeps_it_after_the_block(hub: Hub):
    go = asyncio.Event()

    async def work() -> Event:
        await go.wait()
        return hub.emit("late")

    with hub.scoped(agent="a"):
        task = asyncio.create_task(work())
    go.set()
    assert (await task).context == {"sessionId": "s1", "agent": "a"}


async def test_bind_context_carries_the_scope_into_threads(hub: Hub):
    with hub.scoped(agent="a"):
        loop = asyncio.get_running_loop()
        assert await asyncio.to_thread(hub.current) == {"sessionId": "s1", "agent": "a"}
        assert await loop.run_in_executor(None, hub.current) == {"sessionId": "s1"}
        bound = bind_context(hub.current)
        assert await loop.run_in_executor(None, bound) == {"sessionId": "s1", "agent": "a"}
    seen: list[dict[str, Any]] = []
    threads = [threading.Thread(target=lambda: seen.append(bound())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [{"sessionId": "s1", "agent": "a"}] * 2


async def numbers(hub: Hub) -> AsyncGenerator[tuple[int, dict[str, Any]]]:
    with hub.scoped(agent="generator"):
        for number in range(2):
            await asyncio.sleep(0)
            yield number, hub.current()


async def test_a_scope_in_an_async_generator_does_not_leak_to_its_consumer(hub: Hub):
    with hub.scoped(agent="consumer"):
        async for _, inside in numbers(hub):
            assert inside == {"sessionId": "s1", "agent": "generator"}
            assert hub.current() == {"sessionId": "s1", "agent": "consumer"}
            assert hub.emit("one").context["agent"] == "consumer"
        assert hub.current() == {"sessionId": "s1", "agent": "consumer"}
    assert hub.current() == {"sessionId": "s1"}


async def test_a_task_of_an_async_generator_keeps_its_scope(hub: Hub):
    async def tasks() -> AsyncGenerator[asyncio.Task[dict[str, Any]]]:
        async def look() -> dict[str, Any]:
            await asyncio.sleep(0)
            return hub.current()

        with hub.scoped(agent="generator"):
            yield asyncio.create_task(look())

    async with aclosing(tasks()) as generator:
        task = await anext(generator)
        assert (await task)["agent"] == "generator"
        assert "agent" not in hub.current()


async def test_a_generator_closed_by_another_task_leaves_no_scope(hub: Hub):
    generator = numbers(hub)
    await anext(generator)
    await asyncio.create_task(aclose(generator))
    assert hub.current() == {"sessionId": "s1"}


async def aclose(generator: Any) -> None:
    await generator.aclose()


async def test_an_async_context_manager_can_open_a_scope_for_its_block(hub: Hub):
    @asynccontextmanager
    async def phase() -> AsyncGenerator[None]:
        with hub.scoped(phase="Plan"):
            yield

    async with phase():
        assert hub.current() == {"sessionId": "s1", "phase": "Plan"}
    assert hub.current() == {"sessionId": "s1"}
