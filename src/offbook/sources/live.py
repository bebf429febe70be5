"""The real model: sends requests to a provider, or to any compatible server, over HTTP.

    Live()                                              # keys from the environment
    Live({"openai-chat": "http://127.0.0.1:8080/v1"})   # any compatible base URL

A request goes out in the dialect in which it came in. Keys are read when they are needed and are
never written. A `Live` is an explicit permission to send requests: the network guard, which blocks
everything else, lets it through.
"""

from __future__ import annotations

import asyncio
import fcntl
import random
import re
import ssl
import struct
import time
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from offbook.determinism.environment import read_environment
from offbook.determinism.network_guard import permit_connections
from offbook.errors import ModelError, RunError, UsageError, require_known
from offbook.exchange.dialects.dialect import TO_HOST, HttpResponse
from offbook.exchange.providers import LOCAL_HOSTS, all_providers, load_dialect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping

    from offbook.exchange.dialects.dialect import Dialect, HttpRequest
    from offbook.exchange.model import ModelSource, Reply, Request

    Listener = Callable[[bytes], object]


DEADLINE = 600.0
FIRST_ERROR = 400
READ_SIZE = 64 * 1024
DEFAULT_DIALECT = "openai-chat"
_EVENT_END = re.compile(rb"((?<=\n)\r?\n|(?<=\r)\r)")
_OPENAI_PATH = re.compile(r"/(chat/completions|responses|embeddings|v2/chat)/?$")
_NO_CHOICES = re.compile(rb'"choices": ?\[\]')


PROVIDERS = all_providers()
INVALID_RESPONSE = (
    *(AttributeError, LookupError, RecursionError, TypeError, ValueError),
    *(msgspec.MsgspecError, struct.error),
)


def read_reply(dialect: Dialect, response: HttpResponse, request: Request) -> Reply:
    """Return the reply of a response; one that does not have its format is a `ModelError`.

    A gateway or a compatible server may answer with anything.
    """
    try:
        return dialect.parse_response(response, request)
    except INVALID_RESPONSE as error:
        what = f"{type(error).__name__}: {error}"
        raise ModelError(f"invalid response of the provider: {what}", status=502) from error


