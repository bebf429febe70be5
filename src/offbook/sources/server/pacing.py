"""How fast a served stream goes: at once, or as a model would."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from offbook.exchange.reply import Reply


class Pacing(msgspec.Struct, frozen=True):
    """Milliseconds until a stream begins, tokens a second from then on, and how uneven that is.

    `jitter` is a share: 0.2 makes each wait up to a fifth longer or shorter, by chance drawn from
    `seed`. An event counts as one token.
    """

    first_token: float = 0
    tokens_per_second: float = 0
    jitter: float = 0
    seed: int = 0

    def delays(self, events: int, salt: int = 0) -> Iterator[float]:
        """The seconds to wait before each of so many events; `salt` tells streams apart."""
        chance = Random(self.seed * 1_000_003 + salt)  # noqa: S311 - for looks, not for secrets
        pause = 1 / self.tokens_per_second if self.tokens_per_second else 0
        for at in range(events):
            wait = pause if at else self.first_token / 1000
            yield wait * (1 + self.jitter * chance.uniform(-1, 1))


def spread_delays(reply: Reply, events: Sequence[bytes]) -> tuple[float, ...]:
    """The seconds before each event: those of the piece of the reply that it brings."""
    waits = [0.0] * len(events)
    at = 0
    for piece, delay in zip(reply.chunks, reply.delays, strict=False):
        needle = msgspec.json.encode(piece)[1:-1]
        found = next((n for n in range(at, len(events)) if needle in events[n]), None)
        if found is not None:
            waits[found] = delay / 1000
            at = found + 1
    return tuple(waits)
