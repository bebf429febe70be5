"""Where two tapes part: a fork and its parent, or two recordings of the same task."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.sources.cassette.format import Normalizer, interaction_to_dict
from offbook.sources.cassette.journal import load_cassette
from offbook.sources.cassette.mismatch import describe_differences, find_differences, recorded_body

if TYPE_CHECKING:
    from pathlib import Path

    from offbook.sources.cassette.cassette_file import CassetteFile, Entry

# Of a response: what differs in every recording, and does not matter to the agent.
MEASURED = ("duration_ms", "chunks", "id", "usage", "tokens", "cost_dollars", "model")
TRACKS = ("tools", "people", "http")


class Parting(msgspec.Struct, frozen=True):
    """The first interaction in which two tapes differ: its track, both sides, and the diff.

    `common` is the number of interactions before it. A tape that ended there has no side.
    """

    common: int
    lengths: tuple[int, int]
    track: str = ""
    sides: tuple[str | None, str | None] = (None, None)
    diff: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """True if the tapes do not differ."""
        return not self.track

    def lines(self, before: Path, after: Path) -> list[str]:
        """Return the parting as lines for a reader."""
        if self.same:
            return [f"the tapes are the same: {self.common} interactions"]
        fact = f"the tapes part at interaction {self.common + 1} (track: {self.track})"
        shown = [
            f"  {path} ({length}): {side or 'ends'}"
            for path, length, side in zip((before, after), self.lengths, self.sides, strict=True)
        ]
        return [fact, *shown, *(f"  {line}" for line in self.diff)]


def find_parting(before: Path, after: Path) -> Parting:
    """Return where two tapes part."""
    one, two = load_cassette(before), load_cassette(after)
    lengths = (len(one), len(two))
    pairs = zip_longest(one.entries, two.entries)
    for number, (first, second) in enumerate(pairs):
        if first is None or second is None:
            titles = [
                None if entry is None else file.read(entry).request.title
                for file, entry in ((one, first), (two, second))
            ]
            return Parting(number, lengths, "model", (titles[0], titles[1]))
        left, right = _parts(one, first), _parts(two, second)
        for track, value in left.items():
            if value != right[track]:
                found = [*find_differences(value, right[track])]
                titles = [f.read(e).request.title for f, e in ((one, first), (two, second))]
                diff = tuple(describe_differences(found))
                name = "model" if track in {"request", "response"} else track
                return Parting(number, lengths, name, (titles[0], titles[1]), diff)
    return Parting(lengths[0], lengths)


def _parts(file: CassetteFile, entry: Entry) -> dict[str, Any]:
    """Return an interaction as JSON, by its parts, without what differs in every recording."""
    item = interaction_to_dict(file.read(entry))
    request = recorded_body(file, entry, Normalizer(file.header.redactions))
    response = {k: v for k, v in item.get("response", {}).items() if k not in MEASURED}
    tracks = {track: item.get(track, []) for track in TRACKS if track in (file.header.tracks or ())}
    return {"request": request, "response": response} | {
        track: tracks.get(track, []) for track in TRACKS
    }
