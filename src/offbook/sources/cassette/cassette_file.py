"""A cassette file in memory: its bytes, its header and an index of its interactions.

Opening a file reads and checks all of it, one interaction after the other. In memory stay only
the bytes and a small index; an interaction is parsed again when it is needed. So a large
cassette costs little more memory than its size, and opening it a second time almost nothing.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import FormatError, UsageError, did_you_mean
from offbook.exchange.messages import Message
from offbook.files import BOM, MAX_FILE_SIZE, convert, parse_yaml, require_kind, write_atomic
from offbook.sources.cassette.format import (
    ANY_HASH,
    FORMAT,
    VERSION,
    CassetteHeader,
    ConversationDigest,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    RequestSettings,
    expand_short_messages,
    number_call_ids,
    register_call_ids,
)
from offbook.trace.redaction import Redaction

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from offbook.sources.cassette.format import Normalizer

INDENT = 2
OPEN_FILES = 8
PRIVATE_MODE = 0o600  # a cassette holds prompts and answers: only its owner may read it
_INTERACTIONS_KEY = re.compile(rb"^interactions:[ \t]*(?:#[^\n]*)?\n", re.MULTILINE)
_FIRST_DASH = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\n)*( *)- ")
_TOP_LEVEL_KEY = re.compile(rb"^[^\s#]", re.MULTILINE)
_BLANK = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?:#[^\n]*)?")
_RECORDED = re.compile(rb"^# recorded: (\S+)", re.MULTILINE)
_REDACTION_FIELD = re.compile(r"redactions\.?(patterns|paths|presets)?(?:\['(.*)'\])?")
_FIX = "compare it with docs/guides/record-replay.md, or record it again"


class ItemsSpan(msgspec.Struct, frozen=True):
    """The part of the file that holds the interactions, and the indentation of their dashes."""

    start: int
    end: int
    indent: int


class Entry(msgspec.Struct, frozen=True):
    """The index entry of an interaction: everything that a replay needs to choose it.

    `start`, `end` and `line` are its position in the file. `has_request` is false if only the
    hash of the request is stored; `prompt_only` is true if the hash is that of a prompt. `inside`
    is the tool that sent the request.
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
    started_ms: int | None
    duration_ms: float
    has_request: bool
    prompt_only: bool
    inside: str = ""


