"""What a subject of this process runs in: its clients are answered, and nothing gets out."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from offbook.errors import IsolationError
    from offbook.sources.server.endpoint import Endpoint
    from offbook.trace.hub import Hub

REFUSED = "isolation.refused"


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
