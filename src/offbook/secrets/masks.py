r"""Masks at the places of secrets: none breaks an escape, a character or the JSON around it.

A rule reads bytes, and may take the `n` of `password\nhunter2` for the beginning of a value.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from offbook.secrets import find_spans, known_secret_bytes, outgoing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_ESCAPE_BEFORE = re.compile(rb"\\+(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?\Z")
_OPEN_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?)\Z")
_ESCAPE = re.compile(rb"(?s)\\(?:u[0-9a-fA-F]{4}|.)")
_INNER = range(0x80, 0xC0)  # the bytes of a UTF-8 character after its first
MAX_ESCAPE = 40  # backslashes of JSON in JSON in JSON, and the code of a character
MAX_SECRET_LENGTH = 4096  # of one that `cut_text` finds whole
# A text (1), whether it is a key (2), or a number (3).
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*)"(?:\s*(:))?|(-?[0-9][0-9.eE+-]*)')


def mask(raw: bytes, spans: list[tuple[int, int]], by: bytes) -> bytes:
    """Return the bytes with masks at these places, and in JSON at their parts in its values."""
    spans = [_whole_characters(raw, *span) for span in spans]
    masked = _replace(raw, [(*span, by) for span in spans])
    if (
        raw.startswith((b"{", b"[", b'"'))
        and (any(b'"' in raw[start:end] for start, end in spans) or not _is_json(masked))
        and _is_json(raw)
    ):
        return _replace(raw, _places_in_values(raw, spans, by))
    return masked


def find_secrets(text: str) -> Iterator[str]:
    """Yield the secrets of a text: what `outgoing` would mask."""
    raw = text.encode("utf-8", "surrogatepass")
    for start, end in find_spans(raw, known_secret_bytes()):
        yield raw[start:end].decode("utf-8", "replace")


def hide_parts(parts: Sequence[bytes], known: Iterable[bytes], by: bytes) -> list[bytes]:
    """Return the parts of one text, without the secrets that are split over several of them."""
    raw = b"".join(parts)
    spans = find_spans(raw, known)
    hidden: list[bytes] = []
    at = 0
    for part in parts:
        end = at + len(part)
        inside = [(max(s, at) - at, min(e, end) - at) for s, e in spans if s < end and e > at]
        hidden.append(mask(part, inside, by) if inside else part)
        at = end
    return hidden


def ending(text: str, length: int) -> str:
    """Return at most the last `length` characters of a text; a longer one is masked first."""
    return text if len(text) <= length else outgoing(text)[-length:]


def cut_text(text: str, length: int) -> str:
    """Return at most `length` characters of a text, cut before a secret instead of in it."""
    start = max(0, length - MAX_SECRET_LENGTH)
    kept = text[start:length].encode("utf-8", "surrogatepass")
    raw = kept + text[length : length + MAX_SECRET_LENGTH].encode("utf-8", "surrogatepass")
    end = len(kept)
    for first, last in sorted(find_spans(raw, known_secret_bytes()), reverse=True):
        end = first if first < end < last else end
    return text[:start] + raw[:end].decode("utf-8", "ignore")


def _replace(raw: bytes, places: list[tuple[int, int, bytes]]) -> bytes:
    """Return the bytes with these masks; places that overlap get one."""
    parts: list[bytes] = []
    position = 0
    for start, end, by in sorted(places):
        if end <= position:  # within the place before it
            continue
        parts.append(raw[position : max(start, position)])
        if start >= position:
            parts.append(by)
        position = end
    parts.append(raw[position:])
    return b"".join(parts)


def _whole_characters(raw: bytes, start: int, end: int) -> tuple[int, int]:
    """Return the place with the whole characters and escapes at its two ends."""
    escape = _ESCAPE_BEFORE.search(raw, max(0, start - MAX_ESCAPE), start)
    start = escape.start() if escape else start
    while 0 < start < len(raw) and raw[start] in _INNER:
        start -= 1
    opened = _OPEN_ESCAPE.search(raw, start, end)
    escape = _ESCAPE.match(raw, opened.start(1)) if opened else None
    end = escape.end() if escape else end
    while end < len(raw) and raw[end] in _INNER:
        end += 1
    return start, end


def _is_json(raw: bytes) -> bool:
    """Return whether a text is JSON."""
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
    except msgspec.MsgspecError:
        return False
    return True


def _places_in_values(
    raw: bytes, spans: list[tuple[int, int]], by: bytes
) -> list[tuple[int, int, bytes]]:
    """Return the parts of these places that are in texts and numbers of JSON, with their masks.

    A place across several values has a part in each, and none in the keys between them. A number
    is masked as a whole, by a text.
    """
    places: list[tuple[int, int, bytes]] = []
    tokens = list(_TOKEN.finditer(raw))
    at = 0
    for start, end in sorted(spans):
        while at < len(tokens) and tokens[at].end() <= start:
            at += 1
        for token in islice(tokens, at, None):
            if token.start() >= end:
                break
            first, last = token.span(3 if token[3] else 1)
            in_one = first <= start and end <= last
            if token[3]:
                if start <= first and last <= end:
                    places.append((first, last, b'"%b"' % by))
            elif (in_one or not token[2]) and max(first, start) < min(last, end):
                places.append((max(first, start), min(last, end), by))
    return places


_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY")
_END = re.compile(rb"-----END [A-Z0-9 ]*PRIVATE KEY")


def safe_split_index(raw: bytes) -> int:
    """Return the index at which a growing output can be split without splitting a secret.

    That is after the last complete line, or before a private key that has not ended yet.
    """
    end = raw.rfind(b"\n") + 1
    for begin in _BEGIN.finditer(raw, 0, end):
        if _END.search(raw, begin.start(), end) is None:
            return begin.start()
    return end
