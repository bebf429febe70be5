"""One run of a script, and the end of a rehearsal: both happen at once, or when awaited."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from offbook.errors import UsageError
from offbook.trace.query import Events

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from offbook.trace.query import ToolCallRecord, ToolResultRecord


class Run:
    """One run of a script. In an `async def`, await it; elsewhere it has happened already."""

    def __init__(
        self, work: Coroutine[Any, Any, tuple[int, int]], told: Callable[[], Events]
    ) -> None:
        self._work = work
        self._told = told
        self._span: tuple[int, int] | None = None
        self._found: Events | None = None
        self.awaited = False

    def __await__(self) -> Generator[Any, None, Run]:
        return self.perform().__await__()

    async def perform(self) -> Run:
        """Do the run; once."""
        if not self.awaited:
            self.awaited = True
            self._span = await self._work
        return self

    def abandon(self) -> bool:
        """Give up a run that nobody awaited; tells whether it was one."""
        self._work.close()
        return not self.awaited

    @property
    def events(self) -> Events:
        """What happened in this run alone."""
        if self._span is None:
            raise UsageError("this run has not finished", hint="write `run = await ….run(…)`")
        if self._found is None:
            first, last = self._span
            found = [event for event in self._told().all if first < event.seq <= last]
            self._found = Events(found)
        return self._found

    @property
    def tools(self) -> list[str]:
        """The tools called, in order."""
        return self.events.tool_sequence()

    def calls(self, tool: str) -> list[ToolCallRecord]:
        """The calls of this tool."""
        return self.events.tool_calls_for(tool)

    def results(self, tool: str) -> list[ToolResultRecord]:
        """The results of this tool."""
        return self.events.tool_results_for(tool)

    @property
    def text(self) -> str:
        """What the model said last."""
        said = (m.text for m in reversed(self.events.messages) if m.role == "assistant")
        return next(said, "")


class Dispose:
    """The end of a rehearsal. In an `async def`, await it; elsewhere it has happened already."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, None, None]:
        return self.perform().__await__()

    async def perform(self) -> None:
        """Do it."""
        await self._work
