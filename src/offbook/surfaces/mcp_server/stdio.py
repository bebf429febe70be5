"""The protocol over stdin and stdout, a JSON-RPC message a line.

The official SDK takes two seconds of CPU to import, and clients such as Codex wait for one: so
what passes here, which is little, is answered without it. HTTP goes through the SDK.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import IO, Any

import msgspec

from offbook.errors import UsageError

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
UNREADABLE, NO_REQUEST, NO_METHOD, WRONG_PARAMS = -32700, -32600, -32601, -32602
INSTRUCTIONS = (
    "Test an agent loop without its model: test_setup makes a workspace, test_run lets the loop "
    "work in it with scripted answers, test_assert checks what happened, test_inspect shows it, "
    "test_evaluate lets a judge score it, test_report writes it for CI, test_cleanup removes the "
    "workspace. test_record keeps what a real agent answers, and test_replay needs it no more."
)
Message = dict[str, Any]
Number = int | str


class Incoming(msgspec.Struct, frozen=True):
    """What a client sends: a request has an id, a notification has none."""

    method: str | None = None
    id: Number | msgspec.UnsetType = msgspec.UNSET
    params: dict[str, Any] = {}


_READER: msgspec.json.Decoder[Incoming | list[Incoming]] = msgspec.json.Decoder(
    Incoming | list[Incoming]
)


class Call(msgspec.Struct, frozen=True):
    """Which tool, and with what."""

    name: str
    arguments: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class Refusal(Exception):
    """An error of the protocol, not of a tool."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class StdioServer:
    """One client's conversation. Calls run side by side; what is cancelled is not answered."""

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output
        self._running: dict[Number | None, asyncio.Task[None]] = {}

    async def serve(self, lines: asyncio.Queue[bytes | None]) -> None:
        """Answer until the client goes; then nothing runs on."""
        while (line := await lines.get()) is not None:
            if line.strip():
                self._take(line)
        for task in list(self._running.values()):
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _take(self, line: bytes) -> None:
        try:
            messages = _READER.decode(line)
        except msgspec.ValidationError as error:
            self._refuse(None, Refusal(NO_REQUEST, f"this is no request: {error}"))
        except msgspec.DecodeError as error:
            self._refuse(None, Refusal(UNREADABLE, f"this is not good JSON: {error}"))
        else:
            for one in messages if isinstance(messages, list) else [messages]:
                self._accept(one)

    def _accept(self, message: Incoming) -> None:
        if message.method is None:
            return  # an answer, and nothing was asked
        if message.id is not msgspec.UNSET:
            self._begin(message.id, message.method, message.params)
        elif message.method == "notifications/cancelled":
            task = self._running.get(message.params.get("requestId"))
            if task is not None:
                task.cancel()

    def _begin(self, number: Number, method: str, params: Mapping[str, Any]) -> None:
        """Answer at once, or, where a tool is called, when it is done."""
        try:
            result = self._find_call(params) if method == "tools/call" else answer(method, params)
        except Refusal as refusal:
            self._refuse(number, refusal)
            return
        if isinstance(result, dict):
            self._send({"id": number, "result": result})
            return
        task = asyncio.ensure_future(self._await(number, result))
        self._running[number] = task
        task.add_done_callback(lambda _: self._running.pop(number, None))

    def _find_call(self, params: Mapping[str, Any]) -> Awaitable[Message]:
        from offbook.surfaces.mcp_server import find_tool

        try:
            call = msgspec.convert(params, Call)
            tool = find_tool(call.name)
        except (msgspec.ValidationError, UsageError) as error:
            raise Refusal(WRONG_PARAMS, str(error)) from error
        token = (call.meta or {}).get("progressToken")
        return tool.call(call.arguments or {}, None if token is None else self._follow(token))

    def _follow(self, token: Number) -> Callable[[float, float | None, str], None]:
        """Tells the client how far a call is that it named so."""

        def tell(done: float, total: float | None, message: str) -> None:
            params = {"progressToken": token, "progress": done, "total": total, "message": message}
            self._send({"method": "notifications/progress", "params": params})

        return tell

    async def _await(self, number: Number, work: Awaitable[Message]) -> None:
        self._send({"id": number, "result": await work})

    def _refuse(self, number: Number | None, refusal: Refusal) -> None:
        self._send({"id": number, "error": {"code": refusal.code, "message": str(refusal)}})

    def _send(self, message: Message) -> None:
        with suppress(BrokenPipeError):  # the client is gone, and the end of its input says so
            self._output.write(msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n")
            self._output.flush()


def answer(method: str, params: Mapping[str, Any]) -> Message:
    """The result of a request that needs no waiting."""
    if method == "initialize":
        return _greet(params)
    if method == "ping":
        return {}
    if method == "tools/list":
        from offbook.surfaces.mcp_server import describe_tools

        return {"tools": describe_tools()}
    raise Refusal(NO_METHOD, f"there is no method {method!r}")


def _greet(params: Mapping[str, Any]) -> Message:
    wanted = params.get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "offbook", "title": "Offbook", "version": version("offbook")},
        "instructions": INSTRUCTIONS,
    }


def serve_stdio() -> None:
    """Serve the client at stdin and stdout; whatever prints meanwhile prints to stderr."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asyncio.run(_serve(output))


async def _serve(output: IO[bytes]) -> None:
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    def read() -> None:
        # A thread of its own that nobody waits for: reading cannot be interrupted.
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            for line in sys.stdin.buffer:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    await StdioServer(output).serve(lines)