class Live:
    """A source that calls the real provider.

    `urls` are base URLs by dialect, or one for all dialects. `environment` has the keys, and may
    have base URLs under the names that the providers' own clients read.
    """

    relays = True

    def __init__(
        self,
        urls: Mapping[str, str] | str | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        self._urls = {"": urls} if isinstance(urls, str) else dict(urls or {})
        self._environment = environment
        self._deadline = deadline
        for name in self._urls:
            if name:
                require_known("unknown dialect", name, PROVIDERS)
        for url in self._urls.values():
            if urlsplit(url).scheme not in {"http", "https"}:
                raise UsageError(f"{url!r} is not a base URL", hint="write https://host/v1")

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply of the provider; a stream is relayed while it arrives."""
        name = str(request.metadata.get("dialect", DEFAULT_DIALECT))
        if name not in PROVIDERS:
            raise UsageError(
                f"cannot send a request in the dialect {name!r} to a provider",
                hint=f"supported: {', '.join(PROVIDERS)}; write a playbook or mocks for it",
            )
        dialect = load_dialect(name)
        url, key = self._find_endpoint(name, str(request.metadata.get("endpoint", "")))
        http_request = dialect.build_request(request, url, key)
        # Interception and the network guard of this run do not apply here.
        context = permit_connections()
        loop = asyncio.get_running_loop()
        listener = current_listener()
        options: dict[str, object] = request.parameters.get("stream_options") or {}
        usage_wanted = bool(options.get("include_usage"))

        def on_event(event: bytes) -> None:
            # The dialect always asks for the usage, in a last chunk without choices. A client
            # that did not ask for it may not expect such a chunk.
            if listener is not None and (usage_wanted or not _NO_CHOICES.search(event)):
                loop.call_soon_threadsafe(listener, event)

        def send() -> tuple[HttpResponse, tuple[float, ...]]:
            return context.run(_send, http_request, self._deadline, on_event)

        response, times = await loop.run_in_executor(None, send)
        return add_chunk_delays(read_reply(dialect, response, request), response, times)

    def _find_endpoint(self, dialect: str, path: str) -> tuple[str, str]:
        """Return the base URL and the key; `path` names the host, if it is not the provider's."""
        # Not the keys that a run gives to the clients of its agent.
        env = read_environment() if self._environment is None else self._environment
        provider = PROVIDERS[dialect]
        configured = self._urls.get(dialect) or self._urls.get("")
        own, keys = provider.url, provider.key_variables
        urls = [env.get(name) for name in provider.url_variables]
        if path.startswith(TO_HOST) and not configured:
            host, slash, rest = path.removeprefix(TO_HOST).partition("/")
            base = _OPENAI_PATH.sub("", slash + rest)
            clients = [p.host_clients[host] for p in PROVIDERS.values() if host in p.host_clients]
            if clients:
                own, keys = f"https://{host}{base}", clients[0].keys
                # A variable has the whole base URL, or the host, to which the SDK adds the path.
                known = ((env.get(name), start) for name, start in clients[0].urls.items())
                urls = [url + base.removeprefix(start) for url, start in known if url]
            elif any(re.fullmatch(pattern, host) for pattern in provider.region_patterns):
                own, urls = f"https://{host}", []
            else:  # a key goes to its own host only
                raise UsageError(f"unknown key for {host}", hint="record with --upstream URL")
        url = configured or next(filter(None, urls), own)
        key = next(filter(None, map(env.get, keys)), None)
        if key is not None:
            return url, key
        if url != own or urlsplit(own).hostname in LOCAL_HOSTS:
            return url, "none"  # a local server may need no key
        raise UsageError(
            f"missing API key for {own}",
            hint=f"set {' or '.join(keys)}, or use another base URL",
        )


def _send(
    request: HttpRequest, deadline: float, on_event: Callable[[bytes], None]
) -> tuple[HttpResponse, tuple[float, ...]]:
    """Return the response, and the arrival of each event of a stream in milliseconds."""
    url = urlsplit(request.path)
    host = url.hostname or ""
    connection = (
        HTTPSConnection(host, url.port, timeout=deadline, context=ssl.create_default_context())
        if url.scheme == "https"
        else HTTPConnection(host, url.port, timeout=deadline)
    )
    query = request.query or url.query
    target = f"{url.path}?{query}" if query else url.path
    start = time.perf_counter()
    try:
        connection.request(request.method, target, request.body, request.headers)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        streamed = headers.get("content-type", "").startswith("text/event-stream")
        if not streamed or response.status >= FIRST_ERROR:
            return HttpResponse(response.status, headers, response.read()), ()
        events: list[bytes] = []
        times: list[float] = []
        for event in _read_events(response):
            times.append((time.perf_counter() - start) * 1000)
            events.append(event)
            on_event(event)
        return HttpResponse(response.status, headers, chunks=tuple(events)), tuple(times)
    except TimeoutError as error:
        raise ModelError(f"no response within {deadline:g} s", status=504) from error
    except (OSError, HTTPException) as error:
        raise RunError(
            f"cannot connect to {url.scheme}://{url.netloc}: {error}",
            hint="check the base URL and that the provider is available",
        ) from error
    finally:
        connection.close()


def _read_events(response: HTTPResponse) -> Iterator[bytes]:
    """Yield the events of a stream, each with the empty line that ends it."""
    event = b""
    # Not by lines: http.client hides that a stream broke off inside one.
    while part := response.read1(READ_SIZE):
        *complete, event = _EVENT_END.split(event + part)
        yield from (text + end for text, end in zip(complete[::2], complete[1::2], strict=True))
    if event:
        yield event


def add_chunk_delays(reply: Reply, response: HttpResponse, times: tuple[float, ...]) -> Reply:
    """Return the reply with the delay before each chunk, from the event that contains it."""
    if not reply.chunks or not times:
        return reply
    arrivals: list[float] = []
    index = 0
    for chunk in reply.chunks:
        encoded = msgspec.json.encode(chunk)[1:-1]
        candidates = range(index, len(times))
        match = next((n for n in candidates if encoded in response.chunks[n]), None)
        index = min(index, len(times) - 1) if match is None else match
        arrivals.append(times[index])
        index = index if match is None else match + 1
    pairs = zip([0.0, *arrivals], arrivals, strict=False)
    delays = tuple(round(max(0.0, after - before), 1) for before, after in pairs)
    return msgspec.structs.replace(reply, delays=delays)


# ------------------------------------------------------------------------------- limits
# Many requests to a provider: not more than its limits allow, and again after its errors.

RETRIED = {408, 409, 429, 500, 502, 503, 504, 529}
FIRST_DELAY, MAX_DELAY = 0.5, 60.0
WINDOW = 60.0
CHARACTERS_PER_TOKEN = 4  # of a request whose tokens are not known yet


def _is_temporary(error: ModelError | RunError) -> bool:
    """Return whether a request may succeed later: the provider is busy, or the connection broke."""
    if isinstance(error, ModelError):
        return error.status in RETRIED
    return isinstance(error.__cause__, ConnectionResetError | BrokenPipeError | HTTPException)


class LiveLimits(msgspec.Struct, frozen=True):
    """The limits of requests to real models; `file` shares them between processes."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    retries: int = 0
    file: str = ""


class LimitedSource:
    """A source that keeps limits, and repeats a request that failed at the provider.

    It waits as long as `retry-after` says, otherwise twice as long each time.
    """

    relays = True

    def __init__(self, source: ModelSource, limits: LiveLimits) -> None:
        self._source = source
        self._limits = limits

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply; the last error is raised."""
        delay = FIRST_DELAY
        for attempt in range(self._limits.retries + 1):
            entry = await self._wait_for_turn(request)
            try:
                reply = await self._source.reply(request)
            except (ModelError, RunError) as error:
                self._set_tokens(entry, 0)
                if not _is_temporary(error) or attempt == self._limits.retries:
                    raise
                wait = error.retry_after if isinstance(error, ModelError) else None
                if wait is None:
                    wait = delay * random.uniform(1, 1.5)  # noqa: S311 - not a secret
                await asyncio.sleep(wait)
                delay = min(MAX_DELAY, delay * 2)
            else:
                self._set_tokens(entry, reply.usage.input + reply.usage.output)
                return reply
        raise AssertionError("the last attempt returns or raises")

    async def _wait_for_turn(self, request: Request) -> float:
        """Wait until the limits allow a request; return the time by which it is known.

        Until its reply, a request counts as many tokens as the largest of the last minute, at least
        those of its own text.
        """
        if self._limits.requests_per_minute is None and self._limits.tokens_per_minute is None:
            return 0.0
        while True:
            with self._sent() as sent:
                now = time.time()
                if (seconds := self._seconds_to_wait(sent, now)) <= 0:
                    text = sum(len(message.text) for message in request.messages)
                    sent.append([now, max([text // CHARACTERS_PER_TOKEN, *(n for _, n in sent)])])
                    return now
            await asyncio.sleep(min(seconds, 1.0))

    def _seconds_to_wait(self, sent: list[list[float]], now: float) -> float:
        """Return the time until so many requests have left the last minute that one may follow."""
        sent[:] = [item for item in sent if item[0] > now - WINDOW]
        requests, tokens = self._limits.requests_per_minute, self._limits.tokens_per_minute
        seconds = 0.0
        if requests is not None and len(sent) >= requests:
            seconds = sent[len(sent) - max(1, int(requests))][0] + WINDOW - now
        used = sum(item[1] for item in sent)
        for since, count in sent if tokens is not None else ():
            if used < (tokens or 0):
                break
            seconds, used = max(seconds, since + WINDOW - now), used - count
        return seconds

    def _set_tokens(self, entry: float, tokens: int) -> None:
        if self._limits.tokens_per_minute is not None:
            with self._sent() as sent:
                for item in sent:
                    item[1] = tokens if item[0] == entry else item[1]

    @contextmanager
    def _sent(self) -> Generator[list[list[float]]]:
        """Lock and open the times and tokens of the requests of the last minute."""
        with open(self._limits.file, "a+b") as file:  # noqa: PTH123 - as fast as it can be
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            sent = msgspec.json.decode(file.read() or b"[]", type=list[list[float]])
            yield sent
            file.seek(0)
            file.truncate()
            file.write(msgspec.json.encode(sent))


# -------------------------------------------------------------------------------- relay
# The events of a reply in progress, passed on while they arrive.
#
# A source returns a whole reply. One that receives it event by event (a live provider) also passes
# each event to a listener: `Relay` runs such a source and yields its events.

_listener: ContextVar[Listener | None] = ContextVar("offbook-listener", default=None)
_LAST_EVENT = re.compile(
    rb'\[DONE\]|"type": ?"(?:message_stop|response\.(?:completed|incomplete|failed))"'
)


def current_listener() -> Listener | None:
    """Return the listener for the events of the reply in progress in this context."""
    return _listener.get()


class Relay:
    """A reply in progress, run as a task, and its events so far."""

    def __init__(self, work: Coroutine[None, None, Reply]) -> None:
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._next: bytes | None = None
        # Only the source of this reply may see the listener, so it is set in a copy.
        context = copy_context()
        context.run(_listener.set, self._events.put_nowait)
        self.reply = asyncio.get_running_loop().create_task(work, context=context)
        # None marks the end of the events, also if the source fails.
        self.reply.add_done_callback(lambda _: self._events.put_nowait(None))

    async def has_early_events(self) -> bool:
        """Wait for the first event; False if the reply is complete without any."""
        try:
            self._next = await self._events.get()
        except asyncio.CancelledError:
            self.reply.cancel()
            raise
        return self._next is not None

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the events as they arrive.

        The last event is delayed until the reply is complete and recorded: a client may exit as
        soon as it has received it, and end the run.
        """
        try:
            while self._next is not None and _LAST_EVENT.search(self._next) is None:
                yield self._next
                self._next = await self._events.get()
            # Raises the error of the source, if it failed.
            await self.reply
            while self._next is not None:
                yield self._next
                self._next = await self._events.get()
        finally:
            self.reply.cancel()
