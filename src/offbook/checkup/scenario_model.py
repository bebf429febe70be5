"""The model of a scenario, and what it knows of an agent.

It learns the tools of the agent, and arguments that fit their schemas, from the first request. Then
it plays the messages of the scenario.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.determinism.faults import Fault
from offbook.errors import ModelError, RunError
from offbook.exchange.messages import JSON, RAW_ARGUMENTS, AnyBlock, Text, Thinking, ToolCall
from offbook.exchange.model import Reply, StopReason, Tool
from offbook.exchange.people import Allow, Answer, Deny, PersonQuestion, allow
from offbook.exchange.providers import all_providers
from offbook.exchange.schema_values import (
    find_output_schema,
    make_answer,
    make_arguments,
    properties_of,
)
from offbook.exchange.tool_effects import HANDOFFS, LAST_TOOLS, classify, has_effect
from offbook.sources.matching import answer_side_request, make_call_id
from offbook.sources.playbook.actions import Action, Call, Fail, Say, Think, call, say

if TYPE_CHECKING:
    from offbook.exchange.model import Request, Tool

LAST_WORDS = "All done."
STREAMED = "There are three parts: the first is a lamp, the second a door, and the third a chair."
UNKNOWN_TOOL = "no_such_tool"


# Keywords that allow only some values of a type.
LIMITS = {"const", "enum", "format", "maximum", "maxLength", "minimum", "minLength", "pattern"}


class NotApplicable(Exception):
    """A scenario that this agent cannot be asked to play; the text is the reason."""


class Kit:
    """The tools of an agent, and calls of them.

    `preferred` is the tool that scenarios call, if it is known which of them works.
    """

    def __init__(self, request: Request, prompt: str, preferred: str = "") -> None:
        self.stream = request.stream
        provider = all_providers().get(str(request.metadata.get("dialect")))
        form = "text" if provider is None else provider.arguments
        # An object cannot be malformed JSON.
        self._has_objects = form == "object" or (form == "streamed" and not self.stream)
        self._prompt = prompt
        functions = [tool for tool in request.tools if tool.kind == "function"]
        self._last = next((tool for tool in functions if LAST_TOOLS.search(tool.name)), None)
        self._schema = find_output_schema(request.parameters)
        others = [
            tool
            for tool in functions
            if not LAST_TOOLS.search(tool.name) and not HANDOFFS.search(tool.name)
        ]
        self.functions = functions
        # The harmless ones first: scenarios call tools that run for real.
        self.tools = sorted(others, key=lambda tool: (tool.name != preferred, *_effects(tool)))

    @property
    def tool(self) -> Tool:
        """The tool that scenarios call."""
        if not self.tools:
            raise NotApplicable("the agent offers no tools")
        return self.tools[0]

    @property
    def other(self) -> Tool:
        """A second tool."""
        if len(self.tools) < 2:  # noqa: PLR2004 - a second one
            raise NotApplicable("the agent offers fewer than two tools")
        return self.tools[1]

    def call(self, tool: Tool | None = None, **changes: Any) -> Call:
        """Return a call with arguments that fit the schema, and these changes."""
        tool = tool or self.tool
        return call(tool.name, {**self.arguments(tool), **changes})

    def raw(self, text: str) -> Call:
        """Return a call whose arguments are this text."""
        if self._has_objects:
            raise NotApplicable("the arguments are an object in this API, not a text")
        return call(self.tool.name, {RAW_ARGUMENTS: text}, invalid=True)

    def arguments(self, tool: Tool) -> JSON:
        """Return arguments that fit the schema of a tool."""
        return make_arguments(tool.schema, self._prompt)

    @property
    def required(self) -> str:
        """A required parameter of the tool."""
        names = [*self.tool.schema.get("required", ())]
        if not names:
            raise NotApplicable(f"{self.tool.name} has no required parameter")
        return names[0]

    def parameter(self, kind: str) -> tuple[Tool, str]:
        """Return a tool and its parameter of this type."""
        _ = self.tool
        for tool in self.tools:
            properties = properties_of(tool.schema)
            for name in (*tool.schema.get("required", ()), *properties):
                rules = properties.get(name, {})
                if rules.get("type") == kind and not rules.keys() & LIMITS:
                    return tool, name
        raise NotApplicable(f"no tool has a parameter of the type {kind}")

    def finish(self) -> Call | Say:
        """Return the message that ends the conversation, with `LAST_WORDS` in it."""
        if self._last is not None:
            arguments = self.arguments(self._last)
            texts = {k: LAST_WORDS for k, v in arguments.items() if isinstance(v, str)}
            return call(self._last.name, {**arguments, **texts}, unanswered=True)
        if self._schema is not None:
            import json

            return say(json.dumps(make_answer(self._schema, self._prompt)))
        return say(LAST_WORDS)


def find_source_and_sink(functions: Sequence[Tool]) -> tuple[Tool, Tool]:
    """Return a tool whose results others write, and one that changes something."""
    ends = [tool for tool in functions if LAST_TOOLS.search(tool.name)]
    tools = [t for t in functions if t not in ends and not HANDOFFS.search(t.name)]
    names = ", ".join(tool.name for tool in tools) or "it has none"
    sinks = sorted(filter(has_effect, tools), key=_effects, reverse=True)
    if not sinks:
        raise NotApplicable(f"no tool of the agent changes something, by its name: {names}")
    sources = [tool for tool in tools if tool is not sinks[0] and not classify(tool).sink]
    if not sources:
        raise NotApplicable(f"no tool of the agent reads something, by its name: {names}")
    return min(sources, key=_effects), sinks[0]


def _effects(tool: Tool) -> tuple[bool, bool]:
    """Return whether a tool is for an effect, and whether a word says that it has one."""
    return classify(tool).sink, has_effect(tool)


# --- The model


PATIENCE = 20  # requests after the last message, before the agent counts as endless
# The same for a message that is repeated: more than the limits of turns that frameworks have, and
# than ten tries of a client with two retries each.
PATIENCE_WITH_REPEATS = 100
NO_END = "the agent does not end"
IGNORED = 3.0  # seconds after a signal in which a command can end

Script = Callable[[Kit], Sequence["ModelMessage | Action | Sequence[Action]"]]


class ModelMessage(msgspec.Struct, frozen=True):
    """One message of the model.

    With `cancels`, no reply comes: the agent is cancelled, or gets this signal if it is a command.
    """

    actions: tuple[Action, ...] = ()
    cancels: str = ""


class ScenarioModel:
    """A source that plays the messages of a script, then ends the conversation.

    `answers` are those of a person, in order; the last one is repeated. With `always`, the last
    message is repeated, too. `not_applicable` is the reason why the scenario is not for this agent.
    """

    def __init__(
        self,
        script: Script,
        prompt: str,
        *,
        preferred: str = "",
        always: bool = False,
        answers: Sequence[Answer] = (allow,),
    ) -> None:
        self._script = script
        self._prompt = prompt
        self._preferred = preferred
        self._always = always
        self._answers = [*answers]
        self._messages: list[ModelMessage] | None = None
        self._kit: Kit | None = None
        self._calls = 0
        self._extra = 0
        self.not_applicable = ""
        self.requests = self.played = self.asked = 0
        self.last: ModelMessage | None = None  # the latest one
        self.finished = False  # whether the message that ends the conversation was sent
        self.tools: tuple[Tool, ...] = ()
        self.calls: dict[str, Call] = {}  # by id
        self.cancelled = False
        self.cancel: Callable[[str], None] | None = None  # cancels the agent, or sends a signal
        self.loop: asyncio.AbstractEventLoop | None = None  # in which the agent is cancelled

    @property
    def tool(self) -> str:
        """The name of the tool that the scenario calls."""
        return self._kit.tools[0].name if self._kit is not None and self._kit.tools else ""

    @property
    def is_endless(self) -> bool:
        """Whether the agent went on after the model had ended."""
        return self._extra > self._patience

    @property
    def _patience(self) -> int:
        return PATIENCE_WITH_REPEATS if self._always else PATIENCE

    async def answer(self, question: PersonQuestion, /) -> Answer:
        """Return the answer of the person; a question for a text gets one."""
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if not question.tool and isinstance(answer, (Allow, Deny)):
            return "no" if isinstance(answer, Deny) else "yes"
        return answer

    async def reply(self, request: Request, /) -> Reply:
        """Return the next message; after the last one, the end of the conversation."""
        if request.metadata and (side := answer_side_request(request)) is not None:
            return side
        self.requests += 1
        if self._messages is None or self._kit is None:
            self.tools = request.tools
            self._kit = Kit(request, self._prompt, self._preferred)
            try:
                self._messages = [_to_message(entry) for entry in self._script(self._kit)]
            except NotApplicable as reason:
                self.not_applicable, self._messages = str(reason), []
        if self.played < len(self._messages):
            self.played += 1
            return await self._perform(self._messages[self.played - 1], request)
        self._extra += 1
        if self.is_endless:
            what = "last message was repeated" if self._always else "last message"
            raise RunError(f"{NO_END}: it sent {self._patience} requests after the {what}")
        if self._always and self._messages:
            return await self._perform(self._messages[-1], request)
        self.finished = True
        return await self._perform(_to_message(self._kit.finish()), request)

    async def _perform(self, message: ModelMessage, request: Request) -> Reply:
        self.last = message
        if message.cancels:
            await self._cancel(message.cancels)
        blocks: list[AnyBlock] = []
        stop: StopReason = "stop"
        given: StopReason = "stop"
        cut: Fault | None = None
        for action in message.actions:
            match action:
                case Call(tool, params):
                    self._calls += 1
                    made = ToolCall(
                        make_call_id(request, self._calls),
                        tool,
                        dict(cast("dict[str, object]", params)),
                    )
                    self.calls[made.id] = action
                    blocks.append(made)
                    stop = "tool_use"
                case Say(text, reason):
                    blocks.append(Text(text))
                    if reason == "cut":
                        cut = Fault("cut", self.played)
                    else:
                        given = reason
                case Think(text):
                    blocks.append(Thinking(text))
                case Fail(text, status, category, retry_after):
                    raise ModelError(
                        text, status=status, category=category, retry_after=retry_after
                    )
                case _:
                    raise TypeError(action)
        if cut is not None and "dialect" not in request.metadata:
            raise ModelError("the stream was cut", status=502, category="connection")
        stop = stop if given == "stop" else given
        return Reply(tuple(blocks), stop, model=request.model, step=self.played, fault=cut)

    async def _cancel(self, how: str) -> None:
        """Cancel the agent while it waits for this reply."""
        if self.loop is not None and asyncio.get_running_loop() is not self.loop:
            self.not_applicable = "the agent runs in a thread, which cannot be cancelled"
            return
        if self.cancel is None or (self.loop is None) != how.startswith("SIG"):
            kind = "a command" if self.loop is None else "an agent in this process"
            self.not_applicable = f"{how} is not for {kind}"
            return
        self.cancelled = True
        self.cancel(how)
        await asyncio.sleep(IGNORED)


def _to_message(entry: ModelMessage | Action | Sequence[Action]) -> ModelMessage:
    if isinstance(entry, ModelMessage):
        return entry
    return ModelMessage(
        tuple(entry) if isinstance(entry, (list, tuple)) else (cast("Action", entry),)
    )


def signal_command(name: str) -> None:
    """Send a signal to the command that this process runs under its supervisor."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            stat = (folder / "stat").read_text()
            parents[int(folder.name)] = int(stat.rpartition(") ")[2].split()[1])
    mine = {pid for pid, parent in parents.items() if parent == os.getpid()}
    for pid, parent in parents.items():
        if parent in mine:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.Signals[name])
