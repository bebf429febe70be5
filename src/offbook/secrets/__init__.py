"""Secrets: known values, the formats of keys, and values after the name of a secret.

    hide_secrets("Authorization: Bearer abc123def456ghi")   # "Authorization: [API_KEY]"

1. Known values, of the environment and of headers, are hidden always and in every encoding.
2. Keys are hidden wherever their format is certain: a prefix that a provider publishes, between
   word borders, and a digit (`secret_shapes`).
3. Other values are hidden by name, where the format separates the name from the value
   (`named_values`).

Everything else stays: agents write programs, and these must come out of a cassette unchanged.

Speed: every rule has a word that its matches contain. One pass finds all these words, so a text
without any costs next to nothing.
"""

from __future__ import annotations

import base64
import json
import os
import re
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, quote_plus

from offbook.secrets.named_values import (
    Name,
    compile_pattern,
    has_digit,
    is_secret_name,
    is_secret_value,
    looks_random,
    secret_names,
)
from offbook.secrets.secret_shapes import EDGE, END, KEYS, LOOKBEHIND, PLACES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    WordFinder = Callable[[bytes], list[tuple[int, int, int]]]

MASK = "[API_KEY]"
_MASK = MASK.encode()
MIN_SECRET_LENGTH = 8
SHELL_FOLDERS = {"PWD", "OLDPWD"}  # variables of the shell that look like passwords


class _Rule(NamedTuple):
    """A pattern whose last group, or whole match, is a secret if `judge` says so.

    It is matched at each occurrence of its word, or up to `lookbehind` bytes before it.
    """

    pattern: bytes
    judge: Callable[[bytes], bool]
    lookbehind: int = 0

    def find(self, raw: bytes, _lower: bytes, start: int, _end: int) -> Iterator[tuple[int, int]]:
        """Yield the position of the secret whose word is at this position."""
        pattern = compile_pattern(self.pattern)
        for at in range(max(0, start - self.lookbehind), start) if self.lookbehind else (start,):
            match = pattern.match(raw, at)
            if match is not None:
                first, last = match.span(pattern.groups)
                if self.judge(raw[first:last]):
                    yield first, last
                return


@lru_cache(maxsize=1)
def _rules_by_word() -> tuple[WordFinder, list[tuple[bytes | None, list[_Rule | Name]]]]:
    """Return a finder of all words, and for each the bytes that may follow it and its rules."""
    by_word: dict[bytes, list[_Rule | Name]] = {}
    for word, shape in KEYS.items():
        pattern = f"{EDGE}(?:{shape}){END}".encode()
        rule = _Rule(pattern, has_digit, LOOKBEHIND.get(word, 0))
        by_word.setdefault(word.encode(), []).append(rule)
    for word, place in PLACES.items():
        rule = _Rule(f"(?s){place}".encode(), is_secret_value, LOOKBEHIND.get(word, 0))
        by_word.setdefault(word.encode(), []).append(rule)
    for name, rule in secret_names().items():
        by_word.setdefault(name, []).append(rule)
    table: list[tuple[bytes | None, list[_Rule | Name]]] = []
    for rules in by_word.values():
        names = [rule for rule in rules if isinstance(rule, Name)]
        following = bytes(byte for name in names for byte in name.formats)
        table.append((following if len(names) == len(rules) else None, rules))
    return word_finder(by_word, table=True), table


def word_finder(words: Iterable[bytes], *, table: bool = False) -> WordFinder:
    """Return a function that finds many words in one pass: (index of the word, start, end).

    With a `table` of all transitions it is four times as fast, and takes four times as long to
    build: 1 ms for 200 words. Only this module imports ahocorasick-rs.
    """
    from ahocorasick_rs import BytesAhoCorasick, Implementation

    automaton = BytesAhoCorasick(words, implementation=Implementation.DFA if table else None)
    return partial(automaton.find_matches_as_indexes, overlapping=True)


