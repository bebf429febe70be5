"""The tracks of a tape that a run has to look at: executions of tools, and HTTP.

A subject that runs tools looks at `Hub.tool_track`, and the HTTP clients of a run, in process and
through the proxy of a command, at `Hub.http_track`. A recording notes how each execution or request
to another server than a model ended; a replay has the end already: the tool's own code does not
run, and nothing is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from offbook.determinism.run_context import thread_variable

if TYPE_CHECKING:
    from contextvars import ContextVar

    from offbook.exchange.dialects.dialect import HttpResponse


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


class HttpCall(msgspec.Struct, frozen=True):
    """A request to another server: its method, its whole URL and its body."""

    method: str
    url: str
    body: bytes = b""


RunT_contra = TypeVar("RunT_contra", contravariant=True)
EndT = TypeVar("EndT")


class Track(Protocol[RunT_contra, EndT]):
    """The executions or requests of a run, recorded or replayed.

    `replays` is true if they are answered.
    """

    replays: bool

    @property
    def failure(self) -> Exception | None:
        """The first one that was not recorded."""
        ...

    def find(self, run: RunT_contra, /) -> EndT | None:
        """Return how it ended, or None to let it happen; raise if it is not known."""
        ...

    def add(self, run: RunT_contra, end: EndT, /) -> None:
        """Note how it ended."""
        ...


ToolTrack = Track[ToolRun, ToolEnd]
if TYPE_CHECKING:
    HttpTrack = Track[HttpCall, HttpResponse]
