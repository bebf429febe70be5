"""A trajectory is compared with what was wanted, pairing calls optimally."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks.alignment import render_rows
from offbook.checks.tool_calls import (
    ActualCall,
    ExpectedCall,
    Mode,
    compare_calls,
    contains,
    pair_calls,
)

A, B, C = ActualCall("a", {}), ActualCall("b", {}), ActualCall("c", {})


def wishes(names: str) -> list[ExpectedCall]:
    return [ExpectedCall(name) for name in names]


@pytest.mark.parametrize(
    "mode, actual, wanted, holds",
    [
        ("exact", [A, B], "ab", True),
        ("exact", [B, A], "ab", False),
        ("exact", [A, B, C], "ab", False),
        ("in_order", [A, C, B], "ab", True),
        ("in_order", [B, A], "ab", False),
        ("any_order", [B, A], "ab", True),
        ("any_order", [A, A], "ab", False),
        ("any_order", [A, B, C], "ab", False),
        ("subset", [A], "ab", True),
        ("subset", [A, C], "ab", False),
        ("superset", [C, B, A], "ab", True),
        ("superset", [A, C], "ab", False),
    ],
)
def test_each_mode_means_what_it_says(
    mode: Mode, actual: list[ActualCall], wanted: str, holds: bool
):  # noqa: FBT001 - a column
    assert compare_calls(actual, wishes(wanted), mode).holds is holds


def test_overlapping_wishes_are_paired_where_a_greedy_matcher_fails():
    wide, narrow = ExpectedCall("s", {"a": 1}), ExpectedCall("s", {"a": 1, "b": 2})
    actual = [ActualCall("s", {"a": 1, "b": 2}), ActualCall("s", {"a": 1})]
    assert compare_calls(actual, [wide, narrow], "any_order").holds
    assert compare_calls(actual, [narrow, wide], "any_order").holds


def wants(numbers: set[int]) -> ExpectedCall:
    def fits(given_: dict[str, int]) -> bool:
        return given_["n"] in numbers

    return ExpectedCall("t", fits)


@given(st.lists(st.sets(st.integers(0, 3)), max_size=4), st.integers(0, 4))
def test_the_pairing_is_the_largest_there_is(wanted: list[set[int]], calls: int):
    seats = [*range(calls), *([None] * len(wanted))]
    orders = permutations(seats, len(wanted))
    best = max(sum(n in fits for n, fits in zip(order, wanted, strict=True)) for order in orders)
    did = [ActualCall("t", {"n": n}) for n in range(calls)]
    found = pair_calls(did, [wants(fits) for fits in wanted], ordered=False)
    assert len({a for a, _ in found}) == len({w for _, w in found}) == len(found)
    assert len(found) == best


def test_a_failure_shows_both_sides_step_by_step():
    actual = [ActualCall("find", {"id": 7}), ActualCall("log", {}), ActualCall("refund", {"id": 8})]
    wanted = [ExpectedCall("find"), ExpectedCall("refund", {"id": 7}), ExpectedCall("mail")]
    assert render_rows(compare_calls(actual, wanted, "exact").rows) == [
        "  expected         | actual",
        '= find             | find({"id":7})',
        "+                  | log({})",
        '≠ refund({"id":7}) | refund({"id":8})',
        "    .id: expected 7, got 8",
        "- mail             |",
    ]


def test_where_others_may_come_only_what_is_missing_is_marked():
    wanted = [ExpectedCall("b"), ExpectedCall("d")]
    assert [row.sign for row in compare_calls([A, B, C], wanted, "in_order").rows] == [
        " ",
        "=",
        " ",
        "-",
    ]
    assert [row.sign for row in compare_calls([C, B, A], wanted, "superset").rows] == [
        " ",
        "=",
        " ",
        "-",
    ]
    assert [row.sign for row in compare_calls([C, B, A], wanted, "subset").rows] == [
        "+",
        "=",
        "+",
        "-",
    ]


def small(given_: dict[str, Any]) -> bool:
    return given_["n"] < 3


@pytest.mark.parametrize(
    "wish, given_, notes",
    [
        (
            ExpectedCall("t", {"a": {"b": [1, 2]}}),
            {"a": {"b": [1, 3]}},
            [".a.b[1]: expected 2, got 3"],
        ),
        (ExpectedCall("t", {"a": 1, "b": 2}), {"a": 1}, [".b: expected 2, got nothing"]),
        (ExpectedCall("t", {"a": [1]}), {"a": [1, 2]}, [".a: expected 1 items, got 2"]),
        (ExpectedCall("t", {"a": {}}), {"a": 1}, [".a: expected {}, got 1"]),
        (ExpectedCall("t", {"a": True}), {"a": 1}, [".a: expected true, got 1"]),
        (ExpectedCall("t", {}, "exact"), {"a": 1}, [".a: expected nothing, got 1"]),
        (ExpectedCall("t", {"a": "^x"}, "pattern"), {"a": "yx"}, ['.a: expected "^x", got "yx"']),
        (ExpectedCall("t", small), {"n": 3}, ["input: small says no"]),
        (ExpectedCall("t", small), {}, ["input: small raised KeyError('n')"]),
        (
            ExpectedCall("t", {"a": "x" * 99 + "one"}),
            {"a": "x" * 99 + "two"},
            ['.a: expected …xxxxxxxxxxxxxxxxxxxxone", got …xxxxxxxxxxxxxxxxxxxxtwo"'],
        ),
    ],
)
def test_the_places_that_differ_are_told(
    wish: ExpectedCall, given_: dict[str, Any], notes: list[str]
):
    did = ActualCall("t", given_)
    assert not wish.fits(did)
    assert list(wish.differences(did)) == notes


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from("ab"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner),
    max_leaves=4,
)
objects = st.dictionaries(st.sampled_from("xy"), json_values, max_size=2)


@given(objects, objects, st.sampled_from(["exact", "partial", "pattern", "ignore"]))
def test_a_call_fits_where_no_place_differs(given_: Any, wanted: Any, args: Any):
    wish, did = ExpectedCall("t", wanted, args), ActualCall("t", given_)
    assert wish.fits(did) is not bool(wish.differences(did))


@given(
    st.lists(st.sampled_from([A, B, C]), max_size=6), st.lists(st.sampled_from("abc"), max_size=5)
)
def test_every_call_and_every_wish_has_one_place(actual: list[ActualCall], wanted: list[str]):
    for mode in ("exact", "in_order", "any_order", "subset", "superset"):
        found = compare_calls(actual, wishes("".join(wanted)), mode)
        assert [row.actual for row in found.rows if row.actual] == [str(did) for did in actual]
        assert sorted(row.expected for row in found.rows if row.expected) == sorted(wanted)
        assert found.holds is all(
            row.fits or (mode == "subset" and row.sign == "-") for row in found.rows
        )


def test_of_a_long_stretch_in_which_all_is_right_only_the_ends_are_shown():
    wanted = [ExpectedCall("a") for _ in range(9)]
    rows = render_rows(compare_calls([A] * 8, wanted, "exact").rows)
    assert rows[1:] == [
        "  … 6 more, as they should be",
        *["= a        | a({})"] * 2,
        "- a        |",
    ]


@pytest.mark.parametrize(
    "given_, wanted, patterns, holds",
    [
        ({"a": 1, "b": 2}, {"a": 1}, False, True),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2}}, False, True),
        ({"a": [1, 2]}, {"a": [1, 2]}, False, True),
        ({"a": [1, 2]}, {"a": [1]}, False, False),
        ({"a": 1}, {"a": True}, False, False),
        ({"a": 1}, {"a": 1.0}, False, True),
        ({"a": "5"}, {"a": 5}, False, False),
        ({"cmd": "rm -rf /"}, {"cmd": r"rm\s"}, True, True),
        ({"cmd": "ls"}, {"cmd": r"rm\s"}, True, False),
        ({}, {"a": None}, False, False),
    ],
)
def test_input_has_what_is_wanted_of_it(given_: Any, wanted: Any, patterns: bool, holds: bool):  # noqa: FBT001 - columns
    assert contains(given_, wanted, patterns=patterns) is holds
