"""The bus: who hears what, in which order, and what becomes of errors."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from offbook.errors import DeadlineExceeded, RunError, UsageError
from offbook.trace.event_bus import Bus, NameFilter
from offbook.trace.events import Event
from offbook.trace.hub import Hub


def names(events: list[Event]) -> list[str]:
    return [event.event for event in events]


@pytest.mark.parametrize(
    "wanted, heard",
    [
        ("*", ["agent:start", "harness:start", "agent:tool:start"]),
        ("agent:*", ["agent:start", "agent:tool:start"]),
        ("harness:start", ["harness:start"]),
        (["agent:*", "agent:start", "harness:start"], [
            "agent:start", "harness:start", "agent:tool:start",
        ]),
        ([], []),
    ],
)  # fmt: skip
def test_a_listener_hears_what_passes_its_filter_once(wanted: NameFilter, heard: list[str]):
    bus, seen = Bus(), list[Event]()
    bus.subscribe(seen.append, wanted)
    for name in ("agent:start", "harness:start", "agent:tool:start"):
        bus.emit(name)
    assert names(seen) == heard


def test_a_filter_without_a_listener_is_refused():
    with pytest.raises(UsageError, match="needs a listener, not 'agent:\\*'"):
        Bus().subscribe("agent:*")  # pyright: ignore[reportArgumentType] - on purpose


def test_a_list_changed_later_does_not_change_a_subscription():
    bus, seen, wanted = Bus(), list[Event](), ["a"]
    bus.subscribe(seen.append, wanted)
    wanted.append("b")
    bus.emit("b")
    assert not seen


def test_unsubscribing_ends_only_that_subscription_and_twice_is_nothing():
    bus, seen, others = Bus(), list[Event](), list[Event]()
    first = bus.subscribe(seen.append)
    second = bus.subscribe(seen.append)
    bus.subscribe(others.append)
    bus.emit("one")
    assert names(seen) == ["one", "one"]
    first()
    first()
    bus.emit("two")
    assert names(seen) == ["one", "one", "two"]
    second()
    bus.emit("three")
    assert names(seen) == ["one", "one", "two"]
    assert names(others) == ["one", "two", "three"]


def test_whoever_listened_at_emit_hears_it_even_if_unsubscribed_meanwhile():
    bus, seen = Bus(), list[str]()

    def leave(event: Event) -> None:
        seen.append("a")
        stop_a()
        stop_b()

    stop_a = bus.subscribe(leave)
    stop_b = bus.subscribe(lambda _: seen.append("b"))
    bus.subscribe(lambda _: seen.append("c"))
    bus.emit("one")
    bus.emit("two")
    assert seen == ["a", "b", "c", "c"]


def test_whoever_subscribes_during_emit_starts_with_the_next_event():
    bus, seen = Bus(), list[Event]()

    def invite(event: Event) -> None:
        stop()
        bus.subscribe(seen.append)

    stop = bus.subscribe(invite)
    bus.emit("one")
    assert names(seen) == []
    bus.emit("two")
    assert names(seen) == ["two"]


def test_all_listeners_hear_one_order_also_when_a_listener_emits():
    bus, early, late = Bus(), list[Event](), list[Event]()

    def answer(event: Event) -> None:
        if event.event == "outer":
            bus.emit("inner")

    bus.subscribe(early.append)
    bus.subscribe(answer)
    bus.subscribe(late.append)
    bus.emit("outer")
    bus.emit("next")
    assert names(early) == names(late) == ["outer", "inner", "next"]
    assert [event.seq for event in late] == [1, 2, 3]


def test_a_listener_that_answers_itself_for_ever_is_stopped_and_named():
    bus = Bus()
    bus.subscribe(lambda _: bus.emit("echo") and None, "echo")
    bus.emit("echo")
    with pytest.raises(RunError, match="dropped echo"):
        bus.raise_errors()


def test_threads_agree_on_one_order_and_none_is_lost():
    bus, seen = Bus(), list[Event]()
    bus.subscribe(seen.append)
    ready = threading.Barrier(4)

    def speak() -> None:
        ready.wait()
        for _ in range(250):
            bus.emit("tick")

    threads = [threading.Thread(target=speak) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.seq for event in seen] == list(range(1, 1001))


def fail(event: Event) -> None:
    raise ValueError("broken listener")


async def fail_later(event: Event) -> None:
    await asyncio.sleep(0)
    raise ValueError("broken listener")


@pytest.mark.parametrize("listener", [fail, fail_later])
async def test_an_error_of_a_listener_harms_nobody_and_fails_the_run(
    listener: Callable[[Event], object],
):
    bus, seen = Bus(), list[Event]()
    bus.subscribe(listener)
    bus.subscribe(seen.append)
    bus.emit("one")
    await bus.idle()
    assert names(seen) == ["one"]
    assert [str(error) for error in bus.errors] == ["broken listener"]
    with pytest.raises(ValueError, match="broken listener") as raised:
        bus.raise_errors()
    note = f"raised by the listener {listener.__name__} at one #1"
    assert raised.value.__notes__ == [note]


@pytest.mark.parametrize("listener", [fail, fail_later])
async def test_leaving_the_block_of_a_bus_raises_what_its_listeners_raised(
    listener: Callable[[Event], object],
):
    async def use_bus() -> None:
        async with Bus() as bus:
            bus.subscribe(listener)
            bus.emit("one")

    with pytest.raises(ValueError, match="broken listener"):
        await use_bus()


async def test_errors_that_are_allowed_are_kept_and_do_not_fail():
    async with Bus(allow_errors=True) as bus:
        bus.subscribe(fail)
        bus.subscribe(fail_later)
        bus.emit("one")
    assert len(bus.errors) == 2


def test_the_error_of_the_block_itself_is_not_hidden_by_a_listeners():
    bus = Bus()
    bus.subscribe(fail)
    bus.emit("one")
    with pytest.raises(KeyError), bus:
        raise KeyError


def test_of_several_errors_the_first_is_raised_and_the_others_are_told():
    bus = Bus()
    bus.subscribe(fail)
    bus.emit("one")
    bus.emit("two")
    with pytest.raises(ValueError, match="broken") as raised:
        bus.raise_errors()
    assert "and another listener raised ValueError: broken listener" in raised.value.__notes__


async def test_an_async_listener_takes_events_one_after_another():
    bus, seen = Bus(), list[str]()

    async def slowly(event: Event) -> None:
        seen.append(f"{event.event} begins")
        await asyncio.sleep(0)
        seen.append(f"{event.event} ends")

    bus.subscribe(slowly)
    bus.emit("one")
    bus.emit("two")
    assert seen == []
    await bus.idle()
    assert seen == ["one begins", "one ends", "two begins", "two ends"]


async def test_an_async_listener_keeps_the_context_of_each_event():
    hub, seen = Hub(session_id="s"), list[dict[str, object]]()

    async def answer(event: Event) -> None:
        seen.append(hub.current())

    hub.subscribe(answer)
    for agent in ("a", "b"):
        with hub.scoped(agent=agent):
            hub.emit("one")
    await hub.idle()
    assert [context["agent"] for context in seen] == ["a", "b"]


async def test_an_async_listener_hears_what_another_thread_emits():
    bus, seen = Bus(), list[str]()

    async def listen(event: Event) -> None:
        seen.append(event.event)

    bus.subscribe(listen)
    thread = threading.Thread(target=bus.emit, args=("far",))
    thread.start()
    thread.join()
    await bus.idle()
    assert seen == ["far"]


def test_an_async_listener_without_a_loop_is_an_error_not_silence():
    bus = Bus()
    bus.subscribe(fail_later)
    bus.emit("one")
    with pytest.raises(UsageError, match="no event loop runs the async listener fail_later"):
        bus.raise_errors()


async def test_idle_names_the_listener_that_does_not_end():
    bus, release = Bus(), asyncio.Event()

    async def stuck(event: Event) -> None:
        await release.wait()

    bus.subscribe(stuck)
    bus.emit("one")
    with pytest.raises(DeadlineExceeded, match=r"still busy after .*stuck"):
        await bus.idle(timeout=0.01)
    release.set()
    await bus.idle()


def test_an_interrupt_in_a_listener_passes_and_nothing_is_lost():
    bus, seen = Bus(), list[Event]()

    def interrupt(event: Event) -> None:
        stop()
        bus.emit("two")
        raise KeyboardInterrupt

    stop = bus.subscribe(interrupt)
    bus.subscribe(seen.append)
    with pytest.raises(KeyboardInterrupt):
        bus.emit("one")
    bus.emit("three")
    assert names(seen) == ["two", "three"]


def test_the_listeners_of_a_thousand_names_are_not_remembered_for_ever():
    bus, seen = Bus(), list[Event]()
    bus.subscribe(seen.append, "tick*")
    for number in range(2_500):
        bus.emit(f"tick{number}")
    assert len(seen) == 2_500
    assert len(bus._routes) <= 1_000  # pyright: ignore[reportPrivateUsage] - seen only from inside


def test_a_closed_bus_has_no_listeners_and_takes_none():
    bus, seen = Bus(), list[Event]()
    bus.subscribe(seen.append)
    bus.close()
    bus.close()
    bus.emit("one")
    assert not seen
    with pytest.raises(UsageError, match="closed"):
        bus.subscribe(seen.append)


def test_who_comes_and_goes_counts_for_a_name_that_was_heard_before():
    bus, first, second = Bus(), list[Event](), list[Event]()
    stop = bus.subscribe(first.append)
    bus.emit("tick")
    bus.subscribe(second.append, "ti*")
    bus.emit("tick")
    stop()
    bus.emit("tick")
    assert [event.seq for event in first] == [1, 2]
    assert [event.seq for event in second] == [2, 3]
