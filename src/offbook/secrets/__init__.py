"""The gate for text that leaves: secrets are masked, control characters escaped, then it is cut.

    outgoing("Authorization: Bearer abc123def456ghi")   # "Authorization: [API_KEY]"
    excerpt(prompt, 80)                                 # masked as a whole, then cut

Terminal, files, reports, pytest, MCP and exceptions use these two. What is a secret:

1. Known values, of the environment and of headers, are hidden always and in every encoding.
2. Keys are hidden wherever their format is certain: a prefix that a provider publishes, between
   word borders, and a digit or the length of a whole key (`key_formats`).
3. Other values are hidden by the name next to them, wherever in a line the two are.

Everything else stays: agents write programs, and these must come out of a cassette unchanged.

Speed: every rule has a word that its matches contain. One pass finds all these words, so a text
without any costs next to nothing.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from offbook.secrets.key_formats import (
    EDGE,
    END,
    KEY_FORMATS,
    LOG_PLACES,
    LOOKBEHIND,
    LOOSE_PLACES,
    PLACES,
    compile_pattern,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    Judge = Literal[
        "is_secret_value", "is_unlike_code", "looks_random", "is_credential", "has_random_cookie"
    ]
    WordFinder = Callable[[bytes], list[tuple[int, int, int]]]
    AnyRule: TypeAlias = "_Rule | _KeyLines | _JsonWebKey | Name | Column"
    WordRules = tuple[bytes | None, list[AnyRule]]

MASK = "[API_KEY]"
_MASK = MASK.encode()
MIN_SECRET_LENGTH = 8
MAX_OBJECT_LENGTH = 4000  # of a JSON Web Key
MAX_HEADERS_LENGTH = 400  # between the first line of a key and its text
SHELL_FOLDERS = {"PWD", "OLDPWD"}  # variables of the shell that look like passwords


class _Rule(NamedTuple):
    """A pattern whose last group, or whole match, is a secret if `judge` of `values` says so.

    With `length`, it is the format of a key, whose whole length that is, or 0. It is matched at
    each occurrence of its word, or up to `lookbehind` bytes before it.
    """

    pattern: bytes
    judge: Judge
    lookbehind: int = 0
    length: int | None = None

    def find(self, raw: bytes, _lower: bytes, start: int, _end: int) -> Iterable[tuple[int, int]]:
        """Return the position of the secret whose word is at this position."""
        pattern = compile_pattern(self.pattern)
        match = pattern.match(raw, start)
        if self.lookbehind and match is None:
            places = range(max(0, start - self.lookbehind), start)
            match = next((found for at in places if (found := pattern.match(raw, at))), None)
        if match is None:
            return ()
        first, last = match.span(pattern.groups)
        from offbook.secrets import values  # late: the first reply of `offbook serve` needs none

        if self.length is None:
            secret = values.JUDGES[self.judge](raw[first:last])
        else:
            secret = values.is_whole_key(self.length, raw[first:last])
        return ((first, last),) if secret else ()


class _KeyLines(NamedTuple):
    """The lines of a private key after its first one, whatever is in front of each.

    pytest writes `E ` before each line, a mail `> `, a listing its number. A plain block matches
    `PLACES` as a whole.
    """

    first: bytes

    def find(self, raw: bytes, lower: bytes, _start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the lines of the key whose first line has its word at this position."""
        head = compile_pattern(self.first).match(lower, end)
        if head is None:
            return
        from offbook.secrets import values

        at, found = head.end(), False
        # lines such as `Proc-Type: 4,ENCRYPTED` are before the key
        start_line = compile_pattern(_KEY_LINE).search(lower, at, at + MAX_HEADERS_LENGTH)
        if start_line and not compile_pattern(_BRACKET).search(lower, at, start_line.start(1)):
            at = start_line.start()
        while (match := compile_pattern(_KEY_LINE).match(lower, at)) and values.is_mixed(
            raw[match.start(1) : match.end(1)]
        ):
            yield match.span(1)
            at, found = match.end(), True
        if found and (match := compile_pattern(_LAST_LINE).match(lower, at)):
            ending = compile_pattern(_KEY_END).search(lower, match.end(), match.end() + 60)
            if ending and not compile_pattern(_KEY_END).search(lower, at, match.end()):
                yield match.span(1)


