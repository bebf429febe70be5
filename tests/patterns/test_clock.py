"""The clock of a harness, and handlers that run at the same time."""

# pyright: basic, reportAttributeAccessIssue=false
# Patterns take and return any value.

# ruff: noqa: PT012, SIM117 - the end of a harness raises, so its block is inside pytest.raises

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from offbook.errors import DeadlineExceeded, PatternError, UsageError
from offbook.patterns import (
    Cell,
    cell,
    computed,
    create_harness,
    default,
    effect,
    handler,
    pattern,
)


@handler
async def save(event: Any, status: Any, log: Any) -> None:
    status.set("saving")
    await asyncio.sleep(3)
    log.push(event)
    status.set("saved")


@handler
def stop(_event: Any, target: Any) -> None:
    target.cancel()


@pattern
def editor(status: Cell[str] = default("new"), log: Cell[list] = default([])) -> dict[str, Any]:
    saving = save(status=status, log=log)
    return {"status": status, "log": log, "save": saving, "stop": stop(target=saving)}


def test_a_sleep_ends_when_the_clock_has_passed_it():
    with create_harness() as h:
        loaded = h.load(editor)
        loaded.result.save.send("a")
        h.advance(2.9)
        assert loaded.result.status == "saving"
        h.advance(0.1)
        assert loaded.result.status == "saved"


async def test_in_an_async_def_advance_is_awaited():
    async with create_harness() as h:
        loaded = h.load(editor)
        loaded.result.save.send("a")
        await h.advance(3)
        assert loaded.result.log == ["a"]


def test_settled_takes_no_real_time_for_a_sleep():
    @handler
    async def rest(_event: Any, status: Any) -> None:
        await asyncio.sleep(1000)
        status.set("rested")

    @pattern
    def sleeper(status: Cell[str] = default("new")) -> dict[str, Any]:
        return {"status": status, "rest": rest(status=status)}

    start = time.monotonic()
    with create_harness() as h:
        loaded = h.load(sleeper)
        loaded.result.rest.send()
        h.settled(timeout=2000)
        assert loaded.result.status == "rested"
    assert time.monotonic() - start < 1000


def test_settled_ends_after_its_timeout_of_the_clock():
    with create_harness() as h:
        loaded = h.load(editor)
        loaded.result.save.send("a")
        with pytest.raises(
            DeadlineExceeded, match=r"not settled after 1 s: the handler editor.save"
        ):
            h.settled(timeout=1)
        h.settled()


def test_a_second_harness_in_the_same_loop_has_its_own_time():
    async def main() -> tuple[str, str]:
        async with create_harness() as one, create_harness() as two:
            first, second = one.load(editor), two.load(editor)
            first.result.save.send("a")
            second.result.save.send("a")
            two.idle()
            await one.advance(3)
            states = first.result.status, second.result.status
            await two.settled()
            return states

    assert asyncio.run(main()) == ("saved", "saving")


async def test_the_time_of_the_test_itself_goes_on():
    async with create_harness() as h:
        h.load(editor).result.save.send("a")
        h.idle()
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.sleep(0.01)
        assert loop.time() - start >= 0.009
        await h.settled()


async def wait_with_timeout() -> None:
    async with asyncio.timeout(3):
        await asyncio.Event().wait()


async def wait_for() -> None:
    await asyncio.wait_for(asyncio.Event().wait(), 3)


async def wait_with_call_later() -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_later(3, done.set_exception, TimeoutError())
    await done


async def gather() -> None:
    await asyncio.gather(asyncio.sleep(1), asyncio.sleep(3))
    raise TimeoutError


@pytest.mark.parametrize("wait", [wait_with_timeout, wait_for, wait_with_call_later, gather])
def test_other_ways_to_wait_have_the_time_of_the_harness(wait: Callable[[], Awaitable[None]]):
    @handler
    async def ask(_event: Any, status: Any) -> None:
        try:
            await wait()
        except TimeoutError:
            status.set("late")

    @pattern
    def client(status: Cell[str] = default("")) -> dict[str, Any]:
        return {"status": status, "ask": ask(status=status)}

    with create_harness() as h:
        loaded = h.load(client)
        loaded.result.ask.send()
        h.advance(2)
        assert loaded.result.status == ""
        h.advance(1)
        assert loaded.result.status == "late"


