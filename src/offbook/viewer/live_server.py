"""The server of `offbook view --live`: traces while they are written, on loopback.

    http://127.0.0.1:PORT/TOKEN/           the page
    http://127.0.0.1:PORT/TOKEN/events     its data, as server-sent events
    http://127.0.0.1:PORT/TOKEN/review     the pending changes, and the forms that decide

Every request needs the token of this process, and a Host header of this server: neither another
user nor a page of another site, also not by DNS rebinding, can read a trace or approve a change.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from offbook.errors import FormatError
from offbook.files import parse_json, read_text
from offbook.trace.events import Event
from offbook.trace.reader import Trace
from offbook.version import VERSION
from offbook.viewer.html_page import encode_event, encode_record, render_page
from offbook.viewer.page_sources import RESULTS, RUN, SUMMARY, is_trace
from offbook.viewer.review_page import REVIEW_POLICY, ReviewDesk

HOST = "127.0.0.1"
POLL_SECONDS = 0.2
KEEP_ALIVE_SECONDS = 10
MAX_FORM = 64 * 1024


class LiveFeed:
    """The lines of the page: those of the traces below a path, in the order in which they grow.

    The number of a line is its id. All lines are kept, for pages that are opened later and for
    those that were interrupted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.changed = threading.Condition()
        self.lines: list[bytes] = []
        self.ended = False
        self._traces: dict[Path, _FollowedTrace] = {}
        self._ignored: set[Path] = set()
        self._is_run = False  # the path is the directory of an eval run
        self._has_summary = False
        self._results = 0  # the bytes of the results of an eval run that are read
        self._current: Path | None = None
        self._add([encode_record({"page": {"title": path.name, "offbook": VERSION}})])

    def poll(self) -> None:
        """Read what was written since the last call."""
        fresh = [*self._read_results()]
        for path in self._find():
            trace = self._traces.get(path)
            if trace is None:
                trace = self._traces[path] = _FollowedTrace(path, len(self._traces))
                fresh.append(encode_record({"trace": {"name": path.name, "path": str(path)}}))
                self._current = path
            events = trace.read()
            if events and self._current != path:
                # The lines that follow belong to this trace again.
                fresh.append(encode_record({"continue": trace.number}))
                self._current = path
            fresh += events
        self._add(fresh)

    def end(self) -> None:
        """End all streams: the server stops."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def after(self, number: int, seconds: float) -> tuple[list[bytes], bool]:
        """Return the lines after this number, and whether the feed has ended; wait for one."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.lines) > number or self.ended, seconds)
            return self.lines[number:], self.ended

    def _add(self, lines: list[bytes]) -> None:
        if lines:
            with self.changed:
                self.lines += lines
                self.changed.notify_all()

    def _find(self) -> Iterator[Path]:
        if not self.path.is_dir():
            if self.path.is_file():
                yield self.path
            return
        for path in sorted(self.path.rglob("*.jsonl")):
            if path in self._traces or (path.name != RESULTS and is_trace(path)):
                yield path

    def _read_results(self) -> Iterator[bytes]:
        """Yield the results of an eval run that are new."""
        file = self.path / RESULTS
        if not self._is_run:
            if not file.is_file() and not (self.path / RUN).is_file():
                return
            self._is_run = True
            yield encode_record({"run": {"name": self.path.name}})
        if not file.is_file():
            return
        with file.open("rb") as opened:
            opened.seek(self._results)
            for line in opened:
                if not line.endswith(b"\n"):
                    return  # still being written
                self._results += len(line)
                yield b'{"case":' + line.strip() + b"}"
        if not self._has_summary and (self.path / SUMMARY).is_file():
            self._has_summary = True
            summary = parse_json(read_text(self.path / SUMMARY), self.path / SUMMARY)
            yield encode_record({"summary": summary})


class _FollowedTrace:
    """A trace that is still being written."""

    def __init__(self, path: Path, number: int) -> None:
        self.number = number
        self._trace = Trace(path)
        self._previous: Event | None = None
        self._shown_faults = 0

    def read(self) -> list[bytes]:
        """Return the lines of the events since the last call."""
        lines: list[bytes] = []
        try:
            for event in self._trace:  # it continues where it stopped
                lines.append(encode_event(event, self._previous))
                self._previous = event
        except FormatError as error:
            if self._shown_faults >= 0:
                lines.append(encode_record({"faults": [{"line": 1, "reason": str(error)}]}))
            self._shown_faults = -1
            return lines
        faults = [fault for fault in self._trace.faults if not fault.torn]
        if len(faults) > self._shown_faults >= 0:
            new = [fault._asdict() for fault in faults[self._shown_faults :]]
            lines.append(encode_record({"faults": new}))
            self._shown_faults = len(faults)
        return lines


