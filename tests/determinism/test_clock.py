"""Time stands still when a test says so."""

from hypothesis import given
from hypothesis import strategies as st

from offbook.determinism.clock import FrozenClock, SystemClock


def test_a_frozen_clock_stands_still():
    clock = FrozenClock(5)
    assert [clock.millis(), clock.millis()] == [5, 5]


@given(st.integers(0, 10**13), st.integers(0, 1000), st.integers(0, 1000))
def test_a_clock_ticks_and_advances_by_what_it_was_told(start: int, tick: int, leap: int):
    clock = FrozenClock(start, tick)
    assert clock.millis() == start
    clock.advance(leap)
    assert clock.millis() == start + tick + leap


def test_the_system_clock_counts_milliseconds_since_1970():
    before = SystemClock().millis()
    assert 1_600_000_000_000 < before <= SystemClock().millis() < 10_000_000_000_000
