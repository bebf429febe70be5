"""The real clients' own HTTP library, answered by the dialects without a socket."""

from collections.abc import Callable

import httpx2

from offbook.errors import ModelError
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.exchange.model import Reply, Request
from offbook.exchange.providers import detect_dialect

Say = Reply | ModelError | Callable[[Request], Reply]


class Served:
    """Answers the requests of a client with these replies, one after the other."""

    def __init__(self, *script: Say) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self.answers: list[HttpResponse] = []
        self.threads = ConversationStore()

    @property
    def http_client(self) -> httpx2.Client:
        return httpx2.Client(transport=httpx2.MockTransport(self._handle))

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        wire = HttpRequest(
            request.method,
            request.url.path,
            {name.lower(): value for name, value in request.headers.items()},
            request.read(),
            request.url.query.decode(),
        )
        answer = self.answer(wire)
        self.answers.append(answer)
        return httpx2.Response(
            answer.status,
            headers=answer.headers,
            content=iter(answer.chunks) if answer.chunks else answer.body,
        )

    def answer(self, wire: HttpRequest) -> HttpResponse:
        dialect = detect_dialect(wire)
        assert dialect is not None, f"nobody claims {wire.method} {wire.path}"
        side_response = dialect.side_response(wire, self.threads)
        if side_response is not None:
            return side_response
        try:
            request = dialect.decode(wire, self.threads)
            self.requests.append(request)
            said = self.script.pop(0)
            if isinstance(said, ModelError):
                raise said
            reply = said if isinstance(said, Reply) else said(request)
            self.threads.add(dialect.reply_id(reply, request), request, reply)
            return dialect.encode(reply, request)
        except ModelError as error:
            return dialect.encode_error(error)
