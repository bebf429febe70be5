"""The lines of error messages: of invalid TOML, and of a location such as `$.cases[2].thresholds`.

The line of a location is found by reading the text again, with positions, and only after an error.
"""

from __future__ import annotations

import json
import re
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

from offbook.errors import FormatError
from offbook.files import find_line

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"^\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"))*)\s*=")
_SPACE = re.compile(r"\s*")


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Return the value of a TOML document; an error names its line."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        number = str(error).partition("(at line ")[2].partition(",")[0]
        line = int(number) if number.isdigit() else None  # an error at the end has none
        raise FormatError(f"invalid TOML: {error}", path=path, line=line) from error


def line_of(text: str, location: str, path: Path) -> int | None:
    """Return the line of a location in a document, or of the nearest part that was found."""
    if path.suffix == ".toml":
        return find_toml_line(text, location)
    return find_json_line(text, location) if path.suffix == ".json" else find_line(text, location)


def _steps(location: str) -> list[str]:
    return [key or index for key, index in _STEP.findall(location)]


def _normal(key: str) -> str:
    """Return a key as structs spell it: TOML files may write dashes."""
    return key.strip().strip("\"'").replace("-", "_")


def find_toml_line(text: str, location: str) -> int | None:
    """Return the line of a location in TOML."""
    wanted = [_normal(step) for step in _steps(location)]
    counts: dict[tuple[str, ...], int] = {}
    prefix: list[str] = []
    best, best_length = None, 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            keys = [_normal(key) for key in header[2].split(".")]
            prefix = []
            for position, key in enumerate(keys):
                prefix.append(key)
                array = tuple(prefix)
                if header[1] == "[[" and position == len(keys) - 1:
                    counts[array] = counts.get(array, -1) + 1
                if array in counts:  # a table inside of an item belongs to the last item
                    prefix.append(str(counts[array]))
            found = prefix
        elif key := _KEY.match(line):
            found = [*prefix, *(_normal(part) for part in key[1].split("."))]
        else:
            continue
        length = _common(found, wanted)
        # The deepest part of the location that a line defines; the first such line.
        if length == len(found) and length > best_length:
            best, best_length = number, length
    return best


def _common(found: list[str], wanted: list[str]) -> int:
    length = 0
    for one, other in zip(found, wanted, strict=False):
        if one != other:
            break
        length += 1
    return length


def find_json_line(text: str, location: str) -> int | None:
    """Return the line of a location in JSON."""
    wanted = [_normal(step) for step in _steps(location)]
    decode = json.JSONDecoder().raw_decode
    best = [0, 0]  # the length of the deepest part found, and its offset

    def visit(position: int, path: list[str]) -> int:
        """Read the value at a position; return the position after it."""
        position = _skip(text, position)
        length = _common(path, wanted)
        if length == len(path) and length > best[0]:
            best[:] = [length, position]
        opening = text[position]
        if opening not in "{[":
            return decode(text, position)[1]
        position = _skip(text, position + 1)
        index = 0
        while text[position] not in "}]":
            key = str(index)
            if opening == "{":
                key, position = decode(text, position)
                position = _skip(text, position) + 1  # the colon
            position = _skip(text, visit(position, [*path, _normal(key)]))
            index += 1
            if text[position] == ",":
                position = _skip(text, position + 1)
        return position + 1

    # After an error of the syntax, the rest is unknown.
    with suppress(IndexError, ValueError, RecursionError):
        visit(0, [])
    return text.count("\n", 0, best[1]) + 1 if best[0] else None


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()
