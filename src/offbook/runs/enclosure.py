"""What a subject of this process runs in: its clients are answered, and nothing gets out."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Iterable

    from offbook.errors import IsolationError
    from offbook.exchange.source import ModelSource
    from offbook.sources.server.endpoint import Endpoint
    from offbook.trace.hub import Hub

REFUSED = "isolation.refused"


def answer_clients(
    source: ModelSource,
    hub: Hub,
    *,
    tools: bool,
    lenient: Iterable[str] = (),
    mocked: Container[str] = (),
) -> Endpoint:
    """The same answers as over the wire, for clients that need no address."""
    from offbook.exchange.dialects.all import only
    from offbook.exchange.rules import without
    from offbook.sources.server.endpoint import Endpoint

    recognise = only(without(lenient))
    return Endpoint(source, url="", recognise=recognise, hub=hub, tools=tools, mocked=mocked)


class Enclosure:
    """The walls around a subject: whom it may reach, and what it was refused."""

    def __init__(self, hub: Hub, *, urls: tuple[str, ...], allow: tuple[str, ...]) -> None:
        self._hub = hub
        self._urls = urls
        self._allow = allow
        self.refused: list[IsolationError] = []

    @contextmanager
    def around(self, endpoint: Endpoint) -> Generator[None]:
        """Inside, models are this endpoint, and nothing leaves the machine."""
        from offbook.determinism.isolation import closed
        from offbook.sources.inprocess.interception import intercepted

        with closed(allow=self._allow) as border:
            try:
                with intercepted(endpoint.answer, urls=self._urls):
                    yield
            finally:
                for error in border.refused:
                    self._hub.emit(REFUSED, {"error": error.what, "where": error.where})
                self.refused += border.refused
