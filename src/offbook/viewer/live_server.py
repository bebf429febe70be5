"""The server of `offbook view --live`: traces while they are written, on loopback.

    http://127.0.0.1:PORT/TOKEN/           the page
    http://127.0.0.1:PORT/TOKEN/events     its data, as server-sent events
    http://127.0.0.1:PORT/TOKEN/review     the pending changes, and the forms that decide

Every request needs the token of this process, and a Host header of this server: neither another
user nor a page of another site, also not by DNS rebinding, can read a trace or approve a change.
"""

from __future__ import annotations

import base64
import html
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from offbook.checks.expected_files import PendingChange, Review
from offbook.checks.snapshot import in_ci
from offbook.errors import FormatError, OffbookError
from offbook.files import parse_json, read_text
from offbook.trace.events import Event
from offbook.trace.reader import Trace
from offbook.version import VERSION
from offbook.viewer.html_page import (
    RESULTS,
    RUN,
    SUMMARY,
    encode_event,
    encode_record,
    is_trace,
    render_page,
)

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


# --- The review: a page of forms without a script, rendered for each request. The texts of changes
# are escaped; the content security policy permits one style and forms of this server, nothing else.

STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 70rem; margin: 0 auto; padding: 1rem; }
h2 { font-size: 1rem; margin: 1.5rem 0 .25rem; overflow-wrap: anywhere; }
pre { overflow-x: auto; padding: .5rem; border: 1px solid #8888; margin: .5rem 0; }
ins { color: #1a7f37; text-decoration: none; } del { color: #cf222e; text-decoration: none; }
.faint { opacity: .75; }
.error { border-left: 4px solid #cf222e; padding-left: .5rem; white-space: pre-wrap; }
div { margin: .5rem 0; }
form { display: inline-flex; gap: .5rem; } button { font: inherit; padding: .2rem .8rem; }
@media (prefers-color-scheme: dark) { ins { color: #3fb950; } del { color: #ff7b72; } }
"""
_DIGEST = base64.b64encode(sha256(STYLE.encode()).digest()).decode()
REVIEW_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
ListPending = Callable[[], list[PendingChange]]


class ReviewDesk:
    """The review of all pending changes on one page; decisions can be undone while it serves."""

    def __init__(self, list_pending: ListPending = list, token: str = "") -> None:
        self._list = list_pending
        self.token = token
        self._lock = threading.Lock()
        self._review = Review([])
        self._message = ""

    def render(self) -> str:
        """Return the page of what is pending now."""
        with self._lock:
            message, self._message = self._message, ""
            try:
                changes = self._list()
            except (OffbookError, OSError) as error:
                changes, message = [], str(error)
            undo = self._review.decisions[-1] if self._review.decisions else None
        body = [f"<h1>{len(changes)} pending</h1>" if changes else "<h1>Nothing is pending</h1>"]
        if message:
            body.append(f'<p class="error" role="alert">{html.escape(message)}</p>')
        if undo is not None:
            body.append(
                f"<div>{html.escape(undo.change.name)} was {undo.name}. "
                f"{self._form({}, ('undo', 'Undo'))}</div>"
            )
        if changes and not in_ci():
            shown = {"digest": _join_digests(changes)}
            body.append(f"<div>{self._form(shown, ('accept-all', 'Accept all'))}</div>")
        for change in changes:
            body += self._render_change(change)
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            f"<title>Review</title><style>{STYLE}</style></head><body><main>"
            f'<p><a href="./">Trace</a> · <a href="review">Reload</a></p>{"".join(body)}'
            "</main></body></html>"
        )

    def decide(self, form: Mapping[str, str]) -> None:
        """Do what a form says; an error is shown on the page."""
        with self._lock:
            try:
                self._message = self._decide(form)
            except (OffbookError, OSError) as error:
                self._message = str(error)

    def _decide(self, form: Mapping[str, str]) -> str:
        action = form.get("action", "")
        if action == "undo":
            return "" if self._review.undo() else "there is nothing to undo"
        changes = self._list()
        if action == "accept-all":
            if form.get("digest") != _join_digests(changes):
                return "other changes are pending than the page showed"
            problems: list[str] = []
            for change in changes:
                try:
                    self._review.accept(change)
                except OffbookError as error:
                    problems.append(str(error))
            return "\n".join(problems)
        if action not in {"accept", "reject"}:
            return "unknown action"
        # The digest is of the content that the page showed.
        shown = form.get("path"), form.get("digest")
        for change in changes:
            if (change.path, change.digest) == shown:
                (self._review.accept if action == "accept" else self._review.reject)(change)
                return ""
        return "this change is not pending any more"

    def _form(self, fields: Mapping[str, str], *actions: tuple[str, str]) -> str:
        hidden = "".join(
            f'<input type="hidden" name="{name}" value="{html.escape(value)}">'
            for name, value in {**fields, "token": self.token}.items()
        )
        buttons = "".join(
            f'<button name="action" value="{action}">{label}</button>' for action, label in actions
        )
        return f'<form method="post" action="review">{hidden}{buttons}</form>'

    def _render_change(self, change: PendingChange) -> Iterator[str]:
        state = "new" if change.new else "changed"
        title = html.escape(f"{change.kind} {change.name}")
        yield f"<section><h2>{title} <span class=faint>{state}</span></h2>"
        yield f"<p class=faint>{html.escape(change.path)}</p>"
        for name, difference in change.difference.diffs.items():
            yield f"<p>{html.escape(name)} (+{difference.additions} -{difference.deletions})</p>"
            for hunk in difference.hunks:
                lines = "\n".join(map(_render_line, hunk.content.split("\n")))
                yield f"<pre>{lines}</pre>"
        if not in_ci():
            fields = {"path": change.path, "digest": change.digest}
            yield self._form(fields, ("accept", "Accept"), ("reject", "Reject"))
        yield "</section>"


def _join_digests(changes: Sequence[PendingChange]) -> str:
    """Return the digest of everything that a page shows."""
    return sha256("".join(change.digest for change in changes).encode()).hexdigest()


def _render_line(line: str) -> str:
    tag = {"+": "ins", "-": "del"}.get(line[:1])
    text = html.escape(line)
    return f"<{tag}>{text}</{tag}>" if tag else text


# --- The server


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
