"""Where things stand in the text of a cassette: found without reading all of it as YAML."""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import FormatError, FutureVersion, UsageError, did_you_mean
from offbook.exchange.messages import Message
from offbook.files import BOM, MAX_FILE_SIZE, convert, write_atomic
from offbook.sources.cassette.format import (
    ANY_HASH,
    FORMAT,
    VERSION,
    CassetteHeader,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    expand_short_messages,
)
from offbook.sources.cassette.normalize import (
    ConversationDigest,
    RequestSettings,
    number_call_ids,
    register_call_ids,
)
from offbook.trace.redaction import Redaction
from offbook.yaml_files import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from offbook.sources.cassette.normalize import Normalizer


# --- Where things stand in the text of a cassette: found without reading all of it as YAML.

INDENT = 2
_ITEMS = re.compile(rb"^interactions:[ \t]*(?:#[^\n]*)?\n", re.MULTILINE)
_FIRST = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\n)*( *)- ")
_KEY = re.compile(rb"^[^\s#]", re.MULTILINE)
_BLANK = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?:#[^\n]*)?")


class ItemsSpan(msgspec.Struct, frozen=True):
    """Where the interactions stand in the file, and how far they are indented."""

    start: int
    end: int
    indent: int


def find_items(raw: bytes) -> ItemsSpan | None:
    """Where the interactions stand, when they are written one below the other."""
    opened = _ITEMS.search(raw)
    first = _FIRST.match(raw, opened.end()) if opened else None
    if opened is None:
        return None
    if first is None:  # none yet, or written in some other way
        rest = _KEY.search(raw, opened.end())
        end = rest.start() if rest else len(raw)
        blank = _BLANK.fullmatch(raw, opened.end(), end)
        return ItemsSpan(opened.end(), end, INDENT) if blank else None
    indent = len(first[1])
    after = rb"^[^\s#-]" if indent == 0 else rb"^[^\s#]"
    closed = re.compile(after, re.MULTILINE).search(raw, opened.end())
    end = closed.start() if closed else len(raw)
    return ItemsSpan(opened.end(), end, indent)


def split_items(raw: bytes, span: ItemsSpan) -> list[tuple[int, int]]:
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


# --- The index of a cassette: its interactions in short, and how they refer to one another.


class Entry(msgspec.Struct, frozen=True):
    """One line of the index: what a replay must know of an interaction before its turn.

    `start` and `end` are where it stands in the file, `line` the line of its beginning. `kept`
    says whether the request is there and not only its hash, `prompted` whether it is known by its
    prompt alone.
    """

    number: int
    id: int
    hat: str
    hash: str
    start: int
    end: int
    line: int
    after: int | None
    again: int | None
    head: int | None
    at: int | None
    took: float
    kept: bool
    prompted: bool


def number_ids(entries: list[Entry], path: Path | str) -> dict[int, int]:
    """The number of each interaction by its id, which no two may share."""
    numbers: dict[int, int] = {}
    for entry in entries:
        if entry.id in numbers:
            other = entries[numbers[entry.id] - 1]
            raise FormatError(
                f"two interactions have the id {entry.id}: the other is in line {other.line}",
                path=path,
                line=entry.line,
                hint="give one of them another, and name it where others refer to it",
            )
        numbers[entry.id] = entry.number
    return numbers


def check_references(entries: list[Entry], numbers: dict[int, int], path: Path | str) -> None:
    """Refuse an interaction that goes on from one that is not there."""
    for entry in entries:
        for name in ("after", "again", "head"):
            wanted = getattr(entry, name)
            if wanted is not None and wanted not in numbers:
                raise FormatError(
                    f"interaction {entry.number}: {name} refers to {wanted}, "
                    "and no interaction has that id",
                    path=path,
                    line=entry.line,
                    hint=did_you_mean(str(wanted), map(str, numbers)),
                )


def find_roots(entries: list[Entry], numbers: dict[int, int], path: Path | str) -> dict[int, int]:
    """By id, the interaction with which the conversation began."""
    roots: dict[int, int] = {}
    for entry in entries:
        found: list[int] = []
        at = entry
        while at.id not in roots and (before := at.after or at.again) is not None:
            found.append(at.id)
            if before in found:
                raise FormatError(
                    f"interaction {entry.number} goes on from itself",
                    path=path,
                    line=entry.line,
                    hint="let `after` and `again` name an earlier one",
                )
            at = entries[numbers[before] - 1]
        root = roots.get(at.id, at.id)
        roots.update(dict.fromkeys((*found, at.id), root))
    return roots


