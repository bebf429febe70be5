"""A provider for the HTTP library of the real clients, without a socket."""

from collections.abc import Callable

import httpx2

from offbook.errors import ModelError
from offbook.exchange import Reply, Request, detect_dialect
from offbook.exchange.dialects import ConversationStore, HttpRequest, HttpResponse

ScriptedReply = Reply | ModelError | Callable[[Request], Reply]


class FakeProvider:
    """Replies to the requests of a client with these replies, one after the other."""

    def __init__(self, *script: ScriptedReply) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self.responses: list[HttpResponse] = []
        self.store = ConversationStore()

    @property
    def http_client(self) -> httpx2.Client:
        return httpx2.Client(transport=httpx2.MockTransport(self._handle))

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        http_request = HttpRequest(
            request.method,
            request.url.path,
            {name.lower(): value for name, value in request.headers.items()},
            request.read(),
            request.url.query.decode(),
        )
        response = self.respond(http_request)
        self.responses.append(response)
        return httpx2.Response(
            response.status,
            headers=response.headers,
            content=iter(response.chunks) if response.chunks else response.body,
        )

    def respond(self, http_request: HttpRequest) -> HttpResponse:
        dialect = detect_dialect(http_request)
        assert dialect is not None, f"no dialect claims {http_request.method} {http_request.path}"
        side_response = dialect.side_response(http_request, self.store)
        if side_response is not None:
            return side_response
        try:
            request = dialect.decode(http_request, self.store)
            self.requests.append(request)
            message = self.script.pop(0)
            if isinstance(message, ModelError):
                raise message
            reply = message if isinstance(message, Reply) else message(request)
            self.store.add(dialect.reply_id(reply, request), request, reply)
            return dialect.encode(reply, request)
        except ModelError as error:
            return dialect.encode_error(error)
