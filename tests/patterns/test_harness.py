"""The harness: loading, idle, settled, and what it reports at the end."""

# pyright: basic, reportAttributeAccessIssue=false
# Patterns take and return any value.

import asyncio
import re
import threading
import warnings
from pathlib import Path
from typing import Any, Literal

import pytest

from offbook.errors import DeadlineExceeded, PatternError, UsageError
from offbook.patterns import (
    Cell,
    cell,
    computed,
    create_harness,
    default,
    effect,
    expect_cell,
    expect_handler,
    handler,
    load_pattern,
    pattern,
)
from tests.forked import run_pytest

# ruff: noqa: PT012, SIM117 - the end of a harness raises, so its block is inside pytest.raises
pytest_plugins = ["pytester"]


@handler
def increment(event: Any, value: Any) -> None:
    value.set(value.get() + (event or {}).get("by", 1))


@handler
def fail(event: Any, value: Any) -> None:
    value.set(99)
    raise ValueError("the handler refused")


@pattern
def counter(value: Cell[int] = default(0)) -> dict[str, Any]:
    return {
        "value": value,
        "double": computed(lambda: value.get() * 2),
        "increment": increment(value=value),
        "fail": fail(value=value),
    }


def test_computed_values_are_right_after_loading():
    with create_harness() as h:
        assert h.load(counter, {"value": 4}).result.double == 8


def test_a_default_is_the_initial_state():
    with create_harness() as h:
        assert h.load(counter).cells.value.get() == 0


def test_events_wait_for_idle():
    with create_harness() as h:
        loaded = h.load(counter, {"value": 5})
        loaded.result.increment.send()
        loaded.result.increment.send({"by": 3})
        assert loaded.result.value == 5
        h.idle()
        assert loaded.result.value == 9


async def test_a_forgotten_await_loses_nothing():
    async with create_harness() as h:
        loaded = h.load(counter)
        loaded.result.increment.send()
        h.idle()
        assert loaded.result.value == 1


def test_instances_do_not_share_plain_values_and_share_cells():
    with create_harness() as h:
        first, second = h.load(counter), h.load(counter)
        third = h.load(counter, {"value": first.cells.value})
        first.cells.value.set(5)
        assert (second.result.value, third.result.double) == (0, 10)


def test_a_mutable_default_is_not_shared():
    @pattern
    def notes(items: Cell[list[str]] = default([])) -> dict[str, Any]:
        return {"items": items}

    with create_harness() as h:
        h.load(notes).cells.items.push("a")
        assert h.load(notes).result["items"] == []


def test_patterns_can_be_nested():
    @pattern
    def pair(start: Cell[int] = default(1)) -> dict[str, Any]:
        left, right = counter(value=start), counter(value=10)
        return {"sum": computed(lambda: left.double + right.value), "increment": left.increment}

    with create_harness() as h:
        loaded = h.load(pair)
        assert loaded.result.sum == 12
        loaded.result.increment.send()
        h.idle()
        assert loaded.result.sum == 14


def test_an_error_of_a_handler_fails_the_test():
    with pytest.raises(PatternError, match="expected 0 errors, got 1") as caught:
        with create_harness() as h:
            h.load(counter).result.fail.send()
            h.idle()
    places = r"in the handler counter\.fail at .*test_harness\.py:\d+, for the event sent at .*:\d+"
    assert re.search(places, str(caught.value))
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_expected_error_passes():
    with create_harness(expect_errors=1) as h:
        h.load(counter).result.fail.send()
        h.idle()
        assert [str(error) for error in h.errors] == ["the handler refused"]


@pytest.mark.parametrize("expected, sent", [(1, 0), (1, 2), (True, 0), (2, 1)])
def test_another_number_of_errors_than_expected_fails(expected: Any, sent: int):
    with (
        pytest.raises(PatternError, match=r"expected .*\d error"),
        create_harness(expect_errors=expected) as h,
    ):
        loaded = h.load(counter)
        for _ in range(sent):
            loaded.result.fail.send()
        h.idle()


