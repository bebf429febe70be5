"""The tasks that a handler or an asynchronous computed value starts, and cancellation."""

# pyright: basic, reportAttributeAccessIssue=false
# Patterns take and return any value.

# ruff: noqa: PT012, SIM117 - the end of a harness raises, so its block is inside pytest.raises

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from offbook.errors import PatternError
from offbook.patterns import Cell, computed, create_harness, default, handler, pattern

HOURS = 10_000.0  # more than a test may take


async def gather(first: Awaitable[Any], second: Awaitable[Any]) -> None:
    await asyncio.gather(first, second)


async def group(first: Any, second: Any) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(first)
        tasks.create_task(second)


async def wait(first: Any, second: Any) -> None:
    done, _ = await asyncio.wait([asyncio.create_task(each) for each in (first, second)])
    for task in done:
        task.result()


async def wait_for_each(first: Any, second: Any) -> None:
    for task in [asyncio.create_task(each) for each in (first, second)]:
        await task


async def wait_with_limit(first: Any, second: Any) -> None:
    await asyncio.wait_for(gather(first, second), 10 * HOURS)


JOINS = [gather, group, wait, wait_for_each, wait_with_limit]


async def write(target: Any, value: int) -> None:
    target.set(value)
    await asyncio.sleep(HOURS)
    target.set(value * 2)


def make_pair(join: Callable[..., Awaitable[None]], *, fails: bool = False) -> Any:
    @handler
    async def both(_event: Any, left: Any, right: Any) -> None:
        await join(write(left, 1), write(right, 2))
        if fails:
            raise ValueError("refused")

    @pattern
    def pair(left: Cell[int] = default(0), right: Cell[int] = default(0)) -> dict[str, Any]:
        values = computed(lambda: [left.get(), right.get()])
        return {"values": values, "both": both(left=left, right=right)}

    return pair


@pytest.mark.parametrize("join", JOINS)
def test_tasks_of_a_handler_that_sleep_need_no_real_time(join: Any):
    with create_harness() as h:
        loaded = h.load(make_pair(join))
        loaded.result.both.send()
        h.settled(timeout=2 * HOURS)
        assert loaded.result.values == [2, 4]


@pytest.mark.parametrize("join", JOINS)
def test_writes_of_the_tasks_of_a_handler_that_raises_are_undone(join: Any):
    with create_harness(expect_errors=1) as h:
        loaded = h.load(make_pair(join, fails=True))
        loaded.result.both.send()
        h.settled(timeout=2 * HOURS)
        assert loaded.result.values == [0, 0]


@pytest.mark.parametrize("join", [gather, group, wait_with_limit])
def test_writes_of_the_tasks_of_a_cancelled_handler_are_undone(join: Any):
    with create_harness() as h:
        loaded = h.load(make_pair(join))
        loaded.result.both.send()
        h.advance(1)
        assert loaded.result.values == [1, 2]
        loaded.result.both.cancel()
        h.settled()
        assert loaded.result.values == [0, 0]
        writers = {data["by"] for name, data in h.trace if name == "cell.write"}
        assert writers == {"handler pair.both"}


def test_a_task_that_its_handler_does_not_await_is_work_of_the_harness():
    @handler
    async def begin(_event: Any, value: Any) -> None:
        value.kept = asyncio.create_task(write(value.cell, 1))

    class Kept:
        def __init__(self, cell: Any) -> None:
            self.cell = cell

    @pattern
    def background(value: Cell[int] = default(0)) -> dict[str, Any]:
        return {"value": value, "begin": begin(value=Kept(value))}

    with create_harness() as h:
        loaded = h.load(background)
        loaded.result.begin.send()
        h.settled(timeout=2 * HOURS)
        assert loaded.result.value == 2
    with pytest.raises(
        PatternError, match=r"still running: a task of the handler background.begin"
    ):
        with create_harness() as h:
            h.load(background).result.begin.send()
            h.advance(1)


def test_what_the_tasks_of_a_computed_value_read_are_its_dependencies():
    @pattern
    def total(left: Cell[int] = default(1), right: Cell[int] = default(2)) -> dict[str, Any]:
        async def read(cell: Any) -> int:
            await asyncio.sleep(HOURS)
            return cell.get()

        async def add() -> int:
            return sum(await asyncio.gather(read(left), read(right)))

        return {"sum": computed(add)}

    with create_harness() as h:
        loaded = h.load(total)
        assert loaded.result.sum is None
        h.settled(timeout=2 * HOURS)
        assert loaded.result.sum == 3
        loaded.cells.right.set(5)
        h.settled(timeout=2 * HOURS)
        assert loaded.result.sum == 6


@pytest.mark.parametrize("delays", [*itertools.permutations((1, 2, 3))])
@pytest.mark.parametrize("swallows", [False, True])
def test_the_newest_value_wins_in_any_order_of_ends(delays: tuple[int, ...], *, swallows: bool):
    times = iter(delays)

    @pattern
    def search(text: Cell[int] = default(0)) -> dict[str, Any]:
        async def find() -> int:
            wanted, seconds = text.get(), next(times)
            for _ in range(2):
                try:
                    await asyncio.sleep(seconds)
                except asyncio.CancelledError:
                    if not swallows:
                        raise
            return wanted

        return {"found": computed(find)}

    seen: list[Any] = []
    with create_harness() as h:
        loaded = h.load(search)
        h.subscribe(loaded.outputs.found, seen.append)
        for wanted in (1, 2):
            h.advance(0.5)
            loaded.cells.text.set(wanted)
        h.settled(timeout=60)
        assert loaded.result.found == 2
    assert seen == [None, 2]


# --- Cancellation in every state


@handler
async def store(_event: Any, value: Any) -> None:
    value.set(1)
    try:
        await asyncio.sleep(2)
        value.set(2)
    finally:
        value.set(3)
        await asyncio.sleep(2)
        value.set(4)


@pattern
def storing(value: Cell[int] = default(0)) -> dict[str, Any]:
    return {"value": value, "store": store(value=value)}


@pytest.mark.parametrize(
    "moments, value, cancelled",
    [
        ([0], 0, 0),  # sent, and not handled
        ([0, 0], 0, 0),
        ([1], 0, 1),  # it sleeps
        ([3], 0, 1),  # it ends in its own way
        ([1, 2], 0, 1),  # twice: when it sleeps, and when it ends
        ([5], 4, 0),  # it has ended
    ],
)
def test_a_handler_can_be_cancelled_in_every_state(moments: list[int], value: int, cancelled: int):
    with create_harness() as h:
        loaded = h.load(storing)
        loaded.result.store.send()
        now = 0
        for moment in moments:
            if moment > now:
                h.advance(moment - now)
            now = moment
            loaded.result.store.cancel()
        h.settled()
        assert loaded.result.value == value
        assert [name for name, _ in h.trace].count("cell.cancel") == cancelled
        loaded.result.store.send()  # the stream is free for the next event
        h.settled()
        assert loaded.result.value == 4


def test_cancel_drops_the_events_that_were_sent_before_it():
    with create_harness() as h:
        loaded = h.load(storing)
        for _ in range(3):
            loaded.result.store.send()
        h.advance(1)
        loaded.result.store.send()
        loaded.result.store.cancel()
        h.settled()
        assert (loaded.result.value, h.pending_events) == (0, [])
