"""A dialect of a few lines, so that the server is tested apart from every provider."""

from typing import Any

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.dialect import Answer, Wire
from offbook.exchange.history import History
from offbook.exchange.messages import Message
from offbook.exchange.reply import Reply
from offbook.exchange.request import Request, Tool
from offbook.exchange.threads import Threads

JSON = {"content-type": "application/json"}
SSE = {"content-type": "text/event-stream"}


class Body(msgspec.Struct):
    messages: list[Message]
    tools: list[Tool] = []
    stream: bool = False


class Plain:
    """Speaks the neutral messages themselves."""

    name = "plain"

    def claims(self, wire: Wire) -> bool:
        return wire.path in {"/v1/plain", "/plain", "/v1/models", "/v1/responses"}

    def aside(self, wire: Wire, threads: Threads) -> Answer | None:  # noqa: ARG002 - the protocol
        return Answer(200, JSON, b'{"models":[]}') if wire.method == "GET" else None

    def decode(self, wire: Wire, threads: Threads) -> Request:  # noqa: ARG002 - the protocol
        try:
            body = msgspec.json.decode(wire.body, type=Body)
        except msgspec.DecodeError as error:
            raise ModelError(f"the body is not right: {error}", status=400) from error
        return Request(History(body.messages), tools=tuple(body.tools), stream=body.stream)

    def identify(self, reply: Reply, request: Request) -> str:  # noqa: ARG002 - the protocol
        return f"reply-{reply.step}"

    def encode(self, reply: Reply, request: Request) -> Answer:
        if not request.stream:
            return Answer(200, JSON, msgspec.json.encode(reply))
        words = reply.text.split(" ")
        return Answer(200, SSE, b"", tuple(f'data: "{word}"\n\n'.encode() for word in words))

    def refuse(self, error: ModelError, request: Request | None = None) -> Answer:  # noqa: ARG002 - the protocol
        return Answer(error.status, JSON, msgspec.json.encode({"error": error.message}))

    def ask(self, request: Request, base_url: str, key: str) -> Wire:
        raise NotImplementedError

    def parse(self, answer: Answer, request: Request) -> Reply:
        raise NotImplementedError


def recognise(wire: Wire) -> Plain | None:
    """The dialect of this request, if it is the plain one."""
    plain = Plain()
    return plain if plain.claims(wire) else None


def body(*messages: Message, stream: bool = False, tools: list[str] | None = None) -> bytes:
    """A request in the plain dialect."""
    offered: list[Any] = [{"name": name} for name in tools or []]
    return msgspec.json.encode({"messages": messages, "stream": stream, "tools": offered})
