"""A model under a harness: one run of a rehearsal, from the beginning of the harness to its end.

The rehearsal answers the HTTP clients of handlers and computed values, blocks other connections,
and checks the script at the end. Its trace has the requests and replies, and the cells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextvars import Context, copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from offbook.exchange.model import ModelSource
from offbook.runs.rehearsal import Rehearsal
from offbook.sources.loading import open_source
from offbook.subjects.subject import PlainSubject

if TYPE_CHECKING:
    from offbook.subjects.subject import ModelAccess


class HarnessSubject(PlainSubject):
    """The patterns of a harness as a subject. Its only prompt lasts until the harness ends."""

    model_access: ModelAccess = "transport"
    takes_prompt = False  # the patterns send their own prompts

    name = "patterns"

    def __init__(self) -> None:
        self.variables: Context | None = None
        self.started = asyncio.Event()
        self.ended = asyncio.Event()

    async def prompt(self, _text: str, /) -> None:
        """Wait for the end of the harness. Its code runs in the context of this prompt."""
        self.variables = copy_context()
        self.started.set()
        await self.ended.wait()


class ScriptedModel:
    """The rehearsal under a harness. `script` are turns and roles, a file of them, or a source."""

    def __init__(self, script: object, trace: Path | str | None) -> None:
        source: ModelSource | None = None
        turns: tuple[Any, ...] = ("",)  # a source that is complete needs no turns
        if isinstance(script, (str, Path)):
            source = open_source(Path(script))()
        elif isinstance(script, ModelSource):
            source = script
        elif isinstance(script, Iterable):
            turns = tuple(cast("Iterable[Any]", script))
        else:
            turns = (script,)
        self._subject = HarnessSubject()
        self._turns = turns
        self.rehearsal = Rehearsal(self._subject, source=source, trace=trace)
        self._task: asyncio.Task[Any] | None = None

    async def begin(self) -> Context:
        """Start the run; return the context for the code of the patterns."""

        async def run() -> None:
            await self.rehearsal.run(*self._turns)

        self._task = asyncio.create_task(run())
        started = asyncio.create_task(self._subject.started.wait())
        await asyncio.wait([self._task, started], return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._task.done():
            await self.rehearsal.dispose(failed=True)
            self._task.result()
        assert self._subject.variables is not None  # noqa: S101 - it has started
        return self._subject.variables

    async def end(self, *, failed: bool) -> None:
        """End the run and raise what its checks found, unless the test has failed already."""
        if self._task is None:
            return
        self._subject.ended.set()
        try:
            await self._task
        except BaseException:
            await self.rehearsal.dispose(failed=True)
            raise
        await self.rehearsal.dispose(failed=failed)
