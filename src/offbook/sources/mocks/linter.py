"""What is wrong with a mock file that can be read: lines that nothing will ever reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offbook.sources.mocks.lines import Mock, Script

SCOPES = frozenset({"default", "shared", "compaction"})


class Finding(msgspec.Struct, frozen=True):
    """Something about one line; `unreachable` and `unused` lines could as well be removed."""

    path: str
    line: int
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.message}"


def lint(script: Script, unused: Iterable[Mock] = ()) -> list[Finding]:
    """What can be said about the lines, and about those that a run has not used."""
    found = [*_unreachable(script), *_suspicious(script)]
    dead = {finding.line for finding in found if finding.kind == "unreachable"}
    told = "nothing in this run has asked for it"
    left = [mock for mock in unused if mock.number not in dead]
    found += [_finding(script, mock, "unused", told) for mock in left]
    return sorted(found, key=lambda finding: finding.line)


def _unreachable(script: Script) -> Iterator[Finding]:
    for at, mock in enumerate(script.mocks):
        for before in script.mocks if mock.glob else script.mocks[:at]:
            if before is not mock and _hides(before, mock, earlier=before.number < mock.number):
                why = f"{before.shown} always comes first"
                yield _finding(script, mock, "unreachable", why)
                break


def _hides(before: Mock, mock: Mock, *, earlier: bool) -> bool:
    """Whether one line answers whatever the other could, for ever."""
    if before.scope != mock.scope or not before.sticky:
        return False
    if before.glob is None:  # a line without a pattern goes before all that have one
        return earlier or mock.glob is not None
    return earlier and mock.glob is not None and before.glob.covers(mock.glob)


def _suspicious(script: Script) -> Iterator[Finding]:
    for mock in script.mocks:
        if mock.glob is not None and "*" not in mock.glob.pattern:
            told = f"without a star it has to be all that was said: '*{mock.glob.pattern}*'?"
            yield _finding(script, mock, "suspicious", told)
        if mock.glob is None and mock.line.consume_match is not None:
            yield _finding(script, mock, "suspicious", "consume_match needs a match")
        if mock.line.error is not None and (mock.line.text or mock.line.tool_calls):
            yield _finding(script, mock, "suspicious", "beside an error, text is never said")
        if script.versioned and mock.scope not in SCOPES and "." not in mock.scope:
            yield _finding(script, mock, "suspicious", f"unknown scope {mock.scope!r}")


def _finding(script: Script, mock: Mock, kind: str, message: str) -> Finding:
    return Finding(script.path, mock.number, kind, message)
