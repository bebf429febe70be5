"""A blocking caller gets the result of a coroutine, as if it had been awaited."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from offbook.sources.inprocess import CoroutineRunner

Work = Callable[[], Coroutine[Any, Any, int]]
word: ContextVar[str] = ContextVar("word", default="")


@pytest.fixture
def runner() -> Iterator[CoroutineRunner]:
    runner = CoroutineRunner()
    yield runner
    runner.close()


async def immediately() -> int:
    return 7


async def later() -> int:
    await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    return 7


async def with_task_group() -> int:
    async with asyncio.TaskGroup() as group:
        first, second = group.create_task(later()), group.create_task(immediately())
    return (first.result() + second.result()) // 2


async def within_timeout() -> int:
    async with asyncio.timeout(5):
        return await later()


async def with_wait_for() -> int:
    return await asyncio.wait_for(later(), 5)


async def after_timeout() -> int:
    try:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(5)
    except TimeoutError:
        return await within_timeout()
    return 0


async def after_own_cancellation() -> int:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(5)
    except asyncio.CancelledError:
        task.uncancel()
    return await later()


async def cancelled_at_the_end() -> int:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return 7


WORKS: list[Work] = [
    cancelled_at_the_end,
    immediately,
    later,
    with_task_group,
    within_timeout,
    with_wait_for,
    after_timeout,
    after_own_cancellation,
]


@pytest.mark.parametrize("work", WORKS)
def test_a_coroutine_completes_in_a_thread_without_a_loop(runner: CoroutineRunner, work: Work):
    assert [runner.run(work()) for _ in range(3)] == [7, 7, 7]


@pytest.mark.parametrize("work", WORKS)
async def test_a_coroutine_completes_in_a_thread_with_a_running_loop(
    runner: CoroutineRunner, work: Work
):
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert runner.run(work()) == 7
    assert asyncio.get_running_loop() is loop
    assert asyncio.current_task() is task
    assert await later() == 7
    assert await asyncio.to_thread(runner.run, work()) == 7


@pytest.mark.parametrize("wait", [0, 1])
def test_an_exception_is_raised_and_the_next_coroutine_completes(
    runner: CoroutineRunner, wait: int
):
    async def fail() -> None:
        for _ in range(wait):
            await asyncio.sleep(0)
        raise LookupError("on purpose")

    for _ in range(2):
        with pytest.raises(LookupError, match="on purpose"):
            runner.run(fail())
    assert runner.run(later()) == 7


def test_an_interrupted_coroutine_does_not_affect_the_next(runner: CoroutineRunner):
    async def interrupt() -> None:
        await asyncio.sleep(0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(interrupt())
    assert runner.run(later()) == 7


def test_a_coroutine_may_use_the_runner_itself(runner: CoroutineRunner):
    async def outer() -> int:
        await asyncio.sleep(0)
        inner = runner.run(later())
        await asyncio.sleep(0)
        return inner

    assert runner.run(outer()) == 7


def test_a_coroutine_runs_in_a_copy_of_the_callers_context(runner: CoroutineRunner):
    async def read() -> list[str]:
        token = word.set(f"{word.get()}!")
        first = word.get()
        await asyncio.sleep(0)
        second = word.get()
        word.reset(token)
        return [first, second, word.get()]

    token = word.set("hello")
    assert runner.run(read()) == ["hello!", "hello!", "hello"]
    assert word.get() == "hello"
    word.reset(token)