@pytest.mark.filterwarnings("always")
def test_a_warning_of_a_pattern_fails_the_test():
    @pattern
    def noisy(value: Cell[int] = default(0)) -> dict[str, Any]:
        warnings.warn("old", stacklevel=1)
        return {"value": value}

    with pytest.raises(PatternError, match="UserWarning: old"), create_harness() as h:
        h.load(noisy)
    with create_harness(expect_warnings=1) as h:
        h.load(noisy)
    with pytest.raises(PatternError, match="expected 1 warnings, got 0"):
        create_harness(expect_warnings=1).dispose()


def test_a_logged_warning_fails_the_test():
    import logging

    @handler
    def log(event: Any) -> None:
        logging.getLogger("shop").warning("slow")

    @pattern
    def logging_pattern() -> dict[str, Any]:
        return {"log": log()}

    with pytest.raises(PatternError, match="WARNING shop: slow"), create_harness() as h:
        h.load(logging_pattern).result.log.send()
        h.idle()


def test_a_computed_value_that_reads_the_clock_fails_the_test():
    import time

    @pattern
    def clock() -> dict[str, Any]:
        return {"now": computed(time.perf_counter_ns)}

    with pytest.raises(PatternError, match=r"clock\.now is not a function of cells"):
        with create_harness() as h:
            h.load(clock).result["now"]
    with create_harness(expect_non_idempotent=True) as h:
        h.load(clock).result["now"]
    with pytest.raises(PatternError, match="found none"):
        create_harness(expect_non_idempotent=True).dispose()


def test_an_event_that_is_never_handled_fails_the_test():
    with (
        pytest.raises(
            PatternError,
            match=r"1 event was never handled: counter\.increment for counter\.value \(sent at ",
        ),
        create_harness() as h,
    ):
        h.load(counter).result.increment.send()


def test_a_failed_assertion_names_the_events_that_wait():
    with pytest.raises(AssertionError) as caught, create_harness() as h:
        loaded = h.load(counter)
        loaded.result.increment.send()
        assert loaded.result.value == 1
    (note,) = caught.value.__notes__
    assert "counter.increment for counter.value (sent at " in note
    assert "test_harness.py:" in note
    assert "call h.idle() before reading" in note


def test_a_failed_assertion_names_the_work_that_is_still_running():
    with pytest.raises(AssertionError) as caught, create_harness() as h:
        loaded = h.load(fetcher)
        loaded.result.load.send()
        h.idle()
        assert loaded.result.text == "content of "
    (note,) = caught.value.__notes__
    assert "the handler fetcher.load" in note
    assert "call h.settled() before reading" in note


def test_a_failed_assertion_names_the_errors_of_handlers():
    with pytest.raises(AssertionError) as caught, create_harness() as h:
        loaded = h.load(counter)
        loaded.result.fail.send()
        h.idle()
        assert loaded.result.value == 99
    assert any("the handler refused" in note for note in caught.value.__notes__)


@pattern
def fetcher(url: Cell[str] = default("")) -> dict[str, Any]:
    text = cell("")

    async def load(_event: object) -> None:
        await asyncio.sleep(0)
        text.set(f"content of {url.get()}")

    return {"text": text, "length": computed(lambda: len(text.get())), "load": handler(load)()}


def test_settled_waits_for_asynchronous_handlers_in_a_plain_test():
    with create_harness() as h:
        loaded = h.load(fetcher, {"url": "a"})
        loaded.result.load.send()
        h.idle()
        assert loaded.result.text == ""
        h.settled()
        assert loaded.result.text == "content of a"


async def test_settled_waits_for_asynchronous_handlers_in_an_async_test():
    async with create_harness() as h:
        loaded = h.load(fetcher, {"url": "a"})
        loaded.result.load.send()
        await h.settled()
        assert loaded.result.length == 12


async def test_work_that_never_ends_is_named():
    @handler
    async def wait(event: Any) -> None:
        await asyncio.Event().wait()

    @pattern
    def waiting() -> dict[str, Any]:
        return {"wait": wait()}

    named = r"the handler waiting\.wait \(.*test_harness\.py:\d+\)"
    with pytest.raises(DeadlineExceeded, match=named):
        async with create_harness() as h:
            h.load(waiting).result.wait.send()
            await h.settled(timeout=0.01)