class _JsonWebKey:
    """The private members of a JSON Web Key, RFC 7518: `kty` says that an object is one."""

    def find(self, raw: bytes, _lower: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the positions of the private members of the key with this `kty`."""
        if raw[start - 1 : start] not in b"\"'2" or start == 0:
            return
        before, after = max(0, start - MAX_OBJECT_LENGTH), end + MAX_OBJECT_LENGTH
        opening = max(raw.rfind(b"{", before, start), raw.rfind(b"%7B", before, start), before)
        ends = (raw.find(b"}", end, after), raw.find(b"%7D", end, after))
        closing = min((at for at in ends if at >= 0), default=after)
        for match in compile_pattern(_JWK_MEMBER).finditer(raw, opening, closing):
            yield match.span(1)


# An object whose value is in front of its name: {"value": "…", "name": "API_KEY"}.
_REVERSED = (
    rb"(?i)value\\*[\"']\s*:\s*(\\*[\"'])(?=[^\"'\\]+\1\s*,\s*\\*[\"'](?:name|key)\\*[\"']\s*:\s*"
    rb"\\*[\"'][\w.-]*(?:NAMES)\\*[\"'])([^\"'\\]{4,})"
)
_JWK_QUOTE = rb"(?:\\*[\"']|%22)"
_JWK_MEMBER = (
    _JWK_QUOTE + rb"(?:d|p|q|dp|dq|qi|k)" + _JWK_QUOTE + rb"(?:\s|%20|\\+[nr])*(?::|%3A)"
    rb"(?:\s|%20|\\+[nr])*" + _JWK_QUOTE + rb"([A-Za-z0-9_-]{16,})"
)
# The first lines of keys in several lines: PEM, SSH2 and PuTTY.
_BETWEEN = rb"(?s)(?:\\+[nrt]|%0[ad]|[^a-z0-9+/=\\%(){}<]|[a-z0-9]{1,5}(?![a-z0-9+/=])){0,60}?"
_BRACKET = rb"[(){}<]"  # of code
_KEY_LINE = _BETWEEN + rb"((?:[a-z0-9+/=]|%2b|%2f|%3d){40,})"
_LAST_LINE = _BETWEEN + rb"((?:[a-z0-9+/=]|%2b|%2f|%3d)+)"
_KEY_END = rb"end(?: |%20)[a-z0-9 %]{0,40}private|private-mac"
KEY_LINES = {
    b"private key": _KeyLines(rb"(?: block|%20block)?(?:-----| ----|%20----)"),
    b"private%20key": _KeyLines(rb"(?: block|%20block)?(?:-----| ----|%20----)"),
    b"private-lines": _KeyLines(rb"(?::|%3a)(?: |%20)[0-9]+"),
}


@lru_cache(maxsize=1)
def _rules_by_word() -> tuple[list[bytes], list[WordRules]]:
    """Return all words, and for each the bytes that may follow it and its rules."""
    by_word: dict[bytes, list[AnyRule]] = {}
    for word, key, _, *length in KEY_FORMATS:
        pattern = f"{EDGE}(?:{key}){END}".encode()
        rule = _Rule(pattern, "is_secret_value", LOOKBEHIND.get(word, 0), sum(length))
        by_word.setdefault(word.encode(), []).append(rule)
    judged: tuple[tuple[dict[str, str], Judge], ...] = (
        (PLACES, "is_secret_value"),
        (LOOSE_PLACES, "is_unlike_code"),
        (LOG_PLACES, "looks_random"),
    )
    for places, judge in judged:
        for word, place in places.items():
            rule = _Rule(f"(?s){place}".encode(), judge, LOOKBEHIND.get(word, 0))
            by_word.setdefault(word.encode(), []).append(rule)
    names = "|".join(name.replace("_", "[-_]?") for name in (*SECRET_NAMES, "token"))
    reversed_pair = _Rule(_REVERSED.replace(b"NAMES", names.encode()), "is_secret_value")
    by_word |= {b"value" + quote: [reversed_pair] for quote in (b'"', b"'", b"\\")}
    for word, lines in KEY_LINES.items():
        by_word.setdefault(word, []).append(lines)
    by_word[b"kty"] = [_JsonWebKey()]
    column = Column()
    following: dict[bytes, bytes] = {}  # only of words that are nothing but names
    for name, rule in secret_names().items():
        if name not in by_word:
            following[name] = rule.following + column.following
        by_word.setdefault(name, []).extend((rule, column))
    return list(by_word), [(following.get(word), rules) for word, rules in by_word.items()]


MANY_BYTES = 600_000
_searched = 0  # bytes


@lru_cache(maxsize=2)
def _rule_word_finder(table: bool) -> tuple[WordFinder, list[WordRules]]:  # noqa: FBT001 - the key of the cache
    """Return a finder of the words of all rules, and for each what `_rules_by_word` says.

    A table takes 2 ms more to build, as long as it saves in many bytes: most processes write less.
    """
    words, rules = _rules_by_word()
    return word_finder(words, table=table), rules


def word_finder(words: Iterable[bytes], *, table: bool = False) -> WordFinder:
    """Return a function that finds many words in one pass: (index of the word, start, end).

    With a `table` of all transitions it is twice as fast, and takes three times as long to build:
    3 ms for 600 words. Only this module imports ahocorasick-rs.
    """
    from ahocorasick_rs import BytesAhoCorasick, Implementation

    automaton = BytesAhoCorasick(words, implementation=Implementation.DFA if table else None)
    return partial(automaton.find_matches_as_indexes, overlapping=True)


def hide_bytes(raw: bytes, known: Iterable[bytes] = ()) -> bytes:
    """Return the bytes without known secrets and what looks like one; JSON stays JSON."""
    raw = _mask(raw, _find_known(raw, known))
    return _mask(raw, find_spans(raw))


def _find_known(raw: bytes, known: Iterable[bytes]) -> list[tuple[int, int]]:
    return [
        found.span()
        for value in (*known, *_header_secrets)
        if value in raw
        for found in re.finditer(re.escape(value), raw)
    ]


def _mask(raw: bytes, spans: list[tuple[int, int]]) -> bytes:
    if not spans:
        return raw  # the same object: callers notice it
    from offbook.secrets.masks import mask

    return mask(raw, spans, _MASK)


def hide_lines(text: bytes, known: Iterable[bytes] = ()) -> bytes:
    """Return lines, each without its own secrets; one search for all of them."""
    if (known or _header_secrets) and any(value in text for value in (*known, *_header_secrets)):
        return b"".join([hide_bytes(line, known) + b"\n" for line in text[:-1].split(b"\n")])
    lower = text.lower()
    lines: dict[int, list[tuple[int, int]]] = {}  # what is secret in a line, by its place
    at, last, line, lower_line = 0, -1, b"", b""
    for start, end, rules in _find_words(lower):  # in the order of their ends
        if _PASSED.match(lower, start):
            continue
        if end > last:  # once for each line: one of megabytes has thousands of words
            at, last = text.rfind(b"\n", 0, start) + 1, text.index(b"\n", end)
            line, lower_line = text[at:last], lower[at:last]
        for rule in rules:
            if found := [*rule.find(line, lower_line, start - at, end - at)]:
                lines.setdefault(at, []).extend(found)
    if _has_escapes(text):
        at = 0
        for line in text[:-1].split(b"\n"):  # a \r ends no line
            if found := _find_escaped_spans(line):
                lines.setdefault(at, []).extend(found)
            at += len(line) + 1
    if not lines:
        return text
    parts: list[bytes] = []
    position = 0
    for at in sorted(lines):
        last = text.index(b"\n", at)
        parts += (text[position:at], _mask(text[at:last], lines[at]))
        position = last
    return b"".join((*parts, text[position:]))


# A verdict in a trace: `pass` is also a name of secrets, but no rule matches here.
_PASSED = re.compile(rb'pass"(?:,"actual":\d+)?\}')


def _find_words(lower: bytes) -> list[tuple[int, int, list[AnyRule]]]:
    """Return where the words of rules are, each with its end and the rules that may match there."""
    global _searched  # noqa: PLW0603 - of the whole process
    _searched += len(lower)
    find_words, rules = _rule_word_finder(_searched > MANY_BYTES)
    found: list[tuple[int, int, list[AnyRule]]] = []
    for word, start, end in find_words(lower):
        following, chosen = rules[word]
        # first the cheapest check: most names are in prose, or parts of other words
        if following is None or lower[end : end + 1] in following:
            found.append((start, end, chosen))
    return found


def find_spans(raw: bytes, known: Iterable[bytes] = ()) -> list[tuple[int, int]]:
    """Return where known secrets are, and texts that look like one."""
    return _find_known(raw, known) + _find_plain_spans(raw) + _find_escaped_spans(raw)


def _find_plain_spans(raw: bytes) -> list[tuple[int, int]]:
    lower = raw.lower()
    spans: list[tuple[int, int]] = []
    for start, end, rules in _find_words(lower):
        for rule in rules:
            spans += rule.find(raw, lower, start, end)
    return spans


def _has_escapes(raw: bytes) -> bool:
    """Return whether a text has one of the marks that colors, escapes and entities have."""
    # First the characters with which the marks begin: most texts have none, and one character is
    # searched much faster than several, and seven times as fast as a number.
    if raw.isascii() and not (BACKSLASH in raw or AND in raw or LESS in raw or ESC in raw):
        return False
    return any(mark in raw for mark in _MARKS)


BACKSLASH, AND, LESS, ESC = b"\\&<\x1b"
# Each is searched faster than one pattern of them.
_MARKS = (
    *(b"\x1b[", b"\\u00", b"\\x", b"\\033[", b"\\u200b", b"&", b"<!["),
    *(b"\xc2\xa0", b"\xe2\x80\x8b"),
)


def _find_escaped_spans(raw: bytes) -> list[tuple[int, int]]:
    """Return where secrets are that colors or escapes separate from their names."""
    if not _has_escapes(raw):
        return []
    from offbook.secrets.escapes import PlainText

    plain = PlainText(raw)
    return [plain.original_span(start, end) for start, end in _find_plain_spans(plain.text)]


def hide_secrets(text: str, known: Iterable[str] | None = None) -> str:
    """Return the text without known secrets and without anything that looks like one.

    Known are by default the secrets of this process.
    """
    raw = text.encode("utf-8", "surrogatepass")
    known = known_secrets() if known is None else known
    hidden = hide_bytes(raw, [value.encode("utf-8", "surrogateescape") for value in known])
    return text if hidden is raw else hidden.decode("utf-8", "surrogatepass")


# --- The gate

# The output of a tool can contain escape sequences: control characters are shown as symbols, so
# that a text cannot control the terminal, nor turn the direction in which it is read.
CONTROL_SYMBOLS = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"},
    **dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
    # marks of direction, separators of lines and paragraphs
    **dict.fromkeys((0x061C, 0x200E, 0x200F, 0x2028, 0x2029), 0xFFFD),
    0x7F: 0x2421,
}


def escape_controls(text: str) -> str:
    """Return a text that cannot control the terminal."""
    if text.isprintable():  # which no control character is; most processes compile no pattern
        return text
    pattern = compile_pattern(f"[{re.escape(''.join(map(chr, CONTROL_SYMBOLS)))}]")
    return text.translate(CONTROL_SYMBOLS) if pattern.search(text) else text


def outgoing(text: str) -> str:
    """Return a text that may leave: without the secrets of this process and control characters."""
    return escape_controls(hide_secrets(text))


def excerpt(text: str, length: int) -> str:
    """Return at most `length` characters of a text; a longer one is masked before it is cut.

    Half a secret is not recognised any more. A text that is not cut is masked where it leaves.
    """
    if len(text) <= length:
        return text
    text = outgoing(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"


# --- Known values

_EXTRA: ContextVar[Mapping[str, str]] = ContextVar("offbook_given", default={})  # noqa: B039 - never changed


def known_secrets(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the secrets of an environment, by default of this process with `extra_secrets`.

    Each has all its spellings, encoded and escaped.
    """
    if environment is None:
        own = _EXTRA.get()
        if not own:
            return _process_secrets()
        environment = {**os.environ, **own}
    return _find_known_values(environment)


_latest_process: tuple[Mapping[Any, Any], tuple[str, ...]] = ({}, ())


def _process_secrets() -> tuple[str, ...]:
    """Return the secrets of the environment, which is read again when it has changed."""
    global _latest_process  # noqa: PLW0603 - of the whole process
    # Its encoded variables are compared in half a microsecond; to decode all takes fifty.
    encoded: Mapping[Any, Any] | None = getattr(os.environ, "_data", None)
    if encoded is None:  # a test has replaced it
        return _find_known_values(os.environ)
    before, found = _latest_process
    if before != encoded:
        read = dict(encoded)  # first: what another thread sets meanwhile is new the next time
        found = _find_known_values(os.environ)
        _latest_process = read, found
    return found


def _find_known_values(variables: Mapping[str, str]) -> tuple[str, ...]:
    names = [name for name in variables if is_secret_name(name) and name not in SHELL_FOLDERS]
    values = (variables[name] for name in names if len(variables[name]) >= MIN_SECRET_LENGTH)
    return _spellings(frozenset(values))


def known_secret_bytes() -> tuple[bytes, ...]:
    """Return the secrets of this process for `hide_bytes`."""
    return tuple(value.encode("utf-8", "surrogateescape") for value in known_secrets())


CREDENTIAL_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key"}
)
_headers_seen: set[str] = set()
_latest_headers: Mapping[str, str] = {}  # a client sends the same ones with nearly every request
_header_secrets: tuple[bytes, ...] = ()


