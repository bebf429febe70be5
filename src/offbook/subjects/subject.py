"""What can be tested: anything that can be opened on a stage, prompted and closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from offbook.exchange.messages import ToolCall
    from offbook.exchange.model import ModelSource
    from offbook.exchange.tool_aliases import ToolAliases
    from offbook.trace.events import Verdict
    from offbook.trace.hub import Hub

ModelAccess = Literal["call", "transport", "endpoint"]


class RunContext(msgspec.Struct, frozen=True):
    """What a subject is given: the model, someone to tell, and a place to work in.

    `endpoint` is the base URL under which the model is served, for subjects that are reached so:
    as clients of Anthropic and Gemini take it; those of OpenAI add `/v1`. `told` gives a call as
    the script has it, for subjects that tell their tool calls themselves.
    """

    source: ModelSource
    hub: Hub
    cwd: Path
    endpoint: str = ""
    told: Callable[[ToolCall], ToolCall] = lambda call: call


@runtime_checkable
class Subject(Protocol):
    """An agent under test.

    `reach` says how it comes to its model: it calls the source itself (`call`), its HTTP clients
    in this process are answered (`transport`), or it is given a base URL (`endpoint`). `tells`
    says whether it tells its tool calls to the hub itself; the runner reads them off the
    exchanges otherwise.
    """

    @property
    def name(self) -> str:
        """What it is called in a trace."""
        ...

    @property
    def reach(self) -> ModelAccess:
        """How it comes to its model."""
        ...

    @property
    def tells(self) -> bool:
        """Whether it tells its tool calls itself."""
        ...

    async def open(self, stage: RunContext, /) -> None:
        """Get ready to be prompted."""
        ...

    async def prompt(self, text: str, /) -> None:
        """Say this to the agent, and come back when it has finished with it."""
        ...

    async def close(self) -> None:
        """Stop, and leave nothing behind."""
        ...

    def tools(self) -> Collection[str] | None:
        """The tools that it has, or None when only its requests will tell."""
        ...

    def commands(self) -> Collection[str]:
        """The commands that it answers without asking the model."""
        ...

    def verdicts(self) -> Iterable[Verdict]:
        """What it has to say about itself at the end."""
        ...


@runtime_checkable
class HasToolAliases(Protocol):
    """A subject that knows what it calls the tools that most agents have.

    The words are those of the built-in session: `bash` (or `shell`) with `command`, `read` with
    `path`, `write` with `path` and `content`, `edit` with `path`, `old` and `new`.
    """

    @property
    def names(self) -> ToolAliases:
        """Its own names, by those words."""
        ...


@runtime_checkable
class HasMockedTools(Protocol):
    """A subject that has stand-ins in the place of some of its tools, and does not tell itself."""

    @property
    def mocked(self) -> Collection[str]:
        """The names of those tools."""
        ...
