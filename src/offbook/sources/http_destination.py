"""Requests to other servers than models, for the HTTP track of a tape."""

from __future__ import annotations

import asyncio
import ssl
from contextvars import ContextVar
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING
from urllib.parse import quote

from offbook.determinism.run_context import thread_variable, use_variable
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.exchange.providers import DEFAULT_PORTS
from offbook.exchange.tool_track import HttpCall, running_tool
from offbook.trace.events import HTTP, UNSET, EventData, Optional

if TYPE_CHECKING:
    from offbook.exchange.tool_track import HttpTrack
    from offbook.trace.hub import Hub

TIMEOUT = 300.0
PATH_CHARACTERS = "/:@!$&'()*+,;=~%"
# Set by the connection that sends the request again, or about another connection than ours.
DROPPED_HEADERS = {
    *("host", "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"),
    *("content-length", "accept-encoding", "proxy-authorization"),
}
KEPT_HEADERS = ("content-type", "location", "link", "retry-after")

NO_RESPONSE = 0  # the status of a request that failed: its body is the error

sending: ContextVar[bool | None] = thread_variable("offbook_http_sending")
"""True while a request of the track is sent: it is not recorded again."""


class HttpDestination:
    """One server: answers its requests from a tape, or sends them and records the responses."""

    def __init__(self, track: HttpTrack, scheme: str, host: str, port: int | None) -> None:
        self._track = track
        self._scheme, self._host = scheme, host
        self._port = port or DEFAULT_PORTS.get(scheme)

    def _call(self, request: HttpRequest) -> HttpCall:
        name = f"[{self._host}]" if ":" in self._host else self._host
        port = "" if self._port == DEFAULT_PORTS.get(self._scheme) else f":{self._port}"
        query = f"?{request.query}" if request.query else ""
        url = f"{self._scheme}://{name}{port}{request.path}{query}"
        return HttpCall(request.method, url, request.body)

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the response to a request, for clients that await it."""
        call = self._call(request)
        found = self._track.find(call)
        if found is not None:
            return _raise_refused(found)
        return await asyncio.to_thread(self._record, call, request)

    def answer_blocking(self, request: HttpRequest) -> HttpResponse:
        """Return the response to a request, for clients that block."""
        call = self._call(request)
        found = self._track.find(call)
        return self._record(call, request) if found is None else _raise_refused(found)

    def _record(self, call: HttpCall, request: HttpRequest) -> HttpResponse:
        try:
            response = self._send(request)
        except OSError as error:  # an agent may go on without the response
            self._track.add(call, HttpResponse(NO_RESPONSE, {}, str(error).encode()))
            raise
        self._track.add(call, response)
        return response

    def _send(self, request: HttpRequest) -> HttpResponse:
        """Send a request; the guard of the run applies to it."""
        with use_variable(sending, True):
            connection = (
                HTTPSConnection(
                    self._host, self._port, timeout=TIMEOUT, context=ssl.create_default_context()
                )
                if self._scheme == "https"
                else HTTPConnection(self._host, self._port, timeout=TIMEOUT)
            )
            kept = {k: v for k, v in request.headers.items() if k not in DROPPED_HEADERS}
            path = quote(request.path, safe=PATH_CHARACTERS)  # clients decode it
            target = f"{path}?{request.query}" if request.query else path
            try:
                connection.request(request.method, target, request.body or None, kept)
                response = connection.getresponse()
                headers = {name.lower(): value for name, value in response.getheaders()}
                shown = {name: headers[name] for name in KEPT_HEADERS if name in headers}
                return HttpResponse(response.status, shown, response.read())
            except HTTPException as error:
                raise ConnectionError(f"no valid response: {error!r}") from error
            finally:
                connection.close()


class HttpCallData(EventData, frozen=True):
    """A request to another server; one without a response has the `error`."""

    event_name = HTTP
    method: str
    url: str
    status: int
    replayed: bool
    error: str | Optional = UNSET
    tool: str | Optional = UNSET


class TracedHttp:
    """The HTTP track of a run, whose requests are emitted as events."""

    def __init__(self, track: HttpTrack, hub: Hub) -> None:
        self.replays = track.replays
        self._track = track
        self._hub = hub

    @property
    def failure(self) -> Exception | None:
        """The first request that was not recorded."""
        return self._track.failure

    def find(self, call: HttpCall, /) -> HttpResponse | None:
        """Return the response of the tape, if it has one."""
        found = self._track.find(call)
        if found is not None:
            self._emit(call, found, replayed=True)
        return found

    def add(self, call: HttpCall, response: HttpResponse, /) -> None:
        """Note a response."""
        self._track.add(call, response)
        self._emit(call, response, replayed=False)

    def _emit(self, call: HttpCall, response: HttpResponse, *, replayed: bool) -> None:
        failed = response.status == NO_RESPONSE
        error = response.body.decode(errors="replace") if failed else UNSET
        tool = running_tool.get() or UNSET
        self._hub.emit_data(
            HttpCallData(call.method, call.url, response.status, replayed, error, tool)
        )


def _raise_refused(response: HttpResponse) -> HttpResponse:
    """Return a recorded response; raise if the request failed in the recording."""
    if response.status == NO_RESPONSE:
        raise ConnectionRefusedError(response.body.decode(errors="replace"))
    return response
