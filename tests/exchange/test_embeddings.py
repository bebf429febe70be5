"""Vectors are of length one, always the same, and alike for texts alike."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.exchange.dialects.side_requests import embed, pack_floats


def closeness(one: str, other: str) -> float:
    return sum(a * b for a, b in zip(embed(one, 256), embed(other, 256), strict=True))


@given(st.text(max_size=50) | st.lists(st.integers(0, 10**5)), st.integers(1, 300))
def test_every_vector_has_its_size_and_length_one(text: str | list[int], size: int) -> None:
    vector = embed(text, size)
    assert len(vector) == size
    assert sum(value * value for value in vector) == pytest.approx(1, abs=1e-5)
    assert vector == embed(text, size)


def test_a_text_is_nearer_to_its_like() -> None:
    cat = "The cat sleeps on the sofa."
    assert closeness(cat, cat) == pytest.approx(1, abs=1e-5)
    assert closeness(cat, "A cat slept on the sofa!") > closeness(cat, "Interest rates rose again.")


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_floats_are_packed_little_end_first(vector: list[float]) -> None:
    assert list(struct.unpack(f"<{len(vector)}f", pack_floats(vector))) == vector
