"""Lines that others wrote, read as ours: Ralph's session, its event files, and their old shapes.

A session's line is an event as it stands, though its time may be a text, its data anything, and
what it has besides of any type. The event files have a topic and a payload instead; terminal
records of some versions hold their data twice.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

import msgspec

from offbook.trace.events import PUBLISH, Event

SPENT = "iteration.summary"  # a row in which Ralph tells what an iteration cost


class _Record(msgspec.Struct, frozen=True):
    """A line of a session, whatever its fields hold."""

    ts: int | float | str
    event: str
    data: Any = None
    seq: Any = 0
    id: Any = ""
    context: Any = None
    parent: Any = ""


_decode_record = msgspec.json.Decoder(_Record).decode
_decode_row = msgspec.json.Decoder(dict[str, Any]).decode
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def upgrade_line(raw: bytes, last: int = 0) -> Event | None:
    """A line in one of the other shapes as an event, or None when it has none of them.

    A row that tells no time happened when the `last` line did.
    """
    try:
        return _read_record(_decode_record(raw))
    except UNREADABLE:
        pass
    try:
        row = _decode_row(raw)
    except UNREADABLE:
        return None
    if "event" in row or not isinstance(row.get("topic"), str):
        return None
    ts = _millis(row.pop("ts", None))
    data: dict[str, Any] = {"topic": row.pop("topic"), "payload": row.pop("payload", None)}
    data |= {name: value for name, value in row.items() if value is not None}
    return Event(last if ts is None else ts, PUBLISH, {**_spent(data), **data})


def _read_record(record: _Record) -> Event | None:
    ts = _millis(record.ts)
    if ts is None:
        return None
    seq = record.seq if isinstance(record.seq, int) else 0
    data, context = _fields(record.data), _fields(record.context)
    event = Event(ts, record.event, data, seq, _text(record.id), context, _text(record.parent))
    return upgrade_event(event)


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {} if value is None else {"value": value}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _spent(data: dict[str, Any]) -> dict[str, Any]:
    """What a summary of an iteration says of its cost, where costs are looked for."""
    told = data["payload"] if data["topic"] == SPENT else None
    if isinstance(told, str):
        try:
            told = msgspec.json.decode(told)
        except UNREADABLE:  # Ralph cuts long ones off
            return {}
    if not isinstance(told, dict):
        return {}
    summary = cast("dict[str, Any]", told)
    return {"cost_usd": summary["cost_usd"]} if "cost_usd" in summary else {}


def _millis(told: Any) -> int | None:
    """A time in milliseconds, or None where none is told."""
    try:
        if isinstance(told, str):
            return int(told) if told.isdigit() else _stamp(told)
        return int(told)
    except (TypeError, ValueError, OverflowError):
        return None


def _stamp(told: str) -> int:
    return int(datetime.fromisoformat(told).timestamp() * 1000)


def upgrade_event(event: Event) -> Event:
    """An event whose data is nested in itself, unfolded."""
    if not event.event.startswith("ux."):
        return event
    inner = event.data.get("data")
    if isinstance(inner, dict) and "event" in event.data:
        return msgspec.structs.replace(event, data=inner)
    return event
