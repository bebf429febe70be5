"""`snapshot review`: what a run left where a snapshot was expected waits until somebody decides.

A snapshot that is missing, or does not match, has its successor beside it: `NAME.pending.json`.
To accept it is to put it in the place of the other. In CI nothing is proposed and nothing decided.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from offbook.checks.assertions.snapshots import SnapshotMatches
from offbook.checks.snapshot import FOLDER, Difference, Snapshot, capture, compare, redact
from offbook.errors import FormatError, UsageError, nearest
from offbook.files import write_whole
from offbook.runs.workspace import Workspace, Workspaces
from offbook.trace.redaction import Redaction

PENDING = ".pending.json"
ALL = "all"
NO = {"", "0", "false", "no"}


class Pending(msgspec.Struct, frozen=True):
    """A snapshot that waits: its name, where it is, and how it differs from what was approved."""

    name: str
    path: str
    new: bool
    difference: Difference


class Reviewed(msgspec.Struct, frozen=True):
    """What became of those that waited."""

    accepted: list[str]
    rejected: list[str]
    left: list[str]


def in_ci() -> bool:
    """Whether nobody is there who could decide."""
    return os.environ.get("CI", "").lower() not in NO


def propose(workspace: Workspace, assertion: SnapshotMatches, *, holds: bool) -> Path | None:
    """Let what is there wait for a decision, unless it is as expected already."""
    place = workspace.place(f"{FOLDER}/{assertion.snapshot_id}{PENDING}")
    if in_ci():
        return None
    if holds:
        place.unlink(missing_ok=True)
        return None
    redaction = Redaction(assertion.redactions, roots={"WORKSPACE": workspace.path})
    found = capture(workspace.path, assertion.include_patterns, assertion.exclude_patterns)
    write_whole(place, msgspec.json.format(msgspec.json.encode(redact(found, redaction))))
    return place


def list_pending(places: Sequence[str] = ()) -> list[Pending]:
    """Those that wait, in workspaces or folders; in this folder, if none is named."""
    found: list[Pending] = []
    for place in places or (".",):
        folder = _find_folder(place)
        hidden = {".git", ".venv", "node_modules"}
        inside = (p for p in folder.rglob(f"*{PENDING}") if not hidden & set(p.parts))
        found += [_describe(path) for path in sorted(inside)]
    return found


def review(
    places: Sequence[str] = (), *, accept: Iterable[str] = (), reject: Iterable[str] = ()
) -> Reviewed:
    """Decide about those that wait, by name, by path, or about `all`."""
    waiting = list_pending(places)
    accepted, rejected = _choose(waiting, accept), _choose(waiting, reject)
    if both := accepted & rejected:
        raise UsageError(f"{min(both)} cannot be accepted and rejected")
    for path in sorted(accepted):
        accept_one(Path(path))
    for path in sorted(rejected):
        reject_one(Path(path))
    left = [one.path for one in waiting if one.path not in accepted | rejected]
    return Reviewed(sorted(accepted), sorted(rejected), left)


def accept_one(path: Path) -> None:
    """Let it be the approved one from now on."""
    _refuse_ci()
    path.replace(_approved(path))


def reject_one(path: Path) -> None:
    """Forget it."""
    _refuse_ci()
    path.unlink(missing_ok=True)


def _refuse_ci() -> None:
    if in_ci():
        raise UsageError("in CI no snapshot is approved", hint="review it where you work")


def _find_folder(place: str) -> Path:
    if Path(place).is_dir():
        return Path(place)
    try:
        return Workspaces().find(place).path / FOLDER
    except UsageError as error:
        raise UsageError(
            f"{place!r} is no folder, and no workspace", hint=nearest(place, Workspaces().ids())
        ) from error


def _approved(path: Path) -> Path:
    return path.with_name(f"{path.name.removesuffix(PENDING)}.json")


def _describe(path: Path) -> Pending:
    approved = _approved(path)
    before = _load(approved) if approved.is_file() else Snapshot()
    name = path.name.removesuffix(PENDING)
    return Pending(name, str(path), not approved.is_file(), compare(before, _load(path)))


def _load(path: Path) -> Snapshot:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Snapshot)
    except msgspec.MsgspecError as error:
        raise FormatError(f"this is no snapshot: {error}", path=path) from error


def _choose(waiting: Sequence[Pending], words: Iterable[str]) -> set[str]:
    chosen: set[str] = set()
    for word in words:
        found = {one.path for one in waiting if word in {ALL, one.name, one.path}}
        if not found and word != ALL:
            names = [one.name for one in waiting]
            raise UsageError(f"no snapshot {word!r} waits", hint=nearest(word, names))
        chosen |= found
    return chosen
