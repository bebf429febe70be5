"""Requests that come again as they were, to the byte: what was read once is given again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offbook.exchange.dialects.dialect import Wire
    from offbook.exchange.request import Request

KEPT = 32
LONG = 4_096


class Repeats:
    """The latest short requests, and what was read from them."""

    def __init__(self) -> None:
        self._read: dict[tuple[bytes, str], tuple[dict[str, str], Request]] = {}

    def recall(self, wire: Wire) -> Request | None:
        """What was read from the same, with the same headers."""
        found = self._read.get((wire.body, wire.path))
        if found is None:
            return None
        headers, request = found
        return request if headers is wire.headers or headers == wire.headers else None

    def keep(self, wire: Wire, request: Request) -> None:
        """Remember what was read from this, if it is short."""
        if len(wire.body) < LONG:
            if len(self._read) >= KEPT:
                del self._read[next(iter(self._read))]
            self._read[wire.body, wire.path] = (wire.headers, request)
