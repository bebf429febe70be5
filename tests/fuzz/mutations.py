"""Changes of an input: of its bytes, of its words, and of the values of a JSON, YAML or TOML text.

    Mutator(seeds, random).change(data)

An input that is only noise is refused by the first check of a parser. So most changes keep the
structure: they replace, repeat, remove or nest values, or exchange words between two inputs.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, cast

from offbook.errors import OffbookError
from offbook.files import parse_yaml

MAX_LENGTH = 64 * 1024
MAX_WORDS = 4000
WORD = re.compile(rb"[A-Za-z_][\w.-]{1,30}")
TOKEN = re.compile(rb"\s+|\w+|[^\w\s]")
# Texts that parsers get wrong.
TOKENS = (
    *(b"null", b"true", b"-1", b"0", b"1e999", b"NaN", b"0x", b"9" * 30, b"9" * 5000, b"-0.0"),
    *(b"{}", b"[]", b'""', b"''", b"{", b"[", b"]", b"}", b'"', b"'", b":", b",", b"- ", b"? "),
    *(b"\n", b"\r\n", b"\t", b"\0", b"\\u0000", b"\\ud800", b"\xff", b"\xc3", b"\xef\xbb\xbf"),
    *(b"\xe2\x80\xa8", b"&a ", b"*a", b"<<: ", b"!!python/object ", b"---\n", b"...\n", b"|\n"),
    *(b"#", b"%", b"\x1b[31m", b"[" * 2000, b"{" * 2000, b'{"a":' * 2000, b"a" * 3000, b"..", b"/"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308),
    *(
        "",
        " ",
        "x",
        "0",
        "\0",
        "\ud800",
        "é",
        "\u2028",
        "*",
        "(",
        "(a+)+$",
        "²",
        "../x",
        "a" * 5000,
    ),
    *([], {}, [[]], [None], {"": None}, {"type": 1}, [{}], "1e999", float("inf"), float("nan")),
)


def _nested(depth: int = 1200) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": [value]} if depth % 2 else [value]
    return value


class Mutator:
    """Changes inputs at random; the words of all seeds are its dictionary."""

    def __init__(self, seeds: Sequence[bytes], random: Random) -> None:
        self._random = random
        words = {word for seed in seeds for word in WORD.findall(seed)}
        self._words = sorted(words)[:MAX_WORDS] or [b"a"]

    def change(self, data: bytes, other: bytes) -> bytes:
        """Return an input with one to four changes; `other` is one to take parts from."""
        for _ in range(self._random.choice((1, 1, 1, 2, 4))):
            kind: Callable[[bytes, bytes], bytes] = self._random.choice(
                (self._values, self._values, self._tokens, self._lines, self._bytes)
            )
            data = kind(data, other)[:MAX_LENGTH]
        return data

    def _bytes(self, data: bytes, other: bytes) -> bytes:
        random = self._random
        start = random.randrange(len(data) + 1)
        end = min(len(data), start + random.choice((0, 1, 1, 2, 8, 64)))
        middle = random.choice(
            (b"", random.randbytes(1), random.choice(TOKENS), data[start:end] * 2, other[start:end])
        )
        return data[:start] + middle + data[end:]

    def _tokens(self, data: bytes, other: bytes) -> bytes:
        tokens = TOKEN.findall(data)
        if not tokens:
            return random_word(self._random, self._words)
        at = self._random.randrange(len(tokens))
        donors = TOKEN.findall(other) or [b""]
        tokens[at] = self._random.choice(
            (
                b"",
                self._random.choice(TOKENS),
                random_word(self._random, self._words),
                self._random.choice(donors),
                tokens[at] * 2,
                tokens[self._random.randrange(len(tokens))],
            )
        )
        return b"".join(tokens)

    def _lines(self, data: bytes, other: bytes) -> bytes:
        lines = data.split(b"\n")
        at = self._random.randrange(len(lines))
        match self._random.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[at])
            case 2:
                lines.insert(at, self._random.choice(other.split(b"\n")))
            case 3:
                lines[at] = b" " * self._random.randrange(5) + lines[at].lstrip()
            case _:
                lines = lines[: at + 1]
        return b"\n".join(lines)

    def _values(self, data: bytes, other: bytes) -> bytes:
        """Change a value of a document, or of one line of a file of JSON lines."""
        lines = data.split(b"\n")
        at = self._random.randrange(len(lines))
        with suppress(ValueError, RecursionError):
            line = json.loads(lines[at])
            if isinstance(line, (dict, list)):
                lines[at] = self._dump(self._change_value(line))
                return b"\n".join(lines)
        value = parse_document(data)
        if not isinstance(value, (dict, list)):
            return self._tokens(data, other)
        return self._dump(self._change_value(cast("Any", value)))

    def _dump(self, value: Any) -> bytes:
        try:
            return json.dumps(value, default=str).encode()
        except (RecursionError, TypeError, ValueError):  # keys of YAML may be of any type
            return b"[]"

    def _change_value(self, value: Any) -> Any:  # noqa: PLR0911 - one for each kind of change
        """Return the value with a change at one place of it."""
        random = self._random
        if random.random() < 0.75:
            if isinstance(value, dict) and value:
                fields = cast("dict[Any, Any]", value)
                key = random.choice([*fields])
                match random.randrange(8):
                    case 0:
                        return {k: v for k, v in fields.items() if k != key}
                    case 1:
                        word = random_word(random, self._words).decode("utf-8", "replace")
                        return {**fields, word: random.choice((fields[key], *VALUES))}
                    case _:
                        return {**fields, key: self._change_value(fields[key])}
            if isinstance(value, list) and value:
                items = cast("list[Any]", value)
                at = random.randrange(len(items))
                match random.randrange(8):
                    case 0:
                        return items[:at] + items[at + 1 :]
                    case 1:
                        return [*items, items[at]]
                    case _:
                        return [*items[:at], self._change_value(items[at]), *items[at + 1 :]]
        match random.randrange(8):
            case 0:
                return [value]
            case 1:
                word = random_word(random, self._words).decode("utf-8", "replace")
                return {word: cast("Any", value)}
            case 2:
                return random_word(random, self._words).decode("utf-8", "replace")
            case 3 if random.random() < 0.1:
                return _nested()
            case _:
                return random.choice(VALUES)


def random_word(random: Random, words: Sequence[bytes]) -> bytes:
    """Return one of the words of the seeds."""
    return random.choice(words)


def parse_document(data: bytes) -> object:
    """Return the value of a JSON, TOML or YAML text, or None."""
    text = data.decode("utf-8", "replace")
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    with suppress(ValueError, RecursionError):
        return tomllib.loads(text)
    with suppress(OffbookError):
        return parse_yaml(text)
    return None
