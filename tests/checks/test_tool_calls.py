"""Actual tool calls are compared with the expected ones, with an optimal pairing."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks import (
    ActualCall,
    ExpectedCall,
    Mode,
    compare_tool_calls,
)
from offbook.trace import align_in_any_order, contains, render_rows, text_matches, values_equal

A, B, C = ActualCall("a", {}), ActualCall("b", {}), ActualCall("c", {})


def expect(names: str) -> list[ExpectedCall]:
    return [ExpectedCall(name) for name in names]


@pytest.mark.parametrize(
    "mode, actual, expected, ok",
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
def test_each_mode_compares_as_documented(
    mode: Mode,
    actual: list[ActualCall],
    expected: str,
    ok: bool,  # noqa: FBT001 - a column
):
    assert compare_tool_calls(actual, expect(expected), mode).ok is ok


def test_overlapping_expectations_are_paired_where_a_greedy_matcher_fails():
    wide, narrow = ExpectedCall("s", {"a": 1}), ExpectedCall("s", {"a": 1, "b": 2})
    actual = [ActualCall("s", {"a": 1, "b": 2}), ActualCall("s", {"a": 1})]
    assert compare_tool_calls(actual, [wide, narrow], "any_order").ok
    assert compare_tool_calls(actual, [narrow, wide], "any_order").ok


@given(st.lists(st.sets(st.integers(0, 3)), max_size=4), st.integers(0, 4))
def test_the_unordered_pairing_is_the_largest_possible(expected: list[set[int]], calls: int):
    choices = [*range(calls), *([None] * len(expected))]
    orders = permutations(choices, len(expected))
    best = max(
        sum(n in accepted for n, accepted in zip(order, expected, strict=True)) for order in orders
    )
    pairs = align_in_any_order(calls, len(expected), lambda a, e: a in expected[e])
    assert len({a for a, _ in pairs}) == len({e for _, e in pairs}) == len(pairs)
    assert len(pairs) == best


def test_a_failure_shows_expected_and_actual_calls_step_by_step():
    actual = [ActualCall("find", {"id": 7}), ActualCall("log", {}), ActualCall("refund", {"id": 8})]
    expected = [ExpectedCall("find"), ExpectedCall("refund", {"id": 7}), ExpectedCall("mail")]
    assert render_rows(compare_tool_calls(actual, expected, "exact").rows) == [
        "  expected         | actual",
        '= find             | find({"id":7})',
        "+                  | log({})",
        '≠ refund({"id":7}) | refund({"id":8})',
        "    .id: expected 7, got 8",
        "- mail             |",
    ]


def test_extra_calls_are_marked_only_in_modes_that_forbid_them():
    expected = [ExpectedCall("b"), ExpectedCall("d")]
    assert [row.sign for row in compare_tool_calls([A, B, C], expected, "in_order").rows] == [
        " ",
        "=",
        " ",
        "-",
    ]
    assert [row.sign for row in compare_tool_calls([C, B, A], expected, "superset").rows] == [
        " ",
        "=",
        " ",
        "-",
    ]
    assert [row.sign for row in compare_tool_calls([C, B, A], expected, "subset").rows] == [
        "+",
        "=",
        "+",
        "-",
    ]


def small(given_: dict[str, Any]) -> bool:
    return given_["n"] < 3


@pytest.mark.parametrize(
    "expected, given_, notes",
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
        (ExpectedCall("t", small), {"n": 3}, ["input: small returned False"]),
        (ExpectedCall("t", small), {}, ["input: small raised KeyError('n')"]),
        (
            ExpectedCall("t", {"a": "x" * 99 + "one"}),
            {"a": "x" * 99 + "two"},
            ['.a: expected …xxxxxxxxxxxxxxxxxxxxone", got …xxxxxxxxxxxxxxxxxxxxtwo"'],
        ),
    ],
)
def test_differences_name_their_path(
    expected: ExpectedCall, given_: dict[str, Any], notes: list[str]
):
    call = ActualCall("t", given_)
    assert not expected.matches(call)
    assert list(expected.differences(call)) == notes


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from("ab"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner),
    max_leaves=4,
)
objects = st.dictionaries(st.sampled_from("xy"), json_values, max_size=2)


@given(objects, objects, st.sampled_from(["exact", "partial", "pattern", "ignore"]))
def test_a_call_matches_exactly_when_there_are_no_differences(given_: Any, fields: Any, args: Any):
    expected, call = ExpectedCall("t", fields, args), ActualCall("t", given_)
    assert expected.matches(call) is not bool(expected.differences(call))


@given(
    st.lists(st.sampled_from([A, B, C]), max_size=6), st.lists(st.sampled_from("abc"), max_size=5)
)
def test_every_call_and_every_expectation_has_one_row(
    actual: list[ActualCall], expected: list[str]
):
    for mode in ("exact", "in_order", "any_order", "subset", "superset"):
        comparison = compare_tool_calls(actual, expect("".join(expected)), mode)
        rows = comparison.rows
        assert [row.actual for row in rows if row.actual] == [str(call) for call in actual]
        assert sorted(row.expected for row in rows if row.expected) == sorted(expected)
        assert comparison.ok is all(
            row.ok or (mode == "subset" and row.sign == "-") for row in rows
        )


def test_a_long_stretch_without_a_difference_is_shortened():
    expected = [ExpectedCall("a") for _ in range(9)]
    rows = render_rows(compare_tool_calls([A] * 8, expected, "exact").rows)
    assert rows[1:] == [
        "  … 6 more as expected",
        *["= a        | a({})"] * 2,
        "- a        |",
    ]


@pytest.mark.parametrize(
    "given_, fields, patterns, ok",
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
def test_input_contains_the_expected_fields(given_: Any, fields: Any, patterns: bool, ok: bool):  # noqa: FBT001 - columns
    matches = text_matches if patterns else values_equal
    assert contains(given_, fields, matches=matches) is ok
