"""The event bus: who gets what was published."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from offbook.subjects.loop.config import RALPH, Hat
from offbook.trace.topics import matches

HUMAN = "human."
ENTRY = ("task.start", "task.resume")


class Published(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event on the bus."""

    topic: str
    payload: str = ""
    source: str | None = None
    target: str | None = None


class Bus:
    """Hands events to hats: to the one that is named, else to those that listen for the topic."""

    def __init__(self, hats: Mapping[str, Hat]) -> None:
        self._hats = hats
        self._pending: dict[str, list[Published]] = {}
        self._said: list[Published] = []

    def route(self, event: Published) -> list[str]:
        """Put an event before the hats that it is for; their names come back.

        What a person says is for whoever acts next, and decides nobody's turn.
        """
        if event.topic.startswith(HUMAN) and event.target is None:
            self._said.append(event)
            return [HUMAN]
        names = self._receivers(event)
        for name in names:
            self._pending.setdefault(name, []).append(event)
        return names

    def _receivers(self, event: Published) -> list[str]:
        if event.target is not None:
            return [event.target] if event.target in self._hats else []
        named = sorted(name for name, hat in self._hats.items() if _listens(hat, event.topic))
        if named:
            return named
        open_ = sorted(name for name, hat in self._hats.items() if "*" in hat.topics)
        return open_ or [RALPH]

    def next_hat(self) -> str | None:
        """Whose turn it is: work under way goes before a new start; then by name."""
        waiting = sorted(self._pending)
        busy = [n for n in waiting if any(not _enters(e.topic) for e in self._pending[n])]
        return (busy or waiting or [None])[0]

    def take(self, hat: str) -> list[Published]:
        """What waits for this hat, and what a person said; it waits no more."""
        said, self._said = self._said, []
        return [*self._pending.pop(hat, []), *said]


def _listens(hat: Hat, topic: str) -> bool:
    return any(pattern != "*" and matches(pattern, topic) for pattern in hat.topics)


def _enters(topic: str) -> bool:
    return topic in ENTRY or topic.endswith(".start")
