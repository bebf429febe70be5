"""Secrets: found by their format, by the name in front of them, and by known values.

    hide_secrets("Authorization: Bearer abc123def456ghi")   # "Authorization: [API_KEY]"

No secret may reach a disk. In doubt a value is hidden: a text that only looks like a key, too. But
program code that deals with secrets (`password: str`) stays, since agents write programs, and
these must come out of a cassette unchanged.

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
from urllib.parse import quote

from offbook.secrets.secret_shapes import (
    LONG_VALUE_NAMES,
    LOOKBEHIND,
    PLAIN_TOKENS,
    QUERY_NAMES,
    SECRET_FLAGS,
    SECRET_NAMES,
    SHAPES,
    WHOLE_VALUE_NAMES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    WordFinder = Callable[[bytes], list[tuple[int, int, int]]]

MASK = "[API_KEY]"
_MASK = MASK.encode()
MIN_SECRET_LENGTH = 8
SHELL_FOLDERS = {"PWD", "OLDPWD"}  # variables of the shell that look like passwords


class _Rule(NamedTuple):
    """A pattern whose last group, or whole match, is a secret.

    It is matched at each occurrence of `word`, or up to `lookbehind` bytes before it. A pattern
    with `ignore_case` reads the text in lower case. One that is `by_name` finds a value by the
    name in front of it, so the value may be program code.
    """

    word: bytes
    pattern: re.Pattern[bytes]
    ignore_case: bool = True
    lookbehind: int = 0
    by_name: bool = False


# Between a name and its value, and the value itself, in JSON, YAML, code, XML and command lines.
_ASSIGN = r"\s*(?::=|=>|[:=])\s*(?:\[\s*)?"
_QUOTED = (
    rf"[\"']?{_ASSIGN}\"((?:[^\"\\]|\\.)+)",
    rf"[\"']?{_ASSIGN}'([^'\n]+)",
    # JSON in JSON, however deep: ends at a quote with as many backslashes as the first one
    rf"(?:\\*[\"'])?{_ASSIGN}(\\+)\"((?:[^\"\\]|\\+[^\"\\]|\1\\+\")+)",
    r"%22(?:%20)*(?:%3a|:)(?:%20)*%22((?:[^%\"&\s]|%(?!22)[0-9a-f]{2})+)",  # JSON in a URL
)
_BARE = r"(?:\s*=\s*|:[ \t]+)([^\s\"'\\&,;}\])]{3,})"
# a block of YAML, also escaped in JSON
_BLOCK = r":[ \t]*[|>][-+0-9]*[ \t]*(?:\\+r|\r)?(?:\\+n|\n)[ \t]+([^\s\"'\\][^\n\"'\\]*)"
_ELEMENT = r">([^<\s]{3,})</"
_OPTION = r"(?:[ \t]+|\\*\",[ \t]*\\*\")([^\s\"'\\,]{3,})"


def _rules() -> Iterator[_Rule]:
    for word, shape in SHAPES.items():
        pattern = re.compile(shape.encode(), re.DOTALL)
        yield _Rule(word.encode(), pattern, ignore_case=False, lookbehind=LOOKBEHIND.get(word, 0))
    for name in SECRET_NAMES:
        word = name.encode()
        # a `next_token` is the position in a list
        exceptions = PLAIN_TOKENS if name == "_token" else ()
        unless = b"".join(rb"(?<!%b)" % prefix.encode() for prefix in exceptions)
        for spelling in dict.fromkeys((word, word.replace(b"_", b"-"))):
            for value in (*_QUOTED, _BARE, _BLOCK, _ELEMENT):
                pattern = re.compile(unless + spelling + value.encode(), re.DOTALL)
                yield _Rule(spelling, pattern, by_name=True)
        option = b"--" + word.strip(b"_").replace(b"_", b"-")
        yield _Rule(option, re.compile(option + _OPTION.encode()), by_name=True)
    for name in WHOLE_VALUE_NAMES:
        word = name.encode()
        for value in (*_QUOTED, r":[ \t]+([^\r\n\"'\\]+)"):
            yield _Rule(word, re.compile(word + value.encode()), by_name=True)
    for name in QUERY_NAMES:
        word = f"{name}=".encode()
        # `code=` is also a word of ordinary URLs: there the value must have a digit
        digit = rb"(?=[^&\s]*[0-9])" if name == "code" else b""
        value = digit + rb"([^&\s\"'\\<>#;]{6,})"
        yield _Rule(word, re.compile(rb"[?&;]" + word + value), lookbehind=1, by_name=True)
    for name in LONG_VALUE_NAMES:
        word = f'"{name}'.encode()
        long_value = rb"\\*\"\s*[:=]\s*\\*\"([A-Za-z0-9._~+/=-]{16,})"
        yield _Rule(word, re.compile(word + long_value))
    token = rb"token:[ \t]+(?=[A-Za-z._-]*[0-9])([A-Za-z0-9._~+/=-]{20,})"
    yield _Rule(b"token: ", re.compile(token))
    for option in (f"--{name}".encode() for name in SECRET_FLAGS):
        yield _Rule(option, re.compile(option + _OPTION.encode()), by_name=True)


@lru_cache(maxsize=1)
def _rules_by_word() -> tuple[WordFinder, tuple[tuple[_Rule, ...], ...]]:
    """Return a finder of all words, and the rules of each word; compiled when first needed."""
    by_word: dict[bytes, list[_Rule]] = {}
    for rule in _rules():
        by_word.setdefault(rule.word, []).append(rule)
    return word_finder(by_word), tuple(tuple(rules) for rules in by_word.values())


def word_finder(words: Iterable[bytes]) -> WordFinder:
    """Return a function that finds many words in one pass: (index of the word, start, end).

    Only this module imports ahocorasick-rs.
    """
    from ahocorasick_rs import BytesAhoCorasick

    return partial(BytesAhoCorasick(words).find_matches_as_indexes, overlapping=True)


def hide_bytes(raw: bytes, known: Iterable[bytes] = ()) -> bytes:
    """Return the bytes without known secrets and without anything that looks like one."""
    for value in known:
        if value in raw:
            raw = raw.replace(value, _MASK)
    lower = raw.lower()
    find_words, rules = _rules_by_word()
    spans: list[tuple[int, int]] = []
    for word, start, _ in find_words(lower):
        for rule in rules[word]:
            match = _match(rule, lower if rule.ignore_case else raw, start)
            if match is None:
                continue
            first, last = match.span(rule.pattern.groups)
            if is_placeholder(raw[first:last]):
                continue
            if not (rule.by_name and _is_code(raw, first, last)):
                spans.append((first, last))
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


def _match(rule: _Rule, text: bytes, position: int) -> re.Match[bytes] | None:
    if not rule.lookbehind:
        return rule.pattern.match(text, position)
    for start in range(max(0, position - rule.lookbehind), position):
        match = rule.pattern.match(text, start)
        if match is not None:
            return match
    return None


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


# --- Names

_SECRET_NAME = re.compile(
    "(?:"
    + "|".join(
        name.replace("_", "[-_]")
        for name in (*SECRET_NAMES, *WHOLE_VALUE_NAMES)
        if name != "_token"
    )
    + f"|(?:^|{''.join(f'(?<!{prefix})' for prefix in PLAIN_TOKENS)}[-_])token|^bearer|^jwt)$"
    + r"|(?:^|[-_])(?:secret|password|api[-_]?key)(?:$|[-_])",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def is_secret_name(field: str) -> bool:
    """Return whether the value of a field with this name is a secret, whatever it looks like."""
    return _SECRET_NAME.search(field) is not None


# --- Program code: values that follow the name of a secret without being one

# words after such a name in code, in schemas and in prose
_CODE_WORDS = frozenset(
    b"str string bytes int integer float number bool boolean any object none null nil true false "
    b"undefined unknown void never optional union list dict tuple set callable awaitable secretstr "
    b"annotated literal field text char varchar self cls this pass required default value values "
    b"must should cannot can is was not may will incorrect invalid wrong missing empty "
    b"expired".split()
)
_SECRET_WORDS = frozenset((b"password", b"passwd", b"secret", b"token", b"key"))
_PLACEHOLDER = re.compile(
    rb"`?(?:[A-Za-z]+ )?(?:\$\{.*|\$\(.*|\$[A-Z_][A-Z0-9_]*|\{\{.*|\{[A-Za-z_][\w.]*\}?|"
    rb"<[\w .-]+>|%\(\w+\)?s?|%s|[*x.]{3,}|\[[A-Z_]+\].*)`?",
    re.DOTALL,
)
_TYPE = re.compile(rb"[A-Za-z]+(?=[\[(<:.]|\Z)")  # str, list[str], Optional(…)
_CALL = re.compile(rb"[A-Za-z_][\w.]*[\[(<].*", re.DOTALL)
_PATH = re.compile(rb"[A-Za-z_]{1,40}(?:\.[A-Za-z_]{1,40})+")
_WORD = re.compile(rb"[A-Za-z_]+")
_CONSTANT = re.compile(rb"[A-Z]+(?:_[A-Z]+)+")
_NAME = re.compile(rb"(?:\\[nrt])?(\w+)[ :=]*\Z")
MAX_NAME_LENGTH = 60


def _is_code(raw: bytes, first: int, last: int) -> bool:
    """Return whether the value after a name is code: a type, a variable, a call, a placeholder."""
    value = raw[first:last]
    words = [word.strip(b"`,;") for word in value.split(b" ", 2)[:2]]
    kind = _TYPE.match(words[0])
    if kind and kind[0].lower() in _CODE_WORDS:  # password: str
        return True
    if is_placeholder(b" ".join(words)):
        return True
    if value.lower() in _SECRET_WORDS:  # {"password": "password"}
        return True
    if raw[first - 1 : first] in {b'"', b"'"}:  # any other quoted text is a secret
        return False
    if value[0] in b"=>[" or _PATH.fullmatch(value) or _CONSTANT.fullmatch(value):
        return True  # password == x, password = config.password, password = DB_PASSWORD
    if _WORD.fullmatch(value):
        return _is_variable(raw, first, last)
    # a call: os.getenv("X"), also if it is cut at its bracket
    ended = value[-1:] in b"[(<>" or raw[last : last + 1] in {b")", b"]", b'"', b"'", b","}
    return ended and _CALL.fullmatch(value) is not None


def _is_variable(raw: bytes, first: int, last: int) -> bool:
    """Return whether a word of letters is a variable, judged by the text around it."""
    before, after = raw[max(0, first - MAX_NAME_LENGTH) : first], raw[last : last + 2]
    if before.endswith(b" = ") or after[:1] == b")" or after in {b", ", b",\n", b",\\"}:
        return True  # an assignment in code, or an argument
    if before.endswith(b": ") and after[:1] == b" " and after != b" #":
        return True  # an annotation, or prose
    # the value repeats the name, as in connect(password=password)
    value = raw[first:last].replace(b"_", b"").lower()
    match = _NAME.search(before)
    name = match[1].lower() if match else b""
    return value == name.replace(b"_", b"") or (
        b"_" in name.strip(b"_") and name.replace(b"_", b"") in value
    )


def is_placeholder(value: bytes | str) -> bool:
    """Return whether the value is a placeholder: `${TOKEN}`, `<your key>`, `{{ key }}`, `***`."""
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return _PLACEHOLDER.fullmatch(raw) is not None


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
        spellings |= {value, once, twice, quote(value, errors="surrogateescape"), raw.hex()}
        spellings |= {_base64_part(raw, offset) for offset in range(3)}
    return tuple(sorted(spellings, key=len, reverse=True))  # the longest first: others are in it


def _base64_part(raw: bytes, offset: int) -> str:
    """Return the characters that base64 has for these bytes after `offset` other bytes.

    Without the first and last character, if other bytes have a share in them.
    """
    encoded = base64.b64encode(b"\0" * offset + raw).decode().rstrip("=")
    aligned = (offset + len(raw)) % 3 == 0
    return encoded[-(-offset * 4 // 3) : None if aligned else -1]