async def test_work_that_is_not_awaited_fails_the_test():
    with pytest.raises(
        PatternError, match=r"still running: the handler fetcher\.load \(.*test_harness\.py:\d+\)"
    ):
        async with create_harness() as h:
            h.load(fetcher).result.load.send()
            h.idle()


def test_a_disposed_harness_is_idle_and_cannot_be_used():
    h = create_harness()
    loaded = h.load(counter)
    h.dispose()
    h.dispose()
    h.idle()
    h.settled()
    with pytest.raises(UsageError, match="the harness is disposed"):
        loaded.cells.value.set(1)
    with pytest.raises(UsageError, match="the harness is disposed"):
        loaded.result.increment.send()


async def test_a_plain_with_in_an_async_test_is_an_error():
    with pytest.raises(UsageError, match="needs `async with`"), create_harness():
        pass


def test_harnesses_in_threads_do_not_see_each_other():
    results: dict[int, int] = {}

    def work(number: int) -> None:
        with create_harness() as h:
            loaded = h.load(counter, {"value": number})
            for _ in range(50):
                loaded.result.increment.send()
                h.idle()
            results[number] = loaded.result.value

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: number + 50 for number in range(8)}


def test_everything_is_in_the_trace():
    with create_harness() as h:
        loaded = h.load(counter)
        loaded.result.increment.send({"by": 2})
        h.idle()
        assert loaded.result.double == 4
        events = [(name, dict(data)) for name, data in h.trace]
    names = [name for name, _ in events]
    assert names == ["cell.send", "cell.handle", "cell.write", "cell.compute"]
    assert events[2][1] == {"cell": "counter.value", "value": 2, "by": "handler counter.increment"}
    assert events[3][1] == {"computed": "counter.double", "value": 4}


def test_the_trace_reaches_a_hub():
    from offbook.trace import Hub

    hub = Hub()
    seen: list[str] = []
    hub.subscribe(lambda event: seen.append(event.event), "cell.*")
    with create_harness(hub=hub) as h:
        h.load(counter).cells.value.set(3)
    assert seen == ["cell.write"]


def test_an_empty_list_gives_zero_and_an_empty_dict():
    @pattern
    def totals(items: Cell[list[int]] = default([])) -> dict[str, Any]:
        return {
            "total": computed(lambda: sum(items.get())),
            "by_size": computed(lambda: {str(item): item for item in items.get()}),
        }

    with create_harness() as h:
        loaded = h.load(totals)
        h.idle()
        assert (loaded.result.total, loaded.result.by_size) == (0, {})


def test_two_events_one_way_and_one_back_are_handled_in_order():
    with create_harness() as h:
        loaded = h.load(counter, {"value": 5})
        for by in (1, 1, -1):
            loaded.result.increment.send({"by": by})
        assert loaded.result.value == 5
        h.idle()
        assert loaded.result.value == 6


def test_subscribe_calls_back_at_once_and_then_once_per_idle():
    seen: list[int] = []
    with create_harness() as h:
        loaded = h.load(counter)
        stop = h.subscribe(loaded.outputs.value, seen.append)
        for _ in range(2):
            loaded.result.increment.send()
            h.idle()
        stop()
        loaded.result.increment.send()
        h.idle()
    assert seen == [0, 1, 2]


def test_subscribe_takes_a_function_that_reads_results():
    seen: list[int] = []
    with create_harness() as h:
        loaded = h.load(counter)
        h.subscribe(lambda: loaded.result.double + 1, seen.append)
        loaded.cells.value.set(3)
        h.idle()
    assert seen == [1, 7]


def test_two_harnesses_of_one_test_do_not_see_each_other():
    with create_harness() as first, create_harness() as second:
        one, other = first.load(counter), second.load(counter)
        one.result.increment.send()
        second.idle()
        assert (one.result.value, other.result.value) == (0, 0)
        first.idle()
        assert (one.result.value, other.result.value) == (1, 0)


