"""A minimal dialect, to test the server without any provider's dialect."""

from typing import Any

import msgspec

from offbook.errors import ModelError
from offbook.exchange import History, Message, Reply, Request, Tool
from offbook.exchange.dialects import ConversationStore, HttpRequest, HttpResponse

JSON = {"content-type": "application/json"}
SSE = {"content-type": "text/event-stream"}


class Body(msgspec.Struct):
    messages: list[Message]
    tools: list[Tool] = []
    stream: bool = False


class Plain:
    """Sends the neutral messages as JSON."""

    name = "plain"
    continues_by_id = False

    def claims(self, http_request: HttpRequest) -> bool:
        return http_request.path in {"/v1/plain", "/plain", "/v1/models", "/v1/responses"}

    def side_response(
        self,
        http_request: HttpRequest,
        conversations: ConversationStore,  # noqa: ARG002 - the protocol
    ) -> HttpResponse | None:
        return HttpResponse(200, JSON, b'{"models":[]}') if http_request.method == "GET" else None

    def decode(self, http_request: HttpRequest, conversations: ConversationStore) -> Request:  # noqa: ARG002 - the protocol
        try:
            body = msgspec.json.decode(http_request.body, type=Body)
        except msgspec.DecodeError as error:
            raise ModelError(f"invalid body: {error}", status=400) from error
        return Request(History(body.messages), tools=tuple(body.tools), stream=body.stream)

    def reply_id(self, reply: Reply, request: Request) -> str:  # noqa: ARG002 - the protocol
        return f"reply-{reply.step}"

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        if not request.stream:
            return HttpResponse(200, JSON, msgspec.json.encode(reply))
        words = reply.text.split(" ")
        return HttpResponse(200, SSE, b"", tuple(f'data: "{word}"\n\n'.encode() for word in words))

    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:  # noqa: ARG002 - the protocol
        return HttpResponse(error.status, JSON, msgspec.json.encode({"error": error.message}))

    def build_request(self, request: Request, base_url: str, key: str) -> HttpRequest:
        raise NotImplementedError

    def parse_response(self, response: HttpResponse, request: Request) -> Reply:
        raise NotImplementedError


def detect_plain(http_request: HttpRequest) -> Plain | None:
    """Return the plain dialect, if the request is in it."""
    plain = Plain()
    return plain if plain.claims(http_request) else None


def body(*messages: Message, stream: bool = False, tools: list[str] | None = None) -> bytes:
    """Return the body of a request in the plain dialect."""
    offered: list[Any] = [{"name": name} for name in tools or []]
    return msgspec.json.encode({"messages": messages, "stream": stream, "tools": offered})