def test_a_timeout_does_not_fire_before_real_work_ends():
    """Work that waits for a thread has the time of the machine."""
    release = threading.Event()

    @handler
    async def ask(_event: Any, status: Any) -> None:
        async with asyncio.timeout(60):
            threading.Timer(0.05, release.set).start()
            await asyncio.to_thread(release.wait)
        status.set("answered")

    @pattern
    def client(status: Cell[str] = default("")) -> dict[str, Any]:
        return {"status": status, "ask": ask(status=status)}

    with create_harness() as h:
        loaded = h.load(client)
        loaded.result.ask.send()
        h.settled(timeout=300)
        assert loaded.result.status == "answered"


@handler
def tick(_event: Any, ticks: Any) -> None:
    ticks.set(ticks.get() + 1)


@handler
def ring(event: Any, rang: Any) -> None:
    rang.set(event == "rang")


@pattern
def timers(ticks: Cell[int] = default(0), rang: Cell[bool] = default(False)) -> dict[str, Any]:
    stop_ticks = tick(ticks=ticks).send_every(1)
    ring(rang=rang).send_after(2.5, "rang")

    @handler
    def halt(_event: Any) -> None:
        stop_ticks()

    return {"ticks": ticks, "rang": rang, "halt": halt()}


@pytest.mark.parametrize(
    "seconds, expected", [(0, (0, False)), (1, (1, False)), (2.6, (2, True)), (100, (100, True))]
)
def test_timers_fire_when_the_clock_has_passed_them(seconds: float, expected: tuple[int, bool]):
    with create_harness() as h:
        loaded = h.load(timers)
        h.advance(seconds)
        assert (loaded.result.ticks, loaded.result.rang) == expected


def test_an_interval_that_is_stopped_fires_no_more():
    with create_harness() as h:
        loaded = h.load(timers)
        h.advance(2)
        loaded.result.halt.send()
        h.advance(10)
        assert loaded.result.ticks == 2


def test_an_interval_does_not_keep_a_harness_from_settling():
    with create_harness() as h:
        loaded = h.load(timers)
        h.settled()
        assert loaded.result.ticks == 0


def test_timers_and_sleeps_happen_in_the_order_of_time():
    seen: list[str] = []

    @handler
    async def sleep(_event: Any) -> None:
        await asyncio.sleep(1.5)
        seen.append("sleep")

    @handler
    def tick(_event: Any) -> None:
        seen.append("tick")

    @pattern
    def order() -> dict[str, Any]:
        tick().send_every(1)
        return {"sleep": sleep()}

    with create_harness() as h:
        h.load(order).result.sleep.send()
        h.advance(2)
    assert seen == ["tick", "sleep", "tick"]


def test_a_handler_may_start_a_timer_and_stop_the_one_before():
    """A debounced search: only the last text is searched."""
    pending: list[Callable[[], None]] = []

    @handler
    def search(_event: Any, results: Any, text: Any) -> None:
        results.push(text.get())

    @handler
    def write(event: Any, text: Any, found: Any) -> None:
        text.set(event)
        while pending:
            pending.pop()()
        pending.append(found.send_after(0.3))

    @pattern
    def page(text: Cell[str] = default(""), results: Cell[list] = default([])) -> dict[str, Any]:
        found = search(results=results, text=text)
        return {"results": results, "write": write(text=text, found=found)}

    with create_harness() as h:
        loaded = h.load(page)
        for text in ("a", "ab", "abc"):
            loaded.result.write.send(text)
            h.advance(0.2)
        assert loaded.result.results == []
        h.advance(0.2)
        assert loaded.result.results == ["abc"]


@pytest.mark.parametrize("seconds", [0, -1])
def test_an_interval_needs_a_time(seconds: float):
    @pattern
    def endless() -> dict[str, Any]:
        tick(ticks=cell(0)).send_every(seconds)
        return {}

    with create_harness() as h, pytest.raises(UsageError, match="expected a number > 0"):
        h.load(endless)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_the_clock_goes_on_by_a_number_of_seconds(seconds: float):
    @pattern
    def late() -> dict[str, Any]:
        tick(ticks=cell(0)).send_after(seconds)
        return {}

    with create_harness() as h:
        with pytest.raises(UsageError, match="advance: expected a number"):
            h.advance(seconds)
        with pytest.raises(UsageError, match="send_after: expected a number"):
            h.load(late)


