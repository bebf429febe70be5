"""One run's endpoint: the response to each HTTP request, in its provider's dialect.

The server and the in-process interception share it, so a client gets the same bytes either way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import ModelError, OffbookError, RunError
from offbook.exchange.dialects.dialect import (
    ConversationStore,
    HttpRequest,
    HttpResponse,
    OpensSessions,
)
from offbook.exchange.model import (
    DETAILS_OF_CALLS,
    FAILED_CALLS,
    REFUSED_CALLS,
    answers_at_once,
    can_relay,
)
from offbook.exchange.providers import client_env, unsupported_path
from offbook.secrets import remember_credentials
from offbook.sources.server.connection import error_response
from offbook.trace.events import UNSET, Optional, SideRequestData
from offbook.trace.instrument import SeenTool, TracedSource, error_data, exchange_id

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Callable,
        Container,
        Coroutine,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from offbook.determinism.faults import Fault, FaultInjector
    from offbook.errors import ScriptMismatch
    from offbook.exchange.dialects.dialect import Dialect, LiveSession
    from offbook.exchange.model import ModelSource, Reply, Request
    from offbook.sources.live import Relay
    from offbook.sources.server.wire_recording import WireExchange
    from offbook.trace.hub import Hub


RECENT_RESPONSES = 32
FIRST_ERROR_STATUS = 400
HEALTH_PATHS = {"/", "/api/hello"}  # clients check here whether the server is up
SAME_REPLY = "the same reply again"
RETRY_HEADER = "x-stainless-retry-count"
STREAM_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


class Pacing(msgspec.Struct, frozen=True):
    """The speed of served streams.

        Pacing(first_token=300, tokens_per_second=50, jitter=0.2)

    `first_token` is in milliseconds. `jitter` is a fraction: 0.2 makes each delay up to a fifth
    longer or shorter, at random from `seed`. An event counts as one token.
    """

    first_token: float = 0
    tokens_per_second: float = 0
    jitter: float = 0
    seed: int = 0

    def delays(self, count: int, salt: int = 0) -> Iterator[float]:
        """Yield the seconds before each of `count` events; `salt` varies them by stream."""
        from random import Random  # late: few streams are paced

        random = Random(self.seed * 1_000_003 + salt)  # noqa: S311 - not for secrets
        pause = 1 / self.tokens_per_second if self.tokens_per_second else 0
        for index in range(count):
            delay = pause if index else self.first_token / 1000
            yield delay * (1 + self.jitter * random.uniform(-1, 1))


class Endpoint:
    """A source under its own base URL.

    An exception of the source is sent to the client as an error of its provider. A `ModelError`
    is a normal response. Any other exception fails the run: it is kept in `failure`, and every
    later request gets it too, so that an agent cannot get past it by a retry.

    Over the wire, the source's code (callbacks of a playbook included) runs in the server's
    thread, with the context variables of the caller of `mount`: the test's own loop may be blocked
    by the agent that waits for this response.

    A stream that the source receives from a real provider is passed on as it arrives.
    """

    def __init__(  # noqa: PLR0913 - the options of a run
        self,
        source: ModelSource,
        *,
        url: str,
        detect_dialect: Callable[[HttpRequest], Dialect | None],
        hub: Hub | None = None,
        tools: bool = True,
        mocked: Container[str] = (),
        pacing: Pacing | None = None,
        faults: FaultInjector | None = None,
        lenient_history: bool = False,
        on_close: Callable[[], object] = lambda: None,
    ) -> None:
        self.url = url
        self.relays = can_relay(source) and faults is None
        self._keeps_delays = bool(getattr(source, "timed", False))
        # For the connection: no answer waits, nor do the parts of one.
        waits = self._keeps_delays or faults is not None or pacing is not None
        self.at_once = answers_at_once(source) and not waits
        if faults is not None:
            from offbook.sources.faulty_source import FaultySource

            source = FaultySource(source, faults)
        self.source = source
        self._traced: TracedSource | None = None
        if hub is not None:
            self.source = self._traced = TracedSource(
                source, hub, tools=tools, mocked=mocked, lenient=lenient_history
            )
        self.failure: BaseException | None = None
        self.received = 0  # requests, of any kind
        self.unknown_paths: list[str] = []  # of those that no dialect claims
        # What the subject saw of its tools, by call id.
        self.failed_calls: Mapping[str, bool] = {}
        self._seen: Mapping[str, SeenTool] = {}
        self.watched_tools: Container[str] = ()  # the tools whose executions it sees
        self.refusal: RunError | None = None  # of the latest request, if its provider refuses it
        self.context = copy_context()
        self._detect_dialect = detect_dialect
        self._on_close = on_close
        self._hub = hub
        correlation = None if hub is None else hub.correlation
        self._headers = {} if correlation is None else correlation.headers
        self._pacing = pacing
        self._faults = faults
        self._conversations = ConversationStore(url)
        self._recent: deque[tuple[Request, HttpResponse]] = deque(maxlen=RECENT_RESPONSES)
        self._undelivered: list[tuple[Request, HttpResponse]] = []
        self._stream_count = 0
        self._sessions: dict[str, LiveSession | None] = {}  # by the key of their WebSocket
        self._keeps_wire = hub is not None and hub.keeps_wire

    def watch_tools(
        self, failed: Mapping[str, bool], watched: Container[str], seen: Mapping[str, SeenTool]
    ) -> None:
        """Complete the tool results of requests with what the subject sees of its tools."""
        self.failed_calls, self.watched_tools, self._seen = failed, watched, seen
        if self._traced is not None:
            self._traced.seen, self._traced.observed = seen, watched

    @property
    def history_error(self) -> ScriptMismatch | None:
        """The first change of a conversation by the agent that fails the run."""
        return None if self._traced is None else self._traced.history_error

    def forget_history_error(self) -> None:
        """Start the next run without the error of the last one."""
        if self._traced is not None:
            self._traced.history_error = None

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
        """The environment variables that direct the clients of every provider to this endpoint."""
        own = {} if self._hub is None else self._hub.variables
        return {**client_env(self.url), **own}

    def close(self) -> None:
        """Stop serving the source; idempotent."""
        self._on_close()

    def answer(self, http_request: HttpRequest) -> Coroutine[Any, Any, HttpResponse]:
        """Return the response to an HTTP request; never raise."""
        self.received += 1
        if self._keeps_wire or "content-encoding" in http_request.headers:
            return self._answer_encoded(http_request)
        return self._answer(http_request, None)

    async def _answer_encoded(self, http_request: HttpRequest) -> HttpResponse:
        """Answer a request that is compressed, or whose bytes are kept."""
        if "content-encoding" in http_request.headers:
            from offbook.sources.server.compression import decompress  # few clients compress

            try:
                http_request = decompress(http_request)
            except ModelError as error:
                self._emit_error(error)
                self.refusal = _refusal_error(error)
                return error_response(error.status, error.message)
        wire = self._record_wire(http_request)
        response = await self._answer(http_request, wire)
        return response if wire is None else wire.record(response)

    def _record_wire(
        self, http_request: HttpRequest, message: bytes | None = None
    ) -> WireExchange | None:
        """Return the recording of an exchange's bytes, if they are wanted."""
        if self._hub is None or not self._keeps_wire:
            return None
        from offbook.sources.server.wire_recording import WireExchange  # few runs keep the bytes

        return WireExchange(self._hub, http_request, message)

    async def _answer(  # noqa: C901 - its steps in order
        self, http_request: HttpRequest, wire: WireExchange | None
    ) -> HttpResponse:
        # 1. The dialect follows from the path. Lists of models, token counts and the like need no
        #    model; neither does a path that no dialect claims.
        try:
            dialect = self._detect_dialect(http_request)
            if dialect is None:
                path, method = http_request.path, http_request.method
                if method == "HEAD" or (method == "GET" and path in HEALTH_PATHS):
                    response = HttpResponse(200 if path in HEALTH_PATHS else 404)
                else:
                    response = unsupported_path(http_request)
                    self.unknown_paths.append(f"{method} {path}")
                return self._emit_side(http_request, response, "unknown path")
            side = dialect.side_response(http_request, self._conversations)
            if side is not None:
                side = self._emit_side(http_request, side, dialect.name)
                await self._answer_batches()
                return side
        except Exception as error:  # noqa: BLE001 - the client gets it, whatever it is
            self.failure = self.failure or error
            return self._emit_side(http_request, error_response(400, str(error)), "failure")

        request: Request | None = None
        ended: list[int] = []  # the exchange of this request, as soon as it has ended
        remember_credentials(http_request.headers)
        try:
            # 2. The provider's checks are part of decoding: an invalid request is a ModelError.
            request = dialect.decode(http_request, self._conversations)
            request = self._complete(request)
            self.refusal = None  # the agent has continued with a valid request

            # 3. A retry gets the response that the client missed, and takes no further step.
            if self._undelivered or RETRY_HEADER in http_request.headers:
                missed = self._find_missed(http_request, request)
                if missed is not None:
                    about = request.messages.digest()
                    missed = self._emit_side(http_request, missed, SAME_REPLY, request=about)
                    return await self._deliver(missed, dialect, request)

            # 4. After a failure, nothing else is answered.
            if self.failure is not None:
                raise self.failure  # noqa: TRY301 - rendered below like any other

            # 5. A stream from a real provider begins before its reply is complete. If no event
            #    came early, the reply is encoded like any other.
            if self.relays and request.stream:
                from offbook.sources.live import Relay  # a script or a recording needs none

                relay = Relay(self._reply(dialect, request, wire, ended))
                if await relay.has_early_events():
                    headers = {**STREAM_HEADERS, **self._headers}
                    return HttpResponse(200, headers, live_chunks=self._follow(relay))
                reply = await relay.reply
            else:
                reply = await self._reply(dialect, request, wire, ended)
            response = self._encode(dialect, reply, request)
            if reply.fault is not None:
                return await self._break(response, reply.fault, request)
        except ModelError as error:
            if request is None:  # else the traced source has emitted it
                self._emit_error(error)
                self.refusal = _refusal_error(error)
            response = self._add_correlation(_render_error(dialect, error, request))
            if error.fault is not None:
                return response  # not kept for a retry, which is a new request
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - pytest.fail() raises a BaseException
            self.failure = self.failure or error
            model_error = ModelError(_error_text(error), status=400)
            self._emit_error(model_error, *map(exchange_id, ended))
            response = dialect.encode_error(model_error, request)
            # Clients must not retry: the run has failed.
            headers = {**response.headers, **self._headers, "x-should-retry": "false"}
            response = msgspec.structs.replace(response, headers=headers)
        if request is not None:
            self._recent.append((request, response))
        return response

    def _complete(self, request: Request) -> Request:
        """Return a request with the calls that the model made, and their outcomes."""
        if len(request.messages) == 1:  # no call, and no result of one
            return request
        request = self._conversations.restore_call_ids(request)
        request = self._conversations.join_calls(request)
        return _add_outcomes(request, self.failed_calls, self.watched_tools, self._seen)

    async def _answer_batches(self) -> None:
        """Answer the requests of a new batch like any others."""
        requests = self._conversations.batch_requests
        while requests:
            made = requests.popleft()
            made.finish(await self.answer(made.request))

    def _add_correlation(self, response: HttpResponse) -> HttpResponse:
        """Return a response with the id of its run, if it is watched."""
        if not self._headers:
            return response
        headers = {**response.headers, **self._headers}
        return msgspec.structs.replace(response, headers=headers)

    def _encode(self, dialect: Dialect, reply: Reply, request: Request) -> HttpResponse:
        response = dialect.encode(reply, request)
        if self._headers:
            response = self._add_correlation(response)
        if self._keeps_delays and reply.delays:
            waits = _spread_delays(reply, response.chunks)
            response = msgspec.structs.replace(response, chunk_delays=waits)
        return response

    async def _break(
        self, response: HttpResponse, fault: Fault, request: Request | None
    ) -> HttpResponse:
        """Return a response as the fault leaves it; a retry gets it whole, and takes no step."""
        from offbook.sources.faulty_source import break_response

        # What a script cuts is cut: its next step is the answer to a retry.
        if request is not None and fault.kind != "cut":
            self._recent.append((request, response))
            if fault.kind != "slow":
                self._undelivered.append((request, response))
        if fault.kind == "slow" and not response.chunks:
            await asyncio.sleep(fault.seconds)
        return break_response(response, fault)

    async def _deliver(
        self, response: HttpResponse, dialect: Dialect, request: Request
    ) -> HttpResponse:
        """Return an earlier response again; the request has a fault like any other."""
        if self._faults is None:
            return response
        digest = request.messages.digest()
        fault = self._faults.for_request(digest, stream=bool(response.chunks))
        if fault is None:
            return response
        if fault.kind in {"status", "rate_limit"}:
            from offbook.sources.faulty_source import fault_error

            self._undelivered.append((request, response))
            return _render_error(dialect, fault_error(fault), request)
        return await self._break(response, fault, request)

    async def _reply(
        self, dialect: Dialect, request: Request, wire: WireExchange | None, ended: list[int]
    ) -> Reply:
        """Return the source's reply, with the id by which a later request may refer to it."""
        try:
            reply = await self.source.reply(request)
        finally:
            # Nothing else ran since this exchange ended.
            if self._traced is not None:
                ended.append(self._traced.last_exchange)
                if wire is not None:
                    wire.exchange = exchange_id(self._traced.last_exchange)
        reply = msgspec.structs.replace(reply, id=dialect.reply_id(reply, request))
        if dialect.continues_by_id:
            self._conversations.add(reply.id, request, reply)
        else:  # whole conversations of a format that never asks for them would fill the memory
            self._conversations.add_calls(reply)
        return reply

    async def _follow(self, relay: Relay) -> AsyncIterator[bytes]:
        """Yield the events of a stream as they arrive."""
        try:
            async for event in relay.events():
                yield event
        except ModelError:
            return  # the provider's own error event, or its end of the stream, was passed on
        except Exception as error:
            self.failure = self.failure or error
            raise ConnectionError(_error_text(error)) from error

    def mark_undelivered(self, response: HttpResponse) -> None:
        """Keep a response for the next request: the client disconnected before it had all."""
        self._undelivered += [entry for entry in self._recent if entry[1] is response]

    def _find_missed(self, http_request: HttpRequest, request: Request) -> HttpResponse | None:
        """Return the earlier response to the same request, if the client did not get it."""
        is_retry = http_request.headers.get(RETRY_HEADER, "0") != "0"
        for earlier, response in reversed(self._recent if is_retry else self._undelivered):
            if (
                response.status < FIRST_ERROR_STATUS
                and earlier.messages == request.messages
                and earlier.model == request.model
                and earlier.system == request.system
                and earlier.tool_names == request.tool_names
            ):
                self._undelivered = [
                    entry for entry in self._undelivered if entry[1] is not response
                ]
                return response
        return None

    def delays(self, response: HttpResponse) -> Iterable[float] | None:
        """Return the seconds before each chunk of a stream, or None for no delay."""
        if response.chunk_delays:  # recorded delays win over the pacing
            return response.chunk_delays
        if self._pacing is None:
            return None
        self._stream_count += 1
        return self._pacing.delays(len(response.chunks), self._stream_count)

    def converse(self, http_request: HttpRequest, message: bytes) -> AsyncIterator[bytes]:
        """Return the messages that answer one WebSocket message; an empty one opens a session."""
        session = self._session_of(http_request)
        if not message:
            return _encode_all([] if session is None else session.open())
        self.received += 1
        wire = self._record_wire(http_request, message)
        if session is not None:
            events = self._continue(session, message, wire)
        else:
            events = self._converse(http_request, message, wire)
        return events if wire is None else wire.follow(events, separator=b"\n")

    def _session_of(self, http_request: HttpRequest) -> LiveSession | None:
        """Return the session of a WebSocket, if its conversation is kept here."""
        key = http_request.headers.get("sec-websocket-key", "")
        if key not in self._sessions:
            dialect = self._detect_dialect(http_request)
            opens = isinstance(dialect, OpensSessions)
            self._sessions[key] = dialect.open_session(http_request) if opens else None
        return self._sessions[key]

    async def _continue(
        self, session: LiveSession, message: bytes, wire: WireExchange | None
    ) -> AsyncIterator[bytes]:
        """Yield the events that answer a message of a session."""
        events, http_request = session.receive(message)
        for event in events:
            yield msgspec.json.encode(event)
        if http_request is not None:
            async for event in self._stream(http_request, wire):
                for translated in session.translate(msgspec.json.decode(event)):
                    yield msgspec.json.encode(translated)

    async def _converse(
        self, http_request: HttpRequest, message: bytes, wire: WireExchange | None
    ) -> AsyncIterator[bytes]:
        try:
            body = msgspec.json.decode(message, type=dict[str, Any])
        except msgspec.DecodeError as error:
            yield _error_event(f"invalid JSON: {error}")
            return
        if body.pop("type", None) != "response.create":
            yield _error_event("unsupported message type: expected response.create")
            return
        # The message has the fields of a POST body, so it is answered like a POST.
        body["stream"] = True
        headers = {name: text for name, text in http_request.headers.items() if name != "upgrade"}
        encoded = msgspec.json.encode(body)
        post = HttpRequest("POST", http_request.path, headers, encoded, http_request.query)
        async for event in self._stream(post, wire):
            yield event

    async def _stream(
        self, http_request: HttpRequest, wire: WireExchange | None
    ) -> AsyncIterator[bytes]:
        """Yield the events of the response to a request, each as JSON."""
        response = await self._answer(http_request, wire)
        if response.live_chunks is not None:
            with suppress(ConnectionError):  # the client sees a stream without its last event
                async for event in response.live_chunks:
                    yield _event_data(event)
            return
        delays = self.delays(response) or (0,) * len(response.chunks)
        for chunk, delay in zip(response.chunks, delays, strict=True):
            if delay > 0:
                await asyncio.sleep(delay)
            yield _event_data(chunk)
        if response.ending:
            await asyncio.sleep(response.hold)
            raise ConnectionError(response.ending)
        if not response.chunks:  # an error, which has its status in the event here
            try:
                error = msgspec.json.decode(response.body)
            except msgspec.DecodeError:
                error = {}
            yield msgspec.json.encode({"type": "error", "status": response.status, **error})

    def _emit_side(
        self,
        http_request: HttpRequest,
        response: HttpResponse,
        about: str,
        request: str | Optional = UNSET,
    ) -> HttpResponse:
        """Record a response that took no step of the script."""
        if self._hub is not None:
            method, path = http_request.method, http_request.path
            self._hub.emit_data(SideRequestData(method, path, response.status, about, request))
        return response

    def _emit_error(self, error: ModelError, exchange: str = "") -> None:
        if self._hub is not None:
            self._hub.emit_data(error_data(error, exchange))


