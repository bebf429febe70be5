"""Patterns inside of patterns, one per item of a list, and what is released."""

# pyright: basic, reportAttributeAccessIssue=false
# Patterns take and return any value.

import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.patterns import (
    Cell,
    Runtime,
    Store,
    cell,
    computed,
    create_harness,
    default,
    effect,
    handler,
    pattern,
    run_steps,
)


@handler
def toggle(_event: Any, done: Any) -> None:
    done.set(not done.get())


@handler
def note(_event: Any, ticks: list[str], name: str) -> None:
    ticks.append(name)


@pattern
def row(item: Cell[dict]) -> dict[str, Any]:
    return {
        "title": computed(lambda: str(item.key("title").get()).upper()),
        "done": item.key("done"),
        "toggle": toggle(done=item.key("done")),
    }


@pattern
def rows(items: Cell[list] = default([])) -> dict[str, Any]:
    return {
        "rows": items.map(lambda item: row(item=item)),
        "first": computed(lambda: [item["title"] for item in items.get()][:1]),
    }


@pattern
def pair(items: Cell[list] = default([])) -> dict[str, Any]:
    inside = rows(items=items)
    return {"left": inside, "both": [inside, inside], "count": computed(lambda: len(inside.rows))}


ITEMS: list[Any] = [{"title": title, "done": False} for title in "abc"]


def test_a_pattern_is_an_output_of_a_pattern():
    with create_harness() as h:
        loaded = h.load(pair, {"items": ITEMS})
        assert loaded.result.left.first == ["a"]
        assert loaded.result.both[1].first == ["a"]
        assert loaded.result.count == 3


def test_the_outputs_of_a_pattern_inside_can_be_watched():
    seen: list[Any] = []
    with create_harness() as h:
        loaded = h.load(pair, {"items": ITEMS})
        h.subscribe(loaded.outputs.left.first, seen.append)
        loaded.cells.items.set([])
        h.idle()
    assert seen == [["a"], []]


def test_the_events_of_rows_and_partial_functions_have_names_that_a_reader_knows():
    def double(at: str, scale: object, value: Any) -> int:
        return value.get() * len(at)

    @pattern
    def named(items: Cell[list] = default([]), value: Cell[int] = default(2)) -> dict[str, Any]:
        inside = computed(partial(double, "A1", object(), value))
        return {"rows": items.map(lambda item: row(item=item)), "sum": computed(inside.get)}

    with create_harness() as h:
        loaded = h.load(named, {"items": ITEMS})
        assert loaded.result.sum == 4
        events = {data.get("effect") or data.get("computed") for _, data in h.trace}
    assert {"rows of named.items", "double('A1', …, …)", "named.sum"} <= events


def test_an_unknown_output_of_a_pattern_inside_is_an_error():
    with create_harness() as h:
        loaded = h.load(pair, {"items": ITEMS})
        with pytest.raises(UsageError, match="the pattern rows has no output 'firts'"):
            _ = loaded.result.left.firts


def test_a_computed_value_may_be_the_input_of_a_pattern():
    @pattern
    def label(text: Any) -> dict[str, Any]:
        return {"text": computed(lambda: f"<{text.get()}>")}

    @pattern
    def outer(value: Cell[int] = default(1)) -> dict[str, Any]:
        return {"label": label(text=computed(lambda: value.get() * 2))}

    with create_harness() as h:
        loaded = h.load(outer)
        loaded.cells.value.set(4)
        assert loaded.result.label.text == "<8>"


def test_a_computed_input_cannot_be_written():
    @pattern
    def outer() -> dict[str, Any]:
        return {"row": row(item=computed(lambda: {"title": "a"})), "other": cell(1)}

    with pytest.raises(AttributeError, match="key"), create_harness() as h:
        h.load(outer)
    with create_harness() as h:
        doubled = h.runtime.computed(lambda: 2, name="doubled")
        with pytest.raises(UsageError, match="doubled is computed"):
            doubled.set(3)


