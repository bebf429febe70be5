"""JSON-RPC 2.0 between two peers, as MCP and ACP speak it: requests and notifications both ways.

    peer = Peer(send=write_line, on_request=answer, on_notification=note)
    peer.receive({"jsonrpc": "2.0", "id": 1, "method": "ping"})     # `answer` runs, `send` replies
    result = await peer.request("tools/list")

The transport is not part of it: it calls `receive` with each decoded message, and `send` writes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from types import NoneType
from typing import Any, TypeGuard, cast

import msgspec

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601
INVALID_PARAMS, INTERNAL_ERROR = -32602, -32603

JsonObject = dict[str, Any]
RequestId = int | str
OnRequest = Callable[[str, JsonObject], Awaitable[Any]]
OnNotification = Callable[[str, JsonObject], None]

current_request: ContextVar[RequestId | None] = ContextVar("offbook-rpc-request", default=None)
"""The id of the other peer's request that the current code answers, or None."""


class RpcError(Exception):
    """An error of the protocol: its code, and its data. The error of a tool is a result."""

    def __init__(self, message: str, code: int = INTERNAL_ERROR, data: object = None) -> None:
        self.code = code
        self.data = data
        super().__init__(message)


def decode_message(raw: bytes) -> Any:
    """Return the message of a line or a body; raise an `RpcError` if it is not JSON."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if b"\\ud" in raw.lower():  # half a character, which Node writes and msgspec refuses
            with suppress(ValueError, RecursionError):
                return json.loads(raw, parse_constant=int)  # which raises: JSON has no NaN
        raise RpcError(f"invalid JSON: {error}", PARSE_ERROR) from error


def is_request_id(value: object) -> TypeGuard[RequestId]:
    """Return whether a value may be the id of a request."""
    return isinstance(value, (int, str, float)) and not isinstance(value, bool)


def as_object(value: object) -> JsonObject:
    """Return an object of a message, or an empty one for every other value."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def as_objects(value: object) -> list[JsonObject]:
    """Return the items of a list as objects; every other value has none."""
    return (
        [as_object(item) for item in cast("list[object]", value)] if isinstance(value, list) else []
    )


class Peer:
    """One side of a connection.

    `on_request` returns the result of a request, or raises an `RpcError`; requests are answered
    concurrently, each in a separate task. `cancel` ends one of them, which then gets no response.
    """

    def __init__(
        self,
        send: Callable[[JsonObject], None],
        on_request: OnRequest,
        on_notification: OnNotification = lambda _method, _params: None,
    ) -> None:
        self._send = send
        self._on_request = on_request
        self._on_notification = on_notification
        self._answering: dict[RequestId, asyncio.Task[None]] = {}
        self._waiting: dict[RequestId, asyncio.Future[Any]] = {}
        self._given_up: set[RequestId] = set()
        self._last_id = 0

    def receive(self, message: object) -> None:
        """Take a message of the other peer, or a batch of messages."""
        if isinstance(message, list):
            for item in cast("list[object]", message):
                self.receive(item)
            return
        if not isinstance(message, dict):
            self.send_error(None, RpcError("invalid request: not an object", INVALID_REQUEST))
            return
        fields = cast("JsonObject", message)
        method, request_id = fields.get("method"), fields.get("id")
        params = as_object(fields.get("params"))
        # An id of another type cannot be sent back: such a request gets no answer.
        if request_id is not None and not is_request_id(request_id):
            self.send_error(None, RpcError("invalid request: wrong type of id", INVALID_REQUEST))
        elif method is None:
            self._take_response(fields)
        elif not isinstance(method, str):
            problem = RpcError("invalid request: the method is not a text", INVALID_REQUEST)
            self.send_error(request_id, problem)
        elif request_id is None:
            self._on_notification(method, params)
        elif not isinstance(fields.get("params"), (dict, NoneType)):
            problem = RpcError("invalid request: the params are not an object", INVALID_REQUEST)
            self.send_error(request_id, problem)
        else:
            task = asyncio.ensure_future(self._answer(request_id, method, params))
            self._answering[request_id] = task
            task.add_done_callback(lambda _: self._answering.pop(request_id, None))

    async def _answer(self, request_id: RequestId, method: str, params: JsonObject) -> None:
        current_request.set(request_id)  # of this task alone
        try:
            result = await self._on_request(method, params)
        except RpcError as error:
            self.send_error(request_id, error)
        except Exception as error:
            self.send_error(request_id, RpcError(f"{type(error).__name__}: {error}"))
            raise
        else:
            self._send({"jsonrpc": "2.0", "id": request_id, "result": result})

    def _take_response(self, fields: JsonObject) -> None:
        waiting = self._waiting.pop(cast("RequestId", fields.get("id")), None)
        if waiting is None or waiting.done():
            return  # the request was given up
        if (error := fields.get("error")) is None:
            waiting.set_result(fields.get("result"))
        else:
            failure = as_object(error)
            text, code = str(failure.get("message", error)), failure.get("code", INTERNAL_ERROR)
            waiting.set_exception(RpcError(text, code, failure.get("data")))

    async def request(self, method: str, params: JsonObject | None = None) -> Any:
        """Send a request and return its result; an error of the other peer is an `RpcError`."""
        self._last_id += 1
        request_id = self._last_id
        waiting = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        message: JsonObject = {"jsonrpc": "2.0", "id": request_id, "method": method}
        try:
            self._send(message if params is None else {**message, "params": params})
            return await waiting
        finally:
            self._waiting.pop(request_id, None)
            if waiting.cancelled():
                self._given_up.add(request_id)

    def expects(self, request_id: object) -> bool:
        """Return whether the request is open, or was given up: its response may be late."""
        return is_request_id(request_id) and (
            request_id in self._waiting or request_id in self._given_up
        )

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification."""
        message: JsonObject = {"jsonrpc": "2.0", "method": method}
        self._send(message if params is None else {**message, "params": params})

    def cancel(self, request_id: object) -> None:
        """Stop to answer a request of the other peer."""
        task = self._answering.get(request_id) if is_request_id(request_id) else None
        if task is not None:
            task.cancel()

    def close(self, reason: str = "the connection was closed") -> None:
        """Fail the requests that wait for a response, and stop to answer the others."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(RpcError(reason))
        for task in self._answering.values():
            task.cancel()

    def send_error(self, request_id: RequestId | None, error: RpcError) -> None:
        """Send the error of a request; without an id, of a message that could not be read."""
        body: JsonObject = {"code": error.code, "message": str(error)}
        if error.data is not None:
            body["data"] = error.data
        self._send({"jsonrpc": "2.0", "id": request_id, "error": body})
