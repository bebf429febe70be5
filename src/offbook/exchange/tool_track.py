"""The tool track of a tape: how executions of tools ended, to record them or to replay them.

A subject that runs tools looks at `Hub.tool_track`. A recording notes how each execution ended; a
replay has the end already, and the tool's own code does not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from offbook.determinism.run_context import thread_variable

if TYPE_CHECKING:
    from contextvars import ContextVar

SERVER = "mcp:"  # before the name of a real MCP server, whose lists and resources are on the track
HOST = "host:"  # before the name of an operation of the host, whose real calls are on the track

running_tool: ContextVar[str | None] = thread_variable("offbook_running_tool")
"""The name of the tool in which the current code runs, or None."""


class ToolRun(msgspec.Struct, frozen=True):
    """An execution of a tool that starts: its names and its input are those of the script."""

    tool: str
    input: Any = None
    call_id: str = ""


class RecordedException(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True
):
    """An exception: its class as `module:name`, its message and its arguments."""

    type: str
    message: str = ""
    args: tuple[Any, ...] = ()


class ToolEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an execution ended: with a `result` as JSON, or with an `error`.

    `type` is the class of a result that is not JSON, as `module:name`. One that is not `exact` is
    another value than the tool returned. A `real` execution has to run again: the tool paused, or
    the framework refused the input.
    """

    result: Any = None
    error: RecordedException | None = None
    type: str = ""
    exact: bool = True
    real: bool = False


class ToolTrack(Protocol):
    """The executions of a run, recorded or replayed.

    `replays` is true if executions are answered.
    """

    replays: bool

    @property
    def failure(self) -> Exception | None:
        """The first execution that was not recorded."""
        ...

    def find(self, run: ToolRun, /) -> ToolEnd | None:
        """Return how this execution ended, or None to run the tool; raise if it is not known."""
        ...

    def add(self, run: ToolRun, end: ToolEnd, /) -> None:
        """Note how an execution ended."""
        ...
