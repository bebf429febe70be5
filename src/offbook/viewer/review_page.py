"""The review of pending changes as a page: forms without a script.

The server renders it for each request. The texts of changes are escaped; the content security
policy permits one style and forms of this server, nothing else.
"""

from __future__ import annotations

import base64
import html
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256

from offbook.checks.expected_files import PendingChange, Review
from offbook.checks.snapshot import in_ci
from offbook.errors import OffbookError

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
