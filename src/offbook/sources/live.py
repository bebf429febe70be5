"""The real model: asks a provider, or anything that speaks like one, over HTTP.

    Live()                                              # keys from the caller's environment
    Live({"openai-chat": "http://127.0.0.1:8080/v1"})   # any compatible base URL

Each request goes out in the dialect in which it came. Keys are read when they are needed and are
written nowhere. Whoever makes a `Live` has said that requests may leave the machine: it goes
through the border that is closed to everything else.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import re
import ssl
import time
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from offbook.errors import ModelError, RunError, UsageError, did_you_mean
from offbook.exchange.dialects.dialect import HttpResponse
from offbook.exchange.model import current_listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from offbook.exchange.dialects.dialect import Dialect, HttpRequest
    from offbook.exchange.model import Reply, Request

DEADLINE = 600.0
FIRST_ERROR = 400
PART = 64 * 1024
_ENDS = re.compile(rb"((?<=\n)\r?\n|(?<=\r)\r)")
_USAGE = re.compile(rb'"choices": ?\[\]')


class Provider(msgspec.Struct, frozen=True):
    """Where a dialect is spoken, and the variables that name another place and the key."""

    url: str
    place: tuple[str, ...]
    key: tuple[str, ...]


PROVIDERS = {
    "openai-chat": Provider("https://api.openai.com/v1", ("OPENAI_BASE_URL",), ("OPENAI_API_KEY",)),
    "openai-responses": Provider(
        "https://api.openai.com/v1", ("OPENAI_BASE_URL",), ("OPENAI_API_KEY",)
    ),
    "anthropic": Provider(
        "https://api.anthropic.com", ("ANTHROPIC_BASE_URL",), ("ANTHROPIC_API_KEY",)
    ),
    "gemini": Provider(
        "https://generativelanguage.googleapis.com",
        ("GOOGLE_GEMINI_BASE_URL", "GEMINI_BASE_URL"),
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    "bedrock": Provider(
        "https://bedrock-runtime.us-east-1.amazonaws.com",
        ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
        ("AWS_BEARER_TOKEN_BEDROCK",),
    ),
}
DEFAULT = "openai-chat"


class Live:
    """Asks the real provider of the dialect in which a request came.

    `urls` are base URLs by dialect; one under "" is for all. `environment` has the keys, and may
    name base URLs as the providers' own clients read them.
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
        self._environment = os.environ if environment is None else environment
        self._deadline = deadline
        for name in self._urls:
            if name and name not in PROVIDERS:
                raise UsageError(
                    f"there is no dialect {name!r}", hint=did_you_mean(name, PROVIDERS)
                )
        for url in self._urls.values():
            if urlsplit(url).scheme not in {"http", "https"}:
                raise UsageError(f"{url!r} is not a base URL", hint="write https://host/v1")

    async def reply(self, request: Request, /) -> Reply:
        """The provider's reply."""
        dialect = _dialect(str(request.metadata.get("dialect", DEFAULT)))
        wire = dialect.build_request(request, self._place(dialect.name), self._key(dialect.name))
        # An empty context: what answers or refuses the requests of this process is not meant here.
        context = contextvars.Context()
        loop = asyncio.get_running_loop()
        listener = current_listener()

        def hear(event: bytes) -> None:
            if listener is not None and not _is_ours(request, event):
                loop.call_soon_threadsafe(listener, event)

        def send() -> tuple[HttpResponse, tuple[float, ...]]:
            return context.run(_send, wire, self._deadline, hear)

        answer, times = await loop.run_in_executor(None, send)
        return add_chunk_delays(dialect.parse_response(answer, request), answer, times)

    def _place(self, dialect: str) -> str:
        given = self._urls.get(dialect) or self._urls.get("")
        provider = PROVIDERS[dialect]
        named = (self._environment.get(name) for name in provider.place)
        return given or next(filter(None, named), provider.url)

    def _key(self, dialect: str) -> str:
        names = PROVIDERS[dialect].key
        key = next(filter(None, (self._environment.get(name) for name in names)), None)
        if key is None:
            if self._place(dialect) != PROVIDERS[dialect].url:
                return "none"  # one's own server may well want none
            raise UsageError(
                f"no key for {PROVIDERS[dialect].url}",
                hint=f"set {' or '.join(names)}, or name another base URL",
            )
        return key


