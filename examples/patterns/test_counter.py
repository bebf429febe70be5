"""Levels 1 and 3: plain functions, and handlers."""

import pytest
from counter import nth

from offbook.patterns import create_harness, expect_handler


@pytest.mark.parametrize(
    "number, expected", [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th")]
)
def test_ordinals(number, expected):
    assert nth(number) == expected


def test_increment_increases_the_value_by_one():
    with create_harness() as h:
        counter = h.load("counter.py", {"value": 0})
        expect_handler(counter.result.increment).to_mutate(counter.cells.value, 0, 1)


def test_handlers_run_one_after_another():
    with create_harness() as h:
        counter = h.load("counter.py", {"value": 5})
        counter.result.increment.send()
        counter.result.increment.send()
        counter.result.decrement.send()
        assert counter.cells.value.get() == 5
        h.idle()
        assert counter.cells.value.get() == 6
