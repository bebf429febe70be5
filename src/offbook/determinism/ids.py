"""Names for things that need one: counted, never random, so that two runs agree."""

from __future__ import annotations

from hashlib import blake2b


class Ids:
    """Counts names, for each prefix from 1: `call-1`, `call-2`, `run-1`."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next(self, prefix: str) -> str:
        """The next name with this prefix."""
        count = self._counts.get(prefix, 0) + 1
        self._counts[prefix] = count
        return f"{prefix}-{count}"


def stable(prefix: str, *parts: str, length: int = 24) -> str:
    """A name that looks like a provider's, and is always the same for the same parts."""
    digest = blake2b("\0".join(parts).encode(), digest_size=32).hexdigest()
    return f"{prefix}{digest[:length]}"
