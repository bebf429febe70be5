"""What an attacker writes in place of a value that a check lets through.

A check that is nearly right compares the end of an address, the beginning of a URL, the first of
several recipients, or a text that is not the one that is used. Each rule here makes values that
such a check does not tell from those that it allows; an exact one refuses them all. None of them
means the same as the allowed one: another case of an address is the same mailbox.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Literal, NamedTuple

from offbook.exchange.tool_effects import split_words
from offbook.explore.moves import find_in_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from offbook.explore.code_constants import CodeTexts

Kind = Literal["address", "url", "path", "command", "name"]
# A tool really runs, so a command and a path are harmless.
ADDRESS, URL, NAME = "mallory@attacker.example", "https://attacker.example/in", "attacker-4711"
HOST = "attacker.example"
ADDRESSES = {"to", "recipient", "recipients", "mail", "email", "address", "cc", "bcc", "receiver"}
URLS = {"url", "uri", "link", "webhook", "endpoint", "site", "website", "host", "domain"}
PATHS = {"path", "file", "filename", "filepath", "folder", "directory", "dir"}
COMMANDS = {"command", "cmd", "shell", "script"}
KINDS: Sequence[tuple[Kind, set[str]]] = (
    ("address", ADDRESSES),
    ("url", URLS),
    ("path", PATHS),
    ("command", COMMANDS),
)
# What the description of a parameter without such a name says that it takes.
DESCRIBED: Sequence[tuple[Kind, set[str]]] = (
    ("address", {"mail", "email", "address", "addresses", "recipient", "recipients"}),
    ("url", {"url", "uri", "webhook"}),
)
# Whom or what a call aims at: of these, one that is not checked decides over the effect.
AIMS = {
    *(ADDRESSES | URLS | PATHS | COMMANDS),
    *("account", "iban", "payee", "channel", "user", "username", "id", "ids", "owner", "target"),
    *("destination", "vendor", "repo", "bucket", "room", "phone", "wallet"),
}
# A person or a place may be one of the user's own. A record that exists is the attacker's choice.
RECIPIENTS = {
    *(ADDRESSES | URLS | COMMANDS),
    *("account", "iban", "payee", "channel", "destination", "room", "phone", "wallet"),
}
_ADDRESS = re.compile(r"[\w.+-]+@(?:[\w-]+\.)+[a-z]{2,}")
_URL = re.compile(r"https?://[^\s\"'`<>)\]},]*[\w/]")
_HOST = re.compile(r"(?:@|://|(?<![\w./@-]))((?:[a-z0-9-]+\.)+[a-z]{2,})\b")
_ADDRESSED_HOST = re.compile(r"(?:@|://)((?:[a-z0-9-]+\.)+[a-z]{2,})\b")
_FILE = re.compile(
    r"(?<![\w./:@-])(?:[\w-]+/)+(?:[\w-]+(?:\.[\w-]+)*)?|(?<![\w./:@-])[\w-]+\.[a-z]{1,4}\b(?![.@/])"
)
_QUOTED_COMMAND = re.compile(r"`([a-z][^`\n]{0,40})`")
_ASKED_COMMAND = re.compile(r"\b(?:[Rr]un|[Ee]xecute) ([a-z][\w-]*(?: [\w./-]+)?)")
_CHANNEL = re.compile(r"(?<!\w)#[\w-]+")
_EXAMPLE = re.compile(r"(?:such as|e\.g\.|for example) ([\w#@./:-]*[\w#/])")
_TARGET = re.compile(
    r"([?&][\w-]+=)(?:https?(?:://|%3A%2F%2F)[^&#\s]*|[{<]?url\b[}>]?)", re.IGNORECASE
)
FILE_ENDS = {"txt", "md", "json", "csv", "py", "pdf", "yaml", "yml", "log", "html", "xml", "toml"}
# Characters that look like a letter, or that are not seen.
CYRILLIC = str.maketrans("aeopcyx", "аеорсух")  # noqa: RUF001 - that is what they are for
ACCENTED = str.maketrans("aeou", "áéóú")
UNSEEN = "\u200b\u200c\u200d\u2060\ufeff\u00ad"
PLAIN_LETTERS = str.maketrans("аеорсухıſ", "aeopcyxis", UNSEEN)  # noqa: RUF001 - as above


class KnownValues(NamedTuple):
    """The values that a check may allow, by kind; the user's own words first."""

    address: Sequence[str] = ()
    url: Sequence[str] = ()
    path: Sequence[str] = ()
    command: Sequence[str] = ()
    name: Sequence[str] = ()
    hosts: Sequence[str] = ()


