"""The real clients' own HTTP library, answered by the dialects without a socket."""

from collections.abc import Callable

import httpx2

from offbook.errors import ModelError
from offbook.exchange.dialects.all import recognise
from offbook.exchange.dialects.dialect import Answer, Wire
from offbook.exchange.reply import Reply
from offbook.exchange.request import Request
from offbook.exchange.threads import Threads

Say = Reply | ModelError | Callable[[Request], Reply]


class Served:
    """Answers the requests of a client with these replies, one after the other."""

    def __init__(self, *script: Say) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self.answers: list[Answer] = []
        self.threads = Threads()

    @property
    def http_client(self) -> httpx2.Client:
        return httpx2.Client(transport=httpx2.MockTransport(self._handle))

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        wire = Wire(
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

    def answer(self, wire: Wire) -> Answer:
        dialect = recognise(wire)
        assert dialect is not None, f"nobody claims {wire.method} {wire.path}"
        aside = dialect.aside(wire, self.threads)
        if aside is not None:
            return aside
        try:
            request = dialect.decode(wire, self.threads)
            self.requests.append(request)
            said = self.script.pop(0)
            if isinstance(said, ModelError):
                raise said
            reply = said if isinstance(said, Reply) else said(request)
            self.threads.remember(dialect.identify(reply, request), request, reply)
            return dialect.encode(reply, request)
        except ModelError as error:
            return dialect.refuse(error)
