"""Secrets, known by their shape and by the names of their fields. None may reach a disk.

The tables err on the side of hiding: a text that only looks like a key is hidden too; what is
plainly a program's is not. Every rule has a word that must be there for it to apply; all words are
looked for in one pass, so that a text without any costs next to nothing.
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
    from collections.abc import Generator, Iterable, Iterator, Mapping


# --- Looks for many words in a text at once, in one pass. The door of ahocorasick-rs.

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    WordFinder = Callable[[bytes], list[tuple[int, int, int]]]


def word_finder(words: Iterable[bytes]) -> WordFinder:
    """A function that tells which of these words stand in a text, from where, and to where."""
    from ahocorasick_rs import BytesAhoCorasick

    return partial(BytesAhoCorasick(words).find_matches_as_indexes, overlapping=True)


# --- Secrets, known by their shape and by the names of their fields. None may reach a disk.

MASK = "[API_KEY]"
_MASK = MASK.encode()
MIN_SECRET_LENGTH = 8
SHELL_FOLDERS = {"PWD", "OLDPWD"}  # of the shell, not passwords


class _Rule(NamedTuple):
    """Around `word`, `pattern` finds what to hide: its last group, or all of it.

    It begins at the word, or up to `back` bytes before; `folded` patterns read lower case. What
    is `named` has no shape of its own, so it may be a program's words that only deal with one.
    """

    word: bytes
    pattern: re.Pattern[bytes]
    folded: bool = True
    back: int = 0
    named: bool = False


OPEN = r"\s*(?::=|=>|[:=])\s*(?:\[\s*)?"
QUOTED = (
    rf"[\"']?{OPEN}\"((?:[^\"\\]|\\.)+)",
    rf"[\"']?{OPEN}'([^'\n]+)",
    # in JSON in JSON, however deep: it ends where a quote has as many backslashes as the first
    rf"(?:\\*[\"'])?{OPEN}(\\+)\"((?:[^\"\\]|\\+[^\"\\]|\1\\+\")+)",
    r"%22(?:%20)*(?:%3a|:)(?:%20)*%22((?:[^%\"&\s]|%(?!22)[0-9a-f]{2})+)",  # in JSON in a URL
)
BARE = r"(?:\s*=\s*|:[ \t]+)([^\s\"'\\&,;}\])]{3,})"
BLOCK = r":[ \t]*[|>][-+0-9]*[ \t]*(?:\\+r|\r)?(?:\\+n|\n)[ \t]+([^\s\"'\\][^\n\"'\\]*)"  # of YAML
ELEMENT = r">([^<\s]{3,})</"
FLAG = r"(?:[ \t]+|\\*\",[ \t]*\\*\")([^\s\"'\\,]{3,})"


def _named(name: str) -> Iterator[_Rule]:
    word = name.encode()
    other = (
        b"".join(rb"(?<!%b)" % one.encode() for one in PLAIN_TOKENS) if name == "_token" else b""
    )
    for spelling in dict.fromkeys((word, word.replace(b"_", b"-"))):
        for tail in (*QUOTED, BARE, BLOCK, ELEMENT):
            pattern = re.compile(other + spelling + tail.encode(), re.DOTALL)
            yield _Rule(spelling, pattern, named=True)
    flag = b"--" + word.strip(b"_").replace(b"_", b"-")
    yield _Rule(flag, re.compile(flag + FLAG.encode()), named=True)


def _rules() -> Iterator[_Rule]:
    for word, shape in SHAPES.items():
        pattern = re.compile(shape.encode(), re.DOTALL)
        yield _Rule(word.encode(), pattern, folded=False, back=LOOKBEHIND.get(word, 0))
    for name in SECRET_NAMES:
        yield from _named(name)
    for name in WHOLE_VALUE_NAMES:
        word = name.encode()
        for tail in (*QUOTED, r":[ \t]+([^\r\n\"'\\]+)"):
            yield _Rule(word, re.compile(word + tail.encode()), named=True)
    for name in QUERY_NAMES:
        word = f"{name}=".encode()
        sign = rb"(?=[^&\s]*[0-9])" if name == "code" else b""
        value = sign + rb"([^&\s\"'\\<>#;]{6,})"
        yield _Rule(word, re.compile(rb"[?&;]" + word + value), back=1, named=True)
    for name in LONG_VALUE_NAMES:
        word = f'"{name}'.encode()
        long = rb"\\*\"\s*[:=]\s*\\*\"([A-Za-z0-9._~+/=-]{16,})"
        yield _Rule(word, re.compile(word + long))
    kept = rb"token:[ \t]+(?=[A-Za-z._-]*[0-9])([A-Za-z0-9._~+/=-]{20,})"
    yield _Rule(b"token: ", re.compile(kept))
    for flag in (f"--{name}".encode() for name in SECRET_FLAGS):
        yield _Rule(flag, re.compile(flag + FLAG.encode()), named=True)


@lru_cache(maxsize=1)
def _table() -> tuple[WordFinder, tuple[tuple[_Rule, ...], ...]]:
    by_word: dict[bytes, list[_Rule]] = {}
    for rule in _rules():
        by_word.setdefault(rule.word, []).append(rule)
    return word_finder(by_word), tuple(tuple(rules) for rules in by_word.values())


def hide_bytes(raw: bytes, known: Iterable[bytes] = ()) -> bytes:
    """The bytes without anything that looks like a secret, or is one of those known."""
    for value in known:
        if value in raw:
            raw = raw.replace(value, _MASK)
    low = raw.lower()
    find, rules = _table()
    spans: list[tuple[int, int]] = []
    for word, start, _ in find(low):
        for rule in rules[word]:
            match = _apply(rule, low if rule.folded else raw, start)
            if match is not None:
                first, last = match.span(rule.pattern.groups)
                if not (
                    is_placeholder(raw[first:last]) or (rule.named and _is_code(raw, first, last))
                ):
                    spans.append((first, last))
    return _cut(raw, spans) if spans else raw


def _apply(rule: _Rule, text: bytes, at: int) -> re.Match[bytes] | None:
    if not rule.back:
        return rule.pattern.match(text, at)
    for start in range(max(0, at - rule.back), at):
        match = rule.pattern.match(text, start)
        if match is not None:
            return match
    return None


def _cut(raw: bytes, spans: list[tuple[int, int]]) -> bytes:
    parts: list[bytes] = []
    at = 0
    for start, end in sorted(spans):
        if end <= at:
            continue
        first = max(start, at)
        parts.append(raw[at:first])
        if start >= at:
            parts.append(_MASK)
        at = end
    parts.append(raw[at:])
    return b"".join(parts)


_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY")
_END = re.compile(rb"-----END [A-Z0-9 ]*PRIVATE KEY")


def safe_split_index(raw: bytes) -> int:
    """Where what has come so far can be cut without cutting a secret: behind whole lines."""
    end = raw.rfind(b"\n") + 1
    for begun in _BEGIN.finditer(raw, 0, end):
        if _END.search(raw, begun.start(), end) is None:
            return begun.start()
    return end


def hide_secrets(text: str, known: Iterable[str] = ()) -> str:
    """The text without anything that looks like a secret, or is one of those known."""
    raw = text.encode("utf-8", "surrogatepass")
    hidden = hide_bytes(raw, [value.encode("utf-8", "surrogateescape") for value in known])
    return text if hidden is raw else hidden.decode("utf-8", "surrogatepass")


_SECRET_NAME = re.compile(
    "(?:"
    + "|".join(
        name.replace("_", "[-_]")
        for name in (*SECRET_NAMES, *WHOLE_VALUE_NAMES)
        if name != "_token"
    )
    + f"|(?:^|{''.join(f'(?<!{one})' for one in PLAIN_TOKENS)}[-_])token|^bearer|^jwt)$"
    + r"|(?:^|[-_])(?:secret|password|api[-_]?key)(?:$|[-_])",
    re.IGNORECASE,
)


# What stands behind the name of a secret in code, in schemas and in prose, and is none.
_WORDS = frozenset(
    b"str string bytes int integer float number bool boolean any object none null nil true false "
    b"undefined unknown void never optional union list dict tuple set callable awaitable secretstr "
    b"annotated literal field text char varchar self cls this pass required default value values "
    b"must should cannot can is was not may will incorrect invalid wrong missing empty "
    b"expired".split()
)
_NOUNS = frozenset((b"password", b"passwd", b"secret", b"token", b"key"))
_TEMPLATE = re.compile(
    rb"`?(?:[A-Za-z]+ )?(?:\$\{.*|\$\(.*|\$[A-Z_][A-Z0-9_]*|\{\{.*|\{[A-Za-z_][\w.]*\}?|"
    rb"<[\w .-]+>|%\(\w+\)?s?|%s|[*x.]{3,}|\[[A-Z_]+\].*)`?",
    re.DOTALL,
)
_KIND = re.compile(rb"[A-Za-z]+(?=[\[(<:.]|\Z)")  # with what it holds, or at the end
_CALL = re.compile(rb"[A-Za-z_][\w.]*[\[(<].*", re.DOTALL)
_PATH = re.compile(rb"[A-Za-z_]{1,40}(?:\.[A-Za-z_]{1,40})+")
_WORD = re.compile(rb"[A-Za-z_]+")
_CONSTANT = re.compile(rb"[A-Z]+(?:_[A-Z]+)+")
_NAME = re.compile(rb"(?:\\[nrt])?(\w+)[ :=]*\Z")
MAX_NAME_LENGTH = 60


def _is_code(raw: bytes, first: int, last: int) -> bool:
    """Whether what stands behind a name is no secret: a type, a variable, a call, a template.

    Agents write programs, and those must come out of a cassette as they went in.
    """
    value = raw[first:last]
    words = [word.strip(b"`,;") for word in value.split(b" ", 2)[:2]]
    kind = _KIND.match(words[0])
    if (kind and kind[0].lower() in _WORDS) or is_placeholder(b" ".join(words)):
        return True
    if value.lower() in _NOUNS or raw[first - 1 : first] in {b'"', b"'"}:
        return value.lower() in _NOUNS
    if value[0] in b"=>[" or _PATH.fullmatch(value) or _CONSTANT.fullmatch(value):
        return True
    if _WORD.fullmatch(value):
        return _is_variable(raw, first, last)
    ended = value[-1:] in b"[(<>" or raw[last : last + 1] in {b")", b"]", b'"', b"'", b","}
    return ended and _CALL.fullmatch(value) is not None


def _is_variable(raw: bytes, first: int, last: int) -> bool:
    """Whether a word of nothing but letters is a program's, by what is around it."""
    before, after = raw[max(0, first - MAX_NAME_LENGTH) : first], raw[last : last + 2]
    if before.endswith(b" = ") or after[:1] == b")" or after in {b", ", b",\n", b",\\"}:
        return True
    if before.endswith(b": ") and after[:1] == b" " and after != b" #":
        return True  # an annotation, or prose
    value = raw[first:last].replace(b"_", b"").lower()
    name = _NAME.search(before)
    named = name[1].lower() if name else b""
    return value == named.replace(b"_", b"") or (
        b"_" in named.strip(b"_") and named.replace(b"_", b"") in value
    )


