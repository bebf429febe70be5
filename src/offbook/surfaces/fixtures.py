"""What the pytest fixture `offbook` opens: rehearsals that end with their test."""

from __future__ import annotations

import asyncio
import shutil
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Unpack, cast

from offbook.determinism.clock import stable_id
from offbook.errors import OffbookError
from offbook.files import copy_atomic
from offbook.reports.terminal import render_last_lines
from offbook.runs.api import drive, session
from offbook.runs.rehearsal import Rehearsal
from offbook.runs.sync_bridge import in_event_loop
from offbook.trace.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from offbook.exchange.model import ModelSource
    from offbook.runs.cassettes import CassetteOptions, Cassettes

P = ParamSpec("P")
LONGEST = 120
SHOWN = 40


class _Opened(NamedTuple):
    """A rehearsal, and the event loop in which its subject lives, if that is the test's."""

    rehearsal: Rehearsal
    loop: asyncio.AbstractEventLoop | None


class Offbook:
    """The words of the module, `session` and `drive`, for one test; and its cassettes.

    What they open is closed when the test ends, in the event loop that it was opened in.
    """

    def __init__(
        self,
        folder: Path,
        *,
        beside: Path | None = None,
        test: str = "",
        recorded: set[Path] | None = None,
    ) -> None:
        self._folder = folder
        self._beside = beside or Path()
        self._test = test
        self._recorded = recorded
        self._cassettes: Cassettes | None = None
        self._opened: list[_Opened] = []
        self._traces: list[Path] = []
        self.session = self._watched(session)
        self.drive = self._watched(drive)

    def _watched(self, open_one: Callable[P, Rehearsal]) -> Callable[P, Rehearsal]:
        @wraps(open_one)
        def opened(*args: P.args, **options: P.kwargs) -> Rehearsal:
            given = cast("dict[str, Any]", options)
            trace = given.get("trace") or self._folder / f"{len(self._traces) + 1}.jsonl"
            self._traces.append(Path(trace))
            rehearsal = cast("Any", open_one)(*args, **{**given, "trace": trace})
            loop = asyncio.get_running_loop() if in_event_loop() else None
            self._opened.append(_Opened(rehearsal, loop))
            return rehearsal

        return opened

    def cassette(self, name: str = "", **options: Unpack[CassetteOptions]) -> ModelSource:
        """The cassette of this name, by default that of the test, as a source.

        It lies in the folder `cassettes` beside the test file. It is replayed, and all of it has
        to be used; with `--offbook-record` it is recorded.
        """
        if self._cassettes is None:
            from offbook.runs.cassettes import Cassettes

            self._cassettes = Cassettes(self._beside, _slug(self._test), recorded=self._recorded)
        return self._cassettes.open(name, **options)

    async def leave(self) -> list[Exception]:
        """End the rehearsals that live in the running event loop; what went wrong comes back."""
        here = asyncio.get_running_loop()
        return await _end_all(self._take(lambda loop: loop is here))

    def close(self, *, failed: bool = False) -> list[Exception]:
        """End all that are still open; what went wrong comes back."""
        troubles = [error for opened in self._take(lambda _: True) for error in _end(opened)]
        if self._cassettes is not None:
            troubles += self._cassettes.close(failed=failed or bool(troubles))
        return troubles

    def _take(self, is_due: Callable[[asyncio.AbstractEventLoop | None], bool]) -> list[_Opened]:
        due = [opened for opened in self._opened if is_due(opened.loop)]
        self._opened = [opened for opened in self._opened if opened not in due]
        return due

    @property
    def traces(self) -> list[Path]:
        """The traces of all rehearsals that got as far as having one."""
        return [trace for trace in self._traces if trace.is_file()]

    def keep(self, folder: Path, test: str) -> list[Path]:
        """Copy the traces to a folder, under the name of the test; those of the user stay."""
        kept: list[Path] = []
        for trace in self.traces:
            if trace.parent == self._folder:
                number = f"-{len(kept) + 1}" if kept else ""
                kept.append(copy_atomic(trace, folder / f"{_slug(test)}{number}.jsonl"))
            else:
                kept.append(trace)
        return kept

    def tell(self) -> str:
        """The end of each trace, as a tree."""
        return "\n\n".join(_tell_trace(trace) for trace in self.traces)

    def clear(self) -> None:
        """Remove the traces."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _end(opened: _Opened) -> list[Exception]:
    """End a rehearsal outside of any event loop: in its own one, while that can still run."""
    loop = opened.loop
    if loop is not None and not loop.is_closed():
        return loop.run_until_complete(_end_all([opened]))
    try:
        opened.rehearsal.dispose()
    except Exception as error:  # noqa: BLE001 - the others must be ended as well
        return [error]
    return []


async def _end_all(due: Iterable[_Opened]) -> list[Exception]:
    troubles: list[Exception] = []
    for opened in due:
        try:
            await opened.rehearsal.dispose()
        except Exception as error:  # noqa: BLE001 - the others must be ended as well
            troubles.append(error)
    return troubles


def _tell_trace(trace: Path) -> str:
    try:
        return render_last_lines(Trace(trace), SHOWN)
    except OffbookError as error:
        return str(error)


def _slug(test: str) -> str:
    """The name of a test as that of a file: still readable, and still its own."""
    plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in test.replace("::", "-"))
    if plain == test.replace("::", "-").replace("/", "-") and len(plain) <= LONGEST:
        return plain
    return f"{plain[:LONGEST]}-{stable_id('', test, length=8)}"
