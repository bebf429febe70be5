"""The cassettes of one test: replayed, or recorded on request."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from offbook.errors import FormatError, OffbookError, UsageError
from offbook.sources.cassette.mismatch import format_numbers
from offbook.sources.cassette.recording import Recording
from offbook.sources.cassette.replay import Cassette
from offbook.sources.live import Live

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from offbook.exchange.model import ModelSource
    from offbook.trace.redaction import RedactionRules

FOLDER = "cassettes"
SUFFIX = ".yaml"


class CassetteOptions(TypedDict, total=False):
    """The options of a cassette.

    `live` replaces the provider while recording; a recording older than `max_age` is refused.
    """

    strict: bool
    redactions: RedactionRules | Mapping[str, Any] | None
    roots: Mapping[str, Path] | None
    live: ModelSource | None
    max_age: timedelta | None


class Cassettes:
    """Opens cassettes in the folder `cassettes` of a test file, each name once.

    With `recorded`, the set of cassettes that this test session has recorded so far, requests go
    to the real model. If the test fails, an existing cassette stays as it was; a new one is kept
    and marked as incomplete. With `extend`, an existing cassette is replayed and only new requests
    are recorded. Without `recorded`, cassettes are replayed, and all their interactions must be
    used.
    """

    def __init__(
        self, folder: Path, test: str, *, recorded: set[Path] | None = None, extend: bool = False
    ) -> None:
        self._folder = folder / FOLDER
        self._test = test
        self._recorded = recorded
        self._extend = extend
        # Each recording, and whether its file existed before.
        self._recordings: dict[Path, tuple[Recording, bool]] = {}
        self._replays: dict[Path, Cassette] = {}

    def open(self, name: str = "", **options: Unpack[CassetteOptions]) -> ModelSource:
        """Return the cassette of this name as a source; the default is the name of the test."""
        name = name or self._test
        path = self._folder / (name if name.endswith(SUFFIX) else f"{name}{SUFFIX}")
        # Names come from tests, and a test id may contain `..` and slashes.
        if not path.resolve().is_relative_to(self._folder.resolve()):
            raise UsageError(
                f"the cassette {name!r} is outside of its folder", where=str(self._folder)
            )
        if path in self._recordings or path in self._replays:
            raise UsageError(
                "this cassette is open already", where=str(path), hint="give the second one a name"
            )
        redactions, roots = options.get("redactions"), options.get("roots")
        if self._recorded is not None:
            # Two tests that record one file would overwrite each other.
            if path in self._recorded:
                raise UsageError(
                    "another test has recorded this cassette already",
                    where=str(path),
                    hint="give each test its own, or record them one at a time",
                )
            self._recorded.add(path)
            existed = path.exists()
            model = options.get("live") or Live()
            append = existed and self._extend
            recording = Recording(
                model,
                path,
                redactions=redactions,
                roots=roots,
                append=append,
                replace=existed and not append,
            )
            self._recordings[path] = recording, existed
            return recording
        # pytest sets this variable to the id of the test, for a command that works when pasted.
        node_id = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        record_command = shlex.join(["pytest", "--offbook-record", *filter(None, [node_id])])
        if not path.exists():
            raise FormatError(
                "this test has no cassette yet",
                path=path,
                hint=f"record it with the real model: {record_command}",
            )
        replay = Cassette(
            path,
            strict=options.get("strict", True),
            redactions=redactions,
            roots=roots,
            record_command=record_command,
            max_age=options.get("max_age"),
        )
        replay.continued = True  # it is checked at the end of the test
        self._replays[path] = replay
        return replay

    def close(self, *, failed: bool = False) -> list[Exception]:
        """Write the recordings and check that replays were used; return the errors."""
        errors: list[Exception] = []
        for recording, existed in self._recordings.values():
            if failed and existed:
                recording.discard()
                continue
            recording.interrupted = recording.interrupted or failed
            try:
                summary = recording.close()
                if unused := recording.unused:
                    file = shlex.quote(str(recording.path))
                    raise UsageError(
                        f"{len(unused)} recorded interactions were not used",
                        where=str(recording.path),
                        hint="find out why the agent did not ask for them, or remove them: "
                        f"offbook cassette edit {file} --trim {format_numbers(unused)}",
                    )
                if not summary.interactions + summary.replayed:
                    raise UsageError(
                        "no request was made, so nothing was recorded",
                        where=str(recording.path),
                        hint="write offbook.drive(agent, source=offbook.cassette())",
                    )
            except OffbookError as error:
                errors.append(error)
        for replay in self._replays.values():
            # Unused interactions of a failed test are a consequence of the failure.
            unused = None if failed or replay.failure else replay.unfinished()
            if unused is not None and replay.strict:
                errors.append(unused)
            replay.close()
        self._recordings, self._replays = {}, {}
        return errors
