"""What came of the tests when they ran last: kept between runs, and only as long as it is true."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from offbook.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PLACE = ".offbook/outcomes.json"


class Outcome(msgspec.Struct, frozen=True):
    """What came of one test, and which goldens it replayed."""

    outcome: str
    goldens: list[str] = []


class TestFile(msgspec.Struct):
    """The tests of one file as it was then."""

    digest: str
    tests: dict[str, Outcome] = {}


class Outcomes:
    """The outcomes of the tests of a project, by file and name."""

    __test__ = False  # for pytest, which would take it for a test

    def __init__(self, root: Path, files: dict[str, TestFile] | None = None) -> None:
        self._root = root
        self._files = files or {}

    @classmethod
    def read(cls, root: Path) -> Outcomes:
        """What is known; a file that cannot be read counts as nothing known."""
        try:
            kept = msgspec.json.decode((root / PLACE).read_bytes(), type=dict[str, TestFile])
        except (OSError, msgspec.MsgspecError):
            kept = {}
        return cls(root, kept)

    def add(self, file: str, test: str, outcome: Outcome) -> None:
        """Keep what came of a test; what was known of an older version of its file is dropped."""
        digest = self._digest(file)
        known = self._files.get(file)
        if known is None or known.digest != digest:
            known = self._files[file] = TestFile(digest, {})
        known.tests[test] = outcome

    def write(self) -> None:
        """Keep it for the next run."""
        folder = (self._root / PLACE).parent
        ignore = folder / ".gitignore"
        if not ignore.exists():
            write_whole(ignore, "*\n")
        write_whole(self._root / PLACE, msgspec.json.encode(self._files))

    def of(self, file: str, test: str) -> dict[str, Outcome] | None:
        """What came of a test, for each of its parameters; nothing if its file changed since."""
        known = self._files.get(file)
        if known is None or known.digest != self._digest(file):
            return None
        return {
            name: outcome
            for name, outcome in known.tests.items()
            if name.partition("[")[0].rpartition("::")[2] == test
        }

    def used(self) -> set[str]:
        """The goldens that a passing test replayed."""
        passed: Iterable[Outcome] = (
            outcome
            for file, known in self._files.items()
            if known.digest == self._digest(file)
            for outcome in known.tests.values()
            if outcome.outcome == "passed"
        )
        return {golden for outcome in passed for golden in outcome.goldens}

    def __bool__(self) -> bool:
        return bool(self._files)

    def _digest(self, file: str) -> str:
        try:
            return sha256((self._root / file).read_bytes()).hexdigest()
        except OSError:
            return ""
