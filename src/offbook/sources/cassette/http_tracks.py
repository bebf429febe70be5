"""The HTTP track of a tape: `HttpRecorder` writes it, `HttpReplay` answers from it.

A request is answered by the first recorded one with the same method, URL and body that is left. The
headers of requests, which have keys and cookies, are neither stored nor compared.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from offbook.errors import ReplayMismatch, counted
from offbook.exchange.dialects.dialect import HttpResponse
from offbook.exchange.tool_track import running_tool
from offbook.sources.cassette.format import RecordedHttp
from offbook.sources.cassette.mismatch import describe_differences, find_differences
from offbook.trace.matching import similarity

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.exchange.http_track import HttpCall, HttpTrack
    from offbook.sources.cassette.cassette_file import CassetteFile, Entry
    from offbook.sources.cassette.format import Normalizer
    from offbook.trace.redaction import Redaction

MAX_LISTED = 5


class HttpRecorder:
    """Writes requests and responses; `inner` is the track of a recorded source that replays."""

    def __init__(
        self,
        add: Callable[[RecordedHttp], None],
        normalizer: Normalizer,
        redaction: Redaction,
        inner: HttpTrack | None = None,
    ) -> None:
        self.replays = inner is not None and inner.replays
        self._add = add
        self._normalizer = normalizer
        self._redaction = redaction
        self._inner = inner

    @property
    def failure(self) -> Exception | None:
        """The first request that the recorded source has no response to."""
        return None if self._inner is None else self._inner.failure

    def find(self, call: HttpCall, /) -> HttpResponse | None:
        """Return the response of the recorded source, if that is a replay."""
        found = None if self._inner is None else self._inner.find(call)
        if found is not None:
            self.add(call, found)
        return found

    def add(self, call: HttpCall, response: HttpResponse, /) -> None:
        """Write a request and its response."""
        try:
            content, data = self._redaction.text(response.body.decode()), ""
        except UnicodeDecodeError:
            content, data = "", b64encode(response.body).decode()
        self._add(
            RecordedHttp(
                method=call.method,
                url=self._normalizer.clean_text(call.url),
                body=self._normalizer.clean_text(_body_text(call)),
                status=response.status,
                headers={k: self._redaction.text(v) for k, v in response.headers.items()},
                content=content,
                data=data,
                inside=running_tool.get() or "",
            )
        )


def _body_text(call: HttpCall) -> str:
    try:
        return call.body.decode()
    except UnicodeDecodeError:
        return b64encode(call.body).decode()


class TapedHttp(NamedTuple):
    """A request on a tape: its number there, the interaction that it follows, and its key."""

    number: int
    entry: Entry
    http: RecordedHttp
    key: bytes


class HttpReplay:
    """Answers requests to other servers from a tape.

    Requests of tools are not on it if the tools are replayed, too: then they do not run.
    """

    replays = True

    def __init__(
        self, file: CassetteFile, entries: list[Entry], normalizer: Normalizer, *, tools: bool
    ) -> None:
        self.failure: Exception | None = None
        self.ended = False  # the run has left the tape: requests that are not on it are sent
        self._file = file
        self._normalizer = normalizer
        self._taken: set[int] = set()
        self._lock = Lock()
        self._recorded: list[TapedHttp] = []
        for entry in entries:
            for http in file.read(entry).http:
                if not (tools and http.inside):
                    key = self._key(http.method, http.url, http.body)
                    number = len(self._recorded) + 1
                    self._recorded.append(TapedHttp(number, entry, http, key))

    def _key(self, method: str, url: str, body: str) -> bytes:
        compared = self._normalizer.comparable({"method": method, "url": url, "body": body})
        return msgspec.json.encode(compared, order="sorted")

    @property
    def unused(self) -> list[TapedHttp]:
        """The recorded requests that were not sent."""
        return [taped for taped in self._recorded if taped.number not in self._taken]

    def find(self, call: HttpCall, /) -> HttpResponse | None:
        """Return the recorded response; raise if the request is not on the tape."""
        if self.failure is not None:
            raise self.failure
        key = self._key(call.method, call.url, _body_text(call))
        with self._lock:
            taped = next((taped for taped in self.unused if taped.key == key), None)
            if taped is not None:
                self._taken.add(taped.number)
        if taped is not None:
            http = taped.http
            body = b64decode(http.data) if http.data else http.content.encode()
            return HttpResponse(http.status, dict(http.headers), body)
        if self.ended:
            return None
        self.failure = self._explain(call)
        raise self.failure

    def add(self, call: HttpCall, response: HttpResponse, /) -> None:
        """Do nothing: a replay writes nothing."""

    def _explain(self, call: HttpCall) -> ReplayMismatch:
        clean = self._normalizer.clean_text
        asked = RecordedHttp(method=call.method, url=clean(call.url), body=clean(_body_text(call)))
        nearest = max(
            self.unused, key=lambda taped: similarity(taped.http.title, asked.title), default=None
        )
        if nearest is None:
            recorded = f"{counted(len(self._recorded), 'request')}, all replayed"
            place, differences = "", list[str]()
        else:
            recorded = nearest.http.title
            place = f" at interaction {nearest.entry.number}"
            old, new = (
                {"method": http.method, "url": http.url, "body": http.body}
                for http in (nearest.http, asked)
            )
            differences = [*describe_differences([*find_differences(old, new)])]
        lines = [
            f"Replay mismatch{place} (track: http): a request was not recorded",
            f"Recorded: {recorded}",
            f"Got:      {asked.title}",
            *differences,
            "Fix, if the change is intended: record the tape again",
        ]
        return ReplayMismatch("\n".join(lines), where=str(self._file.path))

    def describe_unused(self) -> list[str]:
        """Return a line for each of the first requests that were not sent."""
        lines = [f"    {t.http.title} (after interaction {t.entry.number})" for t in self.unused]
        more = len(lines) - MAX_LISTED
        return [*lines[:MAX_LISTED], *([f"    ... +{more} more"] if more > 0 else [])]