# --- A cassette as it was read: where each interaction stands in the file, and how to get at it.

KEPT = 8
PRIVATE_MODE = 0o600
_HEX = re.compile(r"sha256:[0-9a-f]{64}")
_RULE = re.compile(r"redactions\.?(patterns|paths|presets)?(?:\['(.*)'\])?")
_MEND = "compare it with docs/guides/record-replay.md, or record it anew"


class CassetteFile:
    """A cassette, read and checked."""

    def __init__(self, raw: bytes, path: Path | str = "") -> None:
        raw = normalize_newlines(raw)
        self.path = path
        self.raw = raw
        self.digest = blake2b(raw, digest_size=16).hexdigest()
        self.span = find_items(raw)
        self._values: list[Interaction] | None = None
        self._response = b"\n%*bresponse:" % (self.span.indent + INDENT if self.span else 0, b"")
        self.header, self.entries = self._read()
        self._numbers = number_ids(self.entries, path)
        check_references(self.entries, self._numbers, path)
        self.roots = find_roots(self.entries, self._numbers, path)

    # ------------------------------------------------------------------------------ reading

    def _read(self) -> tuple[CassetteHeader, list[Entry]]:
        if self.span is None:
            return self._read_whole()
        start, end = self.span.start, self.span.end
        lines = b"\n" * self.raw.count(b"\n", start, end)
        header = self._header(self.raw[:start] + lines + self.raw[end:])
        try:
            return header, list(self._read_each(self.span))
        except FormatError:
            if b"&" not in self.raw:
                raise
            return self._read_whole()  # an alias of another interaction is only known there

    def _read_each(self, span: ItemsSpan) -> Iterator[Entry]:
        line = self.raw.count(b"\n", 0, span.start) + 1
        for number, (start, end) in enumerate(split_items(self.raw, span), 1):
            if number == 1:
                line += self.raw.count(b"\n", span.start, start)
            yield self._entry(self._parse(start, end, line), number, start, end, line)
            line += self.raw.count(b"\n", start, end)

    def _read_whole(self) -> tuple[CassetteHeader, list[Entry]]:
        text = self._text(0, len(self.raw))
        document = parse_yaml(text, self.path)
        if not isinstance(document, dict) or "interactions" not in document:
            raise FormatError(
                "this is not a cassette: it has no interactions", path=self.path, hint=_MEND
            )
        body = cast("dict[str, Any]", document)
        listed = cast("list[Any]", body["interactions"] or [])
        header = self._header(text.encode(), {**body, "interactions": None})
        self._values = [
            convert(
                expand_short_messages(item),
                Interaction,
                path=self.path,
                text="" if self.span is None else text,
            )
            for item in listed
        ]
        spans = split_items(self.raw, self.span) if self.span else []
        places = [*spans, *[(0, 0)] * (len(self._values) - len(spans))]
        return header, [
            self._entry(value, number, *place, self.raw.count(b"\n", 0, place[0]) + 1)
            for number, (value, place) in enumerate(zip(self._values, places, strict=True), 1)
        ]

    def _header(self, raw: bytes, document: Any = None) -> CassetteHeader:
        text = raw.decode("utf-8", "replace")
        value = parse_yaml(text, self.path) if document is None else document
        version = cast("dict[str, Any]", value).get("version", 0) if isinstance(value, dict) else 0
        if isinstance(version, int) and version > VERSION:
            raise FutureVersion(
                f"this cassette has version {version}, newer than {VERSION}",
                path=self.path,
                line=find_line(text, "version"),
                hint="upgrade Offbook to read it",
            )
        header = convert(value, CassetteHeader, path=self.path, text=text)
        if header.format != FORMAT:
            raise FormatError(
                f"this is a {header.format!r}, not a cassette",
                path=self.path,
                line=find_line(text, "format"),
                hint=f"a cassette says `format: {FORMAT}`",
            )
        self._top = text
        with self.blaming():
            Redaction(header.redactions, environment={})
        return header

    @contextmanager
    def blaming(self) -> Generator[None]:
        """Inside, what is wrong with a redaction of this file is told with its line."""
        try:
            yield
        except FormatError:
            raise
        except UsageError as error:
            rule = _RULE.match(error.where)
            if rule is None or not _has_rule(self._top, rule[2]):
                raise
            line = find_rule(self._top, rule[1], rule[2] or "")
            what = f"{error.where}: {error.what}"
            raise FormatError(what, path=self.path, line=line, hint=error.hint) from error

    def _parse(self, start: int, end: int, line: int) -> Interaction:
        text = self._text(start, end, line)
        try:
            (item,) = cast("list[Any]", parse_yaml(text, self.path))
            return convert(expand_short_messages(item), Interaction, path=self.path, text=text)
        except FormatError as error:
            at = line + (error.line or 1) - 1
            hint = error.hint or _MEND
            raise FormatError(error.what, path=self.path, line=at, hint=hint) from error

    def _text(self, start: int, end: int, line: int = 1) -> str:
        try:
            return self.raw[start:end].decode()
        except UnicodeDecodeError as error:
            at = line + self.raw.count(b"\n", start, start + error.start)
            raise FormatError(
                f"not a UTF-8 text: {error.reason}", path=self.path, line=at
            ) from error

    def _entry(self, item: Interaction, number: int, start: int, end: int, line: int) -> Entry:
        asked = item.request
        if not _HEX.fullmatch(asked.prompt_hash) and not asked.prompt_hash.startswith("sha256:"):
            raise FormatError(
                f"interaction {number}: prompt_hash is {asked.prompt_hash!r}, not sha256:…",
                path=self.path,
                line=line,
                hint="`offbook cassette upgrade` makes the hashes anew",
            )
        kept = bool(asked.prompt is not None or asked.messages or asked.after or asked.again)
        return Entry(
            number,
            item.id or number,
            asked.hat,
            asked.prompt_hash,
            start,
            end,
            line,
            asked.after,
            asked.again,
            asked.head,
            item.at_ms,
            item.response.duration_ms,
            kept,
            asked.prompt is not None or not kept,
        )

    def _lineage(self, entry: Entry) -> list[Entry]:
        """The interactions that this one goes on from, the latest first, itself included."""
        found = [entry]
        while (before := entry.after or entry.again) is not None:
            entry = self.named(before)
            found.append(entry)
        return found

    # ----------------------------------------------------------------------------- answering

    def __len__(self) -> int:
        return len(self.entries)

    def named(self, identity: int) -> Entry:
        """The entry with this id."""
        return self.entries[self._numbers[identity] - 1]

    def read(self, entry: Entry) -> Interaction:
        """All of an interaction."""
        if self._values is not None:
            return self._values[entry.number - 1]
        return self._parse(entry.start, entry.end, entry.line)

    def answer(self, entry: Entry) -> RecordedResponse:
        """The response of an interaction, without its request being read again."""
        begins = self.raw.find(self._response, entry.start, entry.end)
        if begins < 0 or self._values is not None:
            return self.read(entry).response
        text = self.raw[begins : entry.end].decode()
        try:
            return msgspec.convert(parse_yaml(text)["response"], RecordedResponse)
        except (FormatError, msgspec.ValidationError):
            return self.read(entry).response

    def __iter__(self) -> Iterator[Interaction]:
        return (self.read(entry) for entry in self.entries)

    def head(self, entry: Entry, asked: RecordedRequest | None = None) -> RequestSettings:
        """The head of a request: its own, or that of the interaction it names."""
        asked = asked or self.read(entry).request
        if asked.head is not None and asked.head != entry.id:
            asked = self.read(self.named(asked.head)).request
        return RequestSettings(asked.model, asked.system, asked.tools, asked.parameters)

    def messages(self, entry: Entry) -> tuple[Message, ...]:
        """The whole conversation of a request, its ids numbered."""
        ids: dict[str, str] = {}
        found: list[Message] = []
        lineage = self._lineage(entry)
        for at, earlier in enumerate(reversed(lineage), 1):
            item = self.read(earlier)
            found += [register_call_ids(message, ids) for message in item.request.messages]
            following = lineage[-at - 1] if at < len(lineage) else None
            if following is not None and following.after is not None:
                reply = Message("assistant", item.response.said)
                found.append(number_call_ids(reply, ids))
        return tuple(found)

    def chains(
        self, normal: Normalizer
    ) -> dict[int, tuple[ConversationDigest, ConversationDigest]]:
        """By id: the conversation as it was asked, and as it was answered."""
        found: dict[int, tuple[ConversationDigest, ConversationDigest]] = {}
        for wanted in self.entries:
            for entry in reversed(self._untold(wanted, found)):
                item = self.read(entry)
                begin = ConversationDigest(ids={})
                if entry.after is not None:
                    begin = found[entry.after][1]
                elif entry.again is not None:
                    begin = found[entry.again][0]
                asked = normal.follow(begin, item.request.messages, counted=True)
                found[entry.id] = asked, normal.follow_reply(asked, item.response.said)
        return found

    def _untold(
        self, entry: Entry, found: dict[int, tuple[ConversationDigest, ConversationDigest]]
    ) -> list[Entry]:
        listed: list[Entry] = []
        at: int | None = entry.id
        while at is not None and at not in found:
            entry = self.named(at)
            listed.append(entry)
            at = entry.after or entry.again
        return listed

    def hashes(self, normal: Normalizer) -> list[str]:
        """The hashes of all requests, made anew where these rules are not those of the file."""
        stored = [entry.hash for entry in self.entries]
        if normal.seal == self.header.hashed or not any(entry.kept for entry in self.entries):
            return stored
        return self.rehash(normal)

    def rehash(self, normal: Normalizer) -> list[str]:
        """The hashes of all requests that are kept, made anew; those of the others as they are."""
        with self.blaming():
            return self._rehash(normal)

    def _rehash(self, normal: Normalizer) -> list[str]:
        chains = self.chains(normal)
        heads: dict[int, bytes] = {}
        made: list[str] = []
        for entry in self.entries:
            if (
                not entry.kept or entry.hash == ANY_HASH
            ):  # which somebody may have written on purpose
                made.append(entry.hash)
                continue
            asked = self.read(entry).request
            if asked.prompt is not None:
                made.append(normal.hash_prompt(asked.prompt))
                continue
            owner = entry.head or entry.id
            if owner not in heads:
                heads[owner] = normal.digest_head(self.read(self.named(owner)).request)
            made.append(normal.seal_hash(heads[owner], chains[entry.id][0]))
        return made


