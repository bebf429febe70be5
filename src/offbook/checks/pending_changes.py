"""Pending changes of approved files, and the decisions of a review.

A failed check or a new recording proposes files. A review accepts them, which replaces the approved
files, or rejects them, which deletes the proposed ones. Each decision is done as a whole or not at
all, and can be undone while the review is open.

    review = Review(changes)
    review.accept(changes[0])
    review.undo()
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from offbook.checks.snapshot import SnapshotDiff, in_ci
from offbook.errors import UsageError, did_you_mean
from offbook.files import write_atomic

ALL = "all"
DecisionName = Literal["accepted", "rejected"]
FileContents = dict[Path, bytes | None]  # None: there is no such file


class FileMove(NamedTuple):
    """A proposed file and the approved one; without the first, the second is removed."""

    pending: str
    approved: str


class PendingChange(msgspec.Struct, frozen=True):
    """A proposal that awaits a review, with its difference from what is approved.

    `digest` identifies the content that was shown: a decision about another content is refused.
    """

    kind: str
    name: str
    path: str
    new: bool
    difference: SnapshotDiff
    moves: tuple[FileMove, ...]
    digest: str


def pending_change(
    kind: str, name: str, moves: Sequence[FileMove], difference: SnapshotDiff
) -> PendingChange:
    """Return the change that these files propose; the last of them is its main file."""
    path, approved = moves[-1]
    is_new = not Path(approved).is_file()
    contents = _read(_paths(moves))
    return PendingChange(kind, name, path, is_new, difference, tuple(moves), _digest(contents))


class Decision(NamedTuple):
    """A decision, the files before it, and the digest of the files after it."""

    change: PendingChange
    name: DecisionName
    before: FileContents
    after: str


class ReviewResult(msgspec.Struct, frozen=True):
    """The paths of the changes that were accepted, rejected and left pending."""

    accepted: list[str]
    rejected: list[str]
    left: list[str]


class Review:
    """Decisions about pending changes.

    `check` raises if a change must not be accepted, such as a recording that does not replay.
    """

    def __init__(
        self,
        changes: Sequence[PendingChange],
        check: Callable[[PendingChange], None] | None = None,
    ) -> None:
        self.changes = list(changes)
        self.decisions: list[Decision] = []
        self._check = check

    @property
    def left(self) -> list[PendingChange]:
        """The changes without a decision."""
        decided = {id(decision.change) for decision in self.decisions}
        return [change for change in self.changes if id(change) not in decided]

    @property
    def result(self) -> ReviewResult:
        """The decisions until now."""
        paths: dict[DecisionName, list[str]] = {"accepted": [], "rejected": []}
        for decision in self.decisions:
            paths[decision.name].append(decision.change.path)
        left = [change.path for change in self.left]
        return ReviewResult(sorted(paths["accepted"]), sorted(paths["rejected"]), left)

    def accept(self, change: PendingChange) -> None:
        """Replace the approved files by the proposed ones."""
        before = self._start(change)
        if self._check is not None:
            self._check(change)
        with _all_or_nothing(before):
            for pending, approved in change.moves:
                content = before[Path(pending)]
                if content is None:
                    Path(approved).unlink(missing_ok=True)
                else:
                    write_atomic(Path(approved), content)
            for pending, _ in change.moves:
                Path(pending).unlink(missing_ok=True)
        self._finish(change, "accepted", before)

    def reject(self, change: PendingChange) -> None:
        """Delete the proposed files."""
        before = self._start(change)
        with _all_or_nothing(before):
            for pending, _ in change.moves:
                Path(pending).unlink(missing_ok=True)
        self._finish(change, "rejected", before)

    def undo(self) -> PendingChange | None:
        """Restore the files before the last decision; return its change, or None without one."""
        if not self.decisions:
            return None
        change, _, before, after = self.decisions[-1]
        if _digest(_read(before)) != after:
            raise UsageError(
                f"the files of {change.name} have changed since the decision",
                where=change.moves[-1].approved,
                hint="it cannot be undone",
            )
        _restore(before)
        self.decisions.pop()
        return change

    def decide(self, *, accept: Iterable[str] = (), reject: Iterable[str] = ()) -> ReviewResult:
        """Accept and reject changes by name, by path, or `all`."""
        accepted, rejected = self._select(accept), self._select(reject)
        for change in accepted:
            if change in rejected:
                raise UsageError(f"{change.path} cannot be accepted and rejected")
        for change in accepted:
            self.accept(change)
        for change in rejected:
            self.reject(change)
        return self.result

    def find(self, path: str, digest: str) -> PendingChange:
        """Return the change without a decision that has this path and this content."""
        for change in self.left:
            if (change.path, change.digest) == (path, digest):
                return change
        raise UsageError("this change is not pending any more", where=path, hint="list them again")

    def _select(self, words: Iterable[str]) -> list[PendingChange]:
        left = self.left
        selected: list[PendingChange] = []
        for word in words:
            found = [each for each in left if word in {ALL, each.name, each.path}]
            if not found and word != ALL:
                kind = left[0].kind if left else "change"
                hint = did_you_mean(word, [each.name for each in left])
                raise UsageError(f"no pending {kind} {word!r}", hint=hint)
            selected += [each for each in found if each not in selected]
        return selected

    def _start(self, change: PendingChange) -> FileContents:
        if in_ci():
            raise UsageError(
                f"{change.kind}s cannot be approved in CI", hint="review them on your machine"
            )
        contents = _read(_paths(change.moves))
        if _digest(contents) != change.digest:
            raise UsageError(
                f"the {change.kind} {change.name} has changed since it was shown",
                where=change.path,
                hint="start the review again",
            )
        return contents

    def _finish(self, change: PendingChange, name: DecisionName, before: FileContents) -> None:
        self.decisions.append(Decision(change, name, before, _digest(_read(before))))


@contextmanager
def _all_or_nothing(before: FileContents) -> Generator[None]:
    """Restore the files if the block is interrupted or fails, as on a full disk."""
    try:
        yield
    except BaseException:
        _restore(before)
        raise


def _restore(contents: FileContents) -> None:
    for path, content in contents.items():
        if content is None:
            path.unlink(missing_ok=True)
        else:
            write_atomic(path, content)


def _paths(moves: Iterable[FileMove]) -> list[Path]:
    return [Path(path) for move in moves for path in move]


def _read(paths: Iterable[Path]) -> FileContents:
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def _digest(contents: FileContents) -> str:
    digest = sha256()
    for path, content in contents.items():
        digest.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
        digest.update(content or b"")
    return digest.hexdigest()
