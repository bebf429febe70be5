"""A dialect translates between a provider's wire format and the neutral exchange, both ways.

The serving side reads what an agent sent (`decode`) and writes what the provider would have
answered (`encode`, `refuse`, `aside`). The asking side does the reverse against a real provider
(`ask`, `parse`). Nothing here does any I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import UNSET

from offbook.determinism.clock import stable_id
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.messages import JSON

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from offbook.errors import ModelError
    from offbook.exchange.model import Reply, Request


class HttpRequest(msgspec.Struct, frozen=True):
    """An HTTP request as it came, or as it will go out. Header names are lower case."""

    method: str
    path: str
    headers: dict[str, str] = {}
    body: bytes = b""
    query: str = ""


class HttpResponse(msgspec.Struct, frozen=True):
    """An HTTP response. A stream has its events in `chunks`, each whole, and no `body`.

    Those of a stream that somebody else still writes are `coming`, once. It breaks off with a
    `ConnectionError` where they did. `waits` are the seconds before each chunk, where they are
    to be kept.
    """

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""
    chunks: Sequence[bytes] = ()
    live_chunks: AsyncIterator[bytes] | None = None
    waits: tuple[float, ...] = ()


HAT_HEADER = "x-offbook-hat"  # who asks, where an orchestrator knows it
SESSION_HEADERS = (
    "session-id",
    "thread-id",
    "x-session-id",
    "x-irid",
    "x-codex-turn-metadata",
    "x-codex-window-id",
    "x-client-request-id",
    "x-claude-code-session-id",
    "x-claude-code-agent-id",
    "x-claude-code-parent-agent-id",
    "x-stainless-helper-method",
    "x-stainless-retry-count",
    "user-agent",
)
_SESSION = frozenset(SESSION_HEADERS)


def request_metadata(wire: HttpRequest, dialect: str) -> JSON:
    """What is known about the asker: the dialect, the endpoint and the headers of its session."""
    about: JSON = {"dialect": dialect, "endpoint": wire.path}
    headers = wire.headers
    if HAT_HEADER in headers:
        about["hat"] = headers[HAT_HEADER]
    if not _SESSION.isdisjoint(headers):
        about.update([(name, headers[name]) for name in SESSION_HEADERS if name in headers])
    return about


class OptionPicker:
    """Picks the options that were given out of a body, which has UNSET for the others.

    All fields of the body are options from the one called `first` on.
    """

    def __init__(self, body: type[msgspec.Struct], first: str) -> None:
        self._at = body.__struct_fields__.index(first)
        self._names = body.__struct_fields__[self._at :]

    def pick(self, body: msgspec.Struct) -> JSON:
        """The options by their names."""
        values = msgspec.structs.astuple(body)[self._at :]
        if values.count(UNSET) == len(values):  # as nearly always
            return {}
        return {
            name: value
            for name, value in zip(self._names, values, strict=True)
            if value is not UNSET
        }


def make_reply_id(prefix: str, reply: Reply, request: Request, *, length: int = 24) -> str:
    """The id of a reply: its own, or one made of the exchange."""
    return reply.id or stable_id(
        prefix,
        request.messages.digest(),
        request.model,
        f"{reply.role}{reply.step}",
        reply.text,
        *(call.id for call in reply.calls),
        length=length,
    )


class Dialect(Protocol):
    """One provider's wire format."""

    name: str

    def claims(self, wire: HttpRequest) -> bool:
        """Whether this request is written in it: model calls and everything beside them."""
        ...

    def side_response(self, wire: HttpRequest, threads: ConversationStore) -> HttpResponse | None:
        """What needs no model: lists of models, token counts, embeddings, an earlier reply again.

        None for a model call.
        """
        ...

    def decode(self, wire: HttpRequest, threads: ConversationStore) -> Request:
        """The neutral request; a `ModelError` where the provider would refuse it.

        `threads` knows earlier replies of this run by their id, for requests that only continue.
        """
        ...

    def identify(self, reply: Reply, request: Request) -> str:
        """The id under which the reply goes out, always the same for the same exchange.

        Whoever serves remembers the exchange under it, for the requests that go on from there.
        """
        ...

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """The provider's answer: JSON, or the full stream when the request asked for one."""
        ...

    def refuse(self, error: ModelError, request: Request | None = None) -> HttpResponse:
        """The provider's way of saying no, with its headers."""
        ...

    def ask(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """A request to the real provider; `path` is the whole URL."""
        ...

    def parse(self, answer: HttpResponse, request: Request) -> Reply:
        """The real provider's answer, streamed or not; a `ModelError` where it refused."""
        ...
