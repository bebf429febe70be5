"""A dialect translates between a provider's wire format and the neutral exchange, both ways.

The serving side reads what an agent sent (`decode`) and writes what the provider would have
answered (`encode`, `refuse`, `aside`). The asking side does the reverse against a real provider
(`ask`, `parse`). Nothing here does any I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from offbook.exchange.threads import Threads

if TYPE_CHECKING:
    from offbook.errors import ModelError
    from offbook.exchange.reply import Reply
    from offbook.exchange.request import Request


class Wire(msgspec.Struct, frozen=True):
    """An HTTP request as it came, or as it will go out. Header names are lower case."""

    method: str
    path: str
    headers: dict[str, str] = {}
    body: bytes = b""
    query: str = ""


class Answer(msgspec.Struct, frozen=True):
    """An HTTP response. A stream has its events in `chunks`, each whole, and no `body`."""

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""
    chunks: tuple[bytes, ...] = ()


class Dialect(Protocol):
    """One provider's wire format."""

    name: str

    def claims(self, wire: Wire) -> bool:
        """Whether this request is written in it: model calls and everything beside them."""
        ...

    def aside(self, wire: Wire) -> Answer | None:
        """What needs no model: lists of models, token counts, embeddings; None for a model call."""
        ...

    def decode(self, wire: Wire, threads: Threads) -> Request:
        """The neutral request; a `ModelError` where the provider would refuse it.

        `threads` knows earlier replies of this run by their id, for requests that only continue.
        """
        ...

    def encode(self, reply: Reply, request: Request) -> Answer:
        """The provider's answer: JSON, or the full stream when the request asked for one."""
        ...

    def refuse(self, error: ModelError, request: Request | None = None) -> Answer:
        """The provider's way of saying no, with its headers."""
        ...

    def ask(self, request: Request, base_url: str, key: str) -> Wire:
        """A request to the real provider; `path` is the whole URL."""
        ...

    def parse(self, answer: Answer, request: Request) -> Reply:
        """The real provider's answer, streamed or not; a `ModelError` where it refused."""
        ...