def _render_error(dialect: Dialect, error: ModelError, request: Request | None) -> HttpResponse:
    """Return the provider's error, or the response of a fault that is none."""
    if error.fault is not None:
        from offbook.sources.faulty_source import fault_response

        if (response := fault_response(error.fault)) is not None:
            return response
    return _without_delay(dialect.encode_error(error, request))


def _add_outcomes(
    request: Request,
    failed: Mapping[str, bool],
    watched: Container[str],
    details: Mapping[str, SeenTool],
) -> Request:
    """Note for the new results whether their tools failed, or never ran, if the subject saw it."""
    if not failed and not watched:
        return request
    results = request.results
    seen = {r.call_id: failed[r.call_id] for r in results if r.call_id in failed}
    metadata = {**request.metadata, FAILED_CALLS: seen} if seen else request.metadata
    if shown := {c: details[c].details for c in seen if c in details and details[c].details}:
        metadata = {**metadata, DETAILS_OF_CALLS: shown}
    if watched and len(seen) < len(results):
        last = request.messages.latest("assistant")
        names = {} if last is None else {call.id: call.name for call in last.calls}
        # A result without a run: the framework rejected the arguments, or has no such tool.
        refused = [r.call_id for r in results if r.call_id not in seen]
        refused = [call_id for call_id in refused if names.get(call_id, "") in watched]
        metadata = {**metadata, REFUSED_CALLS: refused} if refused else metadata
    if metadata is request.metadata:
        return request
    return msgspec.structs.replace(request, metadata=metadata)


