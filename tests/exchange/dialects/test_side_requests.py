"""Embeddings are unit vectors, stable, and similar for similar texts."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.exchange.dialects import embed, pack_floats


def closeness(first: str, other: str) -> float:
    return sum(a * b for a, b in zip(embed(first, 256), embed(other, 256), strict=True))


@given(st.text(max_size=50) | st.lists(st.integers(0, 10**5)), st.integers(1, 300))
def test_embeddings_have_the_requested_size_and_unit_length(
    text: str | list[int], size: int
) -> None:
    vector = embed(text, size)
    assert len(vector) == size
    assert sum(value * value for value in vector) == pytest.approx(1, abs=1e-5)
    assert vector == embed(text, size)


def test_similar_texts_have_similar_embeddings() -> None:
    cat = "The cat sleeps on the sofa."
    assert closeness(cat, cat) == pytest.approx(1, abs=1e-5)
    assert closeness(cat, "A cat slept on the sofa!") > closeness(cat, "Interest rates rose again.")


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_floats_are_packed_little_endian(vector: list[float]) -> None:
    assert list(struct.unpack(f"<{len(vector)}f", pack_floats(vector))) == vector
