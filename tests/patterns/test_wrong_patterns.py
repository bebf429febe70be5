"""A pattern that cannot work is refused with a message that names the mistake."""

from collections.abc import Callable
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.patterns import Cell, cell, computed, create_harness, handler, pattern


def no_event() -> None:
    """A handler without a parameter."""


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: cell(1, 2), "a cell has one value, got 2"),
        (lambda: computed(3), "computed(): expected a function, got int"),  # type: ignore[arg-type]
        (lambda: handler(no_event), "the handler no_event has no parameter for the event"),
        (lambda: cell(1), "cell() was called outside of a pattern"),
    ],
)
def test_a_wrong_call_is_named(make: Callable[[], Any], message: str):
    with pytest.raises(UsageError) as caught:
        make()
    assert message in str(caught.value)


def test_an_error_in_the_body_of_a_pattern_names_it():
    @pattern
    def broken(value: Cell[int]) -> dict[str, Any]:
        raise LookupError("no")

    with create_harness() as h, pytest.raises(LookupError) as caught:
        h.load(broken, {"value": 1})
    assert any("in the body of the pattern broken" in note for note in caught.value.__notes__)