# --- One per item


def titles(loaded: Any) -> list[str]:
    return [each.title for each in loaded.result.rows]


def test_there_is_one_pattern_per_item():
    with create_harness() as h:
        loaded = h.load(rows, {"items": ITEMS})
        assert titles(loaded) == ["A", "B", "C"]
        loaded.cells.items.push({"title": "d", "done": False})
        assert titles(loaded) == ["A", "B", "C", "D"]


@pytest.mark.parametrize(
    "change, expected",
    [
        (lambda items: items.set(items.get()[1:]), [True, False]),
        (lambda items: items.remove(items.get()[0]), [True, False]),
        (lambda items: items.set([{"title": "new"}, *items.get()]), [None, False, True, False]),
        (lambda items: items.set(items.get()[::-1]), [False, True, False]),
        (lambda items: items.key(1, "title").set("other"), [False, True, False]),
    ],
)
def test_a_row_writes_to_its_own_item_wherever_it_is(
    change: Callable[[Any], Any], expected: list[Any]
):
    """The event is sent before the list changes, and handled after it."""
    with create_harness() as h:
        loaded = h.load(rows, {"items": ITEMS})
        second = loaded.result.rows[1]
        second.toggle.send()
        change(loaded.cells.items)
        h.idle()
        assert [item.get("done") for item in loaded.cells.items.get()] == expected
        assert second.done is True


def test_a_moved_item_keeps_its_instance():
    with create_harness() as h:
        loaded = h.load(rows, {"items": ITEMS})
        before = list(loaded.result.rows)
        loaded.cells.items.set(loaded.cells.items.get()[::-1])
        assert list(loaded.result.rows) == before[::-1]


def test_a_change_of_one_item_runs_nothing_of_the_others():
    with create_harness() as h:
        loaded = h.load(rows, {"items": ITEMS})
        titles(loaded)
        h.trace.clear()
        loaded.cells.items.key(1, "title").set("x")
        assert titles(loaded) == ["A", "X", "C"]
        computed_names = [data["computed"] for event, data in h.trace if event == "cell.compute"]
        assert computed_names.count("row.title") == 1


def test_a_write_by_index_reaches_the_row_and_a_write_of_the_row_the_index():
    with create_harness() as h:
        loaded = h.load(rows, {"items": ITEMS})
        by_index = h.runtime.computed(lambda: loaded.cells.items.key(0, "done").get())
        assert by_index.get() is False
        loaded.result.rows[0].toggle.send()
        h.idle()
        assert by_index.get() is True
        loaded.cells.items.key(0, "done").set(False)
        assert loaded.result.rows[0].done is False


def test_a_write_to_a_removed_item_is_an_error():
    with create_harness(expect_errors=1) as h:
        loaded = h.load(rows, {"items": ITEMS})
        first = loaded.result.rows[0]
        first.toggle.send()
        loaded.cells.items.set([])
        h.idle()
        assert "the item was removed from its list" in str(h.errors[0])


def test_the_timers_and_effects_of_a_removed_item_end():
    ticks: list[str] = []
    effects: list[Any] = []

    @pattern
    def ticking(item: Cell[dict]) -> dict[str, Any]:
        name = item.sample()["title"]
        note(ticks=ticks, name=name).send_every(1)
        effect(lambda: effects.append(item.get() and item.get()["title"]))
        return {}

    @pattern
    def clocks(items: Cell[list]) -> dict[str, Any]:
        return {"clocks": items.map(lambda item: ticking(item=item))}

    with create_harness() as h:
        loaded = h.load(clocks, {"items": ITEMS})
        loaded.cells.items.set(loaded.cells.items.get()[1:])
        h.advance(1)
    assert ticks == ["b", "c"]
    assert effects == ["a", "b", "c"]


