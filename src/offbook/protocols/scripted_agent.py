"""A scripted remote agent: an A2A server that a test defines, for an agent that calls others.

    def billing(text):
        account = yield "Which account?"        # the task requires input
        return f"paid from account {account}"

    with drive(agent, agents=[remote_agent("billing", billing)]) as rehearsal: …

The server runs in the process of the test, at `url`. What it receives and answers is `remote.task`
in the trace. A command finds the URL in the variable OFFBOOK_AGENT_BILLING.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from inspect import isawaitable, isgenerator
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import UsageError, explain_call
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.exchange.json_rpc import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    JsonObject,
    RpcError,
    as_object,
    decode_message,
)
from offbook.protocols.a2a_subject import CARD_PATH, ENDED, STATE, VERSION, read_parts, to_part
from offbook.runs.wiring import serve_handler
from offbook.sources.server.connection import error_response
from offbook.subjects.mock_tools import describe_exception
from offbook.subjects.subject import MOCKS_USED
from offbook.trace.events import RemoteTaskData, Verdict

if TYPE_CHECKING:
    from offbook.trace.hub import Hub

TASK_NOT_FOUND, NOT_CANCELABLE, VERSION_NOT_SUPPORTED = -32001, -32002, -32009
JSON = {"content-type": "application/json"}
EVENT_STREAM = {"content-type": "text/event-stream", "cache-control": "no-cache"}


@explain_call
def remote_agent(
    name: str, answer: object, *, description: str = "", streaming: bool = True
) -> ScriptedAgent:
    """Return a scripted remote agent that speaks A2A 1.0.

    `answer` is the result of every task, or a function of the received text (or data) that returns
    it. An exception fails the task. A generator function asks for more input by `yield`, and gets
    the next message of the caller. `description` is that of its card and of its only skill.
    """
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance] - checked for callers without types
        raise UsageError(
            "remote_agent() takes its name first", hint='remote_agent("billing", "paid")'
        )
    return ScriptedAgent(name, answer, description or name, streaming=streaming)


class _Task:
    """A task of the caller, and the function that works on it."""

    def __init__(self, task: str, context: str) -> None:
        self.id, self.context = task, context
        self.state = "SUBMITTED"
        self.work: Generator[Any, Any, Any] | None = None
        self.status: Any = None
        self.answer: Any = None

    def to_json(self) -> JsonObject:
        """Return the task as A2A has it."""
        task: JsonObject = {"id": self.id, "contextId": self.context, "status": self.to_status()}
        if self.state == "COMPLETED":
            task["artifacts"] = [self.to_artifact()]
        return task

    def to_status(self) -> JsonObject:
        """Return the status: its state, and a message for a question or an error."""
        status: JsonObject = {"state": STATE + self.state}
        if self.status is not None:
            ids = {"taskId": self.id, "contextId": self.context}
            message = {"messageId": f"{self.id}-{self.state.lower()}", "role": "ROLE_AGENT", **ids}
            status["message"] = {**message, "parts": [to_part(self.status)]}
        return status

    def to_artifact(self) -> JsonObject:
        """Return the answer as an artifact."""
        return {"artifactId": f"{self.id}-answer", "parts": [to_part(self.answer)]}


class ScriptedAgent:
    """A remote agent in this process, for any number of callers.

    `url` is its address, `tasks` the texts (or data) that it received. One that receives nothing
    fails the run, unless it has `allow_unused_mocks`.
    """

    def __init__(self, name: str, answer: object, description: str, *, streaming: bool) -> None:
        self.name = name
        self.description = description
        self.tasks: list[Any] = []
        self._answer = answer
        self._streaming = streaming
        self._known: dict[str, _Task] = {}
        self._hub: Hub | None = None
        self._mounted: tuple[str, Callable[[], None]] | None = None

    # --- The address

    @property
    def url(self) -> str:
        """The address of the agent; its card is below it."""
        if self._mounted is None:
            self._mounted = serve_handler(self._respond)
        return self._mounted[0]

    @property
    def card(self) -> JsonObject:
        """The agent card."""
        interface = {"url": self.url, "protocolBinding": "JSONRPC", "protocolVersion": VERSION}
        skill = {
            "id": self.name,
            "name": self.name,
            "description": self.description,
            "tags": [self.name],
        }
        return {
            "name": self.name,
            "description": self.description,
            "url": self.url,  # clients of A2A 0.3 need it, to send a request that is refused
            "version": VERSION,
            "supportedInterfaces": [interface],
            "capabilities": {"streaming": self._streaming},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [skill],
        }

    def close(self) -> None:
        """Remove the agent."""
        mounted, self._mounted = self._mounted, None
        if mounted is not None:
            mounted[1]()

    # --- In a run (the protocol `RemoteAgent`)

    def attach(self, hub: Hub, /) -> None:
        """Record what it receives in the trace of a run."""
        if self._hub is not None:
            raise UsageError(
                f"the remote agent {self.name!r} is part of another run",
                hint="create an agent for each run",
            )
        self._hub = hub
        self.tasks.clear()
        self._known.clear()

    def detach(self) -> None:
        """End the recording."""
        self._hub = None

    def verdicts(self) -> Iterable[Verdict]:
        """Return a failed verdict if it received nothing."""
        if not self.tasks:
            yield Verdict(MOCKS_USED, "fail", f"never used: the remote agent {self.name}")

    # --- Requests

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        if request.method == "GET" and request.path.endswith(CARD_PATH):
            return HttpResponse(200, JSON, msgspec.json.encode(self.card))
        if request.method != "POST":
            return error_response(405, f"use POST, or GET {CARD_PATH}")
        try:
            message = as_object(decode_message(request.body))
        except RpcError as error:
            return error_response(400, f"invalid JSON-RPC message: {error}")
        head = {"jsonrpc": "2.0", "id": message.get("id")}
        method, params = str(message.get("method")), as_object(message.get("params"))
        try:
            _require_version(request.headers.get("a2a-version") or "0.3")
            if method == "SendStreamingMessage":
                task, value = self._receive(params)
                return self._stream(head, task, value)
            result = await self._call(method, params)
        except RpcError as error:
            body = msgspec.json.encode(
                {**head, "error": {"code": error.code, "message": str(error)}}
            )
            if method == "message/stream":  # of A2A 0.3, whose clients read nothing but a stream
                return HttpResponse(200, EVENT_STREAM, b"data: " + body + b"\n\n")
            return HttpResponse(200, JSON, body)
        return HttpResponse(200, JSON, msgspec.json.encode({**head, "result": result}))

    async def _call(self, method: str, params: JsonObject) -> JsonObject:
        match method:
            case "SendMessage":
                task, value = self._receive(params)
                await self._work(task, value)
                return {"task": task.to_json()}
            case "GetTask":
                return self._find(params.get("id")).to_json()
            case "CancelTask":
                task = self._find(params.get("id"))
                if task.state in ENDED:
                    raise RpcError(f"the task is {task.state.lower()}", NOT_CANCELABLE)
                task.state, task.status = "CANCELED", None
                return task.to_json()
            case _:
                raise RpcError(f"unknown method {method!r}", METHOD_NOT_FOUND)

    def _stream(self, head: JsonObject, task: _Task, value: Any) -> HttpResponse:
        ids = {"taskId": task.id, "contextId": task.context}

        async def chunks() -> AsyncIterator[bytes]:
            yield event({"task": task.to_json()})
            await self._work(task, value)
            if task.state == "COMPLETED":
                yield event({"artifactUpdate": {**ids, "artifact": task.to_artifact()}})
            yield event({"statusUpdate": {**ids, "status": task.to_status()}})

        def event(result: JsonObject) -> bytes:
            return b"data: " + msgspec.json.encode({**head, "result": result}) + b"\n\n"

        return HttpResponse(200, EVENT_STREAM, live_chunks=chunks())

    def _find(self, name: object) -> _Task:
        task = self._known.get(str(name))
        if task is None:
            raise RpcError(f"unknown task {name!r}", TASK_NOT_FOUND)
        return task

    def _receive(self, params: JsonObject) -> tuple[_Task, Any]:
        """Return the task of a message, and what the message says."""
        message = as_object(params.get("message"))
        value = read_parts(message.get("parts"))
        if not message.get("messageId") or value is None:
            raise RpcError("the message must have a messageId and parts", INVALID_PARAMS)
        if name := message.get("taskId"):
            task = self._find(name)
            if task.state != "INPUT_REQUIRED":
                raise RpcError(f"the task is {task.state.lower()}", INVALID_PARAMS)
            task.state, task.status = "WORKING", None  # it no longer waits for this input
        else:
            number = len(self._known) + 1
            context = str(message.get("contextId") or f"context-{number}")
            task = _Task(f"{self.name}-task-{number}", context)
            self._known[task.id] = task
        self.tasks.append(value)
        return task, value

    async def _work(self, task: _Task, value: Any) -> None:
        """Run the function of the agent up to its answer or its next question."""
        task.state, task.status = "WORKING", None
        try:
            found, asks = await self._advance(task, value)
        except Exception as error:  # noqa: BLE001 - of the function of the test
            found, asks = error, False
        if isinstance(found, Exception):
            task.state, task.status = "FAILED", describe_exception(found)
        elif asks:
            task.state, task.status = "INPUT_REQUIRED", found
        else:
            task.state, task.answer = "COMPLETED", "" if found is None else found
        if self._hub is not None:
            answer = task.answer if task.state == "COMPLETED" else task.status
            state = task.state.lower().replace("_", "-")
            self._hub.emit_data(RemoteTaskData(self.name, task.id, value, state, answer))

    async def _advance(self, task: _Task, value: Any) -> tuple[Any, bool]:
        """Return the next value of the function, and whether it is a question."""
        found, sent = self._answer, value
        if task.work is None:
            if callable(found):
                # In a thread: it may block, and this loop serves the model as well.
                found = await asyncio.to_thread(found, value)
                found = await found if isawaitable(found) else found
            if not isgenerator(found):
                return found, False
            task.work, sent = cast("Generator[Any, Any, Any]", found), None
        work: Generator[Any, Any, Any] = task.work

        def advance() -> tuple[Any, bool]:
            try:
                return work.send(sent), True
            except StopIteration as end:  # it cannot leave a coroutine
                return end.value, False

        return await asyncio.to_thread(advance)


def _require_version(version: str) -> None:
    if not version.startswith("1."):
        text = (
            f"unsupported version {version} of A2A: update the client (a2a-sdk 1.0 or newer), "
            f"or send the header A2A-Version: {VERSION}"
        )
        raise RpcError(text, VERSION_NOT_SUPPORTED)