async def test_a_disposed_harness_leaves_no_task():
    before = asyncio.all_tasks()
    async with create_harness() as h:
        h.load(fetcher).result.load.send()
        h.idle()
        h.dispose(check=False)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


def test_the_end_of_a_harness_cleans_up_its_effects():
    ends: list[str] = []

    @pattern
    def watching(value: Cell[int] = default(0)) -> dict[str, Any]:
        def watch() -> Any:
            value.get()
            return lambda: ends.append("end")

        effect(watch)
        return {}

    with create_harness() as h:
        h.load(watching)
        assert ends == []
    assert ends == ["end"]


def test_settled_runs_what_the_result_of_asynchronous_work_triggers():
    seen: list[int] = []
    with create_harness() as h:
        loaded = h.load(fetcher, {"url": "a"})
        h.subscribe(loaded.outputs.length, seen.append)
        loaded.result.load.send()
        h.settled()
    assert seen == [0, 12]


def test_an_input_that_changes_between_two_runs_is_no_fault_of_the_computed_value():
    with create_harness() as h:
        loaded = h.load(counter)
        for value in (1, 2, 1):
            loaded.cells.value.set(value)
            assert loaded.result.double == 2 * value


def test_the_run_of_an_effect_is_in_the_trace():
    with create_harness() as h:
        loaded = h.load(counter)
        h.subscribe(loaded.outputs.value, lambda _: None)
        runs = [data for name, data in h.trace if name == "cell.effect"]
    assert runs == [{"effect": "sink of counter.value"}]


def test_a_plain_default_works_like_default():
    @pattern
    def plain(value=0, items=[]):  # noqa: ANN001, B006 - without a type checker
        return {"value": value, "items": items}

    with create_harness() as h:
        h.load(plain).cells.items.push(1)
        loaded = h.load(plain)
        assert (loaded.result.value, loaded.result["items"]) == (0, [])


def test_a_default_outside_of_a_signature_is_explained():
    with pytest.raises(UsageError, match=r"default\(0\) is not a cell"):
        default(0).get()


# --- types


@pattern
def typed(
    size: Cell[Literal["s", "m"]] = default("s"), counts: Cell[list[int]] = default([])
) -> dict[str, Any]:
    return {"size": size, "counts": counts}


def test_types_are_not_checked_by_default():  # noqa: OB101 - it must not raise
    with create_harness() as h:
        h.load(typed, {"size": 5})


@pytest.mark.parametrize("state", [{"size": 5}, {"counts": ["a"]}, {"counts": 1}])
def test_an_initial_state_of_the_wrong_type_is_refused(state: dict[str, Any]):
    named = rf"test_harness\.py:\d+: typed\.{next(iter(state))}: "
    with create_harness(validate_schemas=True) as h, pytest.raises(PatternError, match=named):
        h.load(typed, state)


def test_a_write_of_the_wrong_type_is_refused_and_changes_nothing():
    with create_harness(validate_schemas=True) as h:
        loaded = h.load(typed, {"counts": [1]})
        with pytest.raises(PatternError, match=r"typed\.counts: .*`int`, got `str`"):
            loaded.cells.counts.push("two")
        assert loaded.cells.counts.get() == [1]


# --- bad input


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("missing.py", None, "no such pattern file"),
        ("syntax.py", "def (", r"syntax\.py:1: the pattern cannot be imported: SyntaxError"),
        ("raises.py", "\n\n1 / 0\n", r"raises\.py:3: the pattern cannot be imported: ZeroDivision"),
        ("above.py", "from ..shared import x", "cannot be imported: ImportError"),
        ("empty.py", "x = 1", "the file has no pattern"),
        (
            "two.py",
            (
                "from offbook.patterns import pattern\n"
                "@pattern\ndef a(): return {}\n@pattern\ndef b(): return {}\n"
            ),
            r"the file has 2 patterns: a, b\s+select one: two\.py:a",
        ),
        (
            "two.py:c",
            "from offbook.patterns import pattern\n@pattern\ndef a(): return {}\n",
            "the file has no pattern 'c'",
        ),
    ],
)
def test_a_file_without_one_pattern_is_an_error(
    tmp_path: Path, name: str, text: str | None, message: str
):
    if text is not None:
        (tmp_path / name.partition(":")[0]).write_text(text)
    with pytest.raises(UsageError, match=message):
        load_pattern(tmp_path / name)


