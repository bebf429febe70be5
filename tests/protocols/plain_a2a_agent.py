"""An A2A agent without a package, as an ASGI app. `kind` names a fault, or another way to work.

Its model decides: a text that ends with a question mark requires input, any other completes the
task. As a program it listens at the port of its first argument: `plain_a2a_agent.py PORT [KIND]`.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            },
        },
    }
]


class PlainAgent:
    """The agent: a conversation for each context, and the tasks by their id."""

    def __init__(self, kind: str = "", url: str = "http://app/a2a") -> None:
        self.kind = kind
        self.url = url
        self.histories: dict[str, list[Any]] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        self.started = False

    def card(self) -> dict[str, Any]:
        interface = {"url": self.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        if self.kind == "an old version":
            interface["protocolVersion"] = "0.3"
        if self.kind == "another address":
            interface["url"] = "http://127.0.0.1:1/a2a"
        skill = {"id": "add", "name": "Add", "description": "Adds.", "tags": ["numbers"]}
        if self.kind == "a skill":
            del skill["tags"]
        card = {
            "name": "adder",
            "description": "Adds numbers.",
            "version": "1",
            "supportedInterfaces": [interface],
            "capabilities": {"streaming": self.kind not in {"polling", "no stream"}},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [skill],
        }
        if self.kind == "a card":
            del card["version"]
        return card

    async def think(self, history: list[Any]) -> str:
        base = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
        async with httpx.AsyncClient(timeout=120) as client:
            while True:
                response = await client.post(
                    f"{base}/chat/completions",
                    json={"model": "m", "messages": history, "tools": TOOLS},
                    headers={"authorization": "Bearer none"},
                )
                response.raise_for_status()
                message = response.json()["choices"][0]["message"]
                history.append(message)
                if not message.get("tool_calls"):
                    return message["content"]
                for call in message["tool_calls"]:
                    given = json.loads(call["function"]["arguments"])
                    result = str(given["a"] + given["b"])
                    history.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    async def work(self, message: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield the results of a stream."""
        context = message.get("contextId") or f"context-{len(self.histories) + 1}"
        task_id = message.get("taskId") or f"task-{len(self.tasks) + 1}"
        ids = {"taskId": task_id, "contextId": context}
        task: dict[str, Any] = {"id": task_id, "contextId": context}
        self.tasks[task_id] = task
        if self.kind == "no task":
            yield {"statusUpdate": {**ids, "status": {"state": "TASK_STATE_WORKING"}}}
        if self.kind == "silence":
            await asyncio.Event().wait()
        if self.kind == "a message":
            history = self.histories.setdefault(context, [])
            history.append({"role": "user", "content": message["parts"][0]["text"]})
            parts = [{"text": await self.think(history)}]
            said = {"messageId": "m1", "role": "ROLE_AGENT", "parts": parts, "contextId": context}
            yield {"message": said}
            return
        task["status"] = {"state": "TASK_STATE_SUBMITTED"}
        yield {"task": {**task}}
        history = self.histories.setdefault(context, [])
        part = message["parts"][0]
        history.append({"role": "user", "content": part.get("text") or json.dumps(part["data"])})
        if self.kind == "two kinds":
            yield {"task": task, "statusUpdate": {**ids, "status": task["status"]}}
        if self.kind == "another task":
            ids["taskId"] = "task-99"
        if self.kind == "a state":
            yield {"statusUpdate": {**ids, "status": {"state": "TASK_STATE_TIRED"}}}
        try:
            text = await self.think(history)
        except httpx.HTTPStatusError as error:
            reason = {"messageId": "m1", "role": "ROLE_AGENT", "parts": [{"text": str(error)}]}
            task["status"] = {"state": "TASK_STATE_FAILED", "message": reason}
            yield {"statusUpdate": {**ids, "status": task["status"]}}
            return
        said = {"messageId": "m1", "role": "ROLE_AGENT", "parts": [{"text": text}]}
        if self.kind == "no end":
            return
        if text.endswith("?"):
            task["status"] = {"state": "TASK_STATE_INPUT_REQUIRED", "message": said}
        else:
            append = {"append": True} if self.kind == "an artifact" else {}
            half = len(text) // 2
            parts: list[Any] = [] if self.kind == "no parts" else [{"text": text[:half]}]
            artifact = {"artifactId": "answer", "parts": parts}
            yield {"artifactUpdate": {**ids, "artifact": artifact, **append}}
            rest = {"artifactId": "answer", "parts": [{"text": text[half:]}]}
            yield {"artifactUpdate": {**ids, "artifact": rest, "append": True}}
            task["artifacts"] = [{"artifactId": "answer", "parts": [{"text": text}]}]
            task["status"] = {"state": "TASK_STATE_COMPLETED"}
        yield {"statusUpdate": {**ids, "status": task["status"]}}
        if self.kind == "more after the end":
            yield {"statusUpdate": {**ids, "status": {"state": "TASK_STATE_WORKING"}}}

    async def answer(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield the messages of a response."""
        head = {"jsonrpc": "2.0", "id": request["id"]}
        if self.kind == "an id":
            head["id"] = "another"
        if self.kind == "an error":
            yield {**head, "error": {"code": -32603, "message": "out of ideas"}}
            return
        params = request["params"]
        if request["method"] == "GetTask":
            yield {**head, "result": self.tasks[params["id"]]}
        elif request["method"] == "SendMessage":
            results = self.work(params["message"])
            first = await anext(results)
            if self.kind == "polling":
                task = asyncio.create_task(_drain(results))
                yield {**head, "result": first}
                await task
                return
            await _drain(results)
            yield {**head, "result": {"task": self.tasks[first["task"]["id"]]}}
        else:
            async for result in self.work(params["message"]):
                yield {**head, "result": result}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve as an ASGI app."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                self.started = True
                await send({"type": "lifespan.startup.complete"})
            self.started = False
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = b""
        while (part := await receive()).get("more_body"):
            body += part["body"]
        body += part.get("body", b"")
        if scope["path"] == "/.well-known/agent-card.json":
            await _respond(send, "application/json", json.dumps(self.card()))
            return
        if scope["path"] != "/a2a":
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"no such page"})
            return
        request = json.loads(body)
        streams = request["method"] == "SendStreamingMessage"
        kind = "text/event-stream" if streams else "application/json"
        headers = [(b"content-type", kind.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for message in self.answer(request):
            text = json.dumps(message)
            if self.kind == "no JSON":
                text = "thinking"
            text = f"data: {text}\r\n\r\n" if streams else text
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _drain(results: AsyncIterator[Any]) -> None:
    async for _ in results:
        pass


async def _respond(send: Any, kind: str, text: str) -> None:
    headers = [(b"content-type", kind.encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


if __name__ == "__main__":
    import uvicorn

    port = int(sys.argv[1])
    fault = sys.argv[2] if len(sys.argv) > 2 else ""
    if fault == "an exit":
        sys.exit("no agent today")
    agent = PlainAgent(fault, f"http://localhost:{port}/a2a")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await agent(scope, receive, send)
        if fault.isdecimal() and scope.get("method") == "POST":
            sys.stderr.write("out of memory\n")
            sys.stderr.flush()
            os._exit(int(fault))

    uvicorn.run(app, port=port, log_level="error")
