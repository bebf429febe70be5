"""Plain assertions show both sides."""

from typing import Any

import pytest

from offbook.errors import CheckFailed, RequirementFailed
from offbook.testing import assert_eq, assert_ne, require

DIFFERENT: list[tuple[Any, Any, str]] = [
    (1, 2, "the values differ\n  expected 2\n  got      1"),
    ({"a": [1, 2]}, {"a": [1, 3]}, ".a[1]: expected 3, got 2"),
    ({"a": 1, "b": 2}, {"a": 1}, ".b: expected nothing, got 2"),
    ("a\nb\n", "a\nc\n", "- expected, + got\n a\n-c\n+b"),
]


@pytest.mark.parametrize("actual, expected, message", DIFFERENT)
def test_different_values_are_shown(actual: Any, expected: Any, message: str):
    with pytest.raises(CheckFailed) as caught:
        assert_eq(actual, expected)
    assert message in str(caught.value)
    assert_ne(actual, expected)


def test_equal_values_are_shown():
    assert_eq({"a": 1}, {"a": 1})
    with pytest.raises(AssertionError, match="no change\n  both are 1"):
        assert_ne(1, 1, "no change")


def test_require_is_for_other_code():
    require(condition=True)
    with pytest.raises(RequirementFailed, match="load it first"):
        require([], "load it first")
