"""Lines that others wrote, read as ours: Ralph's session, its event files, and their old shapes.

A session's line is an event as it stands. The event files have a topic and a payload instead, and
a time as text; terminal records of some versions hold their data twice.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from offbook.trace.events import Event


class _Row(msgspec.Struct, frozen=True):
    """A line of an event file."""

    topic: str
    payload: Any = None
    ts: str | int = 0
    iteration: int | None = None
    hat: str | None = None
    source: str | None = None
    target: str | None = None


_decode_row = msgspec.json.Decoder(_Row).decode


def upgrade_line(raw: bytes) -> Event | None:
    """A line in one of the other shapes as an event, or None when it has none of them."""
    try:
        row = _decode_row(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    data: dict[str, Any] = {"topic": row.topic, "payload": row.payload}
    for name in ("iteration", "hat", "source", "target"):
        value = getattr(row, name)
        if value is not None:
            data[name] = value
    return Event(_millis(row.ts), "bus.publish", data)


def _millis(told: str | int) -> int:
    if isinstance(told, int):
        return told
    try:
        return int(datetime.fromisoformat(told).timestamp() * 1000)
    except ValueError:
        return 0


def upgrade_event(event: Event) -> Event:
    """An event whose data is nested in itself, unfolded."""
    if not event.event.startswith("ux."):
        return event
    inner = event.data.get("data")
    if isinstance(inner, dict) and "event" in event.data:
        return msgspec.structs.replace(event, data=inner)
    return event
