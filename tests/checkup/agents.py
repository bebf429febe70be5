"""A careful agent, and agents that each do one thing wrong."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from typing import Any

from offbook.errors import ModelError
from offbook.exchange import History, Message, Reply, Request, Text, Tool, ToolCall, ToolResult
from offbook.exchange.messages import RAW_ARGUMENTS, user
from offbook.exchange.model import compile_validator
from offbook.exchange.people import Deny, PersonQuestion
from offbook.subjects.subject import ModelAccess, PlainSubject, RunContext
from offbook.trace.events import ToolEndData, ToolStartData

TOOLS = (
    Tool(
        "get_order",
        "Get an order.",
        {
            "type": "object",
            "properties": {"number": {"type": "integer"}, "note": {"type": "string"}},
            "required": ["number"],
        },
    ),
    Tool("refund", "Refund.", {"type": "object", "properties": {"number": {"type": "integer"}}}),
)
RETRIES = 3
LIMIT = 100  # messages of the model


class GivesUp(Exception):
    """The agent reports that it cannot go on."""


class Agent(PlainSubject):
    """A careful agent; `fault` is what it does wrong."""

    name = "agent"
    model_access: ModelAccess = "call"

    def __init__(self, fault: str = "", *, asks: bool = False) -> None:
        self.fault = fault
        self.asks = asks
        self._context: RunContext | None = None

    async def open(self, context: RunContext, /) -> None:
        self._context = context

    @property
    def context(self) -> RunContext:
        assert self._context is not None
        return self._context

    async def prompt(self, text: str, /) -> object:
        if self.fault == "asks nothing":
            return "fine"
        history = [user(text)]
        for _ in range(LIMIT):
            reply = await self._ask(history)
            said = reply.blocks
            if self.fault == "changes the conversation" and said and isinstance(said[0], Text):
                said = (Text("something else"),)
            history.append(Message("assistant", said))
            if reply.calls:
                history.append(Message("tool", tuple([await self._run(c) for c in reply.calls])))
                if self.fault == "drops a result" and len(reply.calls) > 1:
                    history[-1] = Message("tool", history[-1].blocks[1:])
            elif self.fault == "never ends":
                history.append(user("Go on."))
            elif reply.text.strip() and reply.stop in {"stop", "refusal"}:
                return reply.text
            elif self.fault == "takes what comes":
                return "" if reply.stop == "stop" else reply.text
            elif reply.stop == "refusal":
                raise GivesUp("the model refused")
            else:
                history.append(user("Please answer."))
        raise GivesUp("too many messages")

    async def _ask(self, history: list[Message]) -> Reply:
        """Return the reply; an error that may pass is tried again."""
        for attempt in range(RETRIES + 1):
            try:
                return await self.context.source.reply(Request(History(history), tools=TOOLS))
            except ModelError as error:
                if error.status in {400, 401, 403, 404, 413, 422}:
                    raise GivesUp(str(error)) from error
                if self.fault == "gives up at once" or attempt == RETRIES:
                    raise GivesUp(str(error)) from error
            except asyncio.CancelledError:
                if self.fault != "ignores the cancellation":
                    raise
        return await self._ask(history)

    async def _run(self, call: ToolCall) -> ToolResult:
        name, arguments = call.name, call.arguments
        fault = self.fault
        if name == "no_such_tool":
            if fault == "raises KeyError":
                dict[str, object]()[name]
            elif fault == "hangs":
                threading.Event().wait()
            elif fault == "exits":
                os._exit(3)
            elif fault == "reports unknown tools":
                raise GivesUp(f"unknown tool {name}")
        problem = self._find_problem(name, arguments)
        if problem and fault not in {"runs any call", "runs unknown calls"}:
            return ToolResult(call.id, (Text(problem),), failed=True, name=name)
        if self.asks:
            answer = await self.context.ask(PersonQuestion(tool=name, input=arguments))
            if isinstance(answer, Deny) and fault != "ignores the person":
                return ToolResult(call.id, (Text("denied"),), failed=True, name=name)
        for number in range(1, 3 if fault == "runs twice" else 2):
            self.context.hub.emit_data(ToolStartData(call.id, name, arguments, number))
            self.context.hub.emit_data(ToolEndData(call.id, name, 1, is_error=False, number=number))
        return ToolResult(call.id, (Text(f"order {json.dumps(arguments)}"),), name=name)

    def _find_problem(self, name: str, arguments: dict[str, Any]) -> str:
        tool = next((tool for tool in TOOLS if tool.name == name), None)
        if tool is None:
            return "" if self.fault == "runs unknown calls" else f"unknown tool {name}"
        if RAW_ARGUMENTS in arguments:
            return "the arguments are not an object"
        return str(compile_validator(tool.schema, name)(arguments) or "")
