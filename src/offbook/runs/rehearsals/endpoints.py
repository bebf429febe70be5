"""Where a subject finds its model: at a base URL, or at whichever its own clients ask."""

from __future__ import annotations

import atexit
import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from offbook.exchange.source import ModelSource
    from offbook.sources.server.endpoint import Endpoint
    from offbook.sources.server.server import Server
    from offbook.trace.hub import Hub


def serve(source: ModelSource, hub: Hub, *, tools: bool, lenient: Iterable[str] = ()) -> Endpoint:
    """A base URL for this source, on the server that all runs of this process share."""
    return _server(os.getpid()).mount(source, hub=hub, tools=tools, lenient=lenient)


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


@cache
def _server(process: int) -> Server:
    """The one server of this process."""
    from offbook.sources.server.server import Server

    server = Server().launch()

    def close() -> None:
        if os.getpid() == process:  # a fork has no thread to end
            server.close()

    atexit.register(close)
    return server
