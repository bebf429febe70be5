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

import base64
import json
import os
import re
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import quote, quote_plus

from offbook.secrets.key_formats import EDGE, END, KEY_FORMATS, LOOKBEHIND, PLACES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    Judge = Callable[[bytes], bool]
    WordFinder = Callable[[bytes], list[tuple[int, int, int]]]
    AnyRule: TypeAlias = "_Rule | _KeyLines | _JsonWebKey | Name"

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
        return ((first, last),) if self.judge(raw[first:last]) else ()


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
        at, found = head.end(), False
        # lines such as `Proc-Type: 4,ENCRYPTED` are before the key
        start_line = compile_pattern(_KEY_LINE).search(lower, at, at + MAX_HEADERS_LENGTH)
        if start_line and not compile_pattern(_BRACKET).search(lower, at, start_line.start(1)):
            at = start_line.start()
        while (match := compile_pattern(_KEY_LINE).match(lower, at)) and _is_mixed(
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
def _rules_by_word() -> tuple[WordFinder, list[tuple[bytes | None, list[AnyRule]]]]:
    """Return a finder of all words, and for each the bytes that may follow it and its rules."""
    by_word: dict[bytes, list[AnyRule]] = {}
    for word, key, _, *length in KEY_FORMATS:
        pattern = f"{EDGE}(?:{key}){END}".encode()
        rule = _Rule(pattern, partial(_is_whole_key, sum(length)), LOOKBEHIND.get(word, 0))
        by_word.setdefault(word.encode(), []).append(rule)
    for word, place in PLACES.items():
        rule = _Rule(f"(?s){place}".encode(), is_secret_value, LOOKBEHIND.get(word, 0))
        by_word.setdefault(word.encode(), []).append(rule)
    names = "|".join(name.replace("_", "[-_]?") for name in (*SECRET_NAMES, "token"))
    reversed_pair = _Rule(_REVERSED.replace(b"NAMES", names.encode()), is_secret_value)
    by_word |= {b"value" + quote: [reversed_pair] for quote in (b'"', b"'", b"\\")}
    for word, lines in KEY_LINES.items():
        by_word.setdefault(word, []).append(lines)
    by_word[b"kty"] = [_JsonWebKey()]
    for name, rule in secret_names().items():
        by_word.setdefault(name, []).append(rule)
    table: list[tuple[bytes | None, list[AnyRule]]] = []
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
    if known or _header_secrets:
        for value in (*known, *_header_secrets):
            if value in raw:
                raw = raw.replace(value, _MASK)
    spans = _find_spans(raw)
    # the same object if nothing was hidden: callers notice it
    return _mask(raw, spans) if spans else raw


def _mask(raw: bytes, spans: list[tuple[int, int]]) -> bytes:
    """Return the bytes with masks at these places."""
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


def hide_lines(lines: list[bytes], known: Iterable[bytes] = ()) -> bytes:
    """Return lines as one text, each without its own secrets; one search for all of them."""
    text = b"".join(lines)
    if (known or _header_secrets) and any(value in text for value in (*known, *_header_secrets)):
        return b"".join([hide_bytes(line[:-1], known) + b"\n" for line in lines])
    lower = text.lower()
    spans: list[tuple[int, int]] = []
    for start, end, rules in _find_words(lower):
        at, last = text.rfind(b"\n", 0, start) + 1, text.index(b"\n", end)
        line, lower_line = text[at:last], lower[at:last]
        for rule in rules:
            found = rule.find(line, lower_line, start - at, end - at)
            spans += [(at + first, at + after) for first, after in found]
    return _mask(text, spans) if spans else text


def _find_words(lower: bytes) -> list[tuple[int, int, list[AnyRule]]]:
    """Return where the words of rules are, each with its end and the rules that may match there."""
    find_words, rules = _rules_by_word()
    found: list[tuple[int, int, list[AnyRule]]] = []
    for word, start, end in find_words(lower):
        following, chosen = rules[word]
        # first the cheapest check: most names are in prose, or parts of other words
        if following is None or lower[end : end + 1] in following:
            found.append((start, end, chosen))
    return found


def _find_spans(raw: bytes) -> list[tuple[int, int]]:
    """Return where the texts are that look like a secret."""
    lower = raw.lower()
    spans: list[tuple[int, int]] = []
    for start, end, rules in _find_words(lower):
        for rule in rules:
            spans += rule.find(raw, lower, start, end)
    return spans


def hide_secrets(text: str, known: Iterable[str] | None = None) -> str:
    """Return the text without known secrets and without anything that looks like one.

    Known are by default the secrets of this process.
    """
    raw = text.encode("utf-8", "surrogatepass")
    known = known_secrets() if known is None else known
    hidden = hide_bytes(raw, [value.encode("utf-8", "surrogateescape") for value in known])
    return text if hidden is raw else hidden.decode("utf-8", "surrogatepass")


def find_secrets(text: str) -> Iterator[str]:
    """Yield the secrets of a text: what `outgoing` would mask."""
    yield from (value for value in known_secrets() if value in text)
    raw = text.encode("utf-8", "surrogatepass")
    for start, end in _find_spans(raw):
        yield raw[start:end].decode("utf-8", "replace")


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
_CONTROL = re.compile(f"[{re.escape(''.join(map(chr, CONTROL_SYMBOLS)))}]")


def escape_controls(text: str) -> str:
    """Return a text that cannot control the terminal."""
    return text.translate(CONTROL_SYMBOLS) if _CONTROL.search(text) else text


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


def known_secret_bytes() -> tuple[bytes, ...]:
    """Return the secrets of this process for `hide_bytes`."""
    return tuple(value.encode("utf-8", "surrogateescape") for value in known_secrets())


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


# --- Secrets by the name in front of them: `"password": "…"`, `API_KEY=…`, `--token …`. A name is
# evidence only where the format separates it from its value: JSON, quoted assignments, headers,
# lines of environment and YAML files, queries, options, XML. And a value may still be something
# else: a type, a variable, a placeholder (`your-api-key`), the name of a variable. `is_plain` and
# `looks_random` tell these apart, so that programs come out of a cassette unchanged.

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
    *("apitoken", "usertoken", "bearertoken", "idtoken"),
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

# Compiled at its first match: there are 200 patterns, and most runs contain the words of few.
compile_pattern = cache(re.compile)


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
            judge = looks_random if self.vague or form.strict else is_secret_value
            first, last = match.span(pattern.groups)
            if (form.judge or judge)(raw[first:last]):
                yield first, last


MAX_NAME_LENGTH = 60  # how far `start` looks back
SHORT_NAME = 5  # `pass` and `token` are also parts of other words
MIN_VALUE_LENGTH = 4
MIN_RANDOM_LENGTH = 6
MIN_KEY_LENGTH = 12
MIN_SCRAMBLED_LENGTH = 16
MAX_OBJECT_LENGTH = 4000  # of a JSON Web Key
MAX_HEADERS_LENGTH = 400  # between the first line of a key and its text
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
        form("=", rf"={_BARE}", word, upper=True),  # env files and command lines
        form("=", rf"={_BARE}(?=[\s;&\"'\\]|\Z)", parameter, strict=True),  # queries, ini files
        # YAML and headers; a line of code ends with a comma
        form(":", rf":[ \t]+([^\s\"'\\`]{{3,}}[^\s\"'\\`,;]){_LINE_END}", line, strict=True),
        # anywhere in a line, and in prose, if it cannot be a variable
        form(
            " \t:=-*",
            r"(?:\*\*|__)?[ \t]*(?::=|==|->|=>|[:=]|\xe2\x86\x92|\\+u2192)(?:\*\*|__)?[ \t]*\\*[`]?"
            r"([^\s\"'\\`,;()<>{}|\[\]]{8,})(?![\w(]|\[(?!api_key\]))",
            judge=is_unlike_code,
        ),
        form(
            " \t",
            r"[ \t]+(?:(?:\xe2\x86\x92|\\+u2192)[ \t]*|--body[ \t]+|[0-9] )?"
            r"([^\s\"'\\`,;()<>{}=|]{8,})(?![\w(\[=])",
            judge=is_unlike_code,
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
            r" (?:is|was|to|are):? (?:\\*[\"'`]|\xe2\x80\x9c|\\+u201c)?([^\s\"'\\,;`]{6,})",
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
        form(">", r">([^<\s]{4,})</"),  # XML
        form(" ", r" [a-z:]+=\\*[\"'][^<>\n]{0,80}>([^<\s]{4,})</"),
        form("<", r"</\w+>(?:\s|\\+[nr])*<string>([^<]{4,})</"),
        # a pair: define('X', '…'), ("x-api-key", "…"), ["--token", "…"]
        form("\\\"'", rf"{quote},[ \t]*{quote}(?!-)([^\s\"'\\,]{{4,}}){quote}", option),
        form(
            "\\\"'",
            rf"{quote}[ \t]*,\s*b?{quote}(?:[a-z]+ )?(?!-)([^\s\"'\\]{{6,}}){quote}(?!\s*:)",
            judge=is_unlike_code,
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
        judge=_is_credential,
    )
    cookie = form(
        "\\\"':,",
        r"\\*[\"']?[:,][ \t]*(?:\[[ \t]*)?(?:\\*[\"'])?(?:value\\*[\"']:[ \t]*\\*[\"'])?"
        r"((?:[\w!#$%&*+.^|~-]+=[^\s;\"'\\]*;?[ \t]*)+[^\r\n\"'\\]*)",
        judge=_has_random_cookie,
    )
    query = form("=", r"=([^&\s\"'\\<>#;]{6,})", rb"[?&;]\Z", judge=looks_random)
    session = form("=", r"=(?:s%3a)?([^&\s\"'\\<>#;,]{8,})", judge=looks_random)

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
            edge = r"(?:(?<![a-z0-9])|(?<=\\[nrt]))"
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


_SECRET_NAME = (
    "(?i)(?:"
    + "|".join(name.replace("_", "[-_]?") for name in SECRET_NAMES)
    + "|(?:"
    + "|".join(name.replace("_", "[-_]") for name in VAGUE_NAMES if len(name) > SHORT_NAME)
    + ")|cookie"
    + "|(?:^|[-_])(?:auth|jwt|pass|pwd|pw)|^bearer"
    + f"|(?:^|{''.join(f'(?<!{word})' for word in PLAIN_TOKENS)}[-_])token)$"
    + r"|(?:^|[-_])(?:secret|password|api[-_]?key)(?:$|[-_])"
)


@lru_cache(maxsize=4096)
def is_secret_name(field: str) -> bool:
    """Return whether a field or an environment variable with this name may have a secret."""
    return compile_pattern(_SECRET_NAME).search(field) is not None


def is_secret_field(name: str, value: str) -> bool:
    """Return whether the value of a JSON field is a secret, judged by its name and its form."""
    if not value or not is_secret_name(name):
        return False
    if any(known in name.lower().replace("-", "_") for known in SECRET_NAMES):
        return not is_placeholder(value)
    raw = value.encode("utf-8", "surrogatepass")
    return looks_random(raw) or _is_credential(raw)


# --- Values

# The words of placeholders and of names of variables: `your-api-key`, `OPENAI_API_KEY`.
_NOUNS = frozenset(
    b"key keys apikey token tokens secret secrets password passwords passwd passphrase pwd auth "
    b"authorization credential credentials bearer jwt cookie header "
    # the same word in forms of other languages
    b"passwort senha salasana parola parole wachtwoord passord adgangskode heslo geslo contrasenya "
    b"lozinka passe sandi".split()
)
_SUFFIXES = (b"password", b"secret", b"token", b"apikey")  # mypassword
_FILLERS = frozenset(
    b"a an the my your some test tests testing fake dummy example sample placeholder changeme foo "
    b"bar baz api app user name client server access refresh private public not set none null here "
    b"value string xxx xxxx todo demo default redacted github pat real new old env id".split()
)
# What follows such a name in code, in schemas and in prose.
_CODE_WORDS = frozenset(
    b"str string bytes int integer float number bool boolean any object none null nil true false "
    b"undefined unknown void never optional union list dict tuple set callable awaitable secretstr "
    b"annotated literal field text char varchar self cls this pass required default value values "
    b"redacted unavailable enable enabled disable disabled always auto guest local remote basic "
    b"digest inherit "
    b"must should cannot can is was not may will incorrect invalid wrong missing empty hidden "
    b"expired".split()
)
_PLACEHOLDER = (
    rb"(?s)`?(?:[A-Za-z]+ )?(?:\$\{.*|\$\(.*|\$[A-Za-z_][A-Za-z0-9_]*|\{\{.*|\{[^}]*\}?|"
    rb"<[^<>]*>?|%\(\w+\)?s?|%[sr].{0,2}|(?:[A-Za-z0-9]+[-_]){0,3}[*xX.\xe2\x80\xa6]{3,}"
    rb"|\[[A-Z_ ]+\].*)`?"
)
_WORDS = rb"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+"
_IDENTIFIER = rb"[A-Za-z0-9_ .:/<>\[\]()-]+\??"
_EXPRESSION = rb"(?s)[A-Za-z_][\w.]*[\[(<].*|[A-Za-z_]{1,40}(?:\.[A-Za-z_]{1,40}[0-9]?)+"
_ELIDED = rb"(?:\.\.\.|\xe2\x80\xa6)\Z|<[A-Za-z][\w .-]*>|\$\{|\{[\w.]*[}(\[!:]|%[sd]\b|%\(|%key:"
# Words of a message or a description, and words in letters that are not of ASCII.
_PROSE = (
    rb"(?i)(?:\A|\s)(?:the|an?|is|are|was|for|of|to|your|my|and|or|not|no|in|with|must|be|please|from|"
    rb"this|that|on|by|can|cannot|will|has|have|invalid|failed|error|enter|password|token)"
    rb"(?:[\s.,:!?].*\s|\s.*|[.,:!?]|\Z)|\A[^0-9!-/]*(?:[\xc3-\xf4][\x80-\xbf]|\\+u[0-9a-f]{4})"
    rb"(?:[^0-9!-/]|\\+u[0-9a-f]{4})*\Z"
)
_MIXED = rb"(?=.*[a-z])(?=.*[A-Z])(?:.*[0-9].*[a-zA-Z].*[0-9]|(?=.*[0-9]).{32})"
_SHORT_WORD = rb"[A-Za-z]{,4}"
_CAPITAL = rb"[A-Z]"
_BASE64 = rb"[A-Za-z0-9+/]{32,}={0,2}"
_CAPITALS_WITH_DIGITS = rb"(?=.*[0-9][A-Z])[A-Z0-9]{16,}"
# few small letters between capitals; no words with hyphens
_SCRAMBLED = rb"(?=.*[A-Z][a-z]{1,2}[A-Z])[A-Za-z0-9+/=]+"
_MEMBER = rb"(?:self|cls|this|[a-z]\w*)\.[\w.]+[)}\]]*"  # `self.TEST_TOKEN}`
_PATH = rb"(?:~|\.{0,2})/[a-z]{2,10}[/.]"
_BLANKS = frozenset(b"xX*._-")  # ghp_xxxxxxxxxxxx
_COLOR = rb"#[0-9a-fA-F]{3,8}|# .*"
_DIGIT_RUNS = rb"[0-9]+"
_INNER_DIGIT = rb"[0-9][a-z]"
_PUNCTUATION = rb"[!^*~?]|[a-zA-Z0-9][#%@][a-zA-Z0-9]"
_COOKIE_VALUE = rb"=(?:s%3A)?([^\s;\"'\\]{6,})"
# Dates, numbers with units, versions, addresses, calls, paths: what else follows such a name.
_CODE = (
    rb"[0-9][0-9.,:/+-]*[A-Za-z%]{0,3}|[0-9]{4}-[0-9]{2}-[0-9]{2}T.*|v?[0-9]+(?:\.[0-9a-z]+)+.*"
    rb"|[A-Za-z_][\w.]*\.[A-Za-z_]+|[\w./-]+@[\w.-]+|[A-Za-z_]\w*(?:\.\w+)+:[A-Za-z_]\w*|[\w./-]*/[\w./-]*\.[a-z]{1,5}"
    rb"|[A-Z0-9_]+_[A-Z0-9_]+"
    rb"|\*{1,2}[A-Za-z_.]*|0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|[a-z]+(?:[-_][a-z]+)*[-_]?[0-9]{0,4}"
)
# Words that have a digit: they are parts of names.
_TERMS = (
    rb"(?i)(?<![A-Za-z])(?:sha|md|utf|iso|base|aes|rsa|hs|rs|es|ps|ed|int|uint|float|ipv|http|oauth|tls|ssl|py|"
    rb"python|b|s|x|v|p|u|i|h|r|k|ec|win|arm|x86|amd|log|gpt|o|t|llama|claude)_?[0-9]{1,5}(?![0-9])"
)
_DIGIT = rb"[0-9]"
_NO_DIGIT = rb"[^0-9]"


def has_digit(value: bytes) -> bool:
    """Return whether there is a digit: there is one in nearly every key, and in hardly a word."""
    return compile_pattern(_DIGIT).search(value) is not None


def _has_free_digit(value: bytes) -> bool:
    """Return whether there is a digit that is not a part of a word, as in `sha256`."""
    return has_digit(value) and has_digit(compile_pattern(_TERMS).sub(b"", value))


def is_placeholder(value: bytes | str) -> bool:
    """Return whether the value is a placeholder: `${TOKEN}`, `<your key>`, `{{ key }}`, `***`."""
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return compile_pattern(_PLACEHOLDER).fullmatch(raw) is not None


def is_plain(value: bytes) -> bool:
    """Return whether a value is obviously not a secret: a placeholder, a name, a type."""
    if (
        is_placeholder(value)
        or compile_pattern(_SHORT_WORD).fullmatch(value)
        or len(value.decode(errors="replace")) < MIN_VALUE_LENGTH
    ):
        return True
    if compile_pattern(_EXPRESSION).fullmatch(value) or compile_pattern(_ELIDED).search(value):
        return True
    if compile_pattern(_PROSE).search(value) or compile_pattern(_PATH).match(value):
        return True
    if not compile_pattern(_IDENTIFIER).fullmatch(value):
        return False
    words = [word.lower() for word in compile_pattern(_WORDS).findall(value)]
    if not words or (words[0] in _CODE_WORDS and len(words) == 1):
        return True
    if not _has_free_digit(value) and (
        any(word in _NOUNS or word.endswith(_SUFFIXES) for word in words)
        or (b"api" in words and len(words) > 1)
    ):
        return True
    return all(word in _NOUNS or word in _FILLERS or word.isdigit() for word in words)


def is_secret_value(value: bytes) -> bool:
    """Return whether the value after the name of a secret is one: anything that is not plain."""
    return not is_plain(value)


def looks_random(value: bytes) -> bool:
    """Return whether a value looks like a key or a good password, whatever its name."""
    return (
        len(value) >= MIN_RANDOM_LENGTH
        and (_has_free_digit(value) or _is_scrambled(value))
        and compile_pattern(_NO_DIGIT).search(value) is not None
        and not value.startswith((b"~/", b"./", b"../", b"=", b"["))
        and (not value.startswith(b"/") or _is_base64(value))
        and not compile_pattern(_COLOR).fullmatch(value)
        and b"://" not in value
        and not _is_name_with_digits(value)
        and not is_plain(value)
    )


def _is_scrambled(value: bytes) -> bool:
    """Return whether a value without a digit mixes capitals and small letters as no name does."""
    if len(value) < MIN_SCRAMBLED_LENGTH or not compile_pattern(_SCRAMBLED).fullmatch(value):
        return False
    capitals = len(compile_pattern(_CAPITAL).findall(value))
    return 3 * len(value) < 10 * capitals < 7 * len(value)


def _is_base64(value: bytes) -> bool:
    """Return whether a value that begins as a path does is base64: it has many capitals."""
    if compile_pattern(_BASE64).fullmatch(value) is None:
        return False
    capitals = len(compile_pattern(_CAPITAL).findall(value))
    return len(value) < 5 * capitals < 4 * len(value) and _is_mixed(value)


def _is_mixed(value: bytes) -> bool:
    """Return whether a value mixes small letters, capitals and digits."""
    return compile_pattern(_MIXED).match(value) is not None


def _is_whole_key(length: int, value: bytes) -> bool:
    """Return whether a text with the prefix of a key is one, not `ghp_xxxx` or a name."""
    whole = 0 < length <= len(value)
    return (has_digit(value) or whole or _is_scrambled(value)) and bool(
        {*value[-MIN_KEY_LENGTH:]} - _BLANKS
    )


def is_unlike_code(value: bytes) -> bool:
    """Return whether a value that is not quoted can be no variable, date, path or number.

    Digits of names are at the end of a word (`token2`), or belong to it (`sha256`).
    """
    if not looks_random(value) or compile_pattern(_CODE).fullmatch(value):
        return False
    rest = compile_pattern(_TERMS).sub(b"", value)
    if compile_pattern(_PUNCTUATION).search(rest):
        return has_digit(rest)
    return (
        len(compile_pattern(_DIGIT_RUNS).findall(rest)) > 2  # noqa: PLR2004 - names have two
        or _is_scrambled(rest)
        or compile_pattern(_INNER_DIGIT).search(rest) is not None
        or compile_pattern(_CAPITALS_WITH_DIGITS).fullmatch(value) is not None
        or (len(rest) >= MIN_KEY_LENGTH and _is_mixed(rest))
    )


def _has_random_cookie(value: bytes) -> bool:
    """Return whether the cookies of a header have a value that looks like a key."""
    return any(map(looks_random, compile_pattern(_COOKIE_VALUE).findall(value)))


def _is_name_with_digits(value: bytes) -> bool:
    """Return whether a value is a variable or a type that has a digit: `s3_credentials`."""
    words = compile_pattern(_WORDS).findall(value)
    # A long key contains such a word by chance: `…QaPwdAUBo48aB`.
    if b"_" not in value and 4 * MIN_VALUE_LENGTH < len(value) < 4 * len(words):
        return False
    return re.fullmatch(rb"[A-Za-z_][\w.]*", value) is not None and any(
        word.lower() in _NOUNS or word.lower() + b"s" in _NOUNS for word in words
    )


def _is_credential(value: bytes) -> bool:
    """Return whether the value of a header is one: `Bearer …`, or a key alone."""
    key = value.rpartition(b" ")[2]
    # base64 has no digit by chance
    mixed = key.lower() != key and key.upper() != key and len(key) >= 2 * MIN_VALUE_LENGTH
    if is_plain(key) or compile_pattern(_MEMBER).fullmatch(key) or key[:2].lower() == b"0x":
        return False
    return looks_random(key) or mixed