def test_one_of_several_patterns_is_selected_by_name(tmp_path: Path):
    (tmp_path / "two.py").write_text(
        "from offbook.patterns import pattern\n"
        "@pattern\ndef a(): return {}\n@pattern\ndef b(): return {}\n"
    )
    assert load_pattern(f"{tmp_path}/two.py:b").name == "b"


@pytest.mark.parametrize(
    "action, message",
    [
        (lambda h: h.load(counter, {"valeu": 1}), "counter has no input 'valeu'\\s+did you mean"),
        (
            lambda h: h.load(counter, [1]),
            "the initial state of counter: expected a mapping, got a list",
        ),
        (lambda h: h.load(print), "expected a pattern, got builtin_function_or_method"),
        (
            lambda h: h.load(counter).cells.valeu,
            r"test_harness\.py:\d+: the pattern counter has no cell 'valeu'\s+did you mean 'value'",
        ),
        (
            lambda h: h.load(counter).result.incremnt,
            r"test_harness\.py:\d+: the pattern counter has no output 'incremnt'\s+did you mean",
        ),
        (
            lambda h: h.load(counter).outputs.value.send({}),
            r"counter\.value is a cell, so the event \{\} has no handler",
        ),
        (lambda h: h.subscribe(5, print), "5 is a value and does not change"),
        (
            lambda h: h.subscribe(h.load(counter).cells.value, asyncio.sleep),
            "the subscriber sleep.* would never run: it is async",
        ),
        (
            lambda h: h.runtime.effect(asyncio.sleep),
            "the effect sleep.* would never run: it is async",
        ),
        (
            lambda h: to_mutate_nothing(h.load(counter)),
            "counter.value: both values are 0, so the handler need not do anything",
        ),
        (
            lambda _: expect_cell(5),  # pyright: ignore[reportArgumentType]
            "expect_cell needs a cell",
        ),
        (
            lambda _: expect_handler(5),  # pyright: ignore[reportArgumentType]
            "expect_handler needs a stream",
        ),
    ],
)
def test_a_wrong_use_is_explained(action: Any, message: str):
    with create_harness() as h, pytest.raises(UsageError, match=message):
        action(h)


def test_an_unknown_option_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match=r"'expect_error'\s+did you mean 'expect_errors'"):
        create_harness(expect_error=1)


def test_the_parts_of_a_pattern_need_a_harness():
    for use in (lambda: computed(lambda: 1), lambda: increment(value=1), lambda: effect(print)):
        with pytest.raises(UsageError, match="outside of a pattern"):
            use()


@pytest.mark.parametrize(
    "bound, message",
    [({"valeu": 1}, "increment has no parameter 'valeu'"), ({}, "increment needs 'value'")],
)
def test_a_handler_gets_what_it_declares(bound: dict[str, Any], message: str):
    @pattern
    def wrong() -> dict[str, Any]:
        return {"increment": increment(**bound)}

    with create_harness() as h, pytest.raises(UsageError, match=message):
        h.load(wrong)


def test_a_pattern_returns_a_dict():
    @pattern
    def wrong() -> Any:
        return [1]

    with (
        create_harness() as h,
        pytest.raises(UsageError, match="the outputs of wrong: expected a mapping, got a list"),
    ):
        h.load(wrong)


# --- assertion helpers


def to_mutate_nothing(loaded: Any) -> None:
    expect_handler(loaded.result.increment).to_mutate(loaded.cells.value, 0, 0)


