"""The assertion that a folder looks as it was approved."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from offbook.checks.assertions.assertion import Assertion, Finding
from offbook.checks.evidence import Evidence
from offbook.checks.snapshot import FOLDER, Snapshot, capture, compare, redact
from offbook.errors import UsageError, nearest
from offbook.trace.redaction import Redaction


class SnapshotMatches(Assertion, frozen=True, forbid_unknown_fields=True, tag="snapshot_matches"):
    """The files are as in the snapshot of this name, but for what is redacted."""

    snapshot_id: str
    redactions: dict[str, Any] | None = None
    include_patterns: tuple[str, ...] = ()
    exclude_patterns: tuple[str, ...] = ()
    subject: ClassVar[tuple[str, ...]] = ("snapshot_id",)

    def look(self, evidence: Evidence) -> Finding:
        place = evidence.place(f"{FOLDER}/{self.snapshot_id}.json")
        if not place.is_file():
            there = [p.stem for p in place.parent.glob("*.json") if ".pending" not in p.name]
            raise UsageError(
                f"there is no snapshot {self.snapshot_id!r}", hint=nearest(self.snapshot_id, there)
            )
        root = evidence.place(".")
        redaction = Redaction(self.redactions, roots={"WORKSPACE": root})
        approved = redact(msgspec.json.decode(place.read_bytes(), type=Snapshot), redaction)
        now = redact(capture(root, self.include_patterns, self.exclude_patterns), redaction)
        found = compare(approved, now)
        names = [*found.changed_files, *found.added_files, *found.deleted_files]
        message = "" if found.nothing else f"{len(names)} files differ: {', '.join(names[:10])}"
        context = {"diff": msgspec.to_builtins(found)} if not found.nothing else {}
        return Finding(found.nothing, self.snapshot_id, names, message, context)
