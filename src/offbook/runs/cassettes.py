"""The cassettes of one test: replayed, or recorded where that was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from offbook.errors import FormatError, OffbookError, UsageError
from offbook.sources.cassette.recording import Recording
from offbook.sources.cassette.replay import Cassette
from offbook.sources.live import Live

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offbook.exchange.model import ModelSource
    from offbook.trace.redaction import RedactionRules

FOLDER = "cassettes"
SUFFIX = ".yaml"


class CassetteOptions(TypedDict, total=False):
    """How a cassette is opened; `live` is asked instead of the provider when it is recorded."""

    strict: bool
    redactions: RedactionRules | Mapping[str, Any] | None
    roots: Mapping[str, Path] | None
    live: ModelSource | None


class Cassettes:
    """Opens cassettes in the folder `cassettes` beside a test file, each named once.

    With `recorded`, the cassettes of this test run so far, the real model is asked. A test that
    fails leaves a cassette that was there before as it was; where there was none, what came until
    then is kept, and says that it is not all. Without, everything is replayed, and all of it has
    to be used.
    """

    def __init__(self, folder: Path, test: str, *, recorded: set[Path] | None = None) -> None:
        self._folder = folder / FOLDER
        self._test = test
        self._recorded = recorded
        self._recordings: dict[Path, tuple[Recording, bool]] = {}
        self._replays: dict[Path, Cassette] = {}

    def open(self, name: str = "", **options: Unpack[CassetteOptions]) -> ModelSource:
        """The cassette of this name as a source, by default that of the test."""
        path = self._find(name or self._test)
        if path in self._recordings or path in self._replays:
            raise UsageError(
                "this cassette is open already", where=str(path), hint="give the second a name"
            )
        redactions, roots = options.get("redactions"), options.get("roots")
        if self._recorded is not None:
            self._claim(path, self._recorded)
            there = path.exists()
            model = options.get("live") or Live()
            recording = Recording(model, path, redactions=redactions, roots=roots, replace=there)
            self._recordings[path] = recording, there
            return recording
        if not path.exists():
            raise FormatError(
                "this test has no cassette yet",
                path=path,
                hint="record it, with the real model: pytest --offbook-record",
            )
        strict = options.get("strict", True)
        again = "pytest --offbook-record, for this test"
        replay = Cassette(
            path, strict=strict, redactions=redactions, roots=roots, record_command=again
        )
        self._replays[path] = replay
        return replay

    @staticmethod
    def _claim(path: Path, recorded: set[Path]) -> None:
        if path in recorded:
            raise UsageError(
                "another test has recorded this cassette already",
                where=str(path),
                hint="give each test its own, or record them one at a time",
            )
        recorded.add(path)

    def _find(self, name: str) -> Path:
        path = self._folder / (name if name.endswith(SUFFIX) else f"{name}{SUFFIX}")
        if not path.resolve().is_relative_to(self._folder.resolve()):
            raise UsageError(
                f"the name {name!r} leads out of the folder of cassettes", where=str(self._folder)
            )
        return path

    def close(self, *, failed: bool = False) -> list[Exception]:
        """Write what was recorded, and look whether all was replayed; what is wrong comes back."""
        troubles: list[Exception] = []
        for recording, there in self._recordings.values():
            try:
                _end(recording, failed=failed, there=there)
            except OffbookError as error:
                troubles.append(error)
        for replay in self._replays.values():
            unused = None if failed or replay.failure else replay.unfinished()
            if unused is not None and replay.strict:
                troubles.append(unused)
            replay.close()
        self._recordings, self._replays = {}, {}
        return troubles


def _end(recording: Recording, *, failed: bool, there: bool) -> None:
    if failed and there:
        recording.discard()
        return
    recording.interrupted = recording.interrupted or failed
    if not recording.close().interactions:
        raise UsageError(
            "nothing was asked, so nothing was recorded",
            where=str(recording.path),
            hint="pass the cassette on: offbook.drive(agent, source=offbook.cassette())",
        )
