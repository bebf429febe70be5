"""The hub: delivery, order, threads, async listeners and errors."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import DeadlineExceeded, RunError, UsageError
from offbook.trace import Event, Hub, NameFilter, check_name_filter, name_matches
from offbook.trace.events import AgentStartData


def names(events: list[Event]) -> list[str]:
    return [event.event for event in events]


@pytest.mark.parametrize(
    "names_filter, expected",
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
def test_a_listener_gets_each_matching_event_once(names_filter: NameFilter, expected: list[str]):
    hub, seen = Hub(), list[Event]()
    hub.subscribe(seen.append, names_filter)
    for name in ("agent:start", "harness:start", "agent:tool:start"):
        hub.emit(name)
    assert names(seen) == expected


def test_a_filter_without_a_listener_is_rejected():
    with pytest.raises(UsageError, match="needs a listener, got 'agent:\\*'"):
        Hub().subscribe("agent:*")  # pyright: ignore[reportArgumentType] - on purpose


def test_changing_the_list_of_a_filter_does_not_change_a_subscription():
    hub, seen, wanted = Hub(), list[Event](), ["a"]
    hub.subscribe(seen.append, wanted)
    wanted.append("b")
    hub.emit("b")
    assert not seen


def test_stop_ends_one_subscription_and_is_idempotent():
    hub, seen, others = Hub(), list[Event](), list[Event]()
    first = hub.subscribe(seen.append)
    second = hub.subscribe(seen.append)
    hub.subscribe(others.append)
    hub.emit("one")
    assert names(seen) == ["one", "one"]
    first()
    first()
    hub.emit("two")
    assert names(seen) == ["one", "one", "two"]
    second()
    hub.emit("three")
    assert names(seen) == ["one", "one", "two"]
    assert names(others) == ["one", "two", "three"]


def test_a_listener_that_is_stopped_during_delivery_still_gets_the_event():
    hub, seen = Hub(), list[str]()

    def leave(event: Event) -> None:
        seen.append("a")
        stop_a()
        stop_b()

    stop_a = hub.subscribe(leave)
    stop_b = hub.subscribe(lambda _: seen.append("b"))
    hub.subscribe(lambda _: seen.append("c"))
    hub.emit("one")
    hub.emit("two")
    assert seen == ["a", "b", "c", "c"]


def test_a_listener_subscribed_during_delivery_starts_with_the_next_event():
    hub, seen = Hub(), list[Event]()

    def invite(event: Event) -> None:
        stop()
        hub.subscribe(seen.append)

    stop = hub.subscribe(invite)
    hub.emit("one")
    assert names(seen) == []
    hub.emit("two")
    assert names(seen) == ["two"]


def test_all_listeners_get_one_order_even_if_a_listener_emits():
    hub, early, late = Hub(), list[Event](), list[Event]()

    def answer(event: Event) -> None:
        if event.event == "outer":
            hub.emit("inner")

    hub.subscribe(early.append)
    hub.subscribe(answer)
    hub.subscribe(late.append)
    hub.emit("outer")
    hub.emit("next")
    assert names(early) == names(late) == ["outer", "inner", "next"]
    assert [event.seq for event in late] == [1, 2, 3]


def test_an_endless_cascade_of_events_is_stopped():
    hub = Hub()
    hub.subscribe(lambda _: hub.emit("echo") and None, "echo")
    hub.emit("echo")
    with pytest.raises(RunError, match="dropped echo"):
        hub.raise_errors()


def test_events_of_several_threads_have_one_order_and_none_is_lost():
    hub, seen = Hub(), list[Event]()
    hub.subscribe(seen.append)
    ready = threading.Barrier(4)

    def emit_ticks() -> None:
        ready.wait()
        for _ in range(250):
            hub.emit("tick")

    threads = [threading.Thread(target=emit_ticks) for _ in range(4)]
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
async def test_an_error_of_a_listener_does_not_affect_others_and_fails_the_run(
    listener: Callable[[Event], object],
):
    hub, seen = Hub(), list[Event]()
    hub.subscribe(listener)
    hub.subscribe(seen.append)
    hub.emit("one")
    await hub.idle()
    assert names(seen) == ["one"]
    assert [str(error) for error in hub.errors] == ["broken listener"]
    with pytest.raises(ValueError, match="broken listener") as raised:
        hub.raise_errors()
    note = f"raised by the listener {listener.__name__} at one #1"
    assert raised.value.__notes__ == [note]


@pytest.mark.parametrize("listener", [fail, fail_later])
async def test_leaving_the_block_of_a_hub_raises_the_errors_of_its_listeners(
    listener: Callable[[Event], object],
):
    async def use_bus() -> None:
        async with Hub() as hub:
            hub.subscribe(listener)
            hub.emit("one")

    with pytest.raises(ValueError, match="broken listener"):
        await use_bus()


async def test_allowed_errors_are_kept_and_do_not_fail():
    async with Hub(allow_errors=True) as hub:
        hub.subscribe(fail)
        hub.subscribe(fail_later)
        hub.emit("one")
    assert len(hub.errors) == 2


def test_an_error_of_a_listener_does_not_hide_the_error_of_the_block():
    hub = Hub()
    hub.subscribe(fail)
    hub.emit("one")
    with pytest.raises(KeyError), hub:
        raise KeyError


def test_the_first_of_several_errors_is_raised_with_the_others_as_notes():
    hub = Hub()
    hub.subscribe(fail)
    hub.emit("one")
    hub.emit("two")
    with pytest.raises(ValueError, match="broken") as raised:
        hub.raise_errors()
    assert "and another listener raised ValueError: broken listener" in raised.value.__notes__


async def test_an_async_listener_handles_events_one_after_another():
    hub, seen = Hub(), list[str]()

    async def slowly(event: Event) -> None:
        seen.append(f"{event.event} begins")
        await asyncio.sleep(0)
        seen.append(f"{event.event} ends")

    hub.subscribe(slowly)
    hub.emit("one")
    hub.emit("two")
    assert seen == []
    await hub.idle()
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


async def test_an_async_listener_gets_the_events_of_another_thread():
    hub, seen = Hub(), list[str]()

    async def listen(event: Event) -> None:
        seen.append(event.event)

    hub.subscribe(listen)
    thread = threading.Thread(target=hub.emit, args=("far",))
    thread.start()
    thread.join()
    await hub.idle()
    assert seen == ["far"]


def test_an_async_listener_without_a_loop_is_an_error():
    hub = Hub()
    hub.subscribe(fail_later)
    hub.emit("one")
    with pytest.raises(UsageError, match="no event loop runs the async listener fail_later"):
        hub.raise_errors()


async def test_idle_names_the_listener_that_does_not_return():
    hub, release = Hub(), asyncio.Event()

    async def stuck(event: Event) -> None:
        await release.wait()

    hub.subscribe(stuck)
    hub.emit("one")
    with pytest.raises(DeadlineExceeded, match=r"still busy after .*stuck"):
        await hub.idle(timeout=0.01)
    release.set()
    await hub.idle()


def test_an_interrupt_in_a_listener_is_raised_and_no_event_is_lost():
    hub, seen = Hub(), list[Event]()

    def interrupt(event: Event) -> None:
        stop()
        hub.emit("two")
        raise KeyboardInterrupt

    stop = hub.subscribe(interrupt)
    hub.subscribe(seen.append)
    with pytest.raises(KeyboardInterrupt):
        hub.emit("one")
    hub.emit("three")
    assert names(seen) == ["two", "three"]


def test_the_cache_of_listeners_is_limited():
    hub, seen = Hub(), list[Event]()
    hub.subscribe(seen.append, "tick*")
    for number in range(2_500):
        hub.emit(f"tick{number}")
    assert len(seen) == 2_500
    assert len(hub._routes) <= 1_000  # pyright: ignore[reportPrivateUsage] - seen only from inside


def test_a_closed_hub_has_no_listeners_and_accepts_none():
    hub, seen = Hub(), list[Event]()
    hub.subscribe(seen.append)
    hub.close()
    hub.close()
    hub.emit("one")
    assert not seen
    with pytest.raises(UsageError, match="closed"):
        hub.subscribe(seen.append)


def test_the_cache_of_listeners_follows_subscribe_and_stop():
    hub, first, second = Hub(), list[Event](), list[Event]()
    stop = hub.subscribe(first.append)
    hub.emit("tick")
    hub.subscribe(second.append, "ti*")
    hub.emit("tick")
    stop()
    hub.emit("tick")
    assert [event.seq for event in first] == [1, 2]
    assert [event.seq for event in second] == [2, 3]


CASES: list[tuple[NameFilter, str, bool]] = [
    ("*", "harness:start", True),
    ("agent:*", "agent:start", True),
    ("agent:*", "agent:tool:start", True),
    ("agent:*", "agent", False),
    ("agent:*", "harness:start", False),
    ("ag*", "agent:start", True),
    ("agent:start", "agent:start", True),
    ("agent:start", "agent:started", False),
    ("**", "agent:start", False),
    ("a*t", "agent", False),
    ([], "agent:start", False),
    (["a:*", "b"], "b", True),
    (["a:*", "b"], "a:1", True),
    (["a:*", "b"], "c", False),
    (("tool.*", "model.reply"), "model.reply", True),
]


@pytest.mark.parametrize("wanted, name, expected", CASES)
def test_names_and_filters(wanted: NameFilter, name: str, expected: bool):  # noqa: FBT001 - a table's column
    assert name_matches(name, wanted) is expected


@pytest.mark.parametrize("wanted", ["", "model.", "agent:", ["ok", "agent:"]])
def test_a_filter_that_matches_nothing_is_rejected_with_a_fix(wanted: NameFilter):
    with pytest.raises(UsageError, match=r'write ".*\*"'):
        check_name_filter(wanted)


@pytest.mark.parametrize("wanted", [3, None, [3], object()])
def test_a_filter_of_another_type_is_rejected(wanted: object):
    with pytest.raises(UsageError, match="a filter"):
        check_name_filter(wanted)


@given(st.text(), st.lists(st.text(min_size=1)))
def test_a_list_matches_if_any_member_does(name: str, wanted: list[str]):
    assert name_matches(name, wanted) == any(name_matches(name, one) for one in wanted)


async def test_an_async_listener_that_is_cancelled_still_gets_the_later_events():
    hub, seen = Hub(), list[str]()

    async def listen(event: Event) -> None:
        seen.append(event.event)
        if event.event == "one":
            raise asyncio.CancelledError

    hub.subscribe(listen)
    hub.emit("one")
    hub.emit("two")
    await hub.idle()
    assert seen == ["one", "two"]
    with pytest.raises(RunError, match="listen was cancelled"):
        hub.raise_errors()


def test_an_event_loop_that_shuts_down_reports_the_events_that_were_not_handled():
    hub = Hub()

    async def stuck(event: Event) -> None:
        await asyncio.Event().wait()

    async def emit_and_leave() -> None:
        hub.subscribe(stuck)
        hub.emit("one")
        hub.emit("two")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(emit_and_leave())
    assert [str(error) for error in hub.errors] == [
        f"the async listener {stuck.__qualname__} was cancelled",
        f"the async listener {stuck.__qualname__} did not run: cancelled",
    ]


@pytest.fixture
def frequent_thread_switches() -> Iterator[None]:
    if sys.gettrace() is not None:  # a tracer that is installed in two threads at once fails
        pytest.skip("coverage cannot be measured with frequent switches of threads")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("frequent_thread_switches")
def test_threads_that_subscribe_and_stop_at_once_lose_no_event():
    hub, counts = Hub(), list[int]()

    def work(name: str) -> None:
        seen: list[Event] = []
        for _ in range(500):
            stop = hub.subscribe(seen.append, name)
            hub.emit(name)
            stop()
        counts.append(len(seen))

    threads = [threading.Thread(target=work, args=(f"thread-{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [500] * 8
    assert hub.listener_count == 0


@pytest.mark.usefixtures("frequent_thread_switches")
async def test_an_async_listener_handles_every_event_of_other_threads():
    hub, seen = Hub(), list[Event]()

    async def listen(event: Event) -> None:
        seen.append(event)

    hub.subscribe(listen)

    def work() -> None:
        for _ in range(500):
            hub.emit("tick")

    await asyncio.gather(asyncio.to_thread(work), asyncio.to_thread(work))
    await hub.idle()
    assert [event.seq for event in seen] == list(range(1, 1001))


def test_the_only_plain_listener_gets_typed_data_from_the_first_event_on():
    hub, seen = Hub(), list[Event]()
    stop = hub.subscribe(seen.append, plain=True)
    hub.emit_data(AgentStartData("Go"))
    assert isinstance(seen[0].data, AgentStartData)
    hub.subscribe(id)
    hub.emit_data(AgentStartData("Go"))
    assert seen[1].data == {"prompt": "Go"}
    stop()
    hub.emit_data(AgentStartData("Go"))
    assert len(seen) == 2


def test_a_plain_listener_of_some_names_gets_no_others():
    hub, seen = Hub(), list[Event]()
    hub.subscribe(seen.append, "tool.*", plain=True)
    hub.emit_data(AgentStartData("Go"))
    assert not seen
