"""Cells: reading, writing, paths and identity."""

# pyright: basic, reportArgumentType=false, reportAttributeAccessIssue=false
# Patterns take and return any value.

import copy
import json
import pickle
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.patterns import Cell, PatternHarness, cell, computed


@pytest.fixture
def make(pattern_harness: PatternHarness):
    def make(*value: Any, name: str = "cell") -> Cell[Any]:
        with pattern_harness.building():
            return cell(*value, name=name)

    return make


def test_a_written_value_is_visible_at_once(make: Any):
    number = make(1)
    number.set(2)
    assert number.get() == 2


def test_the_value_of_a_cell_cannot_be_changed_in_place(make: Any):
    items = make([{"done": False}])
    with pytest.raises(TypeError, match="read-only"):
        items.get().append(1)
    with pytest.raises(TypeError, match="read-only"):
        items.get()[0]["done"] = True


def test_a_later_change_of_the_original_does_not_reach_the_cell(make: Any):
    original = [{"done": False}]
    items = make(original)
    original[0]["done"] = True
    original.append({})
    assert items.get() == [{"done": False}]


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))],  # noqa: S301 - our own
)
def test_a_copy_of_a_value_can_be_changed(make: Any, copied: Any):
    value = copied(make([{"a": 1}]).get())
    value.append(2)
    assert value == [{"a": 1}, 2]


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))],  # noqa: S301 - our own
)
def test_a_copy_of_a_dict_can_be_changed(make: Any, copied: Any):
    value = copied(make({"a": [1]}).get())
    value["b"] = 2
    assert (value, type(value)) == ({"a": [1], "b": 2}, dict)


def test_a_set_becomes_one_that_cannot_be_changed(make: Any):
    names = make({"a"})
    assert names.get() == frozenset({"a"})
    before = names.get()
    assert names.set({"a"}).get() is before


