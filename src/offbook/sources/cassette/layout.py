"""Where things stand in the text of a cassette: found without reading all of it as YAML."""

from __future__ import annotations

import re

import msgspec

INDENT = 2
_ITEMS = re.compile(rb"^interactions:[ \t]*(?:#[^\n]*)?\n", re.MULTILINE)
_FIRST = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\n)*( *)- ")
_KEY = re.compile(rb"^[^\s#]", re.MULTILINE)
_BLANK = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?:#[^\n]*)?")


class Span(msgspec.Struct, frozen=True):
    """Where the interactions stand in the file, and how far they are indented."""

    start: int
    end: int
    indent: int


def find_items(raw: bytes) -> Span | None:
    """Where the interactions stand, when they are written one below the other."""
    opened = _ITEMS.search(raw)
    first = _FIRST.match(raw, opened.end()) if opened else None
    if opened is None:
        return None
    if first is None:  # none yet, or written in some other way
        rest = _KEY.search(raw, opened.end())
        end = rest.start() if rest else len(raw)
        blank = _BLANK.fullmatch(raw, opened.end(), end)
        return Span(opened.end(), end, INDENT) if blank else None
    indent = len(first[1])
    after = rb"^[^\s#-]" if indent == 0 else rb"^[^\s#]"
    closed = re.compile(after, re.MULTILINE).search(raw, opened.end())
    end = closed.start() if closed else len(raw)
    return Span(opened.end(), end, indent)


def split_items(raw: bytes, span: Span) -> list[tuple[int, int]]:
    """Where each interaction begins and ends."""
    dash = re.compile(rb"^ {%d}- " % span.indent, re.MULTILINE)
    starts = [found.start() for found in dash.finditer(raw, span.start, span.end)]
    return list(zip(starts, [*starts[1:], *([span.end] if starts else [])], strict=True))


def find_line(text: str, key: str) -> int | None:
    """The line on which a key of the header stands."""
    found = re.search(rf"^{key}:", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else None


def find_rule(text: str, kind: str, named: str) -> int | None:
    """The line of a redaction: of a pattern by its name, of a path or a preset as it stands."""
    begin = find_line(text, "redactions")
    if begin is None:
        return None
    lines = text.split("\n")
    for at in range(begin, len(lines)):
        if lines[at][:1].strip():
            break
        if named and named in lines[at]:
            return at + 1
    listed = (at for at in range(begin, len(lines)) if lines[at].strip().startswith(f"{kind}:"))
    return next(listed, begin - 1) + 1