@pytest.mark.parametrize("steps", [(0.35, 0.05), (0.1, 0.3), (0.1, 0.1, 0.1, 0.1)])
def test_parts_of_a_second_add_up(steps: tuple[float, ...]):
    """0.35 + 0.05 is 0.39999999999999997, and three times 0.1 is 0.30000000000000004."""

    @pattern
    def clock(ticks: Cell[int] = default(0)) -> dict[str, Any]:
        tick(ticks=ticks).send_every(0.1)
        return {"ticks": ticks}

    with create_harness() as h:
        loaded = h.load(clock)
        for seconds in steps:
            h.advance(seconds)
        assert loaded.result.ticks == 4
    with create_harness() as h:
        loaded = h.load(clock)
        h.advance(0.3)
        assert loaded.result.ticks == 3


def test_an_error_of_a_timer_fails_the_test():
    @handler
    def divide(_event: Any) -> float:
        return 1 / 0

    @pattern
    def broken() -> dict[str, Any]:
        divide().send_after(1)
        return {}

    with pytest.raises(PatternError, match="division by zero"), create_harness() as h:
        h.load(broken)
        h.advance(1)


# --- Handlers at the same time


def test_a_handler_that_runs_does_not_hold_back_other_streams():
    @handler
    def note(event: Any, notes: Any) -> None:
        notes.push(event)

    @pattern
    def desk(notes: Cell[list] = default([])) -> dict[str, Any]:
        status = cell("")
        return {
            "notes": notes,
            "save": save(status=status, log=cell([])),
            "note": note(notes=notes),
        }

    with create_harness() as h:
        loaded = h.load(desk)
        loaded.result.save.send()
        loaded.result.note.send("while it saves")
        h.idle()
        assert loaded.result.notes == ["while it saves"]
        h.settled()


def test_the_events_of_one_stream_are_handled_one_after_another():
    with create_harness() as h:
        loaded = h.load(editor)
        loaded.result.save.send("a")
        loaded.result.save.send("b")
        h.advance(3)
        assert (loaded.result.log, loaded.result.status) == (["a"], "saving")
        h.advance(3)
        assert loaded.result.log == ["a", "b"]


def test_stop_cancels_a_handler_and_undoes_its_writes():
    with create_harness() as h:
        loaded = h.load(editor)
        loaded.result.save.send("a")
        h.advance(1)
        assert loaded.result.status == "saving"
        loaded.result.stop.send()
        h.settled()
        assert (loaded.result.status, loaded.result.log) == ("new", [])
        cancelled = [data for event, data in h.trace if event == "cell.cancel"]
        assert cancelled == [{"stream": "editor.save", "by": "handler editor.stop"}]


def test_stop_drops_the_events_that_wait():
    with create_harness() as h:
        loaded = h.load(editor)
        loaded.result.save.send("a")
        loaded.result.save.send("b")
        h.advance(1)
        loaded.result.stop.send()
        h.advance(10)
        assert loaded.result.log == []


def test_stop_without_a_running_handler_does_nothing():
    with create_harness() as h:
        loaded = h.load(editor)
        loaded.result.stop.send()
        loaded.result.save.send("a")
        h.settled()
        assert loaded.result.log == ["a"]


