"""The HTTP track of a tape: the requests of an agent and its tools to other servers than models.

The HTTP clients of a run look at `Hub.http_track`, in process and through the proxy of a command.
A recording sends a request and notes the response; a replay has the response already, and nothing
is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from offbook.exchange.dialects.dialect import HttpResponse


class HttpCall(msgspec.Struct, frozen=True):
    """A request to another server: its method, its whole URL and its body."""

    method: str
    url: str
    body: bytes = b""


class HttpTrack(Protocol):
    """The requests of a run, recorded or replayed; `replays` is true if they are answered."""

    replays: bool

    @property
    def failure(self) -> Exception | None:
        """The first request that was not recorded."""
        ...

    def find(self, call: HttpCall, /) -> HttpResponse | None:
        """Return the response, or None to send the request; raise if it is not known."""
        ...

    def add(self, call: HttpCall, response: HttpResponse, /) -> None:
        """Note a response."""
        ...
