"""httpx2: what the present SDKs of OpenAI, Anthropic and Google send their requests with."""

from __future__ import annotations

from offbook.sources.inprocess.httpx import Httpx


class Httpx2(Httpx):
    """It has the transports of httpx, under another name."""

    def __init__(self) -> None:
        super().__init__("httpx2")