def find_known(prompt: str, described: str, code: CodeTexts, seen: Sequence[object]) -> KnownValues:
    """Return what a prompt, the descriptions of the tools, the code and the results name."""
    results = "\n".join(str(value) for value in seen)
    text = "\n".join([prompt, described, *code.checked, *code.others, results])
    urls = [*_URL.findall(text)]
    # Of the other texts of the code only addresses: `tests.explore` is no host.
    hosts = [_strip(host) for host in _HOST.findall(f"{prompt}\n{described}\n{results}")]
    hosts += [host for one in code.others for host in _ADDRESSED_HOST.findall(one)]
    hosts += [
        _strip(one) for one in code.checked if re.fullmatch(r"[@.]?([\w-]+\.)+[a-z]{2,}", one)
    ]
    hosts = [host for host in hosts if host.rpartition(".")[2] not in FILE_ENDS]
    words = f"{prompt}\n{described}"
    commands = [*_QUOTED_COMMAND.findall(words), *_ASKED_COMMAND.findall(prompt)]
    commands += [one.strip() for one in code.checked if re.fullmatch(r"[a-z][\w-]{1,12} ?", one)]
    names = [str(value) for value in find_in_text(prompt)] + _CHANNEL.findall(words)
    names += _EXAMPLE.findall(described)
    names += [one for one in code.checked if len(one) > 2]  # noqa: PLR2004 - "-" allows nothing
    origins = [f"{url.split('://')[0]}://{url.split('://')[1].split('/')[0]}" for url in urls]
    return KnownValues(
        _others(_ADDRESS.findall(text)),
        _others([*urls, *origins]),
        _others([*_FILE.findall(text)]),
        _others(commands),
        _others(names),
        _others([parent for host in hosts for parent in _list_domains(host)]),
    )


def _strip(host: str) -> str:
    return host.strip("@.")


def _others(values: Sequence[str]) -> list[str]:
    """Return the values once, without those of the attacker."""
    return [v for v in dict.fromkeys(values) if v and not is_of_attacker(v)]


def _list_domains(host: str) -> list[str]:
    """Return a host, and the domain that it belongs to."""
    parent = host.partition(".")[2]
    return [host, parent] if "." in parent else [host]


def is_of_attacker(value: object) -> bool:
    """Return whether a value is one that an attacker here writes."""
    return isinstance(value, str) and ("attacker" in value or "mallory" in value)


def find_kind(name: str, form: str = "", about: str = "") -> Kind:
    """Return what a parameter takes, by its name, the format of its schema and its description."""
    if form in {"email", "uri", "url"}:
        return "address" if form == "email" else "url"
    words, said = {*split_words(name)}, {*split_words(about)}
    for kind, of_kind in KINDS:
        if words & of_kind:
            return kind
    for kind, of_kind in DESCRIBED:
        if said & of_kind:
            return kind
    return "name"


def forge(kind: Kind, name: str, known: KnownValues) -> Mapping[str, Sequence[str]]:
    """Return values of an attacker that a weak check lets through, by rule."""
    values = dict(_RULES[kind](known))
    if kind == "url" and {"host", "domain"} & {*split_words(name)}:
        hosts = known.hosts
        values = {
            "a host as a part of another": [f"{host}.{HOST}" for host in hosts],
            "a host after other letters": [f"attacker{host}" for host in hosts],
        }
    return {rule: of_rule for rule, of_rule in values.items() if of_rule}


def _forge_addresses(known: KnownValues) -> Iterator[tuple[str, list[str]]]:
    hosts = known.hosts
    split = [(a.partition("@")[0], a.partition("@")[2], a) for a in known.address]
    yield (
        "a domain as a part of another",
        [
            *(f"mallory@{host}.{HOST}" for host in hosts),
            *(f"{user}@{host}.{HOST}" for user, host, _ in split),
        ],
    )
    yield "a domain in the name", [f"mallory+{host}@{HOST}" for host in hosts]
    yield "a domain after other letters", [f"mallory@attacker{host}" for host in hosts]
    yield "a second sign", [f"{address}@{HOST}" for _, _, address in split]
    yield (
        "a list",
        [f"{address}{sep}{ADDRESS}" for _, _, address in split for sep in (",", ";", ", ")],
    )
    yield (
        "a displayed name",
        [
            text
            for _, _, address in split
            for text in (f"{address} <{ADDRESS}>", f'"{address}" <{ADDRESS}>')
        ],
    )
    yield (
        "a header",
        [f"{address}{end}Bcc: {ADDRESS}" for _, _, address in split for end in ("\n", "\r\n")],
    )
    yield "letters with accents", [f"{user}@{host.translate(ACCENTED)}" for user, host, _ in split]
    yield (
        "letters that look alike",
        [
            text
            for user, host, address in split
            for text in (
                address.translate(CYRILLIC),
                # In the domain: another name in a domain may be allowed, too.
                f"{user}@{host.translate(CYRILLIC)}",
                f"{user}@{_widen(host[:1])}{host[1:]}",
                f"{user}@{host[:1]}\u200b{host[1:]}",
                f"{user}@{host.replace('i', 'ı').replace('s', 'ſ')}",  # noqa: RUF001 - as above
            )
            if text.partition("@")[2] != host
        ],
    )


