"""The server of `offbook view --live`: traces while they are written, on loopback.

    http://127.0.0.1:PORT/TOKEN/           the page
    http://127.0.0.1:PORT/TOKEN/events     its data, as server-sent events
    http://127.0.0.1:PORT/TOKEN/review     the pending changes, and the forms that decide

Every request needs the token of this process, and a Host header of this server: neither another
user nor a page of another site, also not by DNS rebinding, can read a trace or approve a change.
"""

from __future__ import annotations

import asyncio
import base64
import html
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qs

from offbook.checks.expected_files import PendingChange, Review, in_ci
from offbook.errors import FormatError, OffbookError
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.files import parse_json, read_text
from offbook.sources.server.connection import RequestHead
from offbook.sources.server.server import HOST, PlainHandler, Server
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
    masked_lines,
    render_page,
)

POLL_SECONDS = 0.2
KEEP_ALIVE_SECONDS = 10
END_SECONDS = 2  # for the pages to receive the end of their stream
MAX_FORM = 64 * 1024


class LiveFeed:
    """The lines of the page: those of the traces below a path, in the order in which they grow.

    The number of a line is its id. All lines are kept, for pages that are opened later and for
    those that were interrupted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[bytes] = [
            encode_record({"page": {"title": path.name, "offbook": VERSION}})
        ]
        self.first = 0  # a page that is opened now needs no line before this one
        self.ended = False
        self._traces: dict[Path, _FollowedTrace] = {}
        self._ignored: set[Path] = set()
        self._is_run = False  # the path is the directory of an eval run
        self._has_summary = False
        self._results = 0  # the bytes of the results of an eval run that are read
        self._current: Path | None = None

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
        self.lines += fresh

    def end(self) -> None:
        """End all streams: the server stops."""
        self.ended = True

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


class LiveServer(Server):
    """Serves a feed and a review to the browser of this user."""

    def __init__(self, feed: LiveFeed, desk: ReviewDesk, port: int = 0) -> None:
        super().__init__(port=port, limit=MAX_FORM)
        self.feed = feed
        self.desk = desk
        self.token = desk.token = secrets.token_urlsafe(24)
        self.bind()
        self.hosts = {f"{name}:{self.port}" for name in (HOST, "localhost")}

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    async def run(self, started: Callable[[], None]) -> None:
        """Serve and read the traces until this task is cancelled; call `started` before."""
        await self.start()
        started()
        try:
            while True:
                await asyncio.to_thread(self.feed.poll)
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self.feed.end()
            await self.stop(grace=END_SECONDS)

    def route(self, head: RequestHead) -> PlainHandler:
        """Return the function of a page, or one that refuses a request without the right."""
        _, token, name = [*head.path.split("/", 2), "", ""][:3]
        pages = {
            ("GET", ""): self._send_page,
            ("GET", "events"): self._send_events,
            ("GET", "review"): self._send_review,
            ("POST", "review"): self._decide,
        }
        if head.host not in self.hosts:
            return _refuse(403, "another host")
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            return _refuse(403, "the address has no valid token")
        if (page := pages.get((head.method, name))) is None:
            return _refuse(404, "no such page")
        return PlainHandler(page)

    async def _send_page(self, _: HttpRequest) -> HttpResponse:
        title = f"{self.feed.path.name} (live)"
        return _respond(render_page(title=title, live="events"))

    async def _send_events(self, request: HttpRequest) -> HttpResponse:
        last = request.headers.get("last-event-id", "")
        seen = int(last) if last.isdecimal() and len(last) < 16 else 0  # noqa: PLR2004 - digits of a number
        number = max(seen, self.feed.first)
        headers = {**HEADERS, "content-type": "text/event-stream"}
        return HttpResponse(200, headers, live_chunks=self._stream(number))

    async def _stream(self, number: int) -> AsyncIterator[bytes]:
        """Yield the lines after this number as server-sent events, until the feed ends."""
        idle = 0.0
        while True:
            ended, lines = self.feed.ended, masked_lines(self.feed.lines[number:]).splitlines()
            for number, line in enumerate(lines, number + 1):  # noqa: B020, PLR1704 - it goes on
                yield b"id: %d\ndata: %s\n\n" % (number, line)
            if ended:
                yield b"event: end\ndata:\n\n"
                return
            if idle >= KEEP_ALIVE_SECONDS:
                yield b": no news\n\n"  # finds out if the page was closed
            idle = 0.0 if lines or idle >= KEEP_ALIVE_SECONDS else idle + POLL_SECONDS
            await asyncio.sleep(POLL_SECONDS)

    async def _send_review(self, _: HttpRequest) -> HttpResponse:
        page = await asyncio.to_thread(self.desk.render)
        return _respond(page, {"content-security-policy": REVIEW_POLICY})

    async def _decide(self, request: HttpRequest) -> HttpResponse:
        fields = parse_qs(request.body.decode("utf-8", "replace"))
        form = {name: values[0] for name, values in fields.items()}
        # In the form as well: a link alone must never decide.
        if not secrets.compare_digest(form.get("token", "").encode(), self.token.encode()):
            return _respond_error(403, "the form has no valid token")
        await asyncio.to_thread(self.desk.decide, form)
        return HttpResponse(303, {**HEADERS, "location": f"/{self.token}/review"})


HEADERS = {
    "cache-control": "no-store",
    # the address has the token; with `no-referrer` a browser hides the origin of forms
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def _respond(page: str, headers: Mapping[str, str] = {}) -> HttpResponse:
    kind = {"content-type": "text/html; charset=utf-8"}
    return HttpResponse(200, {**HEADERS, **kind, **headers}, page.encode("utf-8", "replace"))


def _respond_error(status: int, reason: str) -> HttpResponse:
    kind = {"content-type": "text/plain; charset=utf-8"}
    return HttpResponse(status, {**HEADERS, **kind}, f"{reason}\n".encode())


def _refuse(status: int, reason: str) -> PlainHandler:
    async def answer(_: HttpRequest) -> HttpResponse:
        return _respond_error(status, reason)

    return PlainHandler(answer)