class Odd:
    """A value whose comparison raises, as that of arrays does."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    def __hash__(self) -> int:
        return 0


ODD = Odd()
# a value, another one -> whether it is the same
PAIRS: dict[str, tuple[Any, Any, bool]] = {
    "an object": (ODD, ODD, True),
    "objects that cannot be compared": (Odd(), Odd(), False),
    "not a number": (float("nan"), float("nan"), True),
    "tuples": ((1, "a"), (1, "a"), True),
    "tuples of other types": ((1,), (True,), False),
    "tuples of other lengths": ((1,), (1, 2), False),
    "tuples of other values": ((1,), (2,), False),
    "tuples of lists": (([1],), ([1],), True),
    "tuples of lists of other lengths": (([1],), ([1, 2],), False),
    "tuples of dicts": (({"a": 1},), ({"a": 1},), True),
    "tuples of dicts of other keys": (({"a": 1},), ({"b": 1},), False),
    "tuples of dicts of other values": (({"a": 1},), ({"a": 2},), False),
    "tuples with no number": ((float("nan"),), (float("nan"),), True),
}


@pytest.mark.parametrize("first, second, same", PAIRS.values(), ids=PAIRS)
def test_a_write_of_the_same_value_keeps_the_object(make: Any, first: Any, second: Any, same: Any):
    target = make(first)
    before = target.get()
    assert (target.set(second).get() is before) is same


def test_a_value_can_be_written_as_json(make: Any):
    assert json.dumps(make({"a": [1]}).get()) == '{"a": [1]}'


def test_a_missing_path_reads_as_none(make: Any):
    assert make({}).key("a", "b").get() is None


@pytest.mark.parametrize(
    "initial, path, expected",
    [
        ({}, ("a",), {"a": 1}),
        ({}, ("a", "b"), {"a": {"b": 1}}),
        ({}, ("a", 0), {"a": [1]}),
        ([5, 6], (1,), [5, 1]),
        ([5, 6], (2,), [5, 6, 1]),
        ([5, 6], (-1,), [5, 1]),
        ([{"a": 2}], (0, "a"), [{"a": 1}]),
    ],
)
def test_a_write_to_a_path_creates_what_is_missing(
    make: Any, initial: Any, path: Any, expected: Any
):
    target = make(initial)
    target.key(*path).set(1)
    assert target.get() == expected


def test_keys_can_be_given_together_or_one_by_one(make: Any):
    target = make({})
    assert target.key("a", "b") == target.key("a").key("b")


@pytest.mark.parametrize(
    "initial, path, message",
    [([1], (5,), "index 5 of a list of 1"), (3, ("a",), "int has no key 'a'")],
)
def test_a_write_to_an_impossible_path_is_an_error(
    make: Any, initial: Any, path: Any, message: str
):
    with pytest.raises(UsageError, match=message):
        make(initial, name="box").key(*path).set(1)


def test_push_creates_a_list_where_there_is_no_value(make: Any):
    assert make().push(1).push(2).get() == [1, 2]
    assert make({}).key("a").push(1).get() == [1]


@pytest.mark.parametrize("value", [None, "text", 5])
def test_push_needs_a_list(make: Any, value: Any):
    with pytest.raises(UsageError, match="push needs a list"):
        make(value).push(1)


def test_update_writes_single_keys_and_creates_a_dict(make: Any):
    assert make({"a": 1, "b": 2}).update({"b": 3}).get() == {"a": 1, "b": 3}
    assert make().update({"b": 3}).get() == {"b": 3}


@pytest.mark.parametrize("value, update", [({}, [1]), ([1], {"a": 1})])
def test_update_needs_dicts(make: Any, value: Any, update: Any):
    with pytest.raises(UsageError, match="update needs a dict"):
        make(value).update(update)


def test_remove_takes_objects_by_identity(make: Any):
    items = make([{"title": "Tea"}, {"title": "Tea"}])
    second = items.get()[1]
    items.key(0, "title").set("Coffee")
    items.remove(second)
    assert items.get() == [{"title": "Coffee"}]


def test_remove_takes_other_values_by_value_and_type(make: Any):
    assert make([1, True, 1, 2]).remove(1).get() == [True, 1, 2]
    assert make([1, True, 1, 2]).remove_all(1).get() == [True, 2]


def test_removing_what_is_not_there_changes_nothing(make: Any):
    assert make([1]).remove(7).get() == [1]


def test_remove_needs_a_list(make: Any):
    with pytest.raises(UsageError, match="remove needs a list"):
        make("text").remove("t")


def test_an_item_keeps_its_identity_when_the_list_changes(make: Any):
    items = make([{"title": "A"}, {"title": "B"}])
    item = items.get()[1]
    items.set([{"title": "0"}, *items.get()])
    items.key(2, "title").set("changed")
    assert [Cell.equals(item, entry) for entry in items.get()] == [False, False, True]


def test_equal_contents_are_not_the_same_object(make: Any):
    items = make([{"title": "A"}, {"title": "A"}])
    first, second = items.get()
    assert not Cell.equals(first, second)
    assert Cell.equals(first, items.get()[0])


def test_another_object_with_equal_contents_is_a_change(make: Any):
    items = make([{"title": "A"}, {"title": "A"}])
    selected = make(items.get()[0])
    selected.set(items.get()[1])
    assert Cell.equals(selected, items.get()[1])


@pytest.mark.parametrize("value", [None, 1, "text"])
def test_values_without_identity_are_never_the_same(value: Any):
    assert not Cell.equals(value, value)


def test_equals_follows_cells_and_computed_values(pattern_harness: PatternHarness, make: Any):
    items = make([{"title": "A"}])
    selected = make(None)
    selected.set(items.get()[0])
    with pattern_harness.building():
        first = computed(lambda: items.get()[0])
    assert selected.equals(items.key(0))
    assert Cell.equals(first, selected)


def test_a_selection_can_be_cleared_without_touching_the_item(make: Any):
    items = make([{"title": "A"}])
    selected = make(None)
    selected.set(items.get()[0])
    selected.set(None)
    assert items.get() == [{"title": "A"}]


def test_a_selection_keeps_the_item_as_it_was_selected(make: Any):
    items = make([{"title": "A"}])
    selected = make(None)
    selected.set(items.get()[0])
    items.key(0, "title").set("B")
    assert selected.get() == {"title": "A"}
    assert Cell.equals(selected, items.get()[0])


def test_a_cell_is_not_its_value(make: Any):
    with pytest.raises(TypeError, match=r"read it with \.get\(\)"):
        bool(make(0))


def test_an_equal_value_keeps_the_object(make: Any):
    items = make([{"a": 1}])
    before = items.get()
    items.set([{"a": 1}])
    assert items.get() is before


def test_a_deeply_nested_value_is_an_error(make: Any):
    value: Any = []
    for _ in range(300):
        value = [value]
    with pytest.raises(UsageError, match="nested deeper than 200 levels"):
        make(value)
