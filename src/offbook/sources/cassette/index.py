"""The index of a cassette: its interactions in short, and how they refer to one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from offbook.errors import FormatError, nearest

if TYPE_CHECKING:
    from pathlib import Path


class Entry(msgspec.Struct, frozen=True):
    """One line of the index: what a replay must know of an interaction before its turn.

    `start` and `end` are where it stands in the file, `line` the line of its beginning. `kept`
    says whether the request is there and not only its hash, `prompted` whether it is known by its
    prompt alone.
    """

    number: int
    id: int
    hat: str
    hash: str
    start: int
    end: int
    line: int
    after: int | None
    again: int | None
    head: int | None
    at: int | None
    took: float
    kept: bool
    prompted: bool


def number_ids(entries: list[Entry], path: Path | str) -> dict[int, int]:
    """The number of each interaction by its id, which no two may share."""
    numbers: dict[int, int] = {}
    for entry in entries:
        if entry.id in numbers:
            other = entries[numbers[entry.id] - 1]
            raise FormatError(
                f"two interactions have the id {entry.id}: the other is in line {other.line}",
                path=path,
                line=entry.line,
                hint="give one of them another, and name it where others refer to it",
            )
        numbers[entry.id] = entry.number
    return numbers


def check_references(entries: list[Entry], numbers: dict[int, int], path: Path | str) -> None:
    """Refuse an interaction that goes on from one that is not there."""
    for entry in entries:
        for name in ("after", "again", "head"):
            wanted = getattr(entry, name)
            if wanted is not None and wanted not in numbers:
                raise FormatError(
                    f"interaction {entry.number}: {name} refers to {wanted}, "
                    "and no interaction has that id",
                    path=path,
                    line=entry.line,
                    hint=nearest(str(wanted), map(str, numbers)),
                )


def find_roots(entries: list[Entry], numbers: dict[int, int], path: Path | str) -> dict[int, int]:
    """By id, the interaction with which the conversation began."""
    roots: dict[int, int] = {}
    for entry in entries:
        found: list[int] = []
        at = entry
        while at.id not in roots and (before := at.after or at.again) is not None:
            found.append(at.id)
            if before in found:
                raise FormatError(
                    f"interaction {entry.number} goes on from itself",
                    path=path,
                    line=entry.line,
                    hint="let `after` and `again` name an earlier one",
                )
            at = entries[numbers[before] - 1]
        root = roots.get(at.id, at.id)
        roots.update(dict.fromkeys((*found, at.id), root))
    return roots