def test_a_handler_may_end_in_its_own_way_when_it_is_cancelled():
    @handler
    async def ask(_event: Any, status: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            status.set("stopped")

    @pattern
    def chat(status: Cell[str] = default("")) -> dict[str, Any]:
        asking = ask(status=status)
        return {"status": status, "ask": asking, "stop": stop(target=asking)}

    with create_harness() as h:
        loaded = h.load(chat)
        loaded.result.ask.send()
        h.advance(1)
        loaded.result.stop.send()
        h.settled()
        assert loaded.result.status == "stopped"


def cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def raise_cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("end", [raise_cancelled, cancel_own_task])
@pytest.mark.parametrize("pause", [0, 1])
def test_a_handler_that_is_cancelled_by_accident_is_undone_and_reported(
    end: Callable[[], None], pause: float
):
    @handler
    async def ask(_event: Any, value: Any) -> None:
        value.set(9)
        await asyncio.sleep(pause)
        end()
        await asyncio.sleep(pause)

    @pattern
    def chat(value: Cell[int] = default(0)) -> dict[str, Any]:
        return {"value": value, "ask": ask(value=value)}

    with pytest.raises(PatternError, match=r"the handler chat.ask was cancelled"):
        with create_harness() as h:
            loaded = h.load(chat)
            loaded.result.ask.send()
            h.settled()
            assert loaded.result.value == 0


def test_a_plain_handler_that_raises_cancelled_error_is_undone_and_reported():
    @handler
    def ask(_event: Any, value: Any) -> None:
        value.set(9)
        raise asyncio.CancelledError

    @pattern
    def chat(value: Cell[int] = default(0)) -> dict[str, Any]:
        return {"value": value, "ask": ask(value=value)}

    with create_harness(expect_errors=1) as h:
        loaded = h.load(chat)
        loaded.result.ask.send()
        h.idle()
        assert loaded.result.value == 0


def test_a_handler_that_is_cancelled_before_its_first_step_is_ended():
    with create_harness() as h:
        loaded = h.load(editor)
        loaded.result.save.send("a")
        loaded.result.stop.send()
        h.settled()
        loaded.result.save.send("b")
        h.settled()
        assert loaded.result.log == ["b"]


@pytest.mark.parametrize(
    "start, write, expected",
    [
        ({"log": ["x"]}, lambda cells: cells.log.push("other"), {"log": ["x", "other"]}),
        ({"log": []}, lambda cells: cells.state.update({"b": 2}), {"state": {"b": 2}}),
        ({"log": [{"n": 1}]}, lambda cells: cells.log.key(0, "n").set(2), {"log": [{"n": 2}]}),
    ],
)
def test_what_others_wrote_meanwhile_is_kept(
    start: Any, write: Callable[[Any], Any], expected: dict[str, Any]
):
    @handler
    async def ask(_event: Any, log: Any, state: Any) -> None:
        log.push({"role": "user"})
        state.update({"a": 1})
        await asyncio.sleep(60)

    @pattern
    def chat(log: Cell[list] = default([]), state: Cell[dict] = default({})) -> dict[str, Any]:
        asking = ask(log=log, state=state)
        return {"log": log, "state": state, "ask": asking, "stop": stop(target=asking)}

    with create_harness() as h:
        loaded = h.load(chat, start)
        loaded.result.ask.send()
        h.advance(1)
        write(loaded.cells)
        loaded.result.stop.send()
        h.settled()
        values = {"state": {}, **start, **expected}
        assert {name: loaded.result[name] for name in values} == values


# --- Loops


def test_a_handler_that_sends_to_itself_without_end_is_a_loop():
    @handler
    def again(_event: Any, streams: Any) -> None:
        streams["again"].send()

    @pattern
    def endless() -> dict[str, Any]:
        streams: dict[str, Any] = {}
        streams["again"] = again(streams=streams)
        return streams

    with create_harness() as h:
        h.load(endless).result.again.send()
        with pytest.raises(PatternError, match=r"send events .* without end: endless.again"):
            h.idle()


@pytest.mark.parametrize("copies", [1, 2])
def test_two_asynchronous_handlers_that_send_to_each_other_are_a_loop(copies: int):
    @handler
    async def ping(_event: Any, streams: Any, other: str) -> None:
        await asyncio.sleep(0)
        for _ in range(copies):
            streams[other].send()

    @pattern
    def endless() -> dict[str, Any]:
        streams: dict[str, Any] = {}
        streams["ping"] = ping(streams=streams, other="pong")
        streams["pong"] = ping(streams=streams, other="ping")
        return streams

    with create_harness() as h:
        h.load(endless).result.ping.send()
        with pytest.raises(PatternError, match=r"endless.p[io]ng"):
            h.settled(timeout=300)
        h.dispose(check=False)


def test_an_effect_and_asynchronous_work_that_wake_each_other_are_a_loop():
    @pattern
    def endless(value: Cell[int] = default(0)) -> dict[str, Any]:
        async def compute() -> int:
            current = value.get()
            await asyncio.sleep(0)
            return current + 1

        doubled = computed(compute)
        effect(lambda: value.set(doubled.get() or 0))
        return {"doubled": doubled}

    with create_harness() as h:
        h.load(endless)
        with pytest.raises(PatternError, match="effects wake each other"):
            h.settled(timeout=300)
        h.dispose(check=False)


def test_both_streams_of_a_loop_are_named():
    @handler
    def ping(_event: Any, streams: Any, other: str) -> None:
        streams[other].send()

    @pattern
    def endless() -> dict[str, Any]:
        streams: dict[str, Any] = {}
        streams["ping"] = ping(streams=streams, other="pong")
        streams["pong"] = ping(streams=streams, other="ping")
        return streams

    with create_harness() as h:
        h.load(endless).result.ping.send()
        with pytest.raises(PatternError, match=r"without end: endless.ping, endless.pong"):
            h.idle()


def test_a_timer_without_a_delay_that_starts_itself_is_a_loop(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("offbook.patterns.clock.MAX_AT_ONCE", 100)

    @handler
    def again(_event: Any, streams: Any) -> None:
        streams["again"].send_after(0)

    @pattern
    def endless() -> dict[str, Any]:
        streams: dict[str, Any] = {}
        streams["again"] = again(streams=streams)
        return streams

    with create_harness() as h:
        h.load(endless).result.again.send()
        with pytest.raises(PatternError, match=r"timers start each other .* at 0 s: endless.again"):
            h.advance(1)


def test_many_timers_of_one_moment_are_no_loop(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("offbook.patterns.clock.MAX_AT_ONCE", 100)

    @pattern
    def many(ticks: Cell[int] = default(0)) -> dict[str, Any]:
        for _ in range(200):
            tick(ticks=ticks).send_after(5)
        return {"ticks": ticks}

    with create_harness() as h:
        loaded = h.load(many)
        h.advance(5)
        assert loaded.result.ticks == 200


def test_work_that_hardly_waits_does_not_keep_advance_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("offbook.patterns.harness.MAX_TIMERS", 100)

    @handler
    async def poll(_event: Any) -> None:
        for _ in range(1_000):
            await asyncio.sleep(1e-6)

    @pattern
    def polling() -> dict[str, Any]:
        return {"poll": poll()}

    with create_harness() as h:
        h.load(polling).result.poll.send()
        message = r"100 timers in 0.0001 s of the harness, the last of the handler polling.poll"
        with pytest.raises(PatternError, match=message):
            h.advance(1)
        h.dispose(check=False)


@pytest.mark.parametrize("events", [1, 20_000])
def test_many_events_are_no_loop(events: int):
    @handler
    def add(_event: Any, value: Any) -> None:
        value.set(value.get() + 1)

    @handler
    def fill(event: Any, adding: Any) -> None:
        for _ in range(event):
            adding.send()

    @pattern
    def filled(value: Cell[int] = default(0)) -> dict[str, Any]:
        return {"value": value, "fill": fill(adding=add(value=value))}

    with create_harness() as h:
        loaded = h.load(filled)
        loaded.result.fill.send(events)
        h.idle()
        assert loaded.result.value == events


# --- Asynchronous computed values


def test_the_newest_asynchronous_value_wins():
    """An older run that ignores its cancellation ends later."""

    @pattern
    def search(text: Cell[str] = default("old")) -> dict[str, Any]:
        async def find() -> str:
            wanted = text.get()
            try:
                await asyncio.sleep(1 if wanted == "old" else 0.1)
            except asyncio.CancelledError:
                await asyncio.sleep(5)
            return f"found {wanted}"

        return {"found": computed(find)}

    with create_harness() as h:
        loaded = h.load(search)
        assert loaded.result.found is None
        h.advance(0.5)
        loaded.cells.text.set("new")
        h.settled(timeout=60)
        assert loaded.result.found == "found new"


def test_what_an_older_run_reads_and_raises_does_not_matter():
    @pattern
    def search(text: Cell[str] = default("old"), other: Cell[int] = default(0)) -> dict[str, Any]:
        runs: list[str] = []

        async def find() -> str:
            wanted = text.get()
            runs.append(wanted)
            if wanted == "old":
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    other.get()
                    raise ValueError("too late") from None
            return wanted

        return {"found": computed(find), "runs": runs}

    with create_harness() as h:
        loaded = h.load(search)
        assert loaded.result.found is None
        h.advance(0.5)
        loaded.cells.text.set("new")
        h.settled()
        loaded.cells.other.set(1)
        h.settled()
        assert (loaded.result.found, loaded.result.runs) == ("new", ["old", "new"])


def test_an_asynchronous_computed_value_that_is_cancelled_by_accident_is_reported():
    @pattern
    def search() -> dict[str, Any]:
        async def find() -> str:
            raise asyncio.CancelledError

        return {"found": computed(find)}

    with create_harness(expect_errors=1) as h:
        loaded = h.load(search)
        assert loaded.result.found is None
        h.settled()
        with pytest.raises(PatternError, match=r"the computed value search.found was cancelled"):
            _ = loaded.result.found
