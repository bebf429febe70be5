"""The base of agents that are reached over HTTP: a command that serves, an ASGI app, or a URL.

A command is started with the endpoint of the run in its environment, as any other command, and
with the port at which it must listen: `{port}` in its words, and the variable PORT. An ASGI app
runs in this process, where the requests of its HTTP clients are answered. An agent that runs
elsewhere has its own model: the script has no steps for it.
"""

from __future__ import annotations

import asyncio
import shlex
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast
from urllib.parse import urlsplit

import msgspec

from offbook.determinism.network_guard import permit_connections
from offbook.errors import DeadlineExceeded, RunError, UsageError
from offbook.exchange.json_rpc import JsonObject, as_object
from offbook.secrets import excerpt, outgoing
from offbook.subjects.clis.cli import PROCESS_EVENT, PROCESS_RESULT, CliOptions, PlainCommand
from offbook.subjects.process import (
    OutputEnd,
    StandardInput,
    converse,
    describe_exit,
    describe_missing_file,
)
from offbook.subjects.rpc_process import ProtocolRules, check_end
from offbook.subjects.subject import PlainSubject
from offbook.trace.events import ProcessStartData, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.subjects.process import ProcessResult
    from offbook.subjects.subject import ModelAccess, RunContext

START_SECONDS = 120.0  # a busy machine needs a minute to import a framework
CLOSE_GRACE = 2.0
PORT = "{port}"
HOST = "127.0.0.1"
LOCAL = {"localhost", HOST, "0.0.0.0", "[::1]"}  # noqa: S104 - names of this machine in a URL
FIRST_ERROR = 400
READ_SIZE = 64 * 1024

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]
T = TypeVar("T")