class CassetteFile:
    """A cassette, read and checked; with `keep`, its interactions stay parsed."""

    def __init__(self, raw: bytes, path: Path | str = "", *, keep: bool = False) -> None:
        raw = normalize_newlines(raw)
        self.path = path
        self.raw = raw
        self.digest = blake2b(raw, digest_size=16).hexdigest()
        self.span = find_items(raw)
        # The parsed interactions, if they are kept or the file was parsed as one document.
        self._values: list[Interaction] | None = [] if keep else None
        self._response_key = b"\n%*bresponse:" % (
            self.span.indent + INDENT if self.span else 0,
            b"",
        )
        self.header, self.entries = self._read()
        self._numbers = self._number_entries()

    def find(self, number: int) -> Entry:
        """Return the entry of a number, or raise a UsageError."""
        if 1 <= number <= len(self.entries):
            return self.entries[number - 1]
        hint = f"interactions are numbered from 1 to {len(self.entries)}"
        raise UsageError(f"no interaction {number}", where=str(self.path), hint=hint)

    # ------------------------------------------------------------------------------ reading

    def _read(self) -> tuple[CassetteHeader, list[Entry]]:
        if self.span is None:
            return self._read_whole()
        start, end = self.span.start, self.span.end
        # Line ends in place of the interactions keep the line numbers of error messages right.
        lines = b"\n" * self.raw.count(b"\n", start, end)
        header = self._parse_header(self.raw[:start] + lines + self.raw[end:])
        entries: list[Entry] = []
        line = self.raw.count(b"\n", 0, start) + 1
        try:
            for number, (first, last) in enumerate(split_items(self.raw, self.span), 1):
                if number == 1:
                    line += self.raw.count(b"\n", start, first)
                interaction = self._parse_interaction(first, last, line)
                entries.append(self._make_entry(interaction, number, first, last, line))
                if self._values is not None:
                    self._values.append(interaction)
                line += self.raw.count(b"\n", first, last)
        except FormatError:
            if b"&" not in self.raw:
                raise
            return self._read_whole()  # an alias may refer to another interaction
        return header, entries

    def _read_whole(self) -> tuple[CassetteHeader, list[Entry]]:
        """Parse the file as one document: slower, but any spelling of YAML is understood."""
        text = self._decode(0, len(self.raw))
        document = parse_yaml(text, self.path)
        if not isinstance(document, dict) or "interactions" not in document:
            require_kind(Path(self.path), "cassette")
            raise FormatError(
                "not a cassette: the key 'interactions' is missing", path=self.path, hint=_FIX
            )
        fields = cast("dict[str, Any]", document)
        listed: Any = fields["interactions"] or []
        items = convert(listed, list[Any], path=self.path, text=text, at="$.interactions")
        header = self._parse_header(text.encode(), {**fields, "interactions": None})
        located = "" if self.span is None else text
        self._values = [
            convert(expand_short_messages(item), Interaction, path=self.path, text=located)
            for item in items
        ]
        spans = [*split_items(self.raw, self.span)][: len(items)] if self.span else []
        positions = [*spans, *[(0, 0)] * (len(self._values) - len(spans))]
        entries = [
            self._make_entry(value, number, *position, self.raw.count(b"\n", 0, position[0]) + 1)
            for number, (value, position) in enumerate(zip(self._values, positions, strict=True), 1)
        ]
        return header, entries

    def _parse_header(self, raw: bytes, document: Any = None) -> CassetteHeader:
        text = raw.decode("utf-8", "replace")
        value = parse_yaml(text, self.path) if document is None else document
        version = cast("dict[str, Any]", value).get("version", 0) if isinstance(value, dict) else 0
        # Before everything else: a newer file may have keys that are unknown here.
        if isinstance(version, int) and version > VERSION:
            raise FormatError(
                f"unsupported cassette version {version}, the newest known is {VERSION}",
                path=self.path,
                line=_find_key(text, "version"),
                hint="upgrade Offbook to read it",
            )
        header = convert(value, CassetteHeader, path=self.path, text=text)
        if header.format != FORMAT:
            raise FormatError(
                f"not a cassette: expected format {FORMAT!r}, got {header.format!r}",
                path=self.path,
                line=_find_key(text, "format"),
                hint=f"a cassette has the line `format: {FORMAT}`",
            )
        self._header_text = text
        with self.locate_redaction_errors():
            Redaction(header.redactions, environment={})
        return header

    @contextmanager
    def locate_redaction_errors(self) -> Generator[None]:
        """Add the line in this file to errors about its redactions."""
        try:
            yield
        except FormatError:
            raise
        except UsageError as error:
            field = _REDACTION_FIELD.match(error.where)
            text = self._header_text
            section = _find_key(text, "redactions")
            # A rule that is not in this file was passed by the caller.
            if field is None or section is None or (field[2] is not None and field[2] not in text):
                raise
            line = _find_redaction(text, section, field[1], field[2] or "")
            raise FormatError(
                f"{error.where}: {error.what}", path=self.path, line=line, hint=error.hint
            ) from error

    def _parse_interaction(self, start: int, end: int, line: int) -> Interaction:
        text = self._decode(start, end, line)
        try:
            (item,) = cast("list[Any]", parse_yaml(text, self.path))
            return convert(expand_short_messages(item), Interaction, path=self.path, text=text)
        except FormatError as error:
            raise FormatError(
                error.what,
                path=self.path,
                line=line + (error.line or 1) - 1,
                hint=error.hint or _FIX,
            ) from error

    def _decode(self, start: int, end: int, line: int = 1) -> str:
        try:
            return self.raw[start:end].decode()
        except UnicodeDecodeError as error:
            line += self.raw.count(b"\n", start, start + error.start)
            raise FormatError(
                f"invalid UTF-8: {error.reason}", path=self.path, line=line
            ) from error

    def _make_entry(
        self, interaction: Interaction, number: int, start: int, end: int, line: int
    ) -> Entry:
        request = interaction.request
        if not request.prompt_hash.startswith("sha256:"):
            raise FormatError(
                f"interaction {number}: expected a prompt_hash that begins with 'sha256:', "
                f"got {request.prompt_hash!r}",
                path=self.path,
                line=line,
                hint=f"write {ANY_HASH!r} to match every request",
            )
        # The oldest cassettes have only the hash and a preview of the request.
        has_request = bool(
            request.prompt is not None or request.messages or request.after or request.again
        )
        return Entry(
            number,
            interaction.id or number,
            request.hat,
            request.prompt_hash,
            start,
            end,
            line,
            request.after,
            request.again,
            request.head,
            interaction.at_ms,
            interaction.response.duration_ms,
            has_request,
            request.prompt is not None or not has_request,
            interaction.inside,
        )

    def _number_entries(self) -> dict[int, int]:
        """Return the number of each interaction by its id; raise for a wrong reference."""
        numbers: dict[int, int] = {}
        for entry in self.entries:
            if entry.id in numbers:
                other = self.entries[numbers[entry.id] - 1]
                raise FormatError(
                    f"duplicate interaction id {entry.id}, also in line {other.line}",
                    path=self.path,
                    line=entry.line,
                    hint="change one of them, and each `after`, `again` or `head` that means it",
                )
            numbers[entry.id] = entry.number
        for entry in self.entries:
            for name in ("after", "again", "head"):
                target = getattr(entry, name)
                if target is not None and target not in numbers:
                    raise FormatError(
                        f"interaction {entry.number}: `{name}` refers to {target}, "
                        "but no interaction has that id",
                        path=self.path,
                        line=entry.line,
                        hint=did_you_mean(str(target), map(str, numbers)),
                    )
        # Follow each conversation to its first interaction; stop where the way is known.
        followed: set[int] = set()
        for entry in self.entries:
            visited: list[int] = []
            current = entry
            while current.id not in followed and (before := current.after or current.again):
                visited.append(current.id)
                if before in visited:
                    raise FormatError(
                        f"interaction {entry.number} refers to itself",
                        path=self.path,
                        line=entry.line,
                        hint="let `after` and `again` name an earlier interaction",
                    )
                current = self.entries[numbers[before] - 1]
            followed.update(visited)
        return numbers

    # ------------------------------------------------------------------------ interactions

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Interaction]:
        return (self.read(entry) for entry in self.entries)

    def entry_by_id(self, identity: int) -> Entry:
        """Return the entry with this id."""
        return self.entries[self._numbers[identity] - 1]

    @property
    def recorded(self) -> datetime | None:
        """When it was recorded, by the comment at its top; None if it does not say so."""
        match = _RECORDED.search(self.raw)
        try:
            time = datetime.fromisoformat(match[1].decode()) if match else None
        except ValueError:
            return None
        return time.replace(tzinfo=time.tzinfo or UTC) if time else None

    def continuations(self, entry: Entry) -> list[int]:
        """Return the numbers of the interactions that continue the conversation of this one."""
        following = {entry.id}
        for later in self.entries:
            if {later.after, later.again} & following:
                following.add(later.id)
        return [e.number for e in self.entries if e.id in following and e.id != entry.id]

    def read(self, entry: Entry) -> Interaction:
        """Return a whole interaction."""
        if self._values is not None:
            return self._values[entry.number - 1]
        return self._parse_interaction(entry.start, entry.end, entry.line)

    def read_response(self, entry: Entry) -> RecordedResponse:
        """Return the response of an interaction.

        A replay reads every response and seldom a request: parsing half of the text halves the
        cost of a call.
        """
        start = self.raw.find(self._response_key, entry.start, entry.end)
        if start < 0 or self._values is not None:
            return self.read(entry).response
        text = self.raw[start : entry.end].decode()
        try:
            return msgspec.convert(parse_yaml(text)["response"], RecordedResponse)
        except (FormatError, msgspec.ValidationError):
            return self.read(entry).response

    def settings(self, entry: Entry, request: RecordedRequest | None = None) -> RequestSettings:
        """Return the settings of a request: stored with it, or with the one that `head` names."""
        request = request or self.read(entry).request
        if request.head is not None and request.head != entry.id:
            request = self.read(self.entry_by_id(request.head)).request
        return RequestSettings(request.model, request.system, request.tools, request.parameters)

    def messages(self, entry: Entry) -> tuple[Message, ...]:
        """Return the whole conversation of a request, its call ids numbered."""
        lineage = [entry]
        while (before := lineage[-1].after or lineage[-1].again) is not None:
            lineage.append(self.entry_by_id(before))
        lineage.reverse()
        ids: dict[str, str] = {}
        messages: list[Message] = []
        for position, earlier in enumerate(lineage, 1):
            interaction = self.read(earlier)
            messages += [register_call_ids(m, ids) for m in interaction.request.messages]
            following = lineage[position] if position < len(lineage) else None
            if following is not None and following.after is not None:
                reply = Message("assistant", interaction.response.reply_blocks)
                messages.append(number_call_ids(reply, ids))
        return tuple(messages)

    # ------------------------------------------------------------------------------- hashes

    def conversation_digests(
        self, normalizer: Normalizer
    ) -> dict[int, tuple[ConversationDigest, ConversationDigest]]:
        """Return, by id, the digests of each conversation before and after its reply."""
        digests: dict[int, tuple[ConversationDigest, ConversationDigest]] = {}
        for wanted in self.entries:
            # The file may list an interaction before the one that it continues.
            pending: list[Entry] = []
            current: int | None = wanted.id
            while current is not None and current not in digests:
                pending.append(self.entry_by_id(current))
                current = pending[-1].after or pending[-1].again
            for entry in reversed(pending):
                interaction = self.read(entry)
                begun = ConversationDigest(ids={})
                if entry.after is not None:
                    begun = digests[entry.after][1]
                elif entry.again is not None:
                    begun = digests[entry.again][0]
                request = normalizer.extend(begun, interaction.request.messages, numbered=True)
                blocks = interaction.response.reply_blocks
                digests[entry.id] = request, normalizer.extend_with_reply(request, blocks)
        return digests

    def hashes(self, normalizer: Normalizer) -> list[str]:
        """Return the hashes of all requests, computed again only if the rules have changed."""
        if normalizer.fingerprint == self.header.hashed or not any(
            entry.has_request for entry in self.entries
        ):
            return [entry.hash for entry in self.entries]
        return self.rehash(normalizer)

    def rehash(self, normalizer: Normalizer) -> list[str]:
        """Compute the hashes of all requests; without a stored request the old hash stays."""
        with self.locate_redaction_errors():
            conversations = self.conversation_digests(normalizer)
            settings: dict[int, bytes] = {}
            hashes: list[str] = []
            for entry in self.entries:
                if not entry.has_request or entry.hash == ANY_HASH:  # it may be there on purpose
                    hashes.append(entry.hash)
                    continue
                request = self.read(entry).request
                if request.prompt is not None:
                    hashes.append(normalizer.hash_prompt(request.prompt))
                    continue
                owner = entry.head or entry.id
                if owner not in settings:
                    stored = self.read(self.entry_by_id(owner)).request
                    settings[owner] = normalizer.settings_digest(stored)
                hashes.append(normalizer.combine(settings[owner], conversations[entry.id][0]))
            return hashes