def _without_delay(response: HttpResponse) -> HttpResponse:
    """Return an error response after which an SDK does not wait before it tries again.

    The SDKs of OpenAI, Anthropic and Groq prefer this header; `retry-after` has the script's value.
    """
    if "x-should-retry" in response.headers:  # they do not try again
        return response
    headers = {**response.headers, "retry-after-ms": "1"}
    return msgspec.structs.replace(response, headers=headers)


def _refusal_error(error: ModelError) -> RunError:
    """Return the error for a run in which the provider refuses the agent's last request."""
    hint = "correct the request that the agent sends"
    if rule := error.details.get("rule"):
        hint += f", or accept it by lenient={[rule]} (--lenient {rule})"
    return RunError(f"the provider refused the request: {error}", hint=hint)


def _error_text(error: BaseException) -> str:
    return str(error) if isinstance(error, OffbookError) else f"{type(error).__name__}: {error}"


def _error_event(message: str) -> bytes:
    error = {"type": "invalid_request_error", "code": None, "message": message, "param": None}
    return msgspec.json.encode({"type": "error", "status": 400, "error": error})


async def _encode_all(events: Iterable[Any]) -> AsyncIterator[bytes]:
    """Yield these events as messages."""
    for event in events:
        yield msgspec.json.encode(event)


def _event_data(chunk: bytes) -> bytes:
    """Return the JSON of one server-sent event."""
    for line in chunk.splitlines():
        if line.startswith(b"data:"):
            return line[5:].strip()
    return b"{}"


def _spread_delays(reply: Reply, events: Sequence[bytes]) -> tuple[float, ...]:
    """Return the seconds before each event: the recorded delay of the text that it carries."""
    waits = [0.0] * len(events)
    start = 0
    for text, delay in zip(reply.chunks, reply.delays, strict=False):
        needle = msgspec.json.encode(text)[1:-1]
        index = next((n for n in range(start, len(events)) if needle in events[n]), None)
        if index is not None:
            waits[index] = delay / 1000
            start = index + 1
    return tuple(waits)
