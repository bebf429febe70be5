"""The model of a scenario: it learns the tools from the first request, then plays its messages."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from offbook.checkup.kit import Kit, NotApplicable
from offbook.determinism.faults import Fault
from offbook.errors import ModelError, RunError
from offbook.exchange.messages import AnyBlock, Text, Thinking, ToolCall
from offbook.exchange.model import Reply, StopReason, Tool
from offbook.exchange.people import Allow, Answer, Deny, PersonQuestion, allow
from offbook.sources.matching import answer_side_request, make_call_id
from offbook.sources.playbook.actions import Action, Call, Fail, Say, Think

if TYPE_CHECKING:
    from offbook.exchange.model import Request

PATIENCE = 20  # requests after the last message, before the agent counts as endless
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
        return self._extra > PATIENCE

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
            raise RunError(f"{NO_END}: it sent {PATIENCE} requests after the last message")
        if self._always and self._messages:
            return await self._perform(self._messages[-1], request)
        return await self._perform(_to_message(self._kit.finish()), request)

    async def _perform(self, message: ModelMessage, request: Request) -> Reply:
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