def _has_rule(top: str, named: str | None) -> bool:
    return find_line(top, "redactions") is not None and (named is None or named in top)


def normalize_newlines(raw: bytes) -> bytes:
    """The text as YAML has it: without a mark before it, each line ending in one sign."""
    raw = raw.removeprefix(BOM)
    return raw.replace(b"\r\n", b"\n") if b"\r\n" in raw else raw


def write_cassette_bytes(path: Path, raw: bytes) -> None:
    """Write a cassette whole, with the line ends of the one that was there."""
    with suppress(OSError), path.open("rb") as file:
        if file.readline().endswith(b"\r\n"):
            raw = raw.replace(b"\n", b"\r\n")
    write_atomic(path, raw, mode=PRIVATE_MODE)


def read_cassette_bytes(path: Path) -> bytes:
    """A cassette's bytes."""
    try:
        if path.stat().st_size > MAX_FILE_SIZE:
            raise FormatError(f"the file is larger than {MAX_FILE_SIZE >> 20} MiB", path=path)
        return normalize_newlines(path.read_bytes())
    except FileNotFoundError as error:
        known = sorted(other.name for other in path.parent.glob(f"*{path.suffix or '.yaml'}"))
        raise FormatError(
            "there is no such cassette", path=path, hint=did_you_mean(path.name, known)
        ) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise FormatError(f"cannot be read: {why}", path=path) from error


@lru_cache(maxsize=KEPT)
def _cached(path: Path, _stamp: tuple[int, ...]) -> CassetteFile:
    return CassetteFile(read_cassette_bytes(path), path)


def open_cassette_file(path: Path) -> CassetteFile:
    """A cassette; an unchanged file is not read twice."""
    try:
        stat = path.stat()
    except OSError:
        return CassetteFile(read_cassette_bytes(path), path)
    return _cached(path, (stat.st_mtime_ns, stat.st_size, stat.st_ino))
