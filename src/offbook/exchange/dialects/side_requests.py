"""Vectors for texts: always the same for the same text, and nearer for texts alike.

Each run of three letters adds to a few places of the vector; so texts that share words point the
same way, which is enough to rehearse a search.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from math import sqrt

_GRAM = 3


def embed(text: str | Sequence[int], dimensions: int) -> list[float]:
    """A unit vector for a text, or for the numbers of its tokens."""
    vector = [0.0] * dimensions
    for gram in _grams(text):
        digest = blake2b(gram.encode(), digest_size=16).digest()
        for at in (0, 8):
            number = int.from_bytes(digest[at : at + 8], "little")
            vector[(number >> 1) % dimensions] += 1.0 if number & 1 else -1.0
    length = sqrt(sum(value * value for value in vector))
    if not length:  # two grams that cancel each other out
        vector[0] = length = 1.0
    # rounded to what the wire carries, so that both encodings say the same
    return array("f", (value / length for value in vector)).tolist()


def _grams(text: str | Sequence[int]) -> list[str]:
    if not isinstance(text, str):
        return [str(token) for token in text] or [""]
    padded = f" {text.lower()} "
    return [padded[at : at + _GRAM] for at in range(max(1, len(padded) - _GRAM + 1))]


def pack_floats(vector: Sequence[float]) -> bytes:
    """The vector as 32-bit floats, little end first."""
    packed = array("f", vector)
    from sys import byteorder

    if byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