def is_placeholder(value: bytes | str) -> bool:
    """Whether a secret is yet to be filled in there."""
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return _TEMPLATE.fullmatch(raw) is not None


@lru_cache(maxsize=4096)
def is_secret_name(field: str) -> bool:
    """Whether a field of this name holds a secret, whatever it looks like."""
    return _SECRET_NAME.search(field) is not None


def known_secrets(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The secrets of an environment, this process's by default; plain, in base64 and in hex.

    Those that `keep_secret` was told belong to this process's.
    """
    own = {**os.environ, **_GIVEN.get()} if _GIVEN.get() else os.environ
    variables = own if environment is None else environment
    names = [name for name in variables if is_secret_name(name) and name not in SHELL_FOLDERS]
    values = (variables[name] for name in names if len(variables[name]) >= MIN_SECRET_LENGTH)
    return _spellings(frozenset(values))


_GIVEN: ContextVar[Mapping[str, str]] = ContextVar("offbook_given", default={})  # noqa: B039 - never changed


@contextmanager
def extra_secrets(environment: Mapping[str, str]) -> Generator[None]:
    """Inside, what this environment holds for an agent is secret, too."""
    token = _GIVEN.set({**_GIVEN.get(), **environment})
    try:
        yield
    finally:
        _GIVEN.reset(token)


@lru_cache(maxsize=64)
def _spellings(values: frozenset[str]) -> tuple[str, ...]:
    found: set[str] = set()
    for value in values:
        raw = value.encode("utf-8", "surrogateescape")
        once = json.dumps(value, ensure_ascii=False)[1:-1]
        twice = json.dumps(once, ensure_ascii=False)[1:-1]
        found |= {value, once, twice, quote(value, errors="surrogateescape"), raw.hex()}
        found |= {_inside(raw, before) for before in range(3)}
    return tuple(sorted(found, key=len, reverse=True))


def _inside(raw: bytes, before: int) -> str:
    """What base64 makes of it after this many other bytes, without what others have a part in."""
    made = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
    whole = (before + len(raw)) % 3 == 0
    return made[-(-before * 4 // 3) : None if whole else -1]
