"""The protocol of a dialect, which translates between a provider's wire format and `exchange`.

A dialect is one folder. Its `__init__.py` defines `PROVIDER`: hosts, variables, prices and all else
about the provider that is data. The class that `PROVIDER.dialect` names has the wire format.

The server side decodes the request of an agent (`decode`) and encodes the provider's response
(`encode`, `encode_error`, `side_response`). The client side does the reverse against a real
provider (`build_request`, `parse_response`). A dialect does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from offbook.determinism.clock import stable_id
from offbook.exchange.messages import JSON

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from offbook.errors import ModelError
    from offbook.exchange.dialects.conversations import ConversationStore
    from offbook.exchange.model import Reply, Request


class ModelPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The price of a model in dollars for a million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider without its wire format: data, so that a run can look up a host or a price.

    - `name`: the dialect's name in traces, cassettes and options.
    - `dialect`: its class as "module:name", imported for the first request.
    - `url`: the base URL of the real provider. `url_variables` override it, and `key_variables`
      have the key.
    - `hosts`, `host_patterns`, `local_ports`: the addresses that are intercepted in process, and
      `gateway_variables` further variables that name one.
    - `client_env`, `client_arguments` (by command) and `opencode` (by its name of the provider):
      the settings that point clients at `{url}`.
    - `call_id`: the prefix of the ids of tool calls, and the length of the rest; None for the
      form of OpenAI.
    - `otel_name`: its name in OpenTelemetry's conventions.
    - `sdks`: its Python packages, and their titles.
    - `prices`: the list prices of its models.
    """

    name: str
    dialect: str
    url: str
    url_variables: tuple[str, ...]
    key_variables: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    host_patterns: tuple[str, ...] = ()
    local_ports: tuple[int, ...] = ()
    gateway_variables: tuple[str, ...] = ()
    client_env: Mapping[str, str] = {}
    client_arguments: Mapping[str, tuple[str, ...]] = {}
    opencode: Mapping[str, str] = {}
    call_id: tuple[str, int] | None = None
    otel_name: str
    sdks: Mapping[str, str] = {}
    prices: Mapping[str, ModelPrice] = {}


API_KEY = "offbook"  # of clients that are pointed at Offbook


class HttpRequest(msgspec.Struct, frozen=True):
    """An HTTP request, received or to be sent. Header names are lower case."""

    method: str
    path: str
    headers: dict[str, str] = {}
    body: bytes = b""
    query: str = ""


class HttpResponse(msgspec.Struct, frozen=True):
    """An HTTP response. A stream has its events in `chunks`, each complete, and no `body`.

    A stream that is still in progress has `live_chunks` instead, which can be iterated once and
    raises `ConnectionError` if the stream breaks. `chunk_delays` are the seconds before each
    chunk, if the timing of a recording is to be kept.

    `ending` is what follows in place of the end: the connection is closed (`reset`), or nothing
    comes until the client gives up, for at most `hold` seconds (`timeout`). Without a chunk, the
    head is not sent either.
    """

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""
    chunks: Sequence[bytes] = ()
    live_chunks: AsyncIterator[bytes] | None = None
    chunk_delays: tuple[float, ...] = ()
    ending: Literal["", "reset", "timeout"] = ""
    hold: float = 0


HAT_HEADER = "x-offbook-hat"  # set by an orchestrator that knows which hat sends the request
# Headers by which clients identify a session, an agent or a retry.
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
    "traceparent",  # of a client that sends spans
)
_SESSION_HEADERS = frozenset(SESSION_HEADERS)
_RETRIED_STATUSES = frozenset({408, 409, 429})


def request_metadata(http_request: HttpRequest, dialect: str) -> JSON:
    """Return the metadata of a request: its dialect, its path and its session headers."""
    metadata: JSON = {"dialect": dialect, "endpoint": http_request.path}
    headers = http_request.headers
    if HAT_HEADER in headers:
        metadata["hat"] = headers[HAT_HEADER]
    if not _SESSION_HEADERS.isdisjoint(headers):
        metadata.update([(name, headers[name]) for name in SESSION_HEADERS if name in headers])
    return metadata


def error_headers(error: ModelError) -> dict[str, str]:
    """Return the headers of an error response that have the same form for all providers."""
    headers: dict[str, str] = {}
    if error.retry_after is not None:
        headers["retry-after"] = f"{error.retry_after:g}"
    if error.status < 500 and error.status not in _RETRIED_STATUSES:  # noqa: PLR2004 - HTTP's
        # The clients retry some of these statuses, which only makes a failing test slow.
        headers["x-should-retry"] = "false"
    if rule := error.details.get("rule"):
        headers["x-offbook-rule"] = str(rule)
    return headers


def make_reply_id(prefix: str, reply: Reply, request: Request, *, length: int = 24) -> str:
    """Return the id of the reply, or a stable id computed from the exchange."""
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
    """The wire format of one provider.

    In some formats a request can continue an earlier reply by its id (`continues_by_id`): then the
    server keeps the exchanges.
    """

    name: str
    continues_by_id: bool

    def claims(self, http_request: HttpRequest) -> bool:
        """Return whether this request is in the dialect: a model call or a side request."""
        ...

    def side_response(
        self, http_request: HttpRequest, conversations: ConversationStore
    ) -> HttpResponse | None:
        """Return the response to a request that needs no model; None for a model call.

        Such requests are lists of models, token counts, embeddings and earlier replies.
        """
        ...

    def decode(self, http_request: HttpRequest, conversations: ConversationStore) -> Request:
        """Decode a request; raise `ModelError` where the provider would reject it.

        `conversations` has the earlier replies of this run, for requests that continue one.
        """
        ...

    def reply_id(self, reply: Reply, request: Request) -> str:
        """Return the id with which the reply is sent, always the same for the same exchange.

        The server stores the exchange under this id, for requests that continue it.
        """
        ...

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """Encode a reply: JSON, or the whole stream if the request asked for one."""
        ...

    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:
        """Encode an error with the status, body and headers of the provider."""
        ...

    def build_request(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """Build a request to the real provider; its `path` is the whole URL."""
        ...

    def parse_response(self, response: HttpResponse, request: Request) -> Reply:
        """Parse a response of the real provider, streamed or not; raise its errors."""
        ...
