"""An AG-UI agent without a package, as an ASGI app. `kind` names a rule that it breaks.

Its model decides. The tool `add` is its own, `refund` needs an approval, and every other tool is
one of the front end.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx

INTEGER = {"type": "integer"}
OWN = {"add": {"a": INTEGER, "b": INTEGER}, "refund": {"order": INTEGER}}
APPROVAL = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "editedArgs": {"type": "object"}},
    "required": ["approved"],
}
Event = dict[str, Any]


def describe(name: str, properties: Any) -> Any:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


class PlainAgUiAgent:
    """The agent: it has no memory, as the front end sends the whole conversation."""

    def __init__(self, kind: str = "", events: Sequence[Event] = ()) -> None:
        self.kind = kind
        self.events = events  # which it sends first

    async def think(self, body: Event, messages: list[Any]) -> Any:
        base = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
        tools = [describe(name, properties) for name, properties in OWN.items()]
        tools += [describe(t["name"], t["parameters"].get("properties", {})) for t in body["tools"]]
        async with httpx.AsyncClient(timeout=120) as client:
            response = await client.post(
                f"{base}/chat/completions",
                json={"model": "m", "messages": messages, "tools": tools},
                headers={"authorization": "Bearer none"},
            )
        response.raise_for_status()
        return response.json()["choices"][0]["message"]

    async def run(self, body: Event) -> AsyncIterator[Event]:
        """Yield the events of a run."""
        ids = {"threadId": body["threadId"], "runId": body["runId"]}
        if self.kind == "no start":
            yield {"type": "STATE_SNAPSHOT", "snapshot": {}}
        if self.kind == "another run":
            ids["runId"] = "run-99"
        yield {"type": "RUN_STARTED", **ids}
        if self.kind == "two starts":
            yield {"type": "RUN_STARTED", **ids}
        if self.kind == "silence":
            await asyncio.Event().wait()
        yield {"type": "STEP_STARTED", "stepName": "think"}
        yield {"type": "STATE_SNAPSHOT", "snapshot": {"calls": [], **body["state"]}}
        if self.kind == "an unknown event":
            yield {"type": "DANCE"}
        for event in self.events:
            yield event
        try:
            async for event in self.work(body):
                yield event
        except httpx.HTTPStatusError as error:
            yield {"type": "RUN_ERROR", "message": str(error), "code": "model"}
            return
        if self.kind != "an open step":
            yield {"type": "STEP_FINISHED", "stepName": "think"}
        if self.kind == "no end":
            return
        outcome = {"outcome": self.outcome} if self.outcome else {}
        if self.kind == "the end of another run":
            ids = {**ids, "runId": "run-99"}
        if self.kind == "an end without ids":
            ids = {}
        yield {"type": "RUN_FINISHED", **ids, **outcome}
        if self.kind == "more after the end":
            yield {"type": "CUSTOM", "name": "late", "value": 1}

    async def work(self, body: Event) -> AsyncIterator[Event]:
        """Yield the events of the model and of the tools."""
        self.outcome: Event = {}
        answers = {entry["interruptId"]: entry for entry in body.get("resume", ())}
        messages = [to_openai(message) for message in body["messages"]]
        pending = messages[-1].get("tool_calls", ()) if messages[-1]["role"] == "assistant" else ()
        while True:
            if not pending:
                message = await self.think(body, messages)
                messages.append(message)
                pending = message.get("tool_calls", ())
                if message.get("content"):
                    async for event in self.say(message["content"], len(messages)):
                        yield event
                if not pending:
                    return
                for call in pending:
                    said = f"message-{len(messages)}" if message.get("content") else ""
                    async for event in self.announce(call, said):
                        yield event
            for call in pending:
                name = call["function"]["name"]
                given = json.loads(call["function"]["arguments"])
                if name not in OWN:  # a tool of the front end
                    return
                if name == "refund" and call["id"] not in answers:
                    self.outcome = {"type": "interrupt", "interrupts": [ask(call)]}
                    return
                text = run_tool(name, given, answers.get(call["id"], {}).get("payload"))
                patch = {"op": "add", "path": "/calls/-", "value": name}
                if self.kind == "a patch":
                    patch["path"] = "/nothing/here"
                yield {"type": "STATE_DELTA", "delta": [patch]}
                result_id = "unknown" if self.kind == "an unknown call" else call["id"]
                yield result(result_id, text)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
            pending = ()

    async def say(self, text: str, number: int) -> AsyncIterator[Event]:
        message = {"messageId": f"message-{number}"}
        if self.kind not in {"no message start", "chunks"}:
            yield {"type": "TEXT_MESSAGE_START", "role": "assistant", **message}
        if self.kind == "two messages":
            yield {"type": "TEXT_MESSAGE_START", "role": "assistant", **message}
        if self.kind == "an empty delta":
            yield {"type": "TEXT_MESSAGE_CONTENT", "delta": "", **message}
        half = len(text) // 2
        for delta in (text[:half], text[half:]):
            if self.kind == "chunks":
                yield {"type": "TEXT_MESSAGE_CHUNK", "delta": delta, **message}
            else:
                yield {"type": "TEXT_MESSAGE_CONTENT", "delta": delta, **message}
        if self.kind not in {"no message end", "chunks"}:
            yield {"type": "TEXT_MESSAGE_END", **message}
        if self.kind == "a message twice":
            yield {"type": "TEXT_MESSAGE_START", "role": "assistant", **message}

    async def announce(self, call: Any, said: str) -> AsyncIterator[Event]:
        parent = {"parentMessageId": said} if said else {}
        head = {"toolCallId": call["id"]}
        name = {} if self.kind == "no name" else {"toolCallName": call["function"]["name"]}
        yield {"type": "TOOL_CALL_START", **head, **name, **parent}
        if self.kind == "an early result":
            yield result(call["id"], "5")
        arguments = call["function"]["arguments"]
        if self.kind == "torn arguments":
            arguments = arguments[:-1]
        yield {"type": "TOOL_CALL_ARGS", "delta": arguments, **head}
        yield {"type": "TOOL_CALL_END", **head}
        if self.kind == "arguments after the end":
            yield {"type": "TOOL_CALL_ARGS", "delta": " ", **head}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve as an ASGI app."""
        if scope["type"] != "http":
            raise NotImplementedError  # as many apps do
        body = json.loads((await receive())["body"])
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        async for event in self.run(body):
            data = f"data: {json.dumps(event)}\n\n".encode()
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def ask(call: Any) -> Event:
    return {
        "id": call["id"],
        "reason": "tool_call",
        "message": "May I?",
        "toolCallId": call["id"],
        "responseSchema": APPROVAL,
    }


def run_tool(name: str, given: Any, answer: Any) -> str:
    if name == "add":
        return str(given["a"] + given["b"])
    if not answer["approved"]:
        return f"refused: {answer.get('reason')}"
    return f"refunded {answer.get('editedArgs', given)['order']}"


def result(call_id: str, text: str) -> Event:
    event = {"type": "TOOL_CALL_RESULT", "toolCallId": call_id, "messageId": f"result-{call_id}"}
    return {**event, "role": "tool", "content": text}


def to_openai(message: Event) -> Event:
    if message["role"] == "tool":
        head = {"role": "tool", "tool_call_id": message["toolCallId"]}
        return {**head, "content": message["content"]}
    calls = {"tool_calls": message["toolCalls"]} if message.get("toolCalls") else {}
    return {"role": message["role"], "content": message.get("content"), **calls}
