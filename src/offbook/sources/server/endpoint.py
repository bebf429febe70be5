"""How fast a served stream goes: at once, or as a model would."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import ModelError, OffbookError
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.exchange.model import Relay, can_relay
from offbook.exchange.providers import client_env
from offbook.sources.server.connection import error_response
from offbook.trace.events import ASIDE, ERROR
from offbook.trace.instrument import TracedSource, error_data

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator, Sequence

    from offbook.exchange.dialects.dialect import Dialect
    from offbook.exchange.model import ModelSource, Reply, Request
    from offbook.trace.hub import Hub


# --- How fast a served stream goes: at once, or as a model would.


class Pacing(msgspec.Struct, frozen=True):
    """Milliseconds until a stream begins, tokens a second from then on, and how uneven that is.

    `jitter` is a share: 0.2 makes each wait up to a fifth longer or shorter, by chance drawn from
    `seed`. An event counts as one token.
    """

    first_token: float = 0
    tokens_per_second: float = 0
    jitter: float = 0
    seed: int = 0

    def delays(self, events: int, salt: int = 0) -> Iterator[float]:
        """The seconds to wait before each of so many events; `salt` tells streams apart."""
        chance = Random(self.seed * 1_000_003 + salt)  # noqa: S311 - for looks, not for secrets
        pause = 1 / self.tokens_per_second if self.tokens_per_second else 0
        for at in range(events):
            wait = pause if at else self.first_token / 1000
            yield wait * (1 + self.jitter * chance.uniform(-1, 1))


def spread_delays(reply: Reply, events: Sequence[bytes]) -> tuple[float, ...]:
    """The seconds before each event: those of the piece of the reply that it brings."""
    waits = [0.0] * len(events)
    at = 0
    for piece, delay in zip(reply.chunks, reply.delays, strict=False):
        needle = msgspec.json.encode(piece)[1:-1]
        found = next((n for n in range(at, len(events)) if needle in events[n]), None)
        if found is not None:
            waits[found] = delay / 1000
            at = found + 1
    return tuple(waits)


# --- One run's place on the server: its source, its dialects, its threads and its journal.

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
        recognise: Callable[[HttpRequest], Dialect | None],
        hub: Hub | None = None,
        tools: bool = True,
        mocked: Container[str] = (),
        pacing: Pacing | None = None,
        leave: Callable[[], object] = lambda: None,
    ) -> None:
        self.url = url
        self.source = (
            source if hub is None else TracedSource(source, hub, tools=tools, mocked=mocked)
        )
        self.failure: BaseException | None = None
        self.context = copy_context()
        self._recognise = recognise
        self._leave = leave
        self._hub = hub
        self._pacing = pacing
        self.relays = can_relay(source)
        self._timed = bool(getattr(source, "timed", False))
        self._threads = ConversationStore()
        self._recent: deque[tuple[Request, HttpResponse]] = deque(maxlen=REMEMBERED)
        self._lost: list[tuple[Request, HttpResponse]] = []
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
        return client_env(self.url)

    def close(self) -> None:
        """Serve it no longer; a second time is nothing."""
        self._leave()

    async def answer(self, wire: HttpRequest) -> HttpResponse:
        """The answer to a request; never an exception."""
        dialect = self._find(wire)
        if isinstance(dialect, HttpResponse):
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
            answer = dialect.encode_error(error, request)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - pytest.fail() is no Exception
            self._fail(error)
            refusal = ModelError(_say(error), status=400)
            self._tell_error(refusal)
            answer = _final(dialect.encode_error(refusal, request))
        if request is not None and answer.live_chunks is None:
            self._recent.append((request, answer))
        return answer

    def _find(self, wire: HttpRequest) -> Dialect | HttpResponse:
        """The dialect of a request; or the answer to one for which no model is asked."""
        try:
            dialect = self._recognise(wire)
            if dialect is None:
                return self._tell_aside(wire, _unknown(wire), "unknown path")
            side_response = dialect.side_response(wire, self._threads)
            return (
                dialect
                if side_response is None
                else self._tell_aside(wire, side_response, dialect.name)
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the client hears of it
            self._fail(error)
            return self._tell_aside(wire, error_response(400, str(error)), "failure")

    async def _reply(self, dialect: Dialect, request: Request) -> Reply:
        return self._name(dialect, request, await self.source.reply(request))

    def _name(self, dialect: Dialect, request: Request, reply: Reply) -> Reply:
        """The reply under the id by which a later request may go on from it."""
        reply = msgspec.structs.replace(reply, id=dialect.reply_id(reply, request))
        self._threads.add(reply.id, request, reply)
        return reply

    def _encode(self, dialect: Dialect, request: Request, reply: Reply) -> HttpResponse:
        answer = dialect.encode(reply, request)
        if self._timed and reply.delays:
            return msgspec.structs.replace(answer, chunk_delays=spread_delays(reply, answer.chunks))
        return answer

    async def _relay(self, dialect: Dialect, request: Request) -> HttpResponse:
        relay = Relay(self._reply(dialect, request))
        if await relay.has_early_events():
            return HttpResponse(200, STREAM, live_chunks=self._hand_on(relay))
        return self._encode(dialect, request, await relay.reply)

    async def _hand_on(self, relay: Relay) -> AsyncIterator[bytes]:
        try:
            async for event in relay.events():
                yield event
        except ModelError:
            return  # what the provider said of it has been handed on
        except Exception as error:
            self._fail(error)
            raise ConnectionError(_say(error)) from error

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error

    # ------------------------------------------------------------- answers that did not arrive

    def lose(self, wire: HttpRequest, answer: HttpResponse) -> None:  # noqa: ARG002 - the protocol's signature
        """The client was gone before it had all of this answer: it may ask again."""
        self._lost += [known for known in self._recent if known[1] is answer]

    def _resend(self, wire: HttpRequest, request: Request) -> HttpResponse | None:
        """The answer that this request has had already, if it is asked again for want of it."""
        again = wire.headers.get(RETRY, "0") != "0"
        known = self._recent if again else self._lost
        for asked, answer in reversed(known):
            if answer.status < 400 and _same(asked, request):  # noqa: PLR2004 - the first bad status
                self._lost = [lost for lost in self._lost if lost[1] is not answer]
                return answer
        return None

    # -------------------------------------------------------------------------------- pacing

    def delays(self, answer: HttpResponse) -> Iterable[float] | None:
        """The seconds before each chunk of a stream, or None for all at once."""
        if answer.chunk_delays:
            return answer.chunk_delays
        if self._pacing is None:
            return None
        self._streams += 1
        return self._pacing.delays(len(answer.chunks), self._streams)

    # ----------------------------------------------------------------------------- WebSocket

    async def converse(self, wire: HttpRequest, message: bytes) -> AsyncIterator[bytes]:
        """The events that answer one `response.create`."""
        asked = _as_post(wire, message)
        if isinstance(asked, HttpResponse):
            yield asked.body
            return
        answer = await self.answer(asked)
        if answer.live_chunks is not None:
            with suppress(ConnectionError):
                async for event in answer.live_chunks:
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

    def _tell_aside(self, wire: HttpRequest, answer: HttpResponse, about: str) -> HttpResponse:
        if self._hub is not None:
            data = {"method": wire.method, "path": wire.path, "status": answer.status}
            self._hub.emit(ASIDE, {**data, "about": about})
        return answer

    def _tell_error(self, error: ModelError) -> None:
        if self._hub is not None:
            self._hub.emit(ERROR, error_data(error))


def _say(error: BaseException) -> str:
    return str(error) if isinstance(error, OffbookError) else f"{type(error).__name__}: {error}"


def _final(answer: HttpResponse) -> HttpResponse:
    """The same answer, to which no client comes back."""
    return msgspec.structs.replace(answer, headers={**answer.headers, "x-should-retry": "false"})


def _same(one: Request, other: Request) -> bool:
    return (
        one.messages == other.messages
        and one.model == other.model
        and one.system == other.system
        and one.tool_names == other.tool_names
    )


def _unknown(wire: HttpRequest) -> HttpResponse:
    if wire.method == "HEAD" or (wire.method == "GET" and wire.path in GREETINGS):
        return HttpResponse(200 if wire.path in GREETINGS else 404)
    return error_response(404, f"nothing is served under {wire.method} {wire.path}", known=PATHS)


def _as_post(wire: HttpRequest, message: bytes) -> HttpRequest | HttpResponse:
    """A message of a WebSocket as the request that it stands for."""
    try:
        body = msgspec.json.decode(message, type=dict[str, Any])
    except msgspec.DecodeError as error:
        return HttpResponse(body=_failed(400, f"this is not JSON: {error}"))
    if body.pop("type", None) != "response.create":
        return HttpResponse(body=_failed(400, "only response.create is answered here"))
    body["stream"] = True
    headers = {name: value for name, value in wire.headers.items() if name != "upgrade"}
    return HttpRequest("POST", wire.path, headers, msgspec.json.encode(body), wire.query)


def _failed(status: int, message: str) -> bytes:
    error = {"type": "invalid_request_error", "code": None, "message": message, "param": None}
    return msgspec.json.encode({"type": "error", "status": status, "error": error})


def _as_event(answer: HttpResponse) -> bytes:
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