@pytest.mark.parametrize(
    "expect, message",
    [
        (lambda loaded: expect_cell(loaded.cells.value), r"expect_cell\(counter\.value\) has no"),
        (lambda loaded: expect_handler(loaded.result.increment), r"expect_handler\(.*\) has no"),
    ],
)
def test_an_expectation_without_a_matcher_fails(expect: Any, message: str):
    with pytest.raises(PatternError, match=message), create_harness() as h:
        expect(h.load(counter))


def test_expect_cell_passes():
    with create_harness() as h:
        loaded = h.load(counter, {"value": 1})
        expect_cell(loaded.cells.value).to_be(1)
        expect_cell(loaded.outputs.double).to_equal(2)


def test_expect_cell_shows_the_cell_its_writer_and_waiting_events():
    with create_harness() as h:
        loaded = h.load(counter, {"value": 1})
        loaded.result.increment.send()
        h.idle()
        loaded.result.increment.send()
        with pytest.raises(AssertionError) as caught:
            expect_cell(loaded.cells.value).to_be(3)
        h.idle()
    message = str(caught.value)
    assert "counter.value: expected 3" in message
    assert "actual: 2" in message
    assert "last written by: handler counter.increment" in message
    assert "not handled yet: counter.increment for counter.value" in message


def test_expect_cell_names_what_is_stale():
    with create_harness() as h:
        loaded = h.load(counter)
        h.subscribe(loaded.outputs.double, lambda _: None)
        loaded.cells.value.set(1)
        with pytest.raises(AssertionError) as caught:
            expect_cell(loaded.cells.value).to_be(2)
        h.idle()
    assert "stale until it is read or h.idle() runs it: counter.double, sink of" in str(
        caught.value
    )


def test_expect_cell_of_a_computed_value_names_its_cells_and_their_writers():
    with create_harness() as h:
        loaded = h.load(counter)
        loaded.result.increment.send()
        h.idle()
        with pytest.raises(AssertionError) as caught:
            expect_cell(loaded.outputs.double).to_equal(3)
    written = "computed from: counter.value, last written by handler counter.increment"
    assert written in str(caught.value)


@pytest.mark.parametrize("length, message", [(1, "expected 1 items, got 2"), (2, "")])
def test_expect_cell_counts_items(length: int, message: str):
    with create_harness() as h:
        loaded = h.load(typed, {"counts": [1, 2]})
        if not message:
            expect_cell(loaded.cells.counts).to_have_length(length)
            return
        with pytest.raises(AssertionError, match=message):
            expect_cell(loaded.cells.counts).to_have_length(length)


@pytest.mark.parametrize(
    "value, expected",
    [
        (0, False),
        (1, True),
        (1, 1.0),
        ([{"done": True}], [{"done": 1}]),
        ((1,), [1]),
        ((1,), (1.0,)),
    ],
)
@pytest.mark.parametrize("matcher", ["to_be", "to_equal"])
def test_expect_cell_tells_types_apart(value: Any, expected: Any, matcher: str):
    with create_harness() as h:
        cell = h.load(counter, {"value": value}).cells.value
        with pytest.raises(AssertionError, match=r"counter\.value: expected"):
            getattr(expect_cell(cell), matcher)(expected)


@pytest.mark.parametrize(
    "value, expected",
    [
        ([{"done": True}], [{"done": True}]),
        ({"ids": {1, 2}}, {"ids": {2, 1}}),
        (0.1 + 0.2, pytest.approx(0.3)),
        ([0.1 + 0.2], [pytest.approx(0.3)]),
        ({"sum": 0.1 + 0.2}, pytest.approx({"sum": 0.3})),
    ],
)
def test_to_equal_compares_contents(value: Any, expected: Any):
    with create_harness() as h:
        expect_cell(h.load(counter, {"value": value}).cells.value).to_equal(expected)


def test_expect_handler_passes_for_the_change_that_the_handler_makes():
    with create_harness() as h:
        loaded = h.load(counter)
        expect_handler(loaded.result.increment).to_mutate(loaded.cells.value, 0, 1)
        expect_handler(loaded.result.increment).to_mutate(loaded.cells.value, 1, 2)


