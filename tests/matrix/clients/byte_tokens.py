"""Tokens of one byte, for clients that count tokens: tiktoken would load its tables."""

from tiktoken import Encoding, registry


def use_bytes() -> None:
    """Use them in place of the encodings of OpenAI's models."""
    ranks = {bytes([number]): number for number in range(256)}
    for name in ("cl100k_base", "o200k_base"):
        registry.ENCODINGS[name] = Encoding(
            name, pat_str=r"[\s\S]", mergeable_ranks=ranks, special_tokens={}
        )