def remember_credentials(headers: Mapping[str, str]) -> None:
    """Treat the keys in the headers of a request, with names in lower case, as known from now on.

    Keys that are words ("not-needed") are none.
    """
    global _header_secrets, _latest_headers  # noqa: PLW0603 - what a process has seen, it knows
    if headers is _latest_headers:
        return
    _latest_headers = headers
    for name in CREDENTIAL_HEADERS & headers.keys():
        value = headers[name]
        if value in _headers_seen:
            continue
        _headers_seen.add(value)
        key = value.rpartition(" ")[2]
        raw = key.encode("utf-8", "surrogateescape")
        if len(raw) < MIN_SECRET_LENGTH:
            continue
        from offbook.secrets import values

        if values.looks_random(raw):
            found = _spellings(frozenset({key}))
            _header_secrets += tuple(text.encode("utf-8", "surrogateescape") for text in found)


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
    """Return the values in plain text, encoded and escaped, the longest first: others are in it."""
    if not values:
        return ()
    import html
    import json
    from binascii import b2a_base64
    from urllib.parse import quote, quote_plus

    def base64_part(raw: bytes, offset: int) -> str:
        # What base64 has for these bytes after `offset` others, and for nothing else.
        encoded = b2a_base64(b"\0" * offset + raw, newline=False).decode().rstrip("=")
        aligned = (offset + len(raw)) % 3 == 0
        return encoded[-(-offset * 4 // 3) : None if aligned else -1]

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
        parts = {base64_part(raw, offset) for offset in range(3)}
        found |= parts | {part.replace("+", "-").replace("/", "_") for part in parts}  # in a URL
    return tuple(sorted(found, key=len, reverse=True))


# --- Secrets by the name in front of them: `"password": "…"`, `API_KEY=…`, `--token …`. A name is
# evidence only where the format separates it from its value: JSON, quoted assignments, headers,
# lines of environment and YAML files, queries, options, XML, tables. And a value may still be
# something else: see `values`.

# Names of secrets, in lower case; also with hyphens for underscores.
SECRET_NAMES = (
    *("api_key", "apikey", "access_key", "accesskey", "account_key", "accountkey"),
    *("private_key", "privatekey", "signing_key", "encryption_key", "subscription_key"),
    *("client_key_data", "secret", "secret_key", "secretkey", "secret_key_base", "client_secret"),
    *("password", "passwd", "passphrase", "passcode", "presharedkey", "preshared_key"),
    *("pre_shared_key", "master_key", "masterkey", "auth_key", "authkey"),
)
# Names of many other things, too: their value is a secret only if it looks like one.
VAGUE_NAMES = (
    *("token", "auth", "jwt", "bearer", "authorization", "credential", "credentials"),
    *("pass", "pwd", "pw", "psk", "ext_pat", "accessjwt", "refreshjwt", "webhook_url"),
    *("accesstoken", "refreshtoken", "authtoken", "sessiontoken", "securitytoken", "bottoken"),
    *("apitoken", "usertoken", "bearertoken", "idtoken", "app_key", "csrf", "xsrf"),
)
# Words before a name that make it the name of a message: `invalid_auth`.
MESSAGE_NAMES = (b"invalid_", b"missing_", b"wrong_", b"unknown_", b"expired_", b"incorrect_")
# Words before `_token` that make it harmless: a `next_token` is the position in a list.
PLAIN_TOKENS = (
    *("page", "next", "continuation", "sync", "eos", "bos", "pad", "unk", "sep", "cls", "mask"),
    *("special", "per", "first", "last", "stop", "start", "end", "num", "prev", "previous"),
)
QUERY_NAMES = ("key", "sig", "code")  # names of secrets in the query of a URL only
SESSION_NAMES = ("sessionid", "sessid", "session_id", "connect.sid", "_session")  # in cookies only


class Format(NamedTuple):
    """How a name and its value are written.

    `value` matches what follows the name, which begins with one of the bytes in `first`; its last
    group is the value. With `start`, the text before the name must end with a match of it. A value
    that is `strict` must look random even after an unmistakable name, because the format is also
    that of code or prose. `upper` reads names in capitals only. `judge` replaces the usual one.
    """

    first: bytes
    value: bytes
    start: bytes | None = None
    strict: bool = False
    upper: bool = False
    judge: Judge | None = None


class Name(NamedTuple):
    """The name of a secret: a `vague` one has other meanings, too; `edge` matches at its start."""

    formats: dict[int, list[Format]]
    vague: bool = False
    edge: bytes | None = None

    @property
    def following(self) -> bytes:
        """The bytes that may follow the name."""
        return bytes(self.formats)

    def find(self, raw: bytes, lower: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the positions of the values after the name at this position; `lower` is `raw`."""
        formats = self.formats.get(lower[end]) if end < len(lower) else None
        if formats is None or (self.edge and not compile_pattern(self.edge).match(lower, start)):
            return
        if lower.endswith(MESSAGE_NAMES, max(0, start - MAX_NAME_LENGTH), start):
            return
        for form in formats:
            if form.upper and not raw[start:end].isupper():
                continue
            pattern = compile_pattern(form.value)
            match = pattern.match(lower, end)
            if match is None:
                continue
            before = max(0, start - MAX_NAME_LENGTH)
            if form.start and not compile_pattern(form.start).search(raw, before, start):
                continue
            from offbook.secrets import values

            judge = "looks_random" if self.vague or form.strict else "is_secret_value"
            first, last = match.span(pattern.groups)
            if values.JUDGES[form.judge or judge](raw[first:last]):
                yield first, last


class Column(NamedTuple):
    """The cells below the name of a secret in the first line of a table."""

    following: bytes = b',;|\t\r\n \\"`*'

    def find(self, raw: bytes, _lower: bytes, start: int, end: int) -> Iterable[tuple[int, int]]:
        """Return the positions of the cells below the name at this position."""
        after = compile_pattern(_CELL_END).match(raw, end, end + MAX_NAME_LENGTH)
        if after is None or not compile_pattern(_NEWLINE).search(raw, end, end + MAX_ROW_LENGTH):
            return ()
        from offbook.secrets.tables import find_cells

        return find_cells(raw, start, end, after[1])


MAX_ROW_LENGTH = 1000  # of a table
_NEWLINE = rb"\n|\\+n"
_CELL_END = rb"[ \\\"`*]*?([,;|\t\r\n]|\\+[nrt])"


MAX_NAME_LENGTH = 60  # how far `start` looks back
SHORT_NAME = 5  # `pass` and `token` are also parts of other words
_BARE = r"([^\s\"'\\&|;`()<>{},]{4,})"
_LINE_END = r"(?=[ \t]*(?:\Z|[\r\n\"'`]|\\|[ \t]#))"


def secret_names() -> dict[bytes, Name]:
    """Return the names of secrets, in lower case, with the formats of their values."""
    # The beginning of a line, also of one that is escaped in JSON, or of a quoted text; in front
    # of the name may be the mark of a quotation, a comment, a list, a difference or a prompt.
    line = (
        rb"(?i)(?:\A|\n|\\n|[\"'`{,|])[ \t]*(?:E[ \t]+)?[ \t>#*+/|$%-]*(?:export |set |-[a-z] )?"
        rb"[\w./:@-]*\Z"
    )
    parameter = rb"(?:\A|\n|\\n|[\"'`?&;#]|--|//|%[0-9a-fA-F]{2}|[\n>+#-][ \t]*)[\w./:@-]*\Z"
    word = rb"(?:\A|\\[nrt]|[^A-Za-z0-9_.])[A-Z0-9_]*\Z"
    option = rb"--[\w-]*\Z"

    def form(first: str, value: str, *rest: Any, **more: Any) -> Format:
        return Format(first.encode(), f"(?s){value}".encode(), *rest, **more)

    quote = r"\\*[\"'`]"
    # before a line that is quoted, or shown by pytest ("E   ", for each test around it)
    marks = r"(?:[ \t>#+|-]*e(?=[ \t\r\n\\]))*[ \t>#+|-]*"
    formats = (
        # JSON, and JSON in JSON, however deep: a text ends at a quote with as many backslashes as
        # the first one, at the latest at the end of its line
        form('"', r"\"\s*(?::|=>|=)\s*(?:\[\s*)?\"((?:[^\"\\\n]|\\.)+)(?=\"|\Z)"),
        form(
            "\\",
            r"(\\+)\"\s*(?::|=>|=)\s*(?:\[\s*)?\1\""
            r"((?:[^\"\\\n]|(?!\1[nr])\\+[^\"\\]|\1\\+\")+)(?=\1\"|\Z)",
        ),
        # an assignment of a quoted text in code; after the quote that closes it comes no word
        form(
            "\\\"' \t:=",
            r"(?:\\*[\"']\]?)?[ \t]*(?::[ \t]*&?[a-z]{2,12}[ \t]*(?==))?(?::=|=>|\|\||\?\?|[:=])"
            r"[ \t]*(?:\[[ \t]*)?[bru]?(\\*[\"'`])(?![),\]};: \t]|\+[ \t\"'\\=]|(?<=`)[^`]* )"
            r"([^\"'`\\\n]{4,})\1(?!\w)",
        ),
        form("&", r"&(?:quot|#34|#39);\s*[:=]\s*&(?:quot|#34|#39);([^&\s]{4,})"),  # JSON in HTML
        form("%", r"%22(?:%20)*(?:%3a|:)(?:%20)*%22((?:[^%\"&\s]|%(?!22)[0-9a-f]{2})+)"),  # a URL
        form(
            "%",
            r"(?:%20)*%(?:25)*3d(?:%20)*((?:[^%\"&\s\\]|%(?!(?:25)*26)[0-9a-f]{2})+)",
            strict=True,
        ),
        form("=", rf"=(?:base64:)?{_BARE}", word, upper=True),  # env files and command lines
        form("=", rf"={_BARE}(?=[\s;&\"'\\]|\Z)", parameter, strict=True),  # queries, ini files
        # YAML and headers; a line of code ends with a comma
        form(":", rf":[ \t]+([^\s\"'\\`]{{3,}}[^\s\"'\\`,;]){_LINE_END}", line, strict=True),
        # anywhere in a line, and in prose, if it cannot be a variable
        form(
            " \t:=-*?>",
            r"(?:\*\*|__)?[ \t]*"
            r"(?:[:?+]?=|==|->|=>|:|(?<!<)>[ ]|(?<=[ \t])(?:-|\xe2\x80[\x93\x94])[ ]"
            r"|\xe2\x86\x92|\\+u2192)(?:\*\*|__)?(?:[ \t]|\\+t)*(?:\\*`)?"
            r"([^\s\"'\\`,;()<>{}|\[\]]{8,})(?![\w(]|\[(?!api_key\]))",
            judge="is_unlike_code",
        ),
        # alone in the next line of a message
        form(
            " \t:=*",
            r"(?:\*\*|__)?[ \t]*(?::|=>?)(?:\*\*|__)?[ \t]*(?:(?:\\+r|\r)?(?:\\+n|\n)[ \t]*){1,2}"
            rf"(?:\\*`)?([^\s\"'\\`,;()<>{{}}|\[\]]{{7,}}[^\s\"'\\`,;()<>{{}}|\[\]:=]){_LINE_END}",
            judge="is_unlike_code",
        ),
        form(
            " \t",
            r"[ \t]+(?:(?:\xe2\x86\x92|\\+u2192)[ \t]*|(?:--body|-b)[ \t]+\\*[\"']?|[0-9] )?"
            r"([^\s\"'\\`,;()<>{}=|]{8,}={0,2})(?![\w(\[=])",
            judge="is_unlike_code",
        ),
        # a quoted word; "Pass `retries=3`" is the advice to pass an argument
        form(
            " \t",
            rf"(?<!\bpass)[ \t]+(?:{quote}|\xe2\x80\x9c|\\+u201c)([^\s\"'\\`,;]{{6,}})"
            rf"(?:{quote}|\xe2\x80\x9d|\\+u201d)",
            strict=True,
        ),
        form(
            " ",
            r" (?:is|was|(?<!pass )to|are|equals"
            r"|(?:(?:was|is|has been) )?(?:set|changed|reset) to):? "
            r"(?:\\*[\"'`]|\xe2\x80\x9c|\\+u201c)?([^\s\"'\\,;`]{5,}[^\s\"'\\,;`.])",
            strict=True,
        ),
        form(
            " |", r"[ \t`*]*\|[ \t]*`?([^\s|`]{6,})`?[ \t]*\|", strict=True
        ),  # a table of Markdown
        # a block of YAML
        form(
            ":",
            r":[ \t]*[|>][-+0-9]*[ \t]*(?:\\+r|\r)?(?:\\+n|\n)(?=[ \t>#+|-]|e[ \t])"
            rf"{marks}([^\s\"'\\][^\n\"'\\]*)",
            line,
        ),
        # the value of an instruction or a command in which nothing else can follow a name
        form(
            " \t",
            r"[ \t]+\\*[\"']?([^\s\"'\\=]{6,})",
            rb"(?:\A|\n|\\n|[\"'`;&|>$#] ?)[ \t]*(?:ENV|ARG|LABEL|setx|setenv|set -[a-z]+) \w*\Z",
            strict=True,
        ),
        form("=", r"=%s(?:\\+n)?\\*[\"'][ \t]+\\*[\"']?([^\s\"'\\]{6,})", strict=True),  # printf
        form(
            " ",
            r" (?:for|of) [\w.@'\"-]{1,40}:[ \t]+([^\s\"'\\`,;]{6,})",
            judge="is_unlike_code",
        ),
        # a comparison, and an argument behind that of the name
        form(
            " \t=!",
            r"[ \t]*[!=]==?[ \t]*[bru]?(\\*[\"'])([^\s\"'\\]{6,})\1",
            judge="is_unlike_code",
        ),
        form(",", r",[ \t]*[bru]?(\\*[\"'])([^\s\"'\\]{8,})\1[ \t]*[,)]", judge="is_unlike_code"),
        form(" =", r"[ \t]*=[ \t]*\[\[([^\s\[\]]{6,})\]\]", strict=True),  # Lua
        form(  # of Terraform: {"db_password": {"value": "…"}}
            "\\\"'",
            rf"{quote}\s*:\s*\{{\s*{quote}(?:value|default){quote}\s*:\s*{quote}([^\s\"'\\]{{6,}})",
            strict=True,
        ),
        form(
            "=",
            rf"=\([ \t]*{quote}[^\"'\\]{{1,60}}{quote},[ \t]*{quote}([^\s\"'\\]{{6,}}){quote}\)",
        ),
        form(  # <meta name="csrf-token" content="…">
            "\\\"'",
            rf"{quote}[ \t]+content={quote}([^\s\"'\\]{{8,}})",
            strict=True,
        ),
        form("<", r"</(t[dh])>(?:\s|\\+[nr])*<\1[^<>]*>(?:<code>)?([^<\s]{6,})<", strict=True),
        form(">", r">([^<\s]{4,})</"),  # XML
        form(" ", r" [a-z:]+=\\*[\"'][^<>\n]{0,80}>([^<\s]{4,})</"),
        form("<", r"</\w+>(?:\s|\\+[nr])*<string>([^<]{4,})</"),
        # a pair: define('X', '…'), ("x-api-key", "…"), ["--token", "…"]
        form("\\\"'", rf"{quote},[ \t]*{quote}(?!-)([^\s\"'\\,]{{4,}}){quote}", option),
        form(
            "\\\"'",
            rf"{quote},[ \t]*{quote}([^\s\"'\\,]{{6,}}){quote}",
            rb"(?:define|setenv|putenv|setdefault|getenv|environ\.get)\(\s*\\*[\"'][\w.-]*\Z",
            strict=True,
        ),
        form(
            "\\\"'",
            rf"{quote}[ \t]*,\s*b?{quote}(?:[a-z]+ )?(?!-)([^\s\"'\\]{{6,}}){quote}(?!\s*:)",
            judge="is_unlike_code",
        ),
        form(" \t", rf"[ \t]+(?:{quote})?([^\s\"'\\,`]{{4,}})", option, strict=True),
        # an object with a name and a value, in JSON, XML and YAML; a part of a form
        form(
            "\\\"'",
            r"\\*[\"'](?![ \t]*[:=)\]])(?:\s|\\+[nr])*[,;]?[^{}()]{0,80}?\bvalue(?:\\*[\"'])?"
            r"(?:\s|\\+[nr])*[:=](?:\s|\\+[nr])*(\\*[\"'])([^\"'\\]{4,})\1",
            strict=True,
        ),
        form(
            "\n\r\\\"'",
            rf"\\*[\"']?[ \t]*(?:\r?\n|\\+n){marks}value:[ \t]*\\*[\"']?([^\s\"'\\]{{4,}})",
            strict=True,
        ),
        form(
            "\\\"'",
            rf"\\*[\"'](?:;[^\n]{{0,80}})?(?:(?:\r?\n|(?:\\+r)?\\+n){marks}){{2}}"
            r"([^\s\"'\\]{4,})",
            rb"name=\\*[\"'][\w.-]*\Z",
            strict=True,
        ),
        form(  # Terraform
            '\\"',
            r"\\*\"[ \t]*\{[^{}]{0,80}?\bdefault\s*=\s*\\*\"([^\"\\\n]{4,})",
            strict=True,
        ),
    )
    header = form(
        "\\\"' \t:=",
        r"\\*[\"']?[ \t]*[:=][ \t]*\\*[\"']?((?:[a-z0-9-]+[ \t]+)?[^\s\"'\\,`]{6,})",
        judge="is_credential",
    )
    cookie = form(
        "\\\"':,",
        r"\\*[\"']?[:,][ \t]*(?:\[[ \t]*)?(?:\\*[\"'])?(?:value\\*[\"']:[ \t]*\\*[\"'])?"
        r"((?:[\w!#$%&*+.^|~-]+=[^\s;\"'\\]*;?[ \t]*)+[^\r\n\"'\\]*)",
        judge="has_random_cookie",
    )
    query = form("=", r"=([^&\s\"'\\<>#;]{6,})", rb"[?&;]\Z", judge="looks_random")
    session = form("=", r"=(?:s%3a)?([^&\s\"'\\<>#;,]{8,})", judge="looks_random")

    def by_first_byte(*chosen: Format) -> dict[int, list[Format]]:
        table: dict[int, list[Format]] = {}
        for each in chosen:
            for byte in each.first:
                table.setdefault(byte, []).append(each)
        return table

    usual = by_first_byte(*formats)
    names: dict[bytes, Name] = {}
    for name in (*SECRET_NAMES, *VAGUE_NAMES):
        vague, edge = name in VAGUE_NAMES, ""
        if vague and len(name) <= SHORT_NAME:
            edge = r"(?:(?<![a-z0-9])|(?<=\\[nrt])|(?<=%[0-9a-f]{2}))"
        if name == "pass":
            edge += r"(?<!\"status\":\")"  # of a check
        if name == "token":
            edge += "".join(f"(?<!{word}_)(?<!{word}-)" for word in PLAIN_TOKENS)
        known = Name(usual, vague, edge.encode() or None)
        for spelling in (name, name.replace("_", "-"), name.replace("_", " ")):
            names[spelling.encode()] = known
    for name in (b"authorization", b"api-key", b"auth-token"):
        known = names.get(name, Name({}, vague=True))
        names[name] = known._replace(formats=by_first_byte(*formats, header))
    names[b"cookie"] = Name(by_first_byte(cookie))
    names |= {name.encode(): Name(by_first_byte(query)) for name in QUERY_NAMES}
    names |= {name.encode(): Name(by_first_byte(session)) for name in SESSION_NAMES}
    return names


def _spell(names: Iterable[str], *separators: str) -> Iterator[str]:
    """Yield names with each separator, or without one, in place of each underscore."""
    for name in names:
        first, *others = name.split("_")
        spelled = [first]
        for other in others:
            spelled = [each + between + other for each in spelled for between in separators]
        yield from spelled


# What a name ends with: no pattern, because every process reads its environment, and to compile
# one of these words takes as long as to import this module.
_NAME_ENDS = (
    *_spell(SECRET_NAMES, "", "_", "-"),
    *_spell((name for name in VAGUE_NAMES if len(name) > SHORT_NAME), "_", "-"),
    "cookie",
)
_SHORT_NAMES = {"auth", "jwt", "pass", "pwd", "pw", "token"}
_NAME_PARTS = ("_secret_", "_password_", "_api_key_", "_apikey_")
# What Unicode has for these letters in another case.
_ASCII_LETTERS = {0x17F: "s", 0x130: "i", 0x131: "i"}


@lru_cache(maxsize=4096)
def is_secret_name(field: str) -> bool:
    """Return whether a field or an environment variable with this name may have a secret."""
    name = (field if field.isascii() else field.translate(_ASCII_LETTERS)).lower()
    name = name.removesuffix("\n")
    if name.endswith(_NAME_ENDS):
        return True
    name = name.replace("-", "_")
    before, _, last = name.rpartition("_")
    if last in _SHORT_NAMES and not (last == "token" and before.endswith(PLAIN_TOKENS)):
        return True
    return any(part in f"_{name}_" for part in _NAME_PARTS)
