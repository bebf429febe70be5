"""The protocol of a subject, the agent under test.

A subject is opened with a `RunContext`, prompted any number of times, and closed. The session,
every framework adapter and every command-line client implement it; so can your own agent:

    class EchoAgent:
        name = "echo"
        model_access = "call"
        emits_tool_calls = False

        async def open(self, context: RunContext, /) -> None:
            self._source = context.source

        async def prompt(self, text: str, /) -> str:
            reply = await self._source.reply(Request(History([user(text)])))
            return reply.text

        async def close(self) -> None: ...
        def tools(self) -> None: ...
        def commands(self) -> tuple[str, ...]: return ()
        def verdicts(self) -> tuple[Verdict, ...]: return ()

    offbook.drive(EchoAgent()).run(when("Hi", [say("Hello.")]))

`offbook.testing.SubjectConformance` tests an implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import msgspec

from offbook.errors import UsageError
from offbook.exchange.people import Answer, Ask, PersonQuestion

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from offbook.exchange.messages import ToolCall
    from offbook.exchange.model import ModelSource
    from offbook.subjects.process import Seal
    from offbook.trace.events import Verdict
    from offbook.trace.hub import Hub

ModelAccess = Literal["call", "transport", "endpoint"]
MOCKS_USED = "mocks used"  # the verdict of subjects with mocks: whether each was used


async def _ask_nobody(question: PersonQuestion, /) -> Answer:
    raise UsageError(f"no person answers {question}: the subject is not part of a run")


class RunContext(msgspec.Struct, frozen=True):
    """The environment of one run, passed to `Subject.open`.

    `source` is the model, `hub` receives events for the trace, `cwd` is the working directory.

    `endpoint` is the base URL of the model, for subjects with `model_access = "endpoint"`. It has
    the form that Anthropic and Gemini clients expect; OpenAI clients need `/v1` appended.

    `to_script_call` returns a tool call under the names that the script uses, for subjects that
    emit their tool calls themselves (a script may write `shell` where the agent has `bash`).

    A subject that prompts another one, such as a loop, opens it with more: `deadline` is the number
    of seconds that a prompt may take, `watch` receives all output of a process with the name of its
    stream, `variables` are added to its environment. `proxy_env` returns the variables by which a
    process with these others finds the proxy of the run, its only way to other hosts; with a
    `seal` it runs in a network namespace. `failure` returns the error of the model that fails the
    run, if there is one: to prompt again is useless. `servers` are the MCP servers of the run.
    `ask` asks the person of the script, and `has_people` returns whether it has one.
    """

    source: ModelSource
    hub: Hub
    cwd: Path
    endpoint: str = ""
    to_script_call: Callable[[ToolCall], ToolCall] = lambda call: call
    deadline: float | None = None
    watch: Callable[[str, bytes], None] | None = None
    variables: Mapping[str, str] = {}
    proxy_env: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _: {}
    seal: Seal | None = None
    failure: Callable[[], BaseException | None] = lambda: None
    servers: tuple[ToolServer, ...] = ()
    ask: Ask = _ask_nobody
    has_people: Callable[[], bool] = lambda: False


@runtime_checkable
class Subject(Protocol):
    """An agent under test.

    It may have more attributes. A look for them by `isinstance` with a protocol would take 30 µs.

    - `tool_aliases`: its own tool names, by common name. The common names are those of the built-in
      session: `bash` (or `shell`) with `command`, `read` with `path`, `write` with `path` and
      `content`, `edit` with `path`, `old` and `new`. A script that uses them runs with every such
      subject.
    - `error`: the exception with which the last prompt ended, if a scripted error of the provider
      may end it; otherwise None.
    - `mocked`: the names of the tools that are mocked, if it emits no tool calls itself.
    - `takes_prompt`: False if it ignores the text of `prompt`, and runs once for the whole script,
      as a `main` function does.
    - `command_line` and `exit_code`, of a subject that is one command: the start and the end of its
      run have these. The exit code is None if it did not end by itself.
    """

    @property
    def name(self) -> str:
        """Name in the trace."""
        ...

    @property
    def model_access(self) -> ModelAccess:
        """Way in which the agent reaches its model.

        - `call`: it calls `RunContext.source` itself.
        - `transport`: the requests of its HTTP clients in this process are intercepted.
        - `endpoint`: it is configured with the base URL `RunContext.endpoint`.
        """
        ...

    @property
    def emits_tool_calls(self) -> bool:
        """True if it emits tool calls and results to the hub.

        If False, the runner derives those events from the requests and replies.
        """
        ...

    async def open(self, context: RunContext, /) -> None:
        """Prepare for the first prompt."""
        ...

    async def prompt(self, text: str, /) -> object:
        """Send a prompt to the agent, wait until it has finished, and return its answer.

        The answer is what a caller of the agent gets, None if it gets nothing.
        """
        ...

    async def close(self) -> None:
        """Stop and release all resources. Calling it twice is allowed."""
        ...

    def tools(self) -> Collection[str] | None:
        """Return the names of its tools, or None if only its requests list them."""
        ...

    def commands(self) -> Collection[str]:
        """Return the names of commands that it executes without a model request."""
        ...

    def verdicts(self) -> Iterable[Verdict]:
        """Return its own verdicts at the end of the run, such as unused mocks."""
        ...


class PlainSubject:
    """The base of subjects without tools, commands and verdicts; `open` keeps the context."""

    emits_tool_calls = False
    _context: RunContext | None = None

    @property
    def context(self) -> RunContext:
        """The context of the run; an error if the subject is not open."""
        if self._context is None:
            name = getattr(self, "name", type(self).__name__)
            raise UsageError(f"{name} is not open", hint="drive it: offbook.drive(…)")
        return self._context

    async def open(self, context: RunContext, /) -> None:
        """Keep the context."""
        self._context = context

    def tools(self) -> Collection[str] | None:
        """Return None: only its requests list its tools."""
        return None

    def commands(self) -> Collection[str]:
        """Return no commands."""
        return ()

    def verdicts(self) -> Iterable[Verdict]:
        """Return no verdicts."""
        return ()

    async def close(self) -> None:
        """Do nothing."""


class ToolServer(Protocol):
    """An MCP server of the test, `drive(…, mcp=[server])`: its calls are part of the trace.

    A client reaches it at `url` over HTTP, or by `command` over stdio. It is `connected` after the
    first one did.
    """

    name: str
    connected: bool

    @property
    def url(self) -> str:
        """Its address for streamable HTTP."""
        ...

    @property
    def command(self) -> list[str]:
        """The command of a client that speaks stdio."""
        ...

    @property
    def tool_names(self) -> Collection[str]:
        """The names of its tools."""
        ...

    @property
    def mocked(self) -> Collection[str]:
        """The names of the tools that are mocked."""
        ...

    def mock_tool(self, name: str, value: Any, /) -> None:
        """Replace the result of a tool in the next run."""
        ...

    def attach(self, hub: Hub, watch: Any, /) -> None:
        """Record its calls in the trace of a run; `watch` is the `ToolWatch` of the agent."""
        ...

    def detach(self) -> None:
        """End the recording."""
        ...

    def verdicts(self) -> Iterable[Verdict]:
        """Return its verdicts at the end of the run, such as unused tools."""
        ...


class RemoteAgent(Protocol):
    """A scripted agent that the agent under test calls, `drive(…, agents=[agent])`."""

    name: str

    @property
    def url(self) -> str:
        """Its address."""
        ...

    def attach(self, hub: Hub, /) -> None:
        """Record what it receives in the trace of a run."""
        ...

    def detach(self) -> None:
        """End the recording."""
        ...

    def verdicts(self) -> Iterable[Verdict]:
        """Return its verdicts at the end of the run, such as that it was never used."""
        ...


@runtime_checkable
class NamesServerTools(Protocol):
    """A subject with another name for a tool of an MCP server than the server's own."""

    def server_tool_name(self, server: str, tool: str, /) -> str:
        """Return the name of the tool in the requests to the model."""
        ...


class ToolError(msgspec.Struct, frozen=True):
    """An exception of a tool. `call_id` is empty where the framework does not know it."""

    call_id: str
    tool: str
    error: Exception


@runtime_checkable
class HasRequestMetadata(Protocol):
    """A subject that adds to the metadata of its requests, as a loop does with the current hat."""

    @property
    def request_metadata(self) -> Mapping[str, Any]:
        """The metadata of requests from now on."""
        ...


# --- Options of several subjects


SKILL_HINT = "write [Skill(name, description, content)]"


class Skill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Instructions for a task, added to the system prompt.

    session(skills=[Skill("refunds", "Refund an order.", "Look the order up first.")])
    """

    name: str
    description: str = ""
    content: str = ""
