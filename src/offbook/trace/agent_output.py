"""What agents print: text out of terminal records, and the events and promises in it."""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from offbook.trace.events import PROCESS_OUTPUT, TERMINAL_WRITE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.trace.events import Event

_TAG = re.compile(r"<event ([^>]*)>")
_CLOSE = "</event>"
_TOPIC = re.compile(r'topic="([^"]*)"')
_TARGET = re.compile(r'target="([^"]*)"')


class EventTag(NamedTuple):
    """An event that an agent wrote into its output."""

    topic: str
    payload: str
    target: str | None = None


def parse_event_tags(text: str) -> list[EventTag]:
    """The events in an agent's output: `<event topic="…">payload</event>`, never nested."""
    return [tag for tag, _, _ in _scan(text)]


def _scan(text: str) -> list[tuple[EventTag, int, int]]:
    found: list[tuple[EventTag, int, int]] = []
    at = 0
    while match := _TAG.search(text, at):
        topic = _TOPIC.search(match[1])
        close = text.find(_CLOSE, match.end())
        if topic is None or close < 0:
            at = match.end()
            continue
        target = _TARGET.search(match[1])
        payload = text[match.end() : close].strip()
        end = close + len(_CLOSE)
        found.append(
            (EventTag(topic[1], payload, target[1] if target else None), match.start(), end)
        )
        at = end
    return found


def has_completion_promise(text: str, promise: str) -> bool:
    """Whether the last line says the promise, events aside; one inside an event does not count."""
    wanted = promise.strip()
    if not wanted:
        return False
    tags = _scan(text)
    if any(wanted in tag.payload for tag, _, _ in tags):
        return False
    for _, start, end in reversed(tags):
        text = text[:start] + text[end:]
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return bool(lines) and lines[-1] == wanted


def output_text(event: Event) -> tuple[str, str] | None:
    """The stream and the text that an event says was written, or None."""
    part = output_bytes(event)
    return None if part is None else (part[0], part[1].decode("utf-8", "replace"))


def output_bytes(event: Event) -> tuple[str, bytes] | None:
    """The same, as bytes: a terminal is written to by the piece, and a piece may end in a sign."""
    data = event.data
    if event.event == PROCESS_OUTPUT:
        text, stream = data.get("text", ""), data.get("stream", "stdout")
        known = isinstance(text, str) and isinstance(stream, str)
        return (stream, text.encode("utf-8", "replace")) if known else None
    if event.event != TERMINAL_WRITE:
        return None
    encoded = data.get("bytes")
    if encoded is None and isinstance(data.get("data"), dict):
        data = cast("dict[str, Any]", data["data"])
        encoded = data.get("bytes")
    raw = decode_base64(encoded or "") if isinstance(encoded, str | None) else None
    return None if raw is None else ("stdout" if data.get("stdout", True) else "stderr", raw)


def decode_base64(encoded: str) -> bytes | None:
    """What base64 says, on one line or on several; None when it is none."""
    try:
        return binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError:
        text = "".join(encoded.split())
        return decode_base64(text) if text != encoded else None


def payload_text(payload: Any) -> str:
    """A payload as text: as it is, or as JSON; none is an empty one."""
    if payload is None:
        return ""
    return payload if isinstance(payload, str) else msgspec.json.encode(payload).decode()


def text_field(event: Event, field: str) -> str:
    """A name that an event tells, of a hat or a topic; one that is none is empty."""
    told = event.data.get(field)
    return told if isinstance(told, str) else payload_text(told)


def truncate_texts(value: Any, most: int) -> Any:
    """A value in which no text is longer than that; what is left out is counted."""
    if isinstance(value, str):
        left_out = len(value) - most
        return value if left_out <= 0 else f"{value[:most]}… {left_out} characters more"
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: truncate_texts(held, most) for key, held in fields.items()}
    if isinstance(value, (list, tuple)):
        return [truncate_texts(held, most) for held in cast("list[Any]", value)]
    return value


def join_output(events: Iterable[Event], stream: str = "stdout") -> str:
    """All that was written to a stream."""
    parts = (output_bytes(event) for event in events)
    raw = b"".join(part[1] for part in parts if part and part[0] == stream)
    return raw.decode("utf-8", "replace")
