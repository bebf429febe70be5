"""The cells below the name of a secret in the first line of a table: CSV, TSV, Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.secrets import values
from offbook.secrets.key_formats import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_NAME_LENGTH = 60
_BORDER = rb"[,;|\t]|\\+t"
_NEWLINE = rb"\n|\\+n"
_CELL_START = rb"(?:\A|\\n|([\n,;|\t\"]|\\+t))[ \\\"`*]*[\w.-]*\Z"
_HEADER = rb"[\w .,;|\t\r\"`*\\-]+"
_CELL = rb"[ \\\"`*]*([^\s\"'`\\()=]{6,}={0,2})(?:\\+r|[ \\\"`*\r])*"
MAX_ROWS = 200
MAX_ROW_LENGTH = 1000


def find_cells(raw: bytes, start: int, end: int, after: bytes) -> Iterator[tuple[int, int]]:
    """Yield the positions of the secrets below the name at this position; `after` ends its cell.

    A table ends where a line has another number of cells. In a text of JSON, a newline is escaped
    with as many backslashes as the JSON is deep, and the text ends at a quote with fewer.
    """
    before = compile_pattern(_CELL_START).search(raw, max(0, start - MAX_NAME_LENGTH), start)
    newline = compile_pattern(_NEWLINE).search(raw, end, end + MAX_ROW_LENGTH)
    if before is None or newline is None:
        return
    depth = len(newline[0]) - 1
    edge = rb"(?<!\\)(?:\\{%d}n|\\{,%d}\")|\n" % (depth, depth - 1) if depth else rb"\n"
    lines: list[bytes] = compile_pattern(edge).split(raw[max(0, start - MAX_ROW_LENGTH) : start])
    header = lines[-1] + raw[start : newline.start()]
    border: bytes | None = after if compile_pattern(_BORDER).fullmatch(after) else before[1]
    if border is None or compile_pattern(_BORDER).fullmatch(border) is None:
        return
    # a single cell, as in `password,`, is an argument in code
    single = border not in header.strip(b" \t\r").removeprefix(border).removesuffix(border)
    if single or compile_pattern(_HEADER).fullmatch(header) is None:
        return
    column, position = lines[-1].count(border), newline.end()
    # as lines of code are: the names of an import
    spaced = border != b"|" and b" " in header
    judge = values.is_unlike_code if spaced else values.looks_random
    for _ in range(MAX_ROWS):
        stop = compile_pattern(edge).search(raw, position)
        cells: list[bytes] = raw[position : stop.start() if stop else len(raw)].split(border)
        if len(cells) != header.count(border) + 1:
            return
        match = compile_pattern(_CELL).fullmatch(cells[column])
        if match and judge(match[1]):
            first = position + sum(len(cell + border) for cell in cells[:column])
            yield first + match.start(1), first + match.end(1)
        if stop is None or stop[0].endswith(b'"'):
            return
        position = stop.end()
