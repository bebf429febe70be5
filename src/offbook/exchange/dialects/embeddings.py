"""Responses to side requests, which need no model: embeddings and token counts.

An embedding is always the same for the same text, and similar texts have similar embeddings: each
trigram adds to two dimensions. That is enough to test a search.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from math import sqrt
from sys import byteorder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_GRAM_SIZE = 3
_BYTES_PER_TOKEN = 4


def estimate_tokens(size: int) -> int:
    """Estimate the number of tokens of a body with this many bytes."""
    # Good enough for a client that checks its limits; the real tokenizers are large.
    return size // _BYTES_PER_TOKEN + 1


def embed(text: str | Sequence[int], dimensions: int) -> list[float]:
    """Return the embedding of a text, or of the numbers of its tokens, as a unit vector."""
    if isinstance(text, str):
        padded = f" {text.lower()} "
        count = max(1, len(padded) - _GRAM_SIZE + 1)
        grams = [padded[start : start + _GRAM_SIZE] for start in range(count)]
    else:
        grams = [str(token) for token in text] or [""]
    vector = [0.0] * dimensions
    for gram in grams:
        digest = blake2b(gram.encode(), digest_size=16).digest()
        for half in (digest[:8], digest[8:]):
            number = int.from_bytes(half, "little")
            vector[(number >> 1) % dimensions] += 1.0 if number & 1 else -1.0
    length = sqrt(sum(value * value for value in vector))
    if not length:  # trigrams can cancel each other out
        vector[0] = length = 1.0
    # Rounded to 32-bit floats, so that the JSON and base64 encodings are equal.
    return array("f", (value / length for value in vector)).tolist()


def pack_floats(vector: Sequence[float]) -> bytes:
    """Pack a vector as little-endian 32-bit floats."""
    packed = array("f", vector)
    if byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