class LiveServer(ThreadingHTTPServer):
    """Serves a feed and a review to the browser of this user."""

    daemon_threads = True

    def __init__(self, feed: LiveFeed, desk: ReviewDesk, port: int = 0) -> None:
        self.feed = feed
        self.desk = desk
        self.token = secrets.token_urlsafe(24)
        desk.token = self.token
        super().__init__((HOST, port), _Handler)
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def run(self) -> None:
        """Serve and read the traces until this thread is interrupted."""
        serving = threading.Thread(target=self.serve_forever, args=(POLL_SECONDS,), daemon=True)
        serving.start()
        try:
            stop = threading.Event()
            while True:
                self.feed.poll()
                stop.wait(POLL_SECONDS)
        finally:
            self.feed.end()
            self.shutdown()
            self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer  # pyright: ignore[reportIncompatibleVariableOverride] - always a LiveServer
    protocol_version = "HTTP/1.1"
    server_version = "offbook"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        routes: dict[str, Callable[[], None]] = {
            "": self._send_page,
            "events": self._send_events,
            "review": self._send_review,
        }
        if (route := self._route(routes)) is not None:
            route()

    def do_POST(self) -> None:
        if (route := self._route({"review": self._decide})) is not None:
            route()

    def _route(self, routes: dict[str, Callable[[], None]]) -> Callable[[], None] | None:
        """Return the function of a path, or None after the reply to a request without the right."""
        server = self.server
        if self.headers.get("Host") not in server.hosts:
            return self._refuse(HTTPStatus.FORBIDDEN, "another host")
        origin = self.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in server.hosts:
            return self._refuse(HTTPStatus.FORBIDDEN, "another origin")
        _, token, name = [*self.path.partition("?")[0].split("/", 2), "", ""][:3]
        if not secrets.compare_digest(token.encode(), server.token.encode()):
            return self._refuse(HTTPStatus.FORBIDDEN, "the address has no valid token")
        if name not in routes:
            return self._refuse(HTTPStatus.NOT_FOUND, "no such page")
        return routes[name]

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        self.close_connection = True
        self._send(f"{reason}\n", "text/plain; charset=utf-8", status=status)

    def _send_page(self) -> None:
        title = f"{self.server.feed.path.name} (live)"
        page = render_page(title=title, live="events")
        self._send(page, "text/html; charset=utf-8")

    def _send_events(self) -> None:
        last = self.headers.get("Last-Event-ID", "")
        number = int(last) if last.isdecimal() and len(last) < 16 else 0  # noqa: PLR2004 - digits of a number
        self.close_connection = True
        self._send_head("text/event-stream", {"Connection": "close"})
        try:
            while True:
                lines, ended = self.server.feed.after(number, KEEP_ALIVE_SECONDS)
                for line in lines:
                    number += 1
                    self.wfile.write(b"id: %d\ndata: %s\n\n" % (number, line))
                if ended:
                    self.wfile.write(b"event: end\ndata:\n\n")
                    return
                if not lines:
                    self.wfile.write(b": no news\n\n")  # finds out if the page was closed
                self.wfile.flush()
        except OSError:
            return  # the page was closed

    def _send_review(self) -> None:
        page = self.server.desk.render()
        self._send(page, "text/html; charset=utf-8", {"Content-Security-Policy": REVIEW_POLICY})

    def _decide(self) -> None:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > MAX_FORM:
            return self._refuse(HTTPStatus.BAD_REQUEST, "a form of limited size is needed")
        fields = parse_qs(self.rfile.read(int(size)).decode("utf-8", "replace"))
        form = {name: values[0] for name, values in fields.items()}
        # In the form as well: a link alone must never decide.
        if not secrets.compare_digest(form.get("token", "").encode(), self.server.token.encode()):
            return self._refuse(HTTPStatus.FORBIDDEN, "the form has no valid token")
        self.server.desk.decide(form)
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", f"/{self.server.token}/review")
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def _send(
        self,
        text: str,
        kind: str,
        headers: dict[str, str] | None = None,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> None:
        body = text.encode("utf-8", "replace")
        self._send_head(kind, {**(headers or {}), "Content-Length": str(len(body))}, status)
        self.wfile.write(body)

    def _send_head(
        self, kind: str, headers: dict[str, str], status: HTTPStatus = HTTPStatus.OK
    ) -> None:
        self.send_response(status)
        fixed = {
            "Content-Type": kind,
            "Cache-Control": "no-store",
            # the address has the token; with `no-referrer` a browser hides the origin of forms
            "Referrer-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }
        for name, value in {**fixed, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's signature
        """Print nothing: the address has the token."""
