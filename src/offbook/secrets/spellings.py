"""The spellings of a known secret: in plain text, encoded, and escaped."""

from __future__ import annotations

import html
import json
import re
from binascii import b2a_base64
from functools import lru_cache
from urllib.parse import quote, quote_plus


@lru_cache(maxsize=64)
def spellings(values: frozenset[str]) -> tuple[str, ...]:
    """Return the spellings of these values, the longest first: others are in it."""
    found: set[str] = set()
    for value in values:
        raw = value.encode("utf-8", "surrogateescape")
        found |= {value, raw.hex(), raw.hex().upper(), html.escape(value), repr(raw)[2:-1]}
        found |= {html.escape(value, quote=False), html.escape(value).replace("&#x27;", "&#39;")}
        for ascii_only in (False, True):
            once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
            found |= {once, json.dumps(once, ensure_ascii=ascii_only)[1:-1]}  # JSON in JSON
        for encoded in (
            quote(value, errors="surrogateescape"),
            quote(raw, safe=""),
            quote_plus(raw),
        ):
            found |= {encoded, re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), encoded)}
        parts = {_base64_part(raw, offset) for offset in range(3)}
        found |= parts | {part.replace("+", "-").replace("/", "_") for part in parts}  # in a URL
    return tuple(sorted(found, key=len, reverse=True))


def _base64_part(raw: bytes, offset: int) -> str:
    """Return the characters that base64 has for these bytes after `offset` other bytes.

    Without the first and last character, if other bytes have a share in them.
    """
    encoded = b2a_base64(b"\0" * offset + raw, newline=False).decode().rstrip("=")
    aligned = (offset + len(raw)) % 3 == 0
    return encoded[-(-offset * 4 // 3) : None if aligned else -1]