class ServedAgent(PlainSubject):
    """An agent over HTTP, from `open` to `close`; its name is that of its protocol."""

    name = ""

    def __init__(self, agent: str | Sequence[str] | AsgiApp, **options: Unpack[CliOptions]) -> None:
        self.app: AsgiApp | None = None
        self._command: PlainCommand | None = None
        self.url = ""
        words = shlex.split(agent) if isinstance(agent, str) else agent
        kind = type(self).__name__
        if isinstance(agent, str) and agent.startswith(("http://", "https://")):
            self.url = agent.rstrip("/")
        elif callable(words):
            self.app, self.url = words, "http://app"
        elif isinstance(words, Sequence) and words and all(isinstance(w, str) for w in words):
            self._command = PlainCommand([*words], **options)
        else:
            raise UsageError(
                f"expected a URL, a command or an ASGI app, got {agent!r}",
                hint=f'write {kind}(["python", "agent.py", "--port", "{PORT}"])',
            )
        if self._command is None and options.keys() - {"deadline"}:
            name = next(iter(options.keys() - {"deadline"}))
            raise UsageError(f"{kind} takes {name!r} for a command only", hint=f"remove {name}=")
        # A command without its own name decodes the options of every command.
        self._options = self._command or PlainCommand(["agent"], **options)
        self.rules = ProtocolRules()
        self._updates: list[JsonObject] = []
        self._task: asyncio.Task[ProcessResult] | None = None
        self._port = 0  # at which the command listens
        self._ends: list[Verdict] = []
        self._lifespan: asyncio.Task[None] | None = None
        self._printed = OutputEnd()

    @property
    def model_access(self) -> ModelAccess:
        """An app runs in this process; its HTTP clients are answered."""
        return "endpoint" if self.app is None else "transport"

    # --- The server

    async def open(self, context: RunContext, /) -> None:
        """Start the agent, and wait until it accepts connections."""
        self._context = context
        self.rules = ProtocolRules()
        self._updates = []
        self._port, self._ends = 0, []
        if self.app is not None:
            await self._start_app(self.app)
        if self._command is None:
            return
        if context.seal is not None:
            raise UsageError(
                f"cannot seal {self.name}: a network namespace has no way to the agent's port",
                hint="remove sealed=: other hosts are refused without it, too",
            )
        await self._command.prepare(context, None)
        port = _find_port()
        words = [word.replace(PORT, str(port)) for word in self._command.command("", "")]
        self.url = f"http://{HOST}:{port}"
        self._printed = OutputEnd()
        context.hub.emit_data(ProcessStartData(words, self.name))
        env = {**self._command.process_env, "PORT": str(port), "PWD": str(context.cwd)}
        self._task = asyncio.create_task(
            converse(words, cwd=context.cwd, env=env, stdin=StandardInput(), watch=self._on_output)
        )
        await self._wait_for_port(port, describe_missing_file(words, context.cwd))
        self._port = port

    def _on_output(self, _: str, data: bytes) -> None:
        self._printed.add(data)

    async def _wait_for_port(self, port: int, missing_file: str) -> None:
        loop = asyncio.get_running_loop()
        seconds = min(START_SECONDS, self._options.deadline)
        end = loop.time() + seconds
        task = cast("asyncio.Task[ProcessResult]", self._task)
        while not task.done():
            if await _listens(port):
                return
            if loop.time() > end:
                raise DeadlineExceeded(
                    f"{self.name} does not listen at port {port} after {seconds:g} s",
                    hint=self._printed.last_lines() or f"write {PORT} in the command, or read PORT",
                )
            await asyncio.sleep(0.02)
        raise RunError(
            f"{self.name} {describe_exit(task.result().code)} before it listened at port {port}",
            hint="\n".join(filter(None, (self._printed.last_lines() or "no output", missing_file))),
        )

    async def _start_app(self, app: AsgiApp) -> None:
        """Start the lifespan of an ASGI app; many have none."""
        started, self._stopping = asyncio.Event(), asyncio.Event()
        failures: list[str] = []
        received = iter(["lifespan.startup"])

        async def receive() -> JsonObject:
            if (kind := next(received, None)) is not None:
                return {"type": kind}
            await self._stopping.wait()
            return {"type": "lifespan.shutdown"}

        async def send(message: JsonObject) -> None:
            if message["type"] == "lifespan.startup.failed":
                failures.append(str(message.get("message")))
            started.set()

        async def live() -> None:
            try:
                await app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
            except Exception:
                if started.is_set():
                    raise
            finally:
                started.set()

        self._lifespan = asyncio.create_task(live())
        await started.wait()
        if failures:
            raise RunError(f"the startup of the ASGI app failed: {failures[0]}")

    async def close(self) -> None:
        """End the agent."""
        lifespan, self._lifespan = self._lifespan, None
        if lifespan is not None:
            self._stopping.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(lifespan), CLOSE_GRACE)
            lifespan.cancel()
            await asyncio.gather(lifespan, return_exceptions=True)
        task, self._task = self._task, None
        if task is not None:
            if self._port and not await _listens(self._port):  # it is about to end
                await asyncio.wait([task], timeout=CLOSE_GRACE)
            self._ends += check_end(self.name, task, self._printed.last_lines(), was_asked=False)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._command is not None:
            await self._command.close()

    # --- Requests

    async def within_deadline(self, work: Awaitable[T]) -> T:
        """Return the result of a prompt, or end it at its deadline."""
        deadline = self.context.deadline or self._options.deadline
        try:
            async with asyncio.timeout(deadline):
                return await work
        except TimeoutError:
            raise DeadlineExceeded(
                f"{self.name} did not answer within {deadline:g} s",
                hint=self._printed.last_lines() or "allow more time with deadline=…",
            ) from None

    async def exchange(
        self, method: str, url: str, payload: JsonObject | None = None, **headers: str
    ) -> AsyncGenerator[Any]:
        """Yield the JSON documents of a response: one, or one for each event of a stream."""
        body = b"" if payload is None else msgspec.json.encode(payload)
        given = {"accept": "application/json, text/event-stream"}
        given |= {"content-type": "application/json"} if body else {}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        send = self._send_to_app if self.app is not None else self._send_http
        async with aclosing(send(method, url, body, given)) as parts:
            status, kind = cast("tuple[int, str]", await anext(parts))
            chunks = cast("AsyncIterator[bytes]", parts)
            if status >= FIRST_ERROR:
                text = outgoing(b"".join([part async for part in chunks]).decode(errors="replace"))
                raise RunError(
                    f"{self.name} answered {method} {urlsplit(url).path} with {status}",
                    hint=excerpt(text, 300) or self._printed.last_lines(),
                )
            if kind.startswith("text/event-stream"):
                async for document in _read_stream(chunks):
                    yield self._decode(document)
            else:
                yield self._decode(b"".join([part async for part in chunks]))

    def _decode(self, document: bytes) -> Any:
        self.rules.checked += 1
        try:
            return msgspec.json.decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            text = excerpt(document.decode("utf-8", "replace"), 80)
            self.rules.broken.append(f"a message is not JSON: {text!r}")
            return {}

    async def _send_http(
        self, method: str, url: str, body: bytes, headers: dict[str, str]
    ) -> AsyncGenerator[tuple[int, str] | bytes]:
        """Yield the status and the type of a response, then its parts."""
        address = urlsplit(url)
        make = HTTPSConnection if address.scheme == "https" else HTTPConnection
        connection = make(address.hostname or "", address.port)
        loop = asyncio.get_running_loop()
        parts: asyncio.Queue[tuple[int, str] | bytes | Exception | None] = asyncio.Queue()
        sockets: list[socket.socket] = []

        def work() -> None:
            def put(part: tuple[int, str] | bytes | Exception | None) -> None:
                loop.call_soon_threadsafe(parts.put_nowait, part)

            try:
                connection.connect()
                sockets.append(connection.sock)
                target = address.path or "/"
                target += f"?{address.query}" if address.query else ""
                connection.request(method, target, body, headers)
                response = connection.getresponse()
                put((response.status, response.getheader("content-type") or ""))
                while part := response.read1(READ_SIZE):
                    put(part)
            except (OSError, HTTPException) as error:
                put(error)
            finally:
                connection.close()
                put(None)

        # A URL that the test gives is the permission to connect to it.
        running = loop.run_in_executor(None, permit_connections().run, work)
        try:
            while (part := await parts.get()) is not None:
                if isinstance(part, Exception):
                    raise RunError(
                        f"lost the connection to {self.name} at {address.netloc}: {part}",
                        hint=self._printed.last_lines()
                        or "check that the agent runs at this address",
                    )
                yield part
        finally:
            for each in sockets:  # a prompt that was ended still waits for the response
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            await asyncio.wait([running])

    async def _send_to_app(
        self, method: str, url: str, body: bytes, headers: dict[str, str]
    ) -> AsyncGenerator[tuple[int, str] | bytes]:
        """Yield the status and the type of a response of the app, then its parts."""
        address = urlsplit(url)
        names = {"host": "app", "content-length": str(len(body)), **headers}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": address.path or "/",
            "raw_path": (address.path or "/").encode(),
            "root_path": "",
            "query_string": address.query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in names.items()],
            "client": (HOST, 1),
            "server": ("app", 80),
        }
        parts: asyncio.Queue[tuple[int, str] | bytes | None] = asyncio.Queue()
        ended = asyncio.Event()
        requests = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> JsonObject:
            if (request := next(requests, None)) is not None:
                return request
            await ended.wait()
            return {"type": "http.disconnect"}

        async def send(message: JsonObject) -> None:
            if message["type"] == "http.response.start":
                found = {name.lower(): value for name, value in message.get("headers", ())}
                kind = found.get(b"content-type", b"").decode()
                parts.put_nowait((message["status"], kind))
            elif message["type"] == "http.response.body":
                parts.put_nowait(message.get("body", b""))
                if not message.get("more_body"):
                    parts.put_nowait(None)

        async def serve() -> None:
            try:
                await cast("AsgiApp", self.app)(scope, receive, send)
            finally:
                parts.put_nowait(None)

        task = asyncio.create_task(serve())
        try:
            first = await parts.get()
            if first is None:
                await task  # raises the exception of the app
                raise RunError(f"the ASGI app sent no response to {method} {scope['path']}")
            yield first
            while (part := await parts.get()) is not None:
                yield part
        finally:
            ended.set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # --- The trace

    def emit_updates(self, **result: Any) -> None:
        """Emit what the agent sent, at the end of a prompt, and its result.

        Between the requests to the model, the order of these messages is random.
        """
        updates, self._updates = self._updates, []
        for update in updates:
            self.context.hub.emit(PROCESS_EVENT, update)
        if result:
            self.context.hub.emit(PROCESS_RESULT, result)

    def note(self, message: object) -> JsonObject:
        """Keep a message of the agent for the trace; return it."""
        found = as_object(message)
        self._updates.append(found)
        return found

    def raise_problems(self) -> None:
        """Raise an error if the agent broke a rule since the last call."""
        self.rules.raise_broken(f"the agent breaks the {self.name.upper()} protocol")

    def verdicts(self) -> Iterable[Verdict]:
        """Return the verdicts on all messages of the agent, and on its end."""
        yield from self._ends
        if self.rules.broken or self.rules.checked:
            yield self.rules.verdict(self.name.upper())


def _find_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        return free.getsockname()[1]


async def _listens(port: int) -> bool:
    """Return whether a process accepts connections."""
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True


async def _read_stream(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of each server-sent event."""
    rest = b""
    data: list[bytes] = []
    async for part in parts:
        *lines, rest = (rest + part).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []
    if data or rest.startswith(b"data:"):
        last = [rest[5:].removeprefix(b" ")] if rest.startswith(b"data:") else []
        yield b"\n".join([*data, *last])
