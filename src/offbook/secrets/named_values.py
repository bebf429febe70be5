"""Secrets by the name in front of them: `"password": "…"`, `API_KEY=…`, `--token …`.

A name is evidence only where the format separates it from its value: JSON, quoted assignments,
headers, lines of environment and YAML files, queries, options, XML. And a value may still be
something else: a type, a variable, a placeholder (`your-api-key`), the name of a variable.
`is_plain` and `looks_random` tell these apart, so that programs come out of a cassette unchanged.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Judge = Callable[[bytes], bool]


# Names of secrets, in lower case; also with hyphens for underscores.
SECRET_NAMES = (
    *("api_key", "apikey", "access_key", "accesskey", "account_key", "accountkey"),
    *("private_key", "privatekey", "signing_key", "encryption_key", "subscription_key"),
    *("client_key_data", "secret", "secret_key", "secretkey", "secret_key_base", "client_secret"),
    *("password", "passwd", "passphrase"),
)
# Names of many other things, too: their value is a secret only if it looks like one.
VAGUE_NAMES = (
    *("token", "auth", "jwt", "bearer", "authorization", "credential", "credentials"),
    *("pass", "pwd", "pw", "ext_pat", "accessjwt", "refreshjwt", "webhook_url"),
    *("accesstoken", "refreshtoken", "authtoken", "sessiontoken", "securitytoken", "bottoken"),
    *("apitoken", "usertoken", "bearertoken", "idtoken"),
)
# Words before `_token` that make it harmless: a `next_token` is the position in a list.
PLAIN_TOKENS = (
    *("page", "next", "continuation", "sync", "eos", "bos", "pad", "unk", "sep", "cls", "mask"),
    *("special", "per", "first", "last", "stop", "start", "end", "num", "prev", "previous"),
)
QUERY_NAMES = ("key", "sig", "code")  # names of secrets in the query of a URL only

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
_BARE = r"([^\s\"'\\&|;`()<>{},]{4,})"
_LINE_END = r"(?=[ \t]*(?:\Z|[\r\n\"'`]|\\|[ \t]#))"


def secret_names() -> dict[bytes, Name]:
    """Return the names of secrets, in lower case, with the formats of their values."""
    # The beginning of a line, also of one that is escaped in JSON, or of a quoted text.
    line = rb"(?i)(?:\A|\n|\\n|[\"'`])[ \t]*(?:- |> |export |set |-[a-z] )?[\w./:@-]*\Z"
    parameter = rb"(?:\A|\n|\\n|[\"'`?&;]|--|//)[\w./:@-]*\Z"
    word = rb"(?:\A|\n|\\[nt]|[\s\"'`;&(=])[A-Z0-9_]*\Z"
    option = rb"--[\w-]*\Z"

    def form(first: str, value: str, *rest: Any, **more: Any) -> Format:
        return Format(first.encode(), f"(?s){value}".encode(), *rest, **more)

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
            r"(?:\\*[\"'])?[ \t]*(?::[ \t]*str[ \t]*)?(?::=|=>|[:=])[ \t]*(?:\[[ \t]*)?"
            r"[bru]?(\\*[\"'])(?![),\]};:+ \t])([^\"'\\\n]{4,})\1(?!\w)",
        ),
        form("%", r"%22(?:%20)*(?:%3a|:)(?:%20)*%22((?:[^%\"&\s]|%(?!22)[0-9a-f]{2})+)"),  # a URL
        form("=", rf"={_BARE}", word, upper=True),  # env files and command lines
        form("=", rf"={_BARE}(?=[\s;&\"'\\]|\Z)", parameter, strict=True),  # queries, ini files
        # YAML and headers; a line of code ends with a comma
        form(":", rf":[ \t]+([^\s\"'\\`]{{3,}}[^\s\"'\\`,;]){_LINE_END}", line, strict=True),
        # anywhere, if it cannot be a variable
        form(
            " \t:=",
            r"[ \t]*[:=][ \t]*([A-Za-z0-9+/=~.-]{12,})(?![\w(]|\[(?!api_key\]))",
            judge=_is_key,
        ),
        # a block of YAML
        form(
            ":",
            r":[ \t]*[|>][-+0-9]*[ \t]*(?:\\+r|\r)?(?:\\+n|\n)[ \t]+([^\s\"'\\][^\n\"'\\]*)",
            line,
        ),
        form(">", r">([^<\s]{4,})</"),  # XML
        form("\\\"'", r"\\*[\"'],[ \t]*\\*[\"']([^\s\"'\\,]{4,})", option),
        form(" \t", r"[ \t]+([^\s\"'\\,`]{4,})", option, strict=True),
        form(" ", r" (?:is|was):? \\*[\"'`]?([^\s\"'\\,;`]{6,})", strict=True),  # prose
    )
    header = form(
        "\\\"' \t:=",
        r"\\*[\"']?[ \t]*[:=][ \t]*\\*[\"']?((?:[a-z0-9-]+[ \t]+)?[^\s\"'\\,`]{6,})",
        judge=_is_credential,
    )
    cookie = form(
        "\\\"':",
        r"\\*[\"']?:[ \t]*(?:\[[ \t]*)?\\*[\"']?([\w!#$%&*+.^|~-]+=[^\s;\"'\\]{6,}[^\r\n\"'\\]*)",
        line,
        judge=has_digit,
    )
    query = form("=", r"=([^&\s\"'\\<>#;]{6,})", rb"[?&;]\Z", judge=looks_random)

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
    b"authorization credential credentials bearer jwt cookie header".split()
)
_SUFFIXES = (b"password", b"secret", b"token", b"apikey")  # mypassword
_FILLERS = frozenset(
    b"a an the my your some test tests testing fake dummy example sample placeholder changeme foo "
    b"bar baz api app user name client server access refresh private public not set none null here "
    b"value string xxx xxxx todo demo default github pat real new old env id".split()
)
# What follows such a name in code, in schemas and in prose.
_CODE_WORDS = frozenset(
    b"str string bytes int integer float number bool boolean any object none null nil true false "
    b"undefined unknown void never optional union list dict tuple set callable awaitable secretstr "
    b"annotated literal field text char varchar self cls this pass required default value values "
    b"must should cannot can is was not may will incorrect invalid wrong missing empty hidden "
    b"expired".split()
)
_PLACEHOLDER = (
    rb"(?s)`?(?:[A-Za-z]+ )?(?:\$\{.*|\$\(.*|\$[A-Za-z_][A-Za-z0-9_]*|\{\{.*|\{[^}]*\}?|"
    rb"<[^<>]*>?|%\(\w+\)?s?|%[sr].{0,2}|(?:[a-z]+[-_])?[*xX.\xe2\x80\xa6]{3,}|\[[A-Z_ ]+\].*)`?"
)
_WORDS = rb"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+"
_IDENTIFIER = rb"[A-Za-z0-9_ .:/<>\[\]()-]+"
_EXPRESSION = rb"(?s)[A-Za-z_][\w.]*[\[(<].*|[A-Za-z_]{1,40}(?:\.[A-Za-z_]{1,40})+"
_ELIDED = rb"(?:\.\.\.|\xe2\x80\xa6)\Z|<[A-Za-z][\w .-]*>|\$\{"
_MIXED = rb"(?=.*[a-z])(?=.*[A-Z])(?:.*[0-9].*[a-zA-Z].*[0-9]|(?=.*[0-9]).{32})"
_SHORT_WORD = rb"[A-Za-z]{,4}"
_DIGIT = rb"[0-9]"
_NO_DIGIT = rb"[^0-9]"


def has_digit(value: bytes) -> bool:
    """Return whether there is a digit: there is one in nearly every key, and in hardly a word."""
    return compile_pattern(_DIGIT).search(value) is not None


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
    if not compile_pattern(_IDENTIFIER).fullmatch(value):
        return False
    words = [word.lower() for word in compile_pattern(_WORDS).findall(value)]
    if not words or (words[0] in _CODE_WORDS and len(words) == 1):
        return True
    if not has_digit(value) and any(word in _NOUNS or word.endswith(_SUFFIXES) for word in words):
        return True
    return all(word in _NOUNS or word in _FILLERS or word.isdigit() for word in words)


def is_secret_value(value: bytes) -> bool:
    """Return whether the value after the name of a secret is one: anything that is not plain."""
    return not is_plain(value)


def looks_random(value: bytes) -> bool:
    """Return whether a value looks like a key or a good password, whatever its name."""
    return (
        len(value) >= MIN_RANDOM_LENGTH
        and has_digit(value)
        and compile_pattern(_NO_DIGIT).search(value) is not None
        and not value.startswith((b"/", b"~/", b"./", b"../", b"=", b"[", b"#"))
        and b"://" not in value
        and not _is_name_with_digits(value)
        and not is_plain(value)
    )


def _is_key(value: bytes) -> bool:
    """Return whether a value mixes small letters, capitals and digits as no variable does."""
    return compile_pattern(_MIXED).match(value) is not None and looks_random(value)


def _is_name_with_digits(value: bytes) -> bool:
    """Return whether a value is a variable or a type that has a digit: `s3_credentials`."""
    words = compile_pattern(_WORDS).findall(value)
    return re.fullmatch(rb"[A-Za-z_][\w.]*", value) is not None and any(
        word.lower() in _NOUNS or word.lower() + b"s" in _NOUNS for word in words
    )


def _is_credential(value: bytes) -> bool:
    """Return whether the value of a header is one: `Bearer …`, or a key alone."""
    key = value.rpartition(b" ")[2]
    # base64 has no digit by chance
    mixed = key.lower() != key and key.upper() != key and len(key) >= 2 * MIN_VALUE_LENGTH
    return not is_plain(key) and (looks_random(key) or mixed)
