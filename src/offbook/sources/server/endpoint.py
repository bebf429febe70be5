"""One run's place on the server: its source, its dialects, its threads and its journal."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import ModelError, OffbookError
from offbook.exchange.dialects.dialect import Answer, Wire
from offbook.exchange.relay import Relay, relays
from offbook.exchange.threads import Threads
from offbook.exchange.variables import list_variables
from offbook.sources.server.connection import complain
from offbook.sources.server.pacing import spread_delays
from offbook.trace.events import ASIDE, ERROR
from offbook.trace.observe import Observed, describe_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Container, Iterable

    from offbook.exchange.dialects.dialect import Dialect
    from offbook.exchange.reply import Reply
    from offbook.exchange.request import Request
    from offbook.exchange.source import ModelSource
    from offbook.sources.server.pacing import Pacing
    from offbook.trace.hub import Hub

REMEMBERED = 32
PATHS = (
    "POST /v1/chat/completions",
    "POST /v1/responses (or as a WebSocket)",
    "POST /v1/embeddings",
    "POST /v1/messages",
    "POST /v1/messages/count_tokens",
    "POST /v1beta/models/{model}:generateContent",
    "POST /v1beta/models/{model}:streamGenerateContent",
    "POST /model/{model}/converse",
    "POST /model/{model}/converse-stream",
    "GET /v1/models",
)
GREETINGS = {"/", "/api/hello"}  # where clients only look whether somebody is there
RETRY = "x-stainless-retry-count"
STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class Endpoint:
    """A source under its own base URL.

    What the source raises goes to the client in its provider's words. A `ModelError` is an answer
    like any other; anything else fails the run: it is kept in `failure`, and from then on every
    request is refused with it, so that an agent cannot get past it by trying again.

    The source's code, callbacks of a playbook included, runs in the loop and thread of the
    server, with the context variables of whoever mounted it: the loop of a test may be blocked by
    the very agent that is waiting for this answer.

    A stream that the source gets from somebody else is handed on as it comes.
    """

    def __init__(
        self,
        source: ModelSource,
        *,
        url: str,
        recognise: Callable[[Wire], Dialect | None],
        hub: Hub | None = None,
        tools: bool = True,
        mocked: Container[str] = (),
        pacing: Pacing | None = None,
        leave: Callable[[], object] = lambda: None,
    ) -> None:
        self.url = url
        self.source = source if hub is None else Observed(source, hub, tools=tools, mocked=mocked)
        self.failure: BaseException | None = None
        self.context = copy_context()
        self._recognise = recognise
        self._leave = leave
        self._hub = hub
        self._pacing = pacing
        self.relays = relays(source)
        self._timed = bool(getattr(source, "timed", False))
        self._threads = Threads()
        self._recent: deque[tuple[Request, Answer]] = deque(maxlen=REMEMBERED)
        self._lost: list[tuple[Request, Answer]] = []
        self._streams = 0

    @property
    def openai(self) -> str:
        """The base URL for clients of OpenAI."""
        return f"{self.url}/v1"

    @property
    def anthropic(self) -> str:
        """The base URL for clients of Anthropic."""
        return self.url

    @property
    def gemini(self) -> str:
        """The base URL for clients of Gemini."""
        return self.url

    @property
    def variables(self) -> dict[str, str]:
        """The environment in which clients of every provider find it, and nobody else."""
        return list_variables(self.url)

    def close(self) -> None:
        """Serve it no longer; a second time is nothing."""
        self._leave()

    async def answer(self, wire: Wire) -> Answer:
        """The answer to a request; never an exception."""
        dialect = self._find(wire)
        if isinstance(dialect, Answer):
            return dialect
        request: Request | None = None
        try:
            request = dialect.decode(wire, self._threads)
            asked_before = self._lost or RETRY in wire.headers
            if asked_before and (same := self._resend(wire, request)) is not None:
                return self._tell_aside(wire, same, "the same reply again")
            if self.failure is not None:
                raise self.failure  # noqa: TRY301 - the client hears of it as of any other
            if self.relays and request.stream:
                answer = await self._relay(dialect, request)
            else:
                reply = self._name(dialect, request, await self.source.reply(request))
                answer = self._encode(dialect, request, reply)
        except ModelError as error:
            if request is None:
                self._tell_error(error)
            answer = dialect.refuse(error, request)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - pytest.fail() is no Exception
            self._fail(error)
            refusal = ModelError(_say(error), status=400)
            self._tell_error(refusal)
            answer = _final(dialect.refuse(refusal, request))
        if request is not None and answer.coming is None:
            self._recent.append((request, answer))
        return answer

    def _find(self, wire: Wire) -> Dialect | Answer:
        """The dialect of a request; or the answer to one for which no model is asked."""
        try:
            dialect = self._recognise(wire)
            if dialect is None:
                return self._tell_aside(wire, _unknown(wire), "unknown path")
            aside = dialect.aside(wire, self._threads)
            return dialect if aside is None else self._tell_aside(wire, aside, dialect.name)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client hears of it
            self._fail(error)
            return self._tell_aside(wire, complain(400, str(error)), "failure")

    async def _reply(self, dialect: Dialect, request: Request) -> Reply:
        return self._name(dialect, request, await self.source.reply(request))

    def _name(self, dialect: Dialect, request: Request, reply: Reply) -> Reply:
        """The reply under the id by which a later request may go on from it."""
        reply = msgspec.structs.replace(reply, id=dialect.identify(reply, request))
        self._threads.remember(reply.id, request, reply)
        return reply

    def _encode(self, dialect: Dialect, request: Request, reply: Reply) -> Answer:
        answer = dialect.encode(reply, request)
        if self._timed and reply.delays:
            return msgspec.structs.replace(answer, waits=spread_delays(reply, answer.chunks))
        return answer

    async def _relay(self, dialect: Dialect, request: Request) -> Answer:
        relay = Relay(self._reply(dialect, request))
        if await relay.begins():
            return Answer(200, STREAM, coming=self._hand_on(relay))
        return self._encode(dialect, request, await relay.reply)

    async def _hand_on(self, relay: Relay) -> AsyncIterator[bytes]:
        try:
            async for event in relay.follow():
                yield event
        except ModelError:
            return  # what the provider said of it has been handed on
        except Exception as error:
            self._fail(error)
            raise ConnectionError(_say(error)) from error

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error

    # ------------------------------------------------------------- answers that did not arrive

    def lose(self, wire: Wire, answer: Answer) -> None:  # noqa: ARG002 - the protocol's signature
        """The client was gone before it had all of this answer: it may ask again."""
        self._lost += [known for known in self._recent if known[1] is answer]

    def _resend(self, wire: Wire, request: Request) -> Answer | None:
        """The answer that this request has had already, if it is asked again for want of it."""
        again = wire.headers.get(RETRY, "0") != "0"
        known = self._recent if again else self._lost
        for asked, answer in reversed(known):
            if answer.status < 400 and _same(asked, request):  # noqa: PLR2004 - the first bad status
                self._lost = [lost for lost in self._lost if lost[1] is not answer]
                return answer
        return None

    # -------------------------------------------------------------------------------- pacing

    def delays(self, answer: Answer) -> Iterable[float] | None:
        """The seconds before each chunk of a stream, or None for all at once."""
        if answer.waits:
            return answer.waits
        if self._pacing is None:
            return None
        self._streams += 1
        return self._pacing.delays(len(answer.chunks), self._streams)

    # ----------------------------------------------------------------------------- WebSocket

    async def converse(self, wire: Wire, message: bytes) -> AsyncIterator[bytes]:
        """The events that answer one `response.create`."""
        asked = _as_post(wire, message)
        if isinstance(asked, Answer):
            yield asked.body
            return
        answer = await self.answer(asked)
        if answer.coming is not None:
            with suppress(ConnectionError):
                async for event in answer.coming:
                    yield _data(event)
            return
        delays = self.delays(answer)
        for chunk, delay in zip(answer.chunks, delays or (0,) * len(answer.chunks), strict=True):
            if delay > 0:
                await asyncio.sleep(delay)
            yield _data(chunk)
        if not answer.chunks:
            yield _as_event(answer)

    # ------------------------------------------------------------------------------- journal

    def _tell_aside(self, wire: Wire, answer: Answer, about: str) -> Answer:
        if self._hub is not None:
            data = {"method": wire.method, "path": wire.path, "status": answer.status}
            self._hub.emit(ASIDE, {**data, "about": about})
        return answer

    def _tell_error(self, error: ModelError) -> None:
        if self._hub is not None:
            self._hub.emit(ERROR, describe_error(error))


def _say(error: BaseException) -> str:
    return str(error) if isinstance(error, OffbookError) else f"{type(error).__name__}: {error}"


def _final(answer: Answer) -> Answer:
    """The same answer, to which no client comes back."""
    return msgspec.structs.replace(answer, headers={**answer.headers, "x-should-retry": "false"})


def _same(one: Request, other: Request) -> bool:
    return (
        one.messages == other.messages
        and one.model == other.model
        and one.system == other.system
        and one.offered == other.offered
    )


def _unknown(wire: Wire) -> Answer:
    if wire.method == "HEAD" or (wire.method == "GET" and wire.path in GREETINGS):
        return Answer(200 if wire.path in GREETINGS else 404)
    return complain(404, f"nothing is served under {wire.method} {wire.path}", known=PATHS)


def _as_post(wire: Wire, message: bytes) -> Wire | Answer:
    """A message of a WebSocket as the request that it stands for."""
    try:
        body = msgspec.json.decode(message, type=dict[str, Any])
    except msgspec.DecodeError as error:
        return Answer(body=_failed(400, f"this is not JSON: {error}"))
    if body.pop("type", None) != "response.create":
        return Answer(body=_failed(400, "only response.create is answered here"))
    body["stream"] = True
    headers = {name: value for name, value in wire.headers.items() if name != "upgrade"}
    return Wire("POST", wire.path, headers, msgspec.json.encode(body), wire.query)


def _failed(status: int, message: str) -> bytes:
    error = {"type": "invalid_request_error", "code": None, "message": message, "param": None}
    return msgspec.json.encode({"type": "error", "status": status, "error": error})


def _as_event(answer: Answer) -> bytes:
    try:
        error = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        error = {}
    return msgspec.json.encode({"type": "error", "status": answer.status, **error})


def _data(chunk: bytes) -> bytes:
    """The JSON of one server-sent event."""
    for line in chunk.splitlines():
        if line.startswith(b"data:"):
            return line[5:].strip()
    return b"{}"
