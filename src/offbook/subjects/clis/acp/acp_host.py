"""The files and terminals that an ACP client offers to its agent.

Files are read and written below the working directory and the agent's home, and nowhere else.
A terminal is a process of the supervisor. Each request is a `host.call` in the trace.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import OffbookError, signal_name
from offbook.exchange.json_rpc import INVALID_PARAMS, METHOD_NOT_FOUND, JsonObject, RpcError
from offbook.subjects.process import StandardInput, converse
from offbook.trace.events import HostCallData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offbook.subjects.process import ProcessResult
    from offbook.subjects.subject import RunContext

RESOURCE_NOT_FOUND = -32002
OUTPUT_LIMIT = 1024 * 1024


class AcpHost:
    """The files and terminals of one process of an agent."""

    def __init__(self, context: RunContext, home: Path, env: Mapping[str, str]) -> None:
        self._context = context
        self._roots = (context.cwd.resolve(), home.resolve())
        self._env = env
        self._terminals: dict[str, _Terminal] = {}
        self._started = 0

    async def respond(self, method: str, params: JsonObject) -> Any:
        """Return the result of a request of the agent."""
        capability, _, operation = method.partition("/")
        given = {name: value for name, value in params.items() if name != "sessionId"}
        call = HostCallData(capability, operation, given, "real")
        try:
            result = await self._call(method, given)
        except (RpcError, OffbookError) as error:
            self._context.hub.emit_data(msgspec.structs.replace(call, error=str(error)))
            raise
        self._context.hub.emit_data(msgspec.structs.replace(call, result=result))
        return result

    async def _call(self, method: str, params: JsonObject) -> Any:
        match method:
            case "fs/read_text_file":
                return {"content": self._read(params)}
            case "fs/write_text_file":
                path = self._path(params)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(str(params.get("content", "")), encoding="utf-8")
                return None
            case "terminal/create":
                self._started += 1
                name = f"terminal-{self._started}"
                self._terminals[name] = self._create(params)
                return {"terminalId": name}
            case "terminal/output":
                return self._terminal(params).output()
            case "terminal/wait_for_exit":
                return await self._terminal(params).wait()
            case "terminal/kill":
                await self._terminal(params).kill()
                return None
            case "terminal/release":
                await self._terminal(params).kill()
                del self._terminals[str(params.get("terminalId"))]
                return None
            case _:
                raise RpcError(f"unknown method {method!r}", METHOD_NOT_FOUND)

    async def close(self) -> None:
        """Kill the terminals that are left."""
        for terminal in self._terminals.values():
            await terminal.kill()
        self._terminals.clear()

    # --- Files

    def _path(self, params: JsonObject) -> Path:
        path = Path(str(params.get("path", "")))
        if not path.is_absolute():
            raise RpcError(f"the path must be absolute: {str(path)!r}", INVALID_PARAMS)
        resolved = path.resolve()
        if not any(resolved.is_relative_to(root) for root in self._roots):
            raise RpcError(f"{path} is outside of the working directory", INVALID_PARAMS)
        return resolved

    def _read(self, params: JsonObject) -> str:
        path = self._path(params)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RpcError(f"cannot read {path}: {error}", RESOURCE_NOT_FOUND) from error
        line, limit = params.get("line"), params.get("limit")
        if line is None and limit is None:
            return text
        start = max((line or 1) - 1, 0)
        lines = text.splitlines(keepends=True)[start:]
        return "".join(lines if limit is None else lines[:limit])

    # --- Terminals

    def _create(self, params: JsonObject) -> _Terminal:
        command = str(params.get("command", ""))
        arguments: list[str] = params.get("args") or []
        # Without arguments it is a line of a shell.
        words = [command, *arguments] if arguments else ["bash", "-c", command]
        added = {item["name"]: item["value"] for item in params.get("env") or ()}
        cwd = Path(params["cwd"]) if params.get("cwd") else self._context.cwd
        limit = params.get("outputByteLimit")
        return _Terminal(
            words, cwd, {**self._env, **added}, OUTPUT_LIMIT if limit is None else limit
        )

    def _terminal(self, params: JsonObject) -> _Terminal:
        name = str(params.get("terminalId"))
        if name not in self._terminals:
            raise RpcError(f"unknown terminal {name!r}", RESOURCE_NOT_FOUND)
        return self._terminals[name]


class _Terminal:
    """A command that runs; its two streams are one, of which the last `limit` bytes are kept."""

    def __init__(self, words: list[str], cwd: Path, env: Mapping[str, str], limit: int) -> None:
        self._output, self._dropped, self._limit = b"", False, limit
        stdin = StandardInput()
        self._task: asyncio.Task[ProcessResult] = asyncio.create_task(
            converse(words, cwd=cwd, env=env, stdin=stdin, watch=self._receive)
        )
        self._killed = False

    def _receive(self, _stream: str, data: bytes) -> None:
        output = self._output + data
        self._dropped = self._dropped or len(output) > self._limit
        self._output = output[-self._limit :] if self._limit else b""

    def output(self) -> JsonObject:
        """Return its output so far, and its exit if it has ended."""
        text = self._output.decode("utf-8", "replace" if not self._dropped else "ignore")
        status = self._exit() if self._task.done() else None
        return {"output": text, "truncated": self._dropped, "exitStatus": status}

    async def wait(self) -> JsonObject:
        """Wait for its end."""
        await asyncio.wait([self._task])
        return self._exit()

    async def kill(self) -> None:
        """End it, if it still runs."""
        if not self._task.done():
            self._killed = True
            self._task.cancel()
        await asyncio.wait([self._task])

    def _exit(self) -> JsonObject:
        if self._killed or self._task.cancelled():
            return {"exitCode": None, "signal": signal_name(signal.SIGKILL)}
        code = self._task.result().code
        if code < 0:
            return {"exitCode": None, "signal": signal_name(-code)}
        return {"exitCode": code, "signal": None}
