"""A trajectory is compared with what was wanted, pairing calls optimally."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks.trajectory import Did, Mode, Wanted, assign, compare, contains

A, B, C = Did("a", {}), Did("b", {}), Did("c", {})


def wishes(names: str) -> list[Wanted]:
    return [Wanted(name) for name in names]


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
def test_each_mode_means_what_it_says(mode: Mode, actual: list[Did], wanted: str, holds: bool):  # noqa: FBT001 - a column
    assert compare(actual, wishes(wanted), mode).holds is holds


def test_overlapping_wishes_are_paired_where_a_greedy_matcher_fails():
    wide, narrow = Wanted("s", {"a": 1}), Wanted("s", {"a": 1, "b": 2})
    actual = [Did("s", {"a": 1, "b": 2}), Did("s", {"a": 1})]
    assert compare(actual, [wide, narrow], "any_order").holds
    assert compare(actual, [narrow, wide], "any_order").holds


def wants(numbers: set[int]) -> Wanted:
    def fits(given_: dict[str, int]) -> bool:
        return given_["n"] in numbers

    return Wanted("t", fits)


@given(st.lists(st.sets(st.integers(0, 3)), max_size=4), st.integers(0, 4))
def test_the_pairing_is_the_largest_there_is(wanted: list[set[int]], calls: int):
    seats = [*range(calls), *([None] * len(wanted))]
    orders = permutations(seats, len(wanted))
    best = max(sum(n in fits for n, fits in zip(order, wanted, strict=True)) for order in orders)
    found = assign([Did("t", {"n": n}) for n in range(calls)], [wants(fits) for fits in wanted])
    assert len({a for a, _ in found}) == len({w for _, w in found}) == len(found)
    assert len(found) == best


def test_a_failure_shows_both_sides_step_by_step():
    actual = [Did("find", {"id": 7}), Did("log", {}), Did("refund", {"id": 8})]
    wanted = [Wanted("find"), Wanted("refund", {"id": 7}), Wanted("mail")]
    assert compare(actual, wanted, "exact").diff == [
        '= find({"id":7})',
        "+ log({})",
        '+ refund({"id":8})',
        '- refund({"id":7})',
        "- mail",
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
