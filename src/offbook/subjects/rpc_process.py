"""A process that speaks JSON-RPC on its standard streams, one message a line.

MCP servers and ACP agents are such processes. Each message is held against the rules of JSON-RPC
(`ProtocolRules`).
"""

from __future__ import annotations

import asyncio
import threading
from signal import SIGHUP, SIGINT, SIGTERM
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from offbook.errors import CheckFailed, DeadlineExceeded, RunError
from offbook.exchange.json_rpc import (
    JsonObject,
    OnNotification,
    OnRequest,
    Peer,
    RpcError,
    decode_message,
)
from offbook.secrets import excerpt
from offbook.subjects.process import (
    OutputEnd,
    StandardInput,
    converse,
    describe_exit,
    describe_missing_file,
)
from offbook.trace.events import Verdict

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from offbook.subjects.process import ProcessResult, Seal

T = TypeVar("T")
CLOSE_GRACE = 2.0
# Some programs end themselves in this way when their input has ended.
STOPS = {number for each in (SIGHUP, SIGINT, SIGTERM) for number in (-each, 128 + each)}


class LoopThread:
    """An event loop in a thread, for a process that outlives the loop of a test."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop, from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, timeout: float | None = None) -> None:
        """End the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            self._loop.close()


class ProtocolRules:
    """The rules of a protocol that a program broke; `checked` counts its messages."""

    def __init__(self) -> None:
        self.checked = 0
        self.broken: list[str] = []
        self._raised = 0  # how many of them ended a prompt

    def expect(self, holds: object, rule: str) -> None:
        """Note a rule that the program broke."""
        if not holds:
            self.broken.append(rule)

    def check_message(self, fields: JsonObject) -> None:
        """Hold a message against the rules of JSON-RPC."""
        self.expect(fields.get("jsonrpc") == "2.0", 'a message must have "jsonrpc": "2.0"')
        if "method" not in fields:
            one = ("result" in fields) != ("error" in fields)
            self.expect(one, "a response must have a result or an error")
        if isinstance(error := fields.get("error"), dict):
            code = cast("JsonObject", error).get("code")
            self.expect(isinstance(code, int), "the code of an error must be an integer")

    def raise_broken(self, what: str, hint: str = "") -> None:
        """Raise an error with the rules that it broke since the last call, each once."""
        broken, self._raised = self.broken[self._raised :], len(self.broken)
        if broken:
            raise CheckFailed(f"{what}: {'; '.join(dict.fromkeys(broken))}", hint=hint)

    def verdict(self, protocol: str) -> Verdict:
        """Return the verdict on all messages."""
        if self.broken:
            message = "; ".join(dict.fromkeys(self.broken))
            return Verdict(f"{protocol} protocol", "fail", message)
        return Verdict(f"{protocol} protocol", "pass", actual=self.checked)


class RpcProcess:
    """One process, from `start` to `close`. `title` is its name in error messages.

    Its messages are held against `rules`. `ends` has the verdict on its end, if that failed.
    """

    def __init__(
        self,
        title: str,
        on_request: OnRequest,
        on_notification: OnNotification = lambda _method, _params: None,
        *,
        rules: ProtocolRules | None = None,
    ) -> None:
        self._rules = rules or ProtocolRules()
        self.ends: list[Verdict] = []
        self._title = title
        self._peer = Peer(self._send, on_request, on_notification)
        self._stdin, self._rest, self._stderr = StandardInput(), b"", OutputEnd()
        self._task: asyncio.Task[ProcessResult] | None = None
        self._missing_file = ""

    def start(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        seal: Seal | None = None,
    ) -> None:
        """Start the process."""
        self._missing_file = describe_missing_file(command, cwd)
        self._task = asyncio.create_task(
            converse(command, cwd=cwd, env=env, stdin=self._stdin, watch=self._receive, seal=seal)
        )

    async def close(self) -> None:
        """End the process: the end of its input, then a kill."""
        task, self._task = self._task, None
        if task is None:
            return
        has_ended = task.done()
        self._stdin.close()
        await asyncio.wait([task], timeout=CLOSE_GRACE)
        self.ends += check_end(self._title, task, self.last_lines(), was_asked=not has_ended)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._peer.close()

    async def request(
        self, method: str, params: JsonObject | None = None, *, deadline: float
    ) -> Any:
        """Return the result of a request; an end of the process fails the run."""
        task = self._task
        if task is None:
            raise RunError(f"{self._title} has ended")
        request = asyncio.ensure_future(self._peer.request(method, params))
        try:
            done, _ = await asyncio.wait(
                [request, task], timeout=deadline, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            request.cancel()
            raise
        if request in done:
            return request.result()
        request.cancel()
        lines = "\n".join(filter(None, (self.last_lines(), self._missing_file)))
        if task in done:
            end = describe_exit(task.result().code)
            raise RunError(f"{self._title} {end} during {method}", hint=lines or "no output")
        raise DeadlineExceeded(
            f"{self._title} did not answer {method} within {deadline:g} s",
            hint=lines or "allow more time with deadline=…",
        )

    def notify(self, method: str, params: JsonObject | None = None) -> None:
        """Send a notification."""
        self._peer.notify(method, params)

    def last_lines(self) -> str:
        """Return the end of its error output, for an error message."""
        return self._stderr.last_lines()

    def _send(self, message: JsonObject) -> None:
        # Half a character is refused here: servers on the Python SDK do not answer it.
        self._stdin.write(msgspec.json.encode(message) + b"\n")

    def _receive(self, stream: str, data: bytes) -> None:
        if stream == "stderr":
            self._stderr.add(data)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not line.strip():
                continue
            self._rules.checked += 1
            try:
                message = decode_message(line)
            except RpcError:
                # The most frequent mistake: a print() of the program.
                text = excerpt(line.decode("utf-8", "replace"), 80)
                self._rules.broken.append(f"a line on stdout is not JSON: {text!r}")
            else:
                self._check(message)
                self._peer.receive(message)

    def _check(self, message: Any) -> None:
        if not isinstance(message, dict):
            self._rules.broken.append("a message must be an object")
            return
        fields = cast("JsonObject", message)
        self._rules.check_message(fields)
        if "method" not in fields:
            # Without an id, it is the error of a message that could not be read.
            number = fields.get("id")
            known = number is None or self._peer.expects(number)
            self._rules.expect(known, f"a response to {number!r}, which is not an open request")


def check_end(
    title: str, task: asyncio.Task[ProcessResult], printed: str, *, was_asked: bool
) -> Iterator[Verdict]:
    """Yield a failed verdict on a process that crashed, or ended before it was asked to.

    A process that still runs is killed by us, which is not a crash.
    """
    if not task.done() or task.cancelled() or task.exception() is not None:
        return
    code = task.result().code
    if was_asked and (code == 0 or code in STOPS):
        return
    end = describe_exit(code) if code else "ended"
    when = "at the end of its input" if was_asked else "before the end of the run"
    yield Verdict("run finished", "fail", f"{title} {end} {when}\n{printed}".rstrip())