def _dialect(name: str) -> Dialect:
    from offbook.exchange.providers import all_dialects

    known = {dialect.name: dialect for dialect in all_dialects() if dialect.name in PROVIDERS}
    if name not in known:
        raise UsageError(
            f"a request in the dialect {name!r} cannot be passed on",
            hint=f"only these can: {', '.join(known)}; write a playbook or mocks for it",
        )
    return known[name]


def _is_ours(request: Request, event: bytes) -> bool:
    """Whether an event has nothing but the usage, which was asked for on our own account."""
    asked: dict[str, object] = request.parameters.get("stream_options") or {}
    return not asked.get("include_usage") and _USAGE.search(event) is not None


def _send(
    wire: HttpRequest, deadline: float, hear: Callable[[bytes], None]
) -> tuple[HttpResponse, tuple[float, ...]]:
    """The answer, and when each event of a stream came, in milliseconds from the request."""
    parts = urlsplit(wire.path)
    host = parts.hostname or ""
    connection = (
        HTTPSConnection(host, parts.port, timeout=deadline, context=ssl.create_default_context())
        if parts.scheme == "https"
        else HTTPConnection(host, parts.port, timeout=deadline)
    )
    query = f"?{wire.query}" if wire.query else f"?{parts.query}" if parts.query else ""
    began = time.perf_counter()
    try:
        connection.request(wire.method, f"{parts.path}{query}", wire.body, wire.headers)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        streamed = headers.get("content-type", "").startswith("text/event-stream")
        if not streamed or response.status >= FIRST_ERROR:
            return HttpResponse(response.status, headers, response.read()), ()
        events: list[bytes] = []
        times: list[float] = []
        for event in _events(response):
            times.append((time.perf_counter() - began) * 1000)
            events.append(event)
            hear(event)
        return HttpResponse(response.status, headers, chunks=tuple(events)), tuple(times)
    except TimeoutError as error:
        raise ModelError(f"no answer within {deadline:g} s", status=504) from error
    except (OSError, HTTPException) as error:
        raise RunError(
            f"cannot reach {parts.scheme}://{parts.netloc}: {error}",
            hint="is the base URL right, and is the provider there?",
        ) from error
    finally:
        connection.close()


def _events(response: HTTPResponse) -> Iterator[bytes]:
    """The events of a stream, each whole, with the empty line that ends it."""
    event = b""
    while part := response.read1(PART):  # its lines would hide where a stream broke off
        *whole, event = _ENDS.split(event + part)
        yield from (begun + end for begun, end in zip(whole[::2], whole[1::2], strict=True))
    if event:
        yield event


def add_chunk_delays(reply: Reply, answer: HttpResponse, times: tuple[float, ...]) -> Reply:
    """The reply with the wait before each of its pieces, read off the events that brought them."""
    if not reply.chunks or not times:
        return reply
    arrivals: list[float] = []
    at = 0
    for piece in reply.chunks:
        needle = msgspec.json.encode(piece)[1:-1]
        found = next((n for n in range(at, len(times)) if needle in answer.chunks[n]), None)
        at = min(at, len(times) - 1) if found is None else found
        arrivals.append(times[at])
        at = at if found is None else found + 1
    waits = [now - before for before, now in zip([0.0, *arrivals], arrivals, strict=False)]
    delays = tuple(round(max(0.0, wait), 1) for wait in waits)
    return msgspec.structs.replace(reply, delays=delays)
