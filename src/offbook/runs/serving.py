"""The one server of this process, for every subject that wants a base URL."""

from __future__ import annotations

import atexit
import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.exchange.source import ModelSource
    from offbook.sources.server.endpoint import Endpoint
    from offbook.sources.server.server import Server
    from offbook.trace.hub import Hub


def serve(source: ModelSource, hub: Hub, *, tools: bool, lenient: Iterable[str] = ()) -> Endpoint:
    """A base URL for this source, on the server that all runs of this process share."""
    return _server(os.getpid()).mount(source, hub=hub, tools=tools, lenient=lenient)


@cache
def _server(process: int) -> Server:
    from offbook.sources.server.server import Server

    server = Server().launch()

    def close() -> None:
        if os.getpid() == process:  # a fork has no thread to end
            server.close()

    atexit.register(close)
    return server