def hide_bytes(raw: bytes, known: Iterable[bytes] = ()) -> bytes:
    """Return the bytes without known secrets and without anything that looks like one."""
    for values in (known, _header_secrets):
        for value in values:
            if value in raw:
                raw = raw.replace(value, _MASK)
    lower = raw.lower()
    find_words, rules = _rules_by_word()
    found = find_words(lower)
    if not found:
        return raw
    spans: list[tuple[int, int]] = []
    for word, start, end in found:
        following, chosen = rules[word]
        # first the cheapest check: most names are in prose, or parts of other words
        if following is None or lower[end : end + 1] in following:
            for rule in chosen:
                spans += rule.find(raw, lower, start, end)
    if not spans:
        return raw  # the same object: callers notice that nothing was hidden
    parts: list[bytes] = []
    position = 0
    for start, end in sorted(spans):
        if end <= position:  # within the span before it
            continue
        parts.append(raw[position : max(start, position)])
        if start >= position:  # spans that overlap get one mask
            parts.append(_MASK)
        position = end
    parts.append(raw[position:])
    return b"".join(parts)


def hide_secrets(text: str, known: Iterable[str] = ()) -> str:
    """Return the text without known secrets and without anything that looks like one."""
    raw = text.encode("utf-8", "surrogatepass")
    hidden = hide_bytes(raw, [value.encode("utf-8", "surrogateescape") for value in known])
    return text if hidden is raw else hidden.decode("utf-8", "surrogatepass")


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


# --- Known values

_EXTRA: ContextVar[Mapping[str, str]] = ContextVar("offbook_given", default={})  # noqa: B039 - never changed


def known_secrets(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the secrets of an environment, by default of this process with `extra_secrets`.

    Each is in plain text, in base64 and in hex, and escaped as in JSON and in URLs.
    """
    own = {**os.environ, **_EXTRA.get()} if _EXTRA.get() else os.environ
    variables = own if environment is None else environment
    names = [name for name in variables if is_secret_name(name) and name not in SHELL_FOLDERS]
    values = (variables[name] for name in names if len(variables[name]) >= MIN_SECRET_LENGTH)
    return _spellings(frozenset(values))


CREDENTIAL_HEADERS = (
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
)
_headers_seen: set[str] = set()
_header_secrets: tuple[bytes, ...] = ()


def remember_credentials(headers: Mapping[str, str]) -> None:
    """Treat the keys in the headers of a request, with names in lower case, as known from now on.

    Keys that are words ("not-needed") are none.
    """
    global _header_secrets  # noqa: PLW0603 - what a process has seen, it knows
    for name in CREDENTIAL_HEADERS:
        value = headers.get(name)
        if value is None or value in _headers_seen:
            continue
        _headers_seen.add(value)
        key = value.rpartition(" ")[2]
        raw = key.encode("utf-8", "surrogateescape")
        if len(raw) >= MIN_SECRET_LENGTH and looks_random(raw):
            spellings = [
                text.encode("utf-8", "surrogateescape") for text in _spellings(frozenset({key}))
            ]
            _header_secrets = (*_header_secrets, *spellings)


@contextmanager
def extra_secrets(environment: Mapping[str, str]) -> Generator[None]:
    """Treat the secrets of an agent's environment as known in this block."""
    token = _EXTRA.set({**_EXTRA.get(), **environment})
    try:
        yield
    finally:
        _EXTRA.reset(token)


@lru_cache(maxsize=64)
def _spellings(values: frozenset[str]) -> tuple[str, ...]:
    spellings: set[str] = set()
    for value in values:
        raw = value.encode("utf-8", "surrogateescape")
        once = json.dumps(value, ensure_ascii=False)[1:-1]
        twice = json.dumps(once, ensure_ascii=False)[1:-1]  # JSON in JSON
        spellings |= {value, once, twice, raw.hex(), raw.hex().upper()}
        for encoded in (
            quote(value, errors="surrogateescape"),
            quote(raw, safe=""),
            quote_plus(raw),
        ):
            lower = re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), encoded)
            spellings |= {encoded, lower}
        spellings |= {_base64_part(raw, offset) for offset in range(3)}
    return tuple(sorted(spellings, key=len, reverse=True))  # the longest first: others are in it


def _base64_part(raw: bytes, offset: int) -> str:
    """Return the characters that base64 has for these bytes after `offset` other bytes.

    Without the first and last character, if other bytes have a share in them.
    """
    encoded = base64.b64encode(b"\0" * offset + raw).decode().rstrip("=")
    aligned = (offset + len(raw)) % 3 == 0
    return encoded[-(-offset * 4 // 3) : None if aligned else -1]
