"""The output of agents: texts of terminal and process events, and the events and promises in them.

An agent of the hat loop publishes by writing `<event topic="build.done">payload</event>`, and ends
the loop by writing a promise on its last line.
"""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from offbook.trace.events import PROCESS_OUTPUT, TERMINAL_WRITE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.trace.events import Event

_OPENING = re.compile(r"<event ([^>]*)>")
_CLOSING = "</event>"
_TOPIC = re.compile(r'topic="([^"]*)"')
_TARGET = re.compile(r'target="([^"]*)"')


class EventTag(NamedTuple):
    """An event that an agent wrote into its output."""

    topic: str
    payload: str
    target: str | None = None


def parse_event_tags(text: str) -> list[EventTag]:
    """Return the events in an agent's output; they are never nested."""
    return [tag for tag, _, _ in _scan(text)]


def has_completion_promise(text: str, promise: str) -> bool:
    """Return whether the last line, events removed, is the promise.

    An event that mentions the promise does not complete the loop, and neither does the output
    around it: agents quote the promise when they plan.
    """
    expected = promise.strip()
    if not expected:
        return False
    tags = _scan(text)
    if any(expected in tag.payload for tag, _, _ in tags):
        return False
    for _, start, end in reversed(tags):
        text = text[:start] + text[end:]
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return bool(lines) and lines[-1] == expected


def _scan(text: str) -> list[tuple[EventTag, int, int]]:
    """Return the tags with their positions in the text."""
    tags: list[tuple[EventTag, int, int]] = []
    position = 0
    while match := _OPENING.search(text, position):
        topic = _TOPIC.search(match[1])
        close = text.find(_CLOSING, match.end())
        if topic is None or close < 0:
            position = match.end()
            continue
        target = _TARGET.search(match[1])
        payload = text[match.end() : close].strip()
        position = close + len(_CLOSING)
        tag = EventTag(topic[1], payload, target[1] if target else None)
        tags.append((tag, match.start(), position))
    return tags


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
        return value if omitted <= 0 else f"{value[:limit]}… {omitted} characters more"
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: truncate_texts(field, limit) for key, field in fields.items()}
    if isinstance(value, (list, tuple)):
        return [truncate_texts(item, limit) for item in cast("list[Any]", value)]
    return value
