"""How fast a served stream goes: at once, or as a model would."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator


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
