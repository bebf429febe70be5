"""The output of agents: texts of terminal and process events, and the events and promises in them.

An agent of the hat loop publishes by writing `<event topic="build.done">payload</event>`, and ends
the loop by writing a promise on its last line.
"""

from __future__ import annotations

import binascii
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from offbook.secrets import outgoing
from offbook.trace.events import PROCESS_OUTPUT, TERMINAL_WRITE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.trace.events import Event

_OPENING = re.compile(r"<event ([^>]*)>")
_PARTIAL_OPENING = re.compile(r"<(?:e(?:v(?:e(?:n(?:t(?: [^>]*)?)?)?)?)?)?\Z")
_CLOSING = "</event>"
_TOPIC = re.compile(r'topic="([^"]*)"')
_TARGET = re.compile(r'target="([^"]*)"')
MAX_LINE = 64 * 1024


class EventTag(NamedTuple):
    """An event that an agent wrote into its output."""

    topic: str
    payload: str
    target: str | None = None


class OutputScanner:
    """Finds the events in an agent's output, and its last line, while the output arrives.

    Of an output of any size it keeps the events, each with at most `max_payload` characters, and
    one line.
    """

    def __init__(self, max_payload: int = sys.maxsize) -> None:
        self._max_payload = max_payload
        self.tags: list[EventTag] = []
        self._pending = ""  # the end of the text, in which a tag may begin
        self._line = ""  # the current line outside of events
        self._last = ""  # the last line before it that is not blank
        # Of the open event: its topic and target, its payload so far, and the lines before it.
        self._open: tuple[str, str | None] | None = None
        self._payload = ""
        self._before = ("", "")

    def feed(self, text: str) -> None:
        """Add the next part of the output."""
        text = self._pending + text
        position = 0
        while True:
            if self._open is None:
                match = _OPENING.search(text, position)
                if match is None:
                    partial = _PARTIAL_OPENING.search(text, position)
                    end = partial.start() if partial else len(text)
                    break
                self._add_lines(text[position : match.start()])
                if topic := _TOPIC.search(match[1]):
                    target = _TARGET.search(match[1])
                    self._open = topic[1], target[1] if target else None
                    self._before = self._last, self._line
                # A tag that is never closed is no event: its text then belongs to the lines.
                self._add_lines(match[0])
                position = match.end()
            else:
                close = text.find(_CLOSING, position)
                if close < 0:
                    end = max(position, len(text) - len(_CLOSING) + 1)
                    self._add_payload(text[position:end])
                    break
                self._add_payload(text[position:close])
                self.tags.append(EventTag(self._open[0], self._payload.strip(), self._open[1]))
                self._last, self._line = self._before
                self._open, self._payload = None, ""
                position = close + len(_CLOSING)
        if self._open is None:
            self._add_lines(text[position:end])
        self._pending = text[end:]

    def ends_with(self, promise: str) -> bool:
        """Return whether the last line, events removed, is the promise.

        An event that mentions the promise does not complete the loop, and neither does the output
        around it: agents quote the promise when they plan.
        """
        expected = promise.strip()
        if not expected or any(expected in tag.payload for tag in self.tags):
            return False
        *lines, line = (self._line + self._pending).split("\n")
        lines = [self._last, *(other.strip() for other in lines), line.strip()]
        return next((line for line in reversed(lines) if line), "") == expected

    def _add_payload(self, text: str) -> None:
        self._payload += text[: max(0, self._max_payload - len(self._payload))]
        self._add_lines(text)

    def _add_lines(self, text: str) -> None:
        *lines, line = (self._line + text).split("\n")
        self._last = next((other.strip() for other in reversed(lines) if other.strip()), self._last)
        # A promise is short: of a longer line the beginning is enough to tell that it is none.
        self._line = line[:MAX_LINE]


def scan_output(text: str) -> OutputScanner:
    """Return the events and the last line of a whole output."""
    scanner = OutputScanner()
    scanner.feed(text)
    return scanner


def output_text(event: Event) -> tuple[str, str] | None:
    """Return the stream and the text of an output event, or None for another event."""
    output = output_bytes(event)
    return None if output is None else (output[0], output[1].decode("utf-8", "replace"))


def output_bytes(event: Event) -> tuple[str, bytes] | None:
    """Return the stream and the bytes of an output event: a chunk may end within a character."""
    data = event.data
    if event.event == PROCESS_OUTPUT:
        text, stream = data.get("text", ""), data.get("stream", "stdout")
        valid = isinstance(text, str) and isinstance(stream, str)
        return (stream, text.encode("utf-8", "replace")) if valid else None
    if event.event != TERMINAL_WRITE:
        return None
    encoded = data.get("bytes")
    if encoded is None and isinstance(data.get("data"), dict):  # some versions nest the data
        data = cast("dict[str, Any]", data["data"])
        encoded = data.get("bytes")
    raw = decode_base64(encoded or "") if isinstance(encoded, str | None) else None
    return None if raw is None else ("stdout" if data.get("stdout", True) else "stderr", raw)


def join_output(events: Iterable[Event], stream: str = "stdout") -> str:
    """Return everything that was written to a stream."""
    outputs = (output_bytes(event) for event in events)
    raw = b"".join(output[1] for output in outputs if output and output[0] == stream)
    return raw.decode("utf-8", "replace")


def decode_base64(encoded: str) -> bytes | None:
    """Return the decoded bytes, also of base64 in several lines; None if it is invalid."""
    try:
        return binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError:
        text = "".join(encoded.split())
        return decode_base64(text) if text != encoded else None


def payload_text(payload: Any) -> str:
    """Return a payload as text: unchanged, as JSON, or empty for None."""
    if payload is None:
        return ""
    return payload if isinstance(payload, str) else msgspec.json.encode(payload).decode()


def text_field(event: Event, field: str) -> str:
    """Return a field of an event, such as its hat or topic, as text; empty if it is missing."""
    value = event.data.get(field)
    return value if isinstance(value, str) else payload_text(value)


def truncate_texts(value: Any, limit: int) -> Any:
    """Return a value with long texts cut and the number of omitted characters added."""
    if isinstance(value, str):
        omitted = len(value) - limit
        return value if omitted <= 0 else f"{outgoing(value)[:limit]}… {omitted} characters more"
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: truncate_texts(field, limit) for key, field in fields.items()}
    if isinstance(value, (list, tuple)):
        return [truncate_texts(item, limit) for item in cast("list[Any]", value)]
    return value