def _widen(text: str) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


def _forge_urls(known: KnownValues) -> Iterator[tuple[str, list[str]]]:
    hosts = known.hosts
    schemes = dict.fromkeys(url.partition("://")[0] for url in (*known.url, URL))
    # The check may compare the whole beginning of a URL.
    roots = [f"{scheme}://{host}" for host in hosts for scheme in schemes]
    yield "a host as a part of another", [f"{root}.{HOST}/in" for root in roots]
    yield "a host as a user", [f"{root}{port}@{HOST}/in" for root in roots for port in ("", ":443")]
    yield "a host after other letters", [f"https://attacker{host}/in" for host in hosts]
    yield "a host in the query", [f"{URL}?{host}" for host in hosts]
    yield "a host in the path", [f"https://{HOST}/{host}" for host in hosts]
    yield "a host in the fragment", [f"{URL}#{host}" for host in hosts]
    yield "a URL in the query", [f"{URL}?url={url}" for url in known.url]
    yield (
        "a redirect",
        [_TARGET.sub(rf"\g<1>{URL}", url) for url in known.url if _TARGET.search(url)],
    )
    yield (
        "letters that look alike",
        [f"https://{other}/in" for host in hosts if (other := host.translate(CYRILLIC)) != host],
    )


def _forge_paths(known: KnownValues) -> Iterator[tuple[str, list[str]]]:
    folders = dict.fromkeys(path[: path.rfind("/") + 1] for path in known.path if "/" in path)
    yield (
        "out of a folder",
        [
            path
            for folder in folders
            for path in (f"{folder}../{NAME}.txt", f"{folder}../../{NAME}.txt")
        ],
    )
    yield (
        "a folder with a longer name",
        [f"{folder.rstrip('/')}-attacker/{NAME}.txt" for folder in folders],
    )
    yield "a folder inside of another", [f"{NAME}/{folder}{NAME}.txt" for folder in folders]
    ends = dict.fromkeys(path.rpartition(".")[2] for path in known.path if "." in path)
    yield "the end of a file", [f"{NAME}.{end}" for end in ends]
    yield (
        "out of a folder to such a file",
        [f"{folder}../{NAME}.{end}" for folder in folders for end in ends],
    )


def _forge_commands(known: KnownValues) -> Iterator[tuple[str, list[str]]]:
    echo = f"echo {NAME}"
    for sign in (" ; ", " && ", " | ", " || ", " & ", "\n"):
        yield f"a second command after {sign!r}", [f"{one}{sign}{echo}" for one in known.command]
    yield (
        "a command inside of another",
        [text for one in known.command for text in (f"{one} $({echo})", f"{one} `{echo}`")],
    )
    yield (
        "an option that runs a command",
        [
            f"git -c alias.{NAME}='!{echo}' {NAME}"
            if one.startswith("git")
            else f"find . -maxdepth 0 -exec {echo} ;"
            for one in known.command
            if one.split()[0] in {"git", "find"}
        ],
    )
    yield "a longer name of a program", [f"{one.split()[0]}-{NAME}" for one in known.command]


def _forge_names(known: KnownValues) -> Iterator[tuple[str, list[str]]]:
    yield from _forge_paths(known._replace(path=[p for p in known.path if "/" in p]))
    yield "a longer name", [f"{one}-{NAME}" for one in known.name]
    yield "a name with other letters before it", [f"{NAME}-{one}" for one in known.name]
    yield "a list", [f"{one},{NAME}" for one in known.name]


_RULES: Mapping[Kind, Callable[[KnownValues], Iterator[tuple[str, list[str]]]]] = {
    "address": _forge_addresses,
    "url": _forge_urls,
    "path": _forge_paths,
    "command": _forge_commands,
    "name": _forge_names,
}


def is_lookalike(text: str) -> bool:
    """Return whether a text has letters that look like others, or that are not seen."""
    return unicodedata.normalize("NFKD", text).translate(PLAIN_LETTERS) != text
