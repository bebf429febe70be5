r"""Text without what is invisible in it: colors, escapes of quotes, entities.

They may separate a name and its value, as in `\u0022password\u0022: \u0022…`, or in a name in color
before a value in another color. The search for secrets runs on the plain text, too.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache

_ESCAPES = (
    rb"(?i)(?:\x1b|\\+u001b|\\+x1b|\\+033|\\+e)\[[0-9;:]*[mk]"  # colors
    rb"|\\+u00([2-7][0-9a-f])|\\+x([2-7][0-9a-f])"
    rb"|(&(?:quot|apos|amp|lt|gt|nbsp|equals|colon|#[0-9]{2,3}|#x[0-9a-f]{2});)"
    rb"|<!\[cdata\[|\]\]>|(\xc2\xa0)|\xe2\x80\x8b|\\+u200b"
)


_ENTITIES = {
    b"quot": b'"',
    b"apos": b"'",
    b"amp": b"&",
    b"lt": b"<",
    b"gt": b">",
    b"nbsp": b" ",
    b"equals": b"=",
    b"colon": b":",
}


@cache
def _pattern() -> re.Pattern[bytes]:
    return re.compile(_ESCAPES)


class PlainText:
    """A text without its escapes; `original_span` returns where a part of it was."""

    def __init__(self, raw: bytes) -> None:
        self._ends: list[int] = []  # of each escape, in the plain text
        self._originals: list[tuple[int, int, int]] = []  # length in the plain text, start, end
        parts: list[bytes] = []
        length = position = 0
        for match in _pattern().finditer(raw):
            plain = _decode(match)
            parts += [raw[position : match.start()], plain]
            length += match.start() - position + len(plain)
            position = match.end()
            self._ends.append(length)
            self._originals.append((len(plain), match.start(), match.end()))
        self.text = b"".join([*parts, raw[position:]])

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return where this part of the plain text is in the original one."""
        return self._original(start)[0], self._original(end - 1)[1]

    def _original(self, at: int) -> tuple[int, int]:
        """Return where the byte at this position of the plain text comes from."""
        index = bisect_right(self._ends, at)
        if index < len(self._ends):
            length, first, last = self._originals[index]
            if at >= self._ends[index] - length:  # a part of what the escape means
                return first, last
        place = at
        if index:
            place = self._originals[index - 1][2] + at - self._ends[index - 1]
        return place, place + 1


def _decode(match: re.Match[bytes]) -> bytes:
    """Return the text that an escape means."""
    code = match[1] or match[2]
    if code:
        return bytes([int(code, 16)])
    if match[3]:
        name = match[3][1:-1].lower()
        if name.startswith(b"#x"):
            return bytes([int(b"0" + name[1:], 16)])
        return bytes([int(name[1:]) % 256]) if name.startswith(b"#") else _ENTITIES[name]
    return b" " if match[4] else b""
