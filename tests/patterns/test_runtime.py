"""Computed values, effects, events and transactions."""

# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false
# Patterns take and return any value.

import asyncio
import gc
import itertools
import random
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import PatternError, UsageError
from offbook.patterns import Cell, Runtime, Store


def new_cell(runtime: Runtime, *value: Any, name: str = "cell") -> Cell[Any]:
    return Cell(runtime, Store(name, *value))


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


class Counted:
    """A function that counts its runs."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.runs = 0
        self.__name__ = "counted"

    def __call__(self) -> Any:
        self.runs += 1
        return self.function()


def test_a_computed_value_that_nobody_reads_never_runs(runtime: Runtime):
    function = Counted(lambda: 1)
    runtime.computed(function)
    runtime.flush()
    assert function.runs == 0


def test_a_computed_value_runs_once_for_two_reads(runtime: Runtime):
    function = Counted(lambda: 1)
    value = runtime.computed(function)
    assert (value.get(), value.get(), function.runs) == (1, 1, 1)


def test_a_diamond_is_computed_once_and_consistently(runtime: Runtime):
    x = new_cell(runtime, 1)
    left = runtime.computed(lambda: x.get() + 1)
    right = runtime.computed(lambda: x.get() * 10)
    seen: list[Any] = []
    both = runtime.computed(lambda: (left.get(), right.get()))
    both.sink(seen.append)
    x.set(2)
    runtime.flush()
    assert seen == [(2, 10), (3, 20)]


def test_an_equal_value_does_not_wake_readers(runtime: Runtime):
    x = new_cell(runtime, 1)
    parity = runtime.computed(lambda: x.get() % 2)
    reader = Counted(parity.get)
    runtime.computed(reader).sink(lambda _: None)
    x.set(3)
    runtime.flush()
    assert reader.runs == 1


@pytest.mark.parametrize("value", [True, 1.0])
def test_values_of_different_types_are_different(runtime: Runtime, value: Any):
    x = new_cell(runtime, 1)
    seen: list[Any] = []
    x.sink(seen.append)
    x.set(value)
    runtime.flush()
    assert [type(item) for item in seen] == [int, type(value)]


def test_a_dropped_branch_is_no_dependency_any_more(runtime: Runtime):
    flag, a, b = new_cell(runtime, True), new_cell(runtime, 1), new_cell(runtime, 2)
    function = Counted(lambda: a.get() if flag.get() else b.get())
    value = runtime.computed(function)
    assert value.get() == 1
    flag.set(False)
    assert value.get() == 2
    a.set(5)
    assert (value.get(), function.runs) == (2, 2)


def test_a_stale_dependency_of_the_other_branch_is_not_computed(runtime: Runtime):
    divisor = new_cell(runtime, 2)
    quotient = Counted(lambda: 10 // divisor.get())
    computed = runtime.computed(quotient)
    safe = runtime.computed(lambda: computed.get() if divisor.get() else 0)
    nonzero = runtime.computed(lambda: bool(divisor.get()))
    guarded = runtime.computed(lambda: computed.get() if nonzero.get() else 0)
    assert (safe.get(), guarded.get()) == (5, 5)
    divisor.set(0)
    assert guarded.get() == 0
    assert quotient.runs == 1


def test_a_reader_of_one_path_is_not_woken_by_another(runtime: Runtime):
    items = new_cell(runtime, [{"done": False}, {"done": False}])
    seen: list[Any] = []
    items.key(1, "done").sink(seen.append)
    items.key(0, "done").set(True)
    runtime.flush()
    assert seen == [False]
    items.key(1, "done").set(True)
    runtime.flush()
    assert seen == [False, True]


def test_a_whole_write_wakes_only_the_paths_that_changed(runtime: Runtime):
    items = new_cell(runtime, [{"n": 1}, {"n": 2}])
    first, second = [], []
    items.key(0, "n").sink(first.append)
    items.key(1, "n").sink(second.append)
    items.set([{"n": 1}, {"n": 5}])
    runtime.flush()
    assert (first, second) == ([1], [2, 5])


def test_forgotten_paths_are_not_kept(runtime: Runtime):
    items = new_cell(runtime, {})
    for number in range(100):
        items.key(f"k{number}").sink(lambda _: None)()
    assert items._store.children == {}


def test_a_sink_gets_the_value_at_once_and_then_one_per_flush(runtime: Runtime):
    x = new_cell(runtime, 0)
    seen: list[int] = []
    stop = x.sink(seen.append)
    x.set(1)
    x.set(2)
    assert seen == [0]
    runtime.flush()
    x.set(2)
    runtime.flush()
    x.set(3)
    x.set(2)
    runtime.flush()
    assert seen == [0, 2]
    stop()
    x.set(9)
    runtime.flush()
    assert seen == [0, 2]


def test_the_cleanup_of_a_sink_runs_before_the_next_call_and_at_the_end(runtime: Runtime):
    x = new_cell(runtime, 0)
    log: list[str] = []

    def watch(value: int) -> Any:
        log.append(f"see {value}")
        return lambda: log.append(f"forget {value}")

    stop = x.sink(watch)
    x.set(1)
    runtime.flush()
    stop()
    stop()
    assert log == ["see 0", "forget 0", "see 1", "forget 1"]


def test_the_callback_of_a_sink_adds_no_dependency(runtime: Runtime):
    x, y = new_cell(runtime, 0), new_cell(runtime, 0)
    seen: list[Any] = []
    x.sink(lambda value: seen.append((value, y.get())))
    y.set(1)
    runtime.flush()
    assert seen == [(0, 0)]


def test_sample_adds_no_dependency(runtime: Runtime):
    x, y = new_cell(runtime, 1), new_cell(runtime, 1)
    total = runtime.computed(lambda: x.get() + y.sample())
    assert total.get() == 2
    y.set(5)
    assert total.get() == 2
    x.set(2)
    assert total.get() == 7


def test_sample_reads_a_computed_value_and_raises_its_error(runtime: Runtime):
    x = new_cell(runtime, 1)
    function = Counted(lambda: 1 // x.get())
    inverse = runtime.computed(function)
    assert (inverse.sample(), inverse.sample(), function.runs) == (1, 1, 1)
    x.set(0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            inverse.sample()
    assert function.runs == 2


def test_a_computed_value_is_not_its_value(runtime: Runtime):
    with pytest.raises(TypeError, match=r"the computed value zero is not its value"):
        bool(runtime.computed(lambda: 0, name="zero"))


def test_a_computed_value_may_be_none(runtime: Runtime):
    x = new_cell(runtime, {})
    title = runtime.computed(lambda: x.get().get("title"))
    seen: list[Any] = []
    title.sink(seen.append)
    for value in ({"a": 1}, {"title": "Tea"}, {}):
        x.set(value)
        runtime.flush()
    assert seen == [None, "Tea", None]


def test_a_computed_value_cannot_write(runtime: Runtime):
    x = new_cell(runtime, 1, name="x")
    value = runtime.computed(lambda: x.set(2), name="bad")
    with pytest.raises(PatternError, match="bad writes to x: a computed value only reads"):
        value.get()


def test_the_error_of_a_computed_value_is_raised_to_its_reader(runtime: Runtime):
    x = new_cell(runtime, 0)
    value = runtime.computed(lambda: 1 // x.get(), name="inverse")
    with pytest.raises(ZeroDivisionError) as caught:
        value.get()
    (note,) = caught.value.__notes__
    assert note.startswith("in the computed value inverse at ")
    assert "test_runtime.py:" in note
    x.set(1)
    assert value.get() == 1


def test_computed_values_that_depend_on_each_other_are_named(runtime: Runtime):
    nodes: dict[str, Any] = {}
    nodes["a"] = runtime.computed(lambda: nodes["b"].get(), name="a")  # noqa: PLW0108 - defined below
    nodes["b"] = runtime.computed(lambda: nodes["a"].get(), name="b")  # noqa: PLW0108
    with pytest.raises(PatternError, match="depends on itself: a → b → a"):
        nodes["a"].get()


def test_effects_that_wake_each_other_without_end_are_named(runtime: Runtime):
    a, b = new_cell(runtime, 0), new_cell(runtime, 0)
    runtime.effect(lambda: b.set(a.get() + 1) and None, name="forward")
    runtime.effect(lambda: a.set(b.get() + 1) and None, name="back")
    with pytest.raises(PatternError, match="back, forward"):
        runtime.flush()


def test_an_effect_that_changes_what_it_reads_runs_until_it_stops(runtime: Runtime):
    x = new_cell(runtime, 0)
    runtime.effect(lambda: x.set(min(x.get() + 1, 50)) and None)
    runtime.flush()
    assert x.get() == 50


def test_a_long_chain_of_effects_is_no_loop(runtime: Runtime):
    cells = [new_cell(runtime, 0) for _ in range(1_000)]
    for source, target in itertools.pairwise(cells):
        runtime.effect(lambda s=source, t=target: t.set(s.get()) and None)
    cells[0].set(7)
    runtime.flush()
    assert cells[-1].get() == 7


def test_an_error_of_an_effect_does_not_stop_the_others(runtime: Runtime):
    x = new_cell(runtime, 1)
    seen: list[int] = []
    runtime.effect(lambda: 1 // (1 - x.get()) and None if x.get() > 1 else None)
    runtime.effect(lambda: {}["missing"] if x.get() == 2 else None, name="broken")
    x.sink(seen.append)
    x.set(2)
    runtime.flush()
    assert seen == [1, 2]
    assert [type(error) for error in runtime.errors] == [KeyError]


def test_the_error_of_a_computed_value_is_kept_once_for_all_effects(runtime: Runtime):
    value = runtime.computed(lambda: {}["missing"])
    for name in ("one", "two"):
        runtime.effect(value.get, name=name)
    (error,) = runtime.errors
    assert [note.split(" at ")[0] for note in error.__notes__] == [
        "in the computed value lambda",
        "in the one",
        "in the two",
    ]


def test_an_error_that_is_raised_again_has_its_place_once(runtime: Runtime):
    x = new_cell(runtime, 1)
    error = ValueError("again")

    def fail() -> None:
        x.get()
        raise error

    value = runtime.computed(fail)
    for number in (2, 3):
        with pytest.raises(ValueError, match="again"):
            value.get()
        x.set(number)
    assert len(error.__notes__) == 1


def test_each_reader_that_has_not_seen_a_write_is_named_once(runtime: Runtime):
    x = new_cell(runtime, 1)
    left = runtime.computed(lambda: x.get() + 1, name="left")
    right = runtime.computed(lambda: x.get() + 2, name="right")
    total = runtime.computed(lambda: left.get() + right.get(), name="total")
    assert (total.get(), x.stale_readers) == (5, [])
    x.set(2)
    assert x.stale_readers == ["left", "right", "total"]
    assert (left.get(), x.stale_readers) == (3, ["right", "total"])


def test_the_cleanup_of_an_effect_runs_before_the_next_run_and_at_the_end(runtime: Runtime):
    x = new_cell(runtime, 1)
    log: list[str] = []

    def follow() -> Any:
        value = x.get()
        log.append(f"run {value}")
        return lambda: log.append(f"clean {value}")

    stop = runtime.effect(follow)
    x.set(2)
    runtime.flush()
    stop()
    stop()
    assert log == ["run 1", "clean 1", "run 2", "clean 2"]


def test_an_error_of_a_cleanup_is_kept(runtime: Runtime):
    runtime.effect(lambda: lambda: {}["missing"], name="broken")()
    (error,) = runtime.errors
    assert (type(error), error.__notes__) == (KeyError, ["in the cleanup of the broken"])


def test_events_are_handled_in_order_and_not_before_the_flush(runtime: Runtime):
    log = new_cell(runtime, [])
    stream = runtime.stream(lambda event, log: log.push(event), {"log": log}, name="add")
    stream.send(1)
    stream.send(2)
    assert log.get() == []
    runtime.flush()
    assert log.get() == [1, 2]


def test_a_handler_sees_the_state_and_the_computed_values_after_the_event_before(
    runtime: Runtime,
):
    x = new_cell(runtime, 1)
    double = runtime.computed(lambda: x.get() * 2)
    stream = runtime.stream(lambda _event: x.set(double.get() + 1), name="next")
    stream.send()
    stream.send()
    runtime.flush()
    assert x.get() == 7


def test_a_handler_that_raises_leaves_no_write_and_the_next_event_is_handled(runtime: Runtime):
    x = new_cell(runtime, {"n": 1})
    double = runtime.computed(lambda: x.get()["n"] * 2)

    def handle(event: str) -> None:
        x.key("n").set(5)
        x.key("m").set(6)
        assert double.get() == 10
        if event == "bad":
            raise ValueError("refused")

    stream = runtime.stream(handle, name="handle")
    stream.send("bad")
    runtime.flush()
    assert (x.get(), double.get()) == ({"n": 1}, 2)
    assert [str(error) for error in runtime.errors] == ["refused"]
    stream.send("good")
    runtime.flush()
    assert x.get() == {"n": 5, "m": 6}


def test_a_batch_is_undone_by_an_exception(runtime: Runtime):
    x, y = new_cell(runtime, 1), new_cell(runtime, 1)
    seen: list[int] = []
    x.sink(seen.append)
    with pytest.raises(KeyError), runtime.batch():  # noqa: PT012 - the block is a transaction
        x.set(2)
        y.set(2)
        raise KeyError
    runtime.flush()
    assert (x.get(), y.get(), seen) == (1, 1, [1])


def test_an_event_of_a_stream_without_a_handler_is_an_error(runtime: Runtime):
    with pytest.raises(UsageError, match="the stream lost has no handler"):
        runtime.stream(None, name="lost").send()


def test_the_payload_of_an_event_arrives_as_it_was_sent(runtime: Runtime):
    received: list[Any] = []
    stream = runtime.stream(received.append, name="take")
    payload = {"items": [1, {"a": 2}]}
    stream.send(payload)
    payload["items"].append(3)
    runtime.flush()
    assert received == [{"items": [1, {"a": 2}]}]


def test_a_computed_value_that_is_no_function_of_cells_is_found():
    runtime = Runtime(check_idempotent=True)
    x = new_cell(runtime, 1)
    runtime.computed(lambda: random.random() + x.get(), name="noise").get()  # noqa: S311 - noise
    runtime.computed(lambda: [x.get()], name="pure").get()
    assert len(runtime.unstable) == 1
    assert "the computed value noise is not a function of cells" in runtime.unstable[0]


async def test_an_asynchronous_computed_value_follows_its_cells():
    runtime = Runtime()
    x = new_cell(runtime, 1)

    async def slow() -> int:
        await asyncio.sleep(0)
        return x.get() * 2

    double = runtime.computed(slow)
    seen: list[Any] = []
    double.sink(seen.append)
    await asyncio.gather(*runtime.tasks)
    runtime.flush()
    x.set(5)
    await asyncio.gather(*runtime.tasks)
    runtime.flush()
    assert seen == [None, 2, 10]


async def test_the_error_of_an_asynchronous_computed_value_is_raised_to_its_reader():
    runtime = Runtime()

    async def broken() -> int:
        raise ValueError("late")

    value = runtime.computed(broken, name="broken")
    assert value.get() is None
    await asyncio.gather(*runtime.tasks)
    with pytest.raises(ValueError, match="late") as caught:
        value.get()
    assert runtime.errors == [caught.value]
    assert caught.value.__notes__[0].startswith("in the computed value broken at ")


async def test_an_equal_asynchronous_value_does_not_wake_readers():
    runtime = Runtime()
    x = new_cell(runtime, 1)

    async def parity() -> int:
        return x.get() % 2

    reader = Counted(runtime.computed(parity).get)
    runtime.effect(reader)
    for value in (3, 5):
        await asyncio.gather(*runtime.tasks)
        runtime.flush()
        x.set(value)
    await asyncio.gather(*runtime.tasks)
    runtime.flush()
    assert reader.runs == 2  # before the first value, and with it


def test_an_asynchronous_computed_value_needs_an_event_loop(runtime: Runtime):
    async def slow() -> int:
        return 1

    with pytest.raises(UsageError, match="needs a harness or an event loop"):
        runtime.computed(slow).get()


async def test_the_next_event_waits_for_an_asynchronous_handler():
    runtime = Runtime()
    log = new_cell(runtime, [])

    async def handle(event: str) -> None:
        log.push(f"start {event}")
        await asyncio.sleep(0)
        log.push(f"end {event}")

    stream = runtime.stream(handle, name="slow")
    stream.send("a")
    stream.send("b")
    for _ in range(4):
        runtime.flush()
        if runtime.tasks:
            await asyncio.gather(*runtime.tasks)
    assert log.get() == ["start a", "end a", "start b", "end b"]


async def test_an_asynchronous_handler_that_raises_is_undone():
    runtime = Runtime()
    x, other = new_cell(runtime, 1), new_cell(runtime, 1)

    async def handle(_event: object) -> None:
        x.set(2)
        await asyncio.sleep(0)
        x.set(3)
        raise ValueError("late")

    runtime.stream(handle, name="slow").send()
    runtime.flush()
    other.set(9)
    await asyncio.gather(*runtime.tasks)
    assert (x.get(), other.get()) == (1, 9)
    assert [str(error) for error in runtime.errors] == ["late"]


def test_a_deep_chain_needs_no_deep_stack(runtime: Runtime):
    x = new_cell(runtime, 0)
    node: Any = x
    for _ in range(20 * sys.getrecursionlimit()):
        node = runtime.computed(lambda before=node: before.get() + 1)
    assert node.get() == 20 * sys.getrecursionlimit()
    x.set(1)
    assert node.get() == 20 * sys.getrecursionlimit() + 1


def test_every_node_of_a_fan_out_is_computed_once_for_a_change(runtime: Runtime):
    x = new_cell(runtime, 0)
    functions = [Counted(lambda i=i: x.get() + i) for i in range(1_000)]
    nodes = [runtime.computed(function) for function in functions]
    total = Counted(lambda: sum(node.get() for node in nodes))
    seen: list[int] = []
    runtime.computed(total).sink(seen.append)
    x.set(1)
    runtime.flush()
    assert seen == [499_500, 500_500]
    assert {function.runs for function in [*functions, total]} == {2}


class CountedItems(dict[Any, int]):
    """The dependencies of a value, which count how many of them are compared."""

    compared = 0

    def items(self) -> Any:
        for item in super().items():
            self.compared += 1
            yield item


@pytest.mark.parametrize("size", [10, 1_000])
def test_each_dependency_is_compared_once_if_none_has_changed(runtime: Runtime, size: int):
    x = new_cell(runtime, 0)
    same = runtime.computed(lambda: x.get() // 100)
    nodes = [runtime.computed(lambda i=i: same.get() + i) for i in range(size)]
    total = Counted(lambda: sum(node.get() for node in nodes))
    summed = runtime.computed(total)
    summed.sink(lambda _: None)
    counted = summed.dependencies = CountedItems(summed.dependencies or {})
    x.set(1)
    runtime.flush()
    assert (total.runs, counted.compared) == (1, size)


@pytest.mark.parametrize("depth", [10, 59, 60, 61, 150])
def test_a_value_that_reads_a_deep_chain_after_a_change_is_computed_again(
    runtime: Runtime, depth: int
):
    """Both the first time and later, where the chain needs more of the stack than there is."""
    x, other = new_cell(runtime, 1), new_cell(runtime, 10)
    chain: Any = x
    for _ in range(depth):
        chain = runtime.computed(lambda before=chain: before.get())
    total = runtime.computed(lambda: other.get() + chain.get())
    assert total.get() == 11
    for first, second in ((2, 10), (2, 20), (3, 30)):
        x.set(first)
        other.set(second)
        assert total.get() == first + second


def test_every_node_of_a_grid_is_computed_once_for_a_change(runtime: Runtime):
    source = [new_cell(runtime, 1) for _ in range(30)]
    layer: list[Any] = source
    functions: list[Counted] = []
    for _ in range(30):
        row: list[Any] = []
        for at in range(30):
            function = Counted(
                lambda before=layer, at=at: (
                    (before[at].get() + before[at - 1].get() + before[at - 2].get()) % 1_000
                )
            )
            functions.append(function)
            row.append(runtime.computed(function))
        layer = row
    for node in layer:
        node.sink(lambda _: None)
    for function in functions:
        function.runs = 0
    source[0].set(2)
    runtime.flush()
    assert max(function.runs for function in functions) == 1


def test_many_writes_keep_no_memory(runtime: Runtime):
    x = new_cell(runtime, 0)
    double = runtime.computed(lambda: x.get() * 2)
    double.sink(lambda _: None)

    def write(count: int) -> int:
        for number in range(count):
            x.set(number)
            runtime.flush()
        gc.collect()
        return len(gc.get_objects())

    before = write(1_000)
    assert write(10_000) <= before + 100


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["set", "read", "flush", "batch"]), st.integers(0, 9), st.integers(0, 3)
    ),
    max_size=30,
)


@given(
    edges=st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=3), min_size=1, max_size=12),
    operations=OPERATIONS,
)
def test_random_graphs_agree_with_a_full_recomputation(
    edges: list[list[int]], operations: list[tuple[str, int, int]]
):
    runtime = Runtime(check_idempotent=True)
    values = [0, 1, 2]
    sources = [new_cell(runtime, value) for value in values]
    nodes: list[Any] = list(sources)
    for chosen in edges:
        inputs = [number % len(nodes) for number in chosen]

        # The first input decides whether the others are read: dependencies change.
        def compute(inputs: list[int] = inputs, nodes: list[Any] = nodes) -> int:
            first = nodes[inputs[0]].get()
            return first if first % 3 == 0 else first + sum(nodes[i].get() for i in inputs[1:]) % 7

        nodes.append(runtime.computed(compute))

    def expected() -> list[int]:
        result = list(values)
        for chosen in edges:
            inputs = [number % len(result) for number in chosen]
            first = result[inputs[0]]
            rest = sum(result[i] for i in inputs[1:]) % 7
            result.append(first if first % 3 == 0 else first + rest)
        return result

    seen: dict[int, int] = {}
    for at, node in enumerate(nodes):
        if at % 2:
            node.sink(lambda value, at=at: seen.__setitem__(at, value))
    for operation, number, value in operations:
        if operation == "set":
            values[number % 3] = value
            sources[number % 3].set(value)
        elif operation == "batch":
            with runtime.batch():
                for at in range(3):
                    values[at] = value + at
                    sources[at].set(value + at)
        elif operation == "read":
            at = number % len(nodes)
            assert nodes[at].get() == expected()[at]
        else:
            runtime.flush()
    runtime.flush()
    result = expected()
    assert [node.get() for node in nodes] == result
    assert seen == {at: result[at] for at in seen}
    assert runtime.unstable == []
