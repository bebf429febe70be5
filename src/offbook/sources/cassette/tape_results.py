"""What `Cassette.shrink` and `Cassette.compare_tools` return."""

from __future__ import annotations

from pathlib import Path

import msgspec

from offbook.secrets import excerpt

MAX_SHOWN = 200


class ShrunkTape(msgspec.Struct, frozen=True):
    """The shortest tape of a failure: its file, its length, that of the whole tape, the replays."""

    path: Path
    interactions: int
    recorded: int
    replays: int
    failure: str


class ToolChange(msgspec.Struct, frozen=True):
    """A call with another result: in the recording, and in two runs; None if it did not run."""

    call: str
    recorded: str | None
    first: str | None
    second: str | None

    @property
    def deterministic(self) -> bool:
        """True if both runs agree: the tool has changed since the recording."""
        return self.first == self.second

    def __str__(self) -> str:
        kind = "changed since the recording" if self.deterministic else "not deterministic"
        shown = {"recorded": self.recorded, "first": self.first, "second": self.second}
        lines = [
            f"  {name + ':':9} {'nothing' if text is None else excerpt(text, MAX_SHOWN)}"
            for name, text in shown.items()
        ]
        return "\n".join([f"{self.call}: {kind}", *lines])


class ComparedTools(msgspec.Struct, frozen=True):
    """The number of calls that were compared, and those with another result."""

    calls: int
    changes: tuple[ToolChange, ...]