# -------------------------------------------------------------------------- positions in the text


def find_items(raw: bytes) -> ItemsSpan | None:
    """Return the span of the interactions, or None if they are not a block sequence.

    In a block sequence, text at the indentation of the dashes is never part of a value, so the
    interactions can be separated without parsing the file as a whole.
    """
    key = _INTERACTIONS_KEY.search(raw)
    if key is None:
        return None
    first = _FIRST_DASH.match(raw, key.end())
    if first is None:  # no interactions yet, or a flow sequence
        following = _TOP_LEVEL_KEY.search(raw, key.end())
        end = following.start() if following else len(raw)
        blank = _BLANK.fullmatch(raw, key.end(), end)
        return ItemsSpan(key.end(), end, INDENT) if blank else None
    indent = len(first[1])
    # "\n" and not "^": a literal character is found ten times as fast.
    after = rb"\n(?=[^\s#-])" if indent == 0 else rb"\n(?=[^\s#])"
    following = re.compile(after).search(raw, key.end() - 1)
    return ItemsSpan(key.end(), following.end() if following else len(raw), indent)


def split_items(raw: bytes, span: ItemsSpan) -> list[tuple[int, int]]:
    """Return the start and end of each interaction."""
    dash = re.compile(rb"\n {%d}- " % span.indent)
    starts = [match.start() + 1 for match in dash.finditer(raw, span.start - 1, span.end)]
    return list(zip(starts, [*starts[1:], *([span.end] if starts else [])], strict=True))


