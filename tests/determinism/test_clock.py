"""Clocks can be frozen; ids are counted or derived, never random."""

from hypothesis import given
from hypothesis import strategies as st

from offbook.determinism.clock import FrozenClock, IdCounter, SystemClock, stable_id


def test_a_frozen_clock_does_not_advance():
    clock = FrozenClock(5)
    assert [clock.millis(), clock.millis()] == [5, 5]


@given(st.integers(0, 10**13), st.integers(0, 1000), st.integers(0, 1000))
def test_a_frozen_clock_moves_by_its_tick_and_by_advance(start: int, tick: int, step: int):
    clock = FrozenClock(start, tick)
    assert clock.millis() == start
    clock.advance(step)
    assert clock.millis() == start + tick + step


def test_the_system_clock_counts_milliseconds_since_1970():
    before = SystemClock().millis()
    assert 1_600_000_000_000 < before <= SystemClock().millis() < 10_000_000_000_000


def test_ids_are_counted_from_one_for_each_prefix():
    ids = IdCounter()
    assert [ids.next("call"), ids.next("run"), ids.next("call")] == ["call-1", "run-1", "call-2"]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_a_stable_id_depends_only_on_its_parts(parts: list[str]):
    stable = stable_id("chatcmpl-", *parts)
    assert stable == stable_id("chatcmpl-", *parts)
    assert stable != stable_id("chatcmpl-", *parts, "more")
    assert stable.startswith("chatcmpl-")
    assert len(stable) == len("chatcmpl-") + 24