def test_plain_values_have_one_instance_per_position():
    @pattern
    def word(text: Cell[str]) -> dict[str, Any]:
        return {"length": computed(lambda: len(text.get()))}

    @pattern
    def words(texts: Cell[list]) -> dict[str, Any]:
        return {"words": texts.map(lambda text: word(text=text))}

    with create_harness() as h:
        loaded = h.load(words, {"texts": ["a", "bb", "a"]})
        assert [each.length for each in loaded.result.words] == [1, 2, 1]
        loaded.cells.texts.set(["ccc"])
        assert [each.length for each in loaded.result.words] == [3]


def test_a_computed_list_has_patterns_too():
    @pattern
    def shown(item: Any) -> dict[str, Any]:
        return {"title": computed(lambda: item.get()["title"])}

    @pattern
    def active(items: Cell[list]) -> dict[str, Any]:
        left = computed(lambda: [item for item in items.get() if not item["done"]])
        return {"rows": left.map(lambda item: shown(item=item))}

    with create_harness() as h:
        loaded = h.load(active, {"items": ITEMS})
        loaded.cells.items.key(1, "done").set(True)
        assert titles(loaded) == ["a", "c"]


def test_steps_reach_the_handlers_of_a_pattern_inside():
    result = run_steps(
        pair,
        [
            {"send": "left.rows.1.toggle"},
            {"assert": "left.rows[1].done and not left.rows[0].done"},
        ],
        {"items": ITEMS},
    )
    assert result.passed


def test_an_unknown_handler_inside_is_named():
    with pytest.raises(UsageError, match="'7' does not exist"):
        run_steps(pair, [{"send": "left.rows.7.toggle"}, {"assert": "count"}], {"items": ITEMS})


# --- Lists


@pytest.mark.parametrize("index", [-1, -3])
@pytest.mark.parametrize("change", ["push", "set"])
def test_a_reader_of_an_index_from_the_end_follows_the_list(index: int, change: str):
    runtime = Runtime()
    items = Cell(runtime, Store("items", ["a", "b", "c"]))
    read = runtime.computed(lambda: items.key(index).get())
    read.get()
    if change == "push":
        items.push("d")
    else:
        items.key(3 + index).set("changed")
    assert read.get() == items.get()[index]


def test_the_other_items_of_a_list_are_shared():
    items = Cell(Runtime(), Store("items", [{"n": n} for n in range(1000)]))
    before = items.get()
    items.push({"n": 1000})
    after = items.get()
    assert all(a is b for a, b in zip(before, after, strict=False))
    assert (len(before), len(after)) == (1000, 1001)


# --- What is released


def test_a_computed_value_that_nothing_reads_any_more_is_released():
    runtime = Runtime()
    source = Cell(runtime, Store("source", [1]))
    nodes = [runtime.computed(lambda: source.key(0).get())]
    nodes.append(runtime.computed(lambda first=nodes[0]: first.get() + 1))
    assert nodes[1].get() == 2
    gone = [weakref.ref(node) for node in nodes]
    nodes.clear()
    gc.collect()
    assert [each() for each in gone] == [None, None]
    assert runtime.stale_names(source._store) == []
    assert source._store.children == {}


def test_the_rows_of_removed_items_are_released():
    with create_harness() as h:
        loaded = h.load(rows, {"items": ITEMS})
        gone = [weakref.ref(each) for each in loaded.result.rows]
        loaded.cells.items.set([])
        h.idle()
        h.trace.clear()
        gc.collect()
        assert [each() for each in gone] == [None, None, None]


def test_a_subscription_keeps_what_it_reads():
    seen: list[int] = []
    with create_harness() as h:
        value = Cell(h.runtime, Store("value", 1))
        h.subscribe(lambda: value.get() * 2, seen.append)
        gc.collect()
        value.set(2)
        h.idle()
    assert seen == [2, 4]


def test_a_subscription_that_is_stopped_keeps_nothing():
    with create_harness() as h:
        value = Cell(h.runtime, Store("value", 1))
        h.subscribe(lambda: value.get() * 2, lambda _: None)()
        gc.collect()
        assert value._store.dependents == {}