def _find_key(text: str, key: str) -> int | None:
    """Return the line of a top-level key."""
    match = re.search(rf"^{key}:", text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else None


def _find_redaction(text: str, section: int, kind: str, name: str) -> int:
    """Return the line of a redaction, of the list that it is in, or of the whole section."""
    lines = text.split("\n")
    for index in range(section, len(lines)):
        if lines[index][:1].strip():
            break
        if name and name in lines[index]:
            return index + 1
    in_list = (i for i in range(section, len(lines)) if lines[i].strip().startswith(f"{kind}:"))
    return next(in_list, section - 1) + 1


# ---------------------------------------------------------------------------- reading and writing


def normalize_newlines(raw: bytes) -> bytes:
    """Return a text without a byte order mark and with plain line ends."""
    raw = raw.removeprefix(BOM)
    # The search for one byte is twenty times as fast as that for two.
    return raw.replace(b"\r\n", b"\n") if b"\r" in raw else raw


def write_cassette_bytes(path: Path, raw: bytes) -> None:
    """Write a whole cassette, with the line ends of the file that it replaces."""
    # An editor on Windows may have written the file: a diff should show only the edit.
    with suppress(OSError), path.open("rb") as file:
        if file.readline().endswith(b"\r\n"):
            raw = raw.replace(b"\n", b"\r\n")
    write_atomic(path, raw, mode=PRIVATE_MODE)


def read_cassette_bytes(path: Path) -> bytes:
    """Return the bytes of a cassette, its line ends normalized."""
    try:
        if path.stat().st_size > MAX_FILE_SIZE:
            raise FormatError(f"the file is larger than {MAX_FILE_SIZE >> 20} MiB", path=path)
        return normalize_newlines(path.read_bytes())
    except FileNotFoundError as error:
        known = sorted(other.name for other in path.parent.glob(f"*{path.suffix or '.yaml'}"))
        hint = did_you_mean(path.name, known)
        if not hint.startswith("did you mean"):
            hint = f"record it: offbook record {path} -- COMMAND"
        raise FormatError("no such cassette", path=path, hint=hint) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise FormatError(f"cannot read the cassette: {reason}", path=path) from error


@lru_cache(maxsize=OPEN_FILES)
def _open_cached(path: Path, _stamp: tuple[int, ...]) -> CassetteFile:
    return CassetteFile(read_cassette_bytes(path), path)


def open_cassette_file(path: Path, *, keep: bool = False) -> CassetteFile:
    """Open a cassette; an unchanged file is read only once."""
    if not keep:
        with suppress(OSError):  # reading the file explains the error
            stat = path.stat()
            return _open_cached(path, (stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return CassetteFile(read_cassette_bytes(path), path, keep=keep)


def journal_path(path: Path) -> Path:
    """Return the path of a cassette's journal."""
    return path.with_name(f".{path.name}.journal")