@pytest.mark.parametrize("before, after", [(1, 2), (0, 2), (False, 1), (0, True), (0, 1.0)])
def test_expect_handler_fails_for_other_values(before: float, after: float):
    with create_harness() as h:
        loaded = h.load(counter)
        with pytest.raises(AssertionError, match=r"counter\.value: expected"):
            expect_handler(loaded.result.increment).to_mutate(loaded.cells.value, before, after)


def test_expect_handler_reports_the_error_of_the_handler():
    with create_harness(expect_errors=1) as h:
        loaded = h.load(counter)
        with pytest.raises(AssertionError, match=r"the handler counter\.fail raised ValueError"):
            expect_handler(loaded.result.fail).to_mutate(loaded.cells.value, 0, 99)


# --- pytest


def test_a_leaked_harness_fails_the_test(pytester: pytest.Pytester):
    pytester.makepyfile(
        "from offbook.patterns import create_harness\n"
        "def test_leak():\n    create_harness()\n"
        "def test_after(pattern_harness):\n    pattern_harness.idle()\n"
    )
    result = run_pytest(pytester, "-p", "no:randomly")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*a harness was not disposed: created at *:3*"])


def test_a_harness_that_the_first_teardown_leaks_fails_that_test(pytester: pytest.Pytester):
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.fixture\n"
        "def late():\n"
        "    yield\n"
        "    from offbook.patterns import create_harness\n"
        "    create_harness()\n"
        "def test_leak(late): pass\n"
    )
    result = run_pytest(pytester, "-p", "no:randomly")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*a harness was not disposed: created at *:6*"])


@pytest.mark.parametrize("file", ["test_it", "conftest"])
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["alone", "worker"])
def test_a_harness_that_an_import_leaks_fails_the_first_test(
    pytester: pytest.Pytester, file: str, workers: list[str]
):
    leak = "from offbook.patterns import create_harness\ncreate_harness()\n"
    files = {"test_it": "def test_one(): pass\ndef test_two(): pass\n", "conftest": ""}
    files[file] = leak + files[file]
    pytester.makepyfile(**files)
    result = run_pytest(pytester, "-p", "no:randomly", *workers)
    result.assert_outcomes(passed=2, errors=1)


def test_a_leaked_harness_does_not_hide_that_the_first_teardown_was_interrupted(
    pytester: pytest.Pytester,
):
    pytester.makepyfile(
        "import pytest\n"
        "from offbook.patterns import create_harness\n"
        "@pytest.fixture\n"
        "def interrupted():\n"
        "    yield create_harness()\n"
        "    pytest.exit('enough')\n"
        "def test_one(interrupted): pass\n"
        "def test_two(): pass\n"
    )
    result = run_pytest(pytester, "-p", "no:randomly")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(passed=1)


def test_a_failure_shows_the_line_of_the_test_and_not_the_harness(pytester: pytest.Pytester):
    pytester.makepyfile(
        "from offbook.patterns import create_harness, expect_cell, pattern\n"
        "@pattern\ndef p(value=1): return {'value': value}\n"
        "def test_expect(pattern_harness):\n"
        "    expect_cell(pattern_harness.load(p).cells.value).to_be(2)\n"
        "def test_unknown(pattern_harness):\n"
        "    pattern_harness.load(p).cells.valeu\n"
    )
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:pytest_asyncio.plugin")
    result.assert_outcomes(failed=2)
    output = result.stdout.str()
    assert "raise " not in output
    result.stdout.fnmatch_lines(["E * p.value: expected 2", "*_failure_shows*.py:5: CheckFailed"])
    assert "did you mean 'value'?" in output


def test_the_fixture_checks_the_harness_at_the_end(pytester: pytest.Pytester):
    pytester.makepyfile(
        "from offbook.patterns import pattern, handler\n"
        "@handler\ndef bad(event): raise ValueError('no')\n"
        "@pattern\ndef p(): return {'bad': bad()}\n"
        "def test_it(pattern_harness):\n"
        "    pattern_harness.load(p).result.bad.send()\n"
        "    pattern_harness.idle()\n"
    )
    result = run_pytest(pytester)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*expected 0 errors, got 1*"])
