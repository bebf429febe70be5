"""One interaction of a cassette, recorded again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgspec

from offbook.errors import UsageError
from offbook.sources.cassette.care import exchange
from offbook.sources.cassette.journal import load
from offbook.sources.cassette.replay import Replay
from offbook.sources.recording import Recording

if TYPE_CHECKING:
    from pathlib import Path

    from offbook.exchange.reply import Reply
    from offbook.exchange.request import Request
    from offbook.exchange.source import ModelSource


class Renewing:
    """A replay that asks the real model for one interaction only, and keeps that."""

    def __init__(self, cassette: Path, number: int, live: ModelSource) -> None:
        tape = load(cassette)
        if not 1 <= number <= len(tape):
            raise UsageError(
                f"there is no interaction {number}",
                where=str(cassette),
                hint=f"they are numbered from 1 to {len(tape)}",
            )
        self._path = cassette
        self._number = number
        self._live = live
        self._replay = Replay(tape, strict=False)
        self._apart = cassette.with_name(f".{cassette.name}.renewed")
        self.renewed = False

    async def reply(self, request: Request, /) -> Reply:
        """The recorded reply, or for the one interaction a new one."""
        if self._replay.next_number(request) != self._number:
            return await self._replay.reply(request)
        self._replay.take(request)
        self.renewed = True
        rules = self._replay.tape.header.redactions
        with Recording(self._live, self._apart, redactions=rules, replace=True) as recording:
            return await recording.reply(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Put the new interaction in the place of the old one, unless something went wrong."""
        if self.renewed and kind is None:
            (new,) = load(self._apart)
            entry = self._replay.tape.entries[self._number - 1]
            at = self._replay.tape.read(entry).at_ms
            exchange(self._path, self._number, msgspec.structs.replace(new, id=entry.id, at_ms=at))
        self._apart.unlink(missing_ok=True)
