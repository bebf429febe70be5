"""The journal of a recording: a killed recorder loses nothing that was finished.

Each finished interaction is one line of JSON in a file next to the cassette, written at once.
When the recording ends, or when the cassette is opened after a crash, the lines are merged into
the cassette and the journal is removed. The recorder holds the lock of its journal, so a second
recorder of the same cassette is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import FormatError, RunError, UsageError
from offbook.files import (
    close_locked,
    dump_round_trip,
    dump_yaml,
    load_round_trip,
    parse_yaml,
    schema_comment,
    try_lock,
)
from offbook.secrets import hide_bytes, known_secret_bytes
from offbook.sources.cassette.cassette_file import (
    INDENT,
    PRIVATE_MODE,
    CassetteFile,
    journal_path,
    open_cassette_file,
    read_cassette_bytes,
    write_cassette_bytes,
)
from offbook.sources.cassette.format import (
    FORMAT,
    MODEL_VERSION,
    VERSION,
    CassetteTitle,
    Interaction,
    RecordedAnswer,
    RecordedFile,
    RecordedHttp,
    RecordedTool,
    interaction_to_dict,
)
from offbook.trace.recorder import encode_unknown, write_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from offbook.sources.cassette.cassette_file import Entry


_COMMENT_OR_BLANK = re.compile(r"[ \t]*(?:#.*)?\n?")
_COMMENTS_AT_END = re.compile(rb"(?:^[ \t]*#[^\n]*\n)+\Z", re.MULTILINE)
_INDENTED_COMMENTS = re.compile(rb"(?:\s*^[ \t]+#[^\n]*(?:\n|\Z))*", re.MULTILINE)
_BLANK_LINES = re.compile(rb"(?:[ \t]*\n)*")
# Comments, directives and the document marker before the first key.
_PREFACE = re.compile(rb"(?:[ \t]*(?:#[^\n]*)?\n|%[^\n]*\n|---[ \t]*\n)*")
_DOCUMENT_END = re.compile(rb"^\.\.\.", re.MULTILINE)


def new_cassette(title: CassetteTitle) -> bytes:
    """Return the text of a cassette without interactions."""
    notes = {"cassette": title.name, "recorded": title.recorded, "backend": title.backend}
    comments = "".join(
        f"# {key}: {' '.join(note.split())}\n" for key, note in notes.items() if note
    )
    header: dict[str, Any] = {"format": FORMAT, "version": MODEL_VERSION}
    if title.tracks:
        header |= {"version": VERSION, "tracks": list(title.tracks)}
    if title.clock is not None:
        header["clock"] = msgspec.to_builtins(title.clock)
    header["hashed"] = title.hashed
    if title.redactions:
        header["redactions"] = title.redactions
    return f"{comments}{dump_yaml(header)}\ninteractions:\n".encode()


def as_block_sequence(file: CassetteFile) -> CassetteFile:
    """Return the cassette with its interactions as a block sequence, which can be edited.

    A file that has them in flow style ("[{…}, {…}]") is written again as a whole; of its
    comments only those at the top are kept.
    """
    if file.span is not None:
        return file
    preface = _PREFACE.match(file.raw)
    header = msgspec.to_builtins(file.header)
    metadata = header.pop("metadata", {})
    top = {"format": FORMAT, "version": file.header.version, **header}
    text = f"{preface[0].decode() if preface else ''}{dump_yaml(top)}\ninteractions:\n"
    text += "\n".join(dump_yaml([interaction_to_dict(item)], INDENT) for item in file)
    text += f"\n{dump_yaml({'metadata': metadata})}" if metadata else ""
    return CassetteFile(text.encode(), file.path)


def append_interactions(raw: bytes, interactions: Iterable[Interaction]) -> bytes:
    """Return the text with more interactions at the end of the list."""
    file = as_block_sequence(CassetteFile(raw))
    raw, span = file.raw, file.span
    assert span is not None  # noqa: S101 - the interactions are a block sequence now
    new = "\n".join(dump_yaml([interaction_to_dict(item)], span.indent) for item in interactions)
    if not new:
        return raw
    end, gap = span.start, ""
    if file.entries:
        end, gap = _content_end(file, file.entries[-1]), "\n"
        # Indented comments after the last interaction belong to it, others to what follows.
        if comments := _INDENTED_COMMENTS.match(raw, end, span.end):
            end = comments.end()
    before = raw[:end] if raw[:end].endswith(b"\n") else raw[:end] + b"\n"
    after = raw[end:]
    if after and not after.startswith(b"\n"):
        after = b"\n" + after
    return before + f"{gap}{new}".encode() + after


def remove_interactions(file: CassetteFile, numbers: Collection[int]) -> bytes:
    """Return the text without these interactions and the comments directly above them."""
    assert file.span is not None  # noqa: S101 - the caller has made it a block sequence
    raw = file.raw
    parts: list[bytes] = []
    copied = 0
    previous_end = file.span.start
    for entry in file.entries:
        end = _content_end(file, entry)
        if entry.number in numbers:
            above = _COMMENTS_AT_END.search(raw[previous_end : entry.start])
            start = previous_end + above.start() if above else entry.start
            parts.append(raw[copied:start])
            blank = _BLANK_LINES.match(raw, end, entry.end)
            copied = blank.end() if blank else end
        previous_end = end
    parts.append(raw[copied:])
    return b"".join(parts)


def _content_end(file: CassetteFile, entry: Entry) -> int:
    """Return the end of an interaction without the comments and blank lines after it.

    Only a parser can tell a comment from the last line of a block text that begins with "#": a
    line is a comment if the value is the same without it.
    """
    text = file.raw[entry.start : entry.end].decode()
    lines = text.splitlines(keepends=True)
    try:
        value = parse_yaml(text)
        while len(lines) > 1 and _COMMENT_OR_BLANK.fullmatch(lines[-1]):
            if parse_yaml("".join(lines[:-1])) != value:
                break
            lines.pop()
    except FormatError:  # it has an alias for something outside: keep its comments with it
        pass
    return entry.start + len("".join(lines).encode())


def update_interactions(file: CassetteFile, changed: Mapping[int, Interaction]) -> bytes:
    """Return the text with these interactions, by number, in place of the old ones."""
    assert file.span is not None  # noqa: S101 - the caller has made it a block sequence
    parts: list[bytes] = []
    copied = 0
    for entry in file.entries:
        if entry.number not in changed:
            continue
        end = _content_end(file, entry)
        text = file.raw[entry.start : end].decode()
        try:
            (written,) = cast("list[Any]", parse_yaml(text, file.path))
        except FormatError as error:  # the file as a whole could be parsed
            raise FormatError(
                f"interaction {entry.number} has an alias (*name) for a value outside it",
                path=file.path,
                line=entry.line,
                hint="write the value in place of the alias, then try again",
            ) from error
        before = interaction_to_dict(file.read(entry))
        wanted = _apply_changes(written, before, interaction_to_dict(changed[entry.number]))
        # The item without its dash is a mapping; its first key gives the indentation.
        dash = re.match(r" *- +", text)
        width = dash.end() if dash else file.span.indent + INDENT
        body = re.sub(rf"^ {{1,{width}}}", "", " " * width + text[width:], flags=re.MULTILINE)
        edited = re.sub(r"^(?=.)", " " * width, edit_mapping(body, wanted), flags=re.MULTILINE)
        item = text[:width] + edited[width:]
        parts += [file.raw[copied : entry.start], item.encode()]
        copied = end
    parts.append(file.raw[copied:])
    return b"".join(parts)


def _apply_changes(written: Any, before: Any, after: Any) -> Any:
    """Return what is written, changed where `after` differs from `before`.

    A key that the file spells out although its value is the default stays.
    """
    if before == after:
        return written
    if not (isinstance(written, dict) and isinstance(before, dict) and isinstance(after, dict)):
        return after
    old, new = cast("dict[str, Any]", before), cast("dict[str, Any]", after)
    fields = cast("dict[str, Any]", written)
    merged = {
        key: _apply_changes(value, old.get(key), new[key]) if key in new else value
        for key, value in fields.items()
        if key in new or key not in old
    }
    ordered = {key: merged.get(key, new[key]) for key in new}
    return {**ordered, **merged}


def update_header(file: CassetteFile, changes: Mapping[str, Any]) -> bytes:
    """Return the text with these keys of the header set."""
    file = as_block_sequence(file)
    assert file.span is not None  # noqa: S101 - the interactions are a block sequence now
    raw, span = file.raw, file.span
    preface = _PREFACE.match(raw, 0, span.start)
    top_start = preface.end() if preface else 0
    document_end = _DOCUMENT_END.search(raw, span.end)
    bottom_end = document_end.start() if document_end else len(raw)
    top = raw[top_start : span.start].decode()
    bottom = raw[span.end : bottom_end].decode()
    top_keys = cast("dict[str, Any]", parse_yaml(top))
    bottom_keys = cast("dict[str, Any]", parse_yaml(bottom) or {})
    interactions = {"interactions": top_keys.pop("interactions")}
    for key, value in changes.items():
        # Metadata are totals: a new section goes below the interactions.
        below = key in bottom_keys or (key == "metadata" and key not in top_keys)
        (bottom_keys if below else top_keys)[key] = value
    items = raw[span.start : span.end]
    if not bottom.strip() and bottom_keys:
        bottom = dump_yaml(bottom_keys)
        items = items if items.endswith(b"\n\n") or not items else items + b"\n"
    elif bottom_keys:
        bottom = edit_mapping(bottom, bottom_keys)
    top = edit_mapping(top, {**top_keys, **interactions})
    return raw[:top_start] + top.encode() + items + bottom.encode() + raw[bottom_end:]


# -------------------------------------------------------------------------------- YAML mappings


def edit_mapping(text: str, wanted: dict[str, Any]) -> str:
    """Return the text of a mapping with the wanted value and with its comments."""
    current = cast("dict[str, Any]", parse_yaml(text))
    if _is_same(current, wanted):
        return text
    try:
        document = load_round_trip(text)
        _update_node(document, current, wanted)
        edited = dump_round_trip(document, text)
        if _is_same(parse_yaml(edited), wanted):
            return edited
    except FormatError:
        pass
    return dump_yaml(wanted)  # the value counts more than comments that cannot be kept


def _is_same(one: Any, other: Any) -> bool:
    # Python calls 1, 1.0 and True equal, YAML does not.
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(other, order="sorted")


def _update_node(node: Any, current: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Change an editable mapping from the current value to the wanted one."""
    for key in [key for key in current if key not in wanted]:
        comments = _comments(node[key]) + _comments(node.ca.items.pop(key, None))
        keys = list(node)
        following = keys[keys.index(key) + 1 :]
        del node[key]
        if following:
            _comment_before(node, following[0], comments)
    previous = -1
    for key, value in wanted.items():
        if key not in current:
            node.insert(previous + 1, key, _editable(value))
        elif not _is_same(current[key], value):
            if isinstance(current[key], dict) and isinstance(value, dict) and current[key]:
                _update_node(node[key], current[key], cast("dict[str, Any]", value))
            else:
                comments = _comments(node[key])
                note = node.ca.items.get(key, [None] * 3)[2]
                if note is not None and "\n" in str(current[key]):
                    # It is below a block text: keep it from the line of a shorter value.
                    note.value = f"\n{' ' * node.lc.col}{note.value}"
                node[key] = _editable(value)
                _comment_before(node, key, comments)
        previous = list(node).index(key)


def _editable(value: Any) -> Any:
    """Return a value as nodes of the round-trip library, in the style of `dump_yaml`."""
    return load_round_trip(dump_yaml({"value": value}))["value"]


def _comments(node: Any) -> list[str]:
    """Return all comments inside a node, or inside the comment tokens of a key."""
    own: Any = getattr(node, "ca", None)
    if own is not None:
        values = list(cast("dict[str, Any]", node).values()) if isinstance(node, dict) else node
        parts = [own.comment, *own.items.values(), own.end, *cast("list[Any]", values)]
    elif isinstance(node, (list, tuple)):
        parts = [*cast("list[Any]", node)]
    else:
        lines = str(getattr(node, "value", "") or "").splitlines()
        return [line.strip() for line in lines if line.strip().startswith("#")]
    return [line for part in parts for line in _comments(part)]


def _comment_before(node: Any, key: str, comments: list[str]) -> None:
    if comments:
        text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in comments)
        node.yaml_set_comment_before_after_key(key, before=text, indent=node.lc.col)


# ----------------------------------------------------------------------------------- the journal


class JournalOpening(msgspec.Struct, frozen=True, tag="opening"):
    """The first line: the recording process and the title of a new cassette."""

    pid: int
    title: CassetteTitle
    fresh: bool = False


class JournalInteraction(msgspec.Struct, frozen=True, tag="finished"):
    """A finished interaction; `place` is its position in the order of their starts."""

    place: int
    interaction: Interaction


# Items of other tracks than the model: `after` is the id of the interaction before, or 0.


class JournalTool(msgspec.Struct, frozen=True, tag="tool"):
    """An execution of a tool."""

    after: int
    item: RecordedTool = msgspec.field(name="tool")


class JournalAnswer(msgspec.Struct, frozen=True, tag="answer"):
    """An answer of a person."""

    after: int
    item: RecordedAnswer = msgspec.field(name="answer")


class JournalHttp(msgspec.Struct, frozen=True, tag="http"):
    """A request to another server."""

    after: int
    item: RecordedHttp = msgspec.field(name="http")


class JournalFile(msgspec.Struct, frozen=True, tag="file"):
    """A file that a command changed."""

    after: int
    item: RecordedFile = msgspec.field(name="file")


class JournalMerged(msgspec.Struct, frozen=True, tag="folded"):
    """The last line: the cassette with this digest contains everything above."""

    digest: str


JournalTrack = JournalTool | JournalAnswer | JournalHttp | JournalFile
TrackItem = RecordedTool | RecordedAnswer | RecordedHttp | RecordedFile
# The line of an item, and the field of its interaction.
TRACKS: dict[type[TrackItem], tuple[Callable[[int, Any], JournalTrack], str]] = {
    RecordedTool: (JournalTool, "tools"),
    RecordedAnswer: (JournalAnswer, "people"),
    RecordedHttp: (JournalHttp, "http"),
    RecordedFile: (JournalFile, "files"),
}
JournalLine = JournalOpening | JournalInteraction | JournalTrack | JournalMerged
_decode = msgspec.json.Decoder(JournalLine).decode


class Journal:
    """The open journal of a cassette; `fresh` replaces the cassette at the end."""

    def __init__(self, path: Path, title: CassetteTitle, *, fresh: bool = False) -> None:
        self.path = path
        self._encode = msgspec.json.Encoder(enc_hook=encode_unknown).encode
        self._secrets = known_secret_bytes()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._is_open = True
        self.failure: RunError | None = None
        self.file = _open_locked(path)
        if os.fstat(self.file).st_size:  # left by a recorder that was killed
            _merge(path, self.file, {"interrupted": True}, keep=True)
            os.ftruncate(self.file, 0)
        self._write(JournalOpening(os.getpid(), title, fresh))

    def add(self, place: int, interaction: Interaction) -> None:
        """Write a finished interaction."""
        self._write(JournalInteraction(place, interaction))

    def add_track(self, after: int, item: TrackItem) -> None:
        """Write an item of another track, after the interaction with this id."""
        self._write(TRACKS[type(item)][0](after, item))

    def _write(self, line: JournalLine) -> None:
        if not self._is_open:
            raise UsageError("the recording is closed", where=str(self.path))
        raw = hide_bytes(self._encode(line), self._secrets)
        try:
            _decode(raw)
        except msgspec.MsgspecError:  # a secret is also one of our keys: hide it in values only
            raw = self._encode(
                self._hide_values(msgspec.to_builtins(line, enc_hook=encode_unknown))
            )
        try:
            write_line(self.file, raw + b"\n")
        except OSError as error:
            self.failure = _write_error(error, self.path)
            raise self.failure from error

    def _hide_values(self, value: Any) -> Any:
        if isinstance(value, str):
            return hide_bytes(value.encode(errors="replace"), self._secrets).decode()
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            hidden = {name: self._hide_values(field) for name, field in fields.items()}
            return {**hidden, "type": fields["type"]} if "type" in fields else hidden
        if isinstance(value, (list, tuple)):
            return [self._hide_values(item) for item in cast("list[Any]", value)]
        return value

    def close(self, metadata: Mapping[str, Any] | None = None) -> bytes | None:
        """Merge everything into the cassette and remove the journal. Idempotent."""
        if not self._is_open:
            return None
        self._is_open = False
        try:
            return _merge(self.path, self.file, metadata or {})
        except OSError as error:
            raise _write_error(error, self.path) from error
        finally:
            close_locked(self.file)

    def discard(self) -> None:
        """Remove the journal and leave the cassette unchanged. Idempotent."""
        if self._is_open:
            self._is_open = False
            journal_path(self.path).unlink(missing_ok=True)
            close_locked(self.file)


def _write_error(error: OSError, path: Path) -> RunError:
    return RunError(
        f"cannot write the cassette: {error.strerror or error}",
        where=str(path),
        hint=f"free some disk space; the recording so far is in {journal_path(path)} and is "
        "merged into the cassette when it is opened next",
    )


def _open_locked(path: Path) -> int:
    journal = journal_path(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
    while True:
        file = os.open(journal, flags, PRIVATE_MODE)
        if not try_lock(file):
            os.lseek(file, 0, os.SEEK_SET)
            lines = _parse_lines(os.read(file, 4096))
            os.close(file)
            owner = lines[0] if lines else None
            by = f" by process {owner.pid}" if isinstance(owner, JournalOpening) else ""
            raise UsageError(
                f"the cassette is already being recorded{by}",
                where=str(path),
                hint="wait for that recording to end, or record into another file",
            )
        if _is_same_file(file, journal):
            return file
        close_locked(file)  # its owner removed it between our open and our lock


def _is_same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _parse_lines(raw: bytes) -> list[JournalLine]:
    """Return the complete lines; a torn last line is not a finished interaction."""
    lines: list[JournalLine] = []
    for line in raw.split(b"\n")[:-1]:
        try:
            lines.append(_decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return lines


# ------------------------------------------------------------------------------------ merging


def _merge(path: Path, file: int, metadata: Mapping[str, Any], *, keep: bool = False) -> bytes:
    """Write the cassette with the interactions of its journal in it; return its text.

    The digest of the result goes into the journal before the cassette is replaced. After a crash
    between the two steps or after them, it shows whether the cassette is the merged one, so no
    interaction is added twice.
    """
    raw = read_cassette_bytes(path) if path.exists() else b""
    os.lseek(file, 0, os.SEEK_SET)
    parts: list[bytes] = []
    while part := os.read(file, 1 << 20):
        parts.append(part)
    lines = _parse_lines(b"".join(parts))
    last = lines[-1] if lines else None
    done = isinstance(last, JournalMerged) and raw and last.digest == CassetteFile(raw, path).digest
    if lines and not done and not _replaces_by_nothing(raw, lines):
        raw = _merged_text(raw, lines, metadata, path)
        digest = CassetteFile(raw, path).digest  # also checks the text before it is written
        write_line(file, msgspec.json.encode(JournalMerged(digest)) + b"\n")
        write_cassette_bytes(path, raw)
    if not keep:
        journal_path(path).unlink(missing_ok=True)
    return raw


def _replaces_by_nothing(raw: bytes, lines: list[JournalLine]) -> bool:
    """Return whether a recording that ended before its first reply would replace a cassette."""
    fresh = any(isinstance(line, JournalOpening) and line.fresh for line in lines)
    return bool(raw) and fresh and not any(isinstance(line, JournalInteraction) for line in lines)


def _merged_text(
    raw: bytes, lines: list[JournalLine], metadata: Mapping[str, Any], path: Path
) -> bytes:
    opening = next((line for line in lines if isinstance(line, JournalOpening)), None)
    finished = [line for line in lines if isinstance(line, JournalInteraction)]
    if not raw or (opening is not None and opening.fresh):
        raw = new_cassette(opening.title if opening else CassetteTitle(path.name))
        raw = schema_comment(path, "cassette").encode() + raw
    finished.sort(key=lambda line: line.place)
    added: dict[int, list[JournalTrack]] = {}
    for line in lines:
        if isinstance(line, JournalTrack):
            added.setdefault(line.after, []).append(line)
    if 0 in added and finished:  # what happened before the first request is kept with it
        first = finished[0].interaction.id
        added[first] = [*added.pop(0), *added.get(first, [])]
    new = [_add_tracks(i.interaction, added.pop(i.interaction.id, [])) for i in finished]
    raw = append_interactions(raw, new)
    if not finished and not metadata and not added:
        return raw
    file = CassetteFile(raw, path)
    known = {entry.id: entry for entry in file.entries}
    changed = {
        known[after].number: _add_tracks(file.read(known[after]), more)
        for after, more in added.items()
        if after in known
    }
    if changed:
        file = CassetteFile(update_interactions(as_block_sequence(file), changed), path)
    if opening is not None and opening.title.tracks and not file.header.tracks:
        fields = {"version": VERSION, "tracks": list(opening.title.tracks)}
        file = CassetteFile(update_header(file, fields), path)
    responses = [interaction.response for interaction in file]
    totals: dict[str, Any] = {"total_tokens": sum(response.tokens for response in responses)}
    costs = [response.cost_dollars for response in responses if response.cost_dollars is not None]
    if costs:
        totals["total_cost_dollars"] = round(sum(costs), 8)
    return update_header(file, {"metadata": {**file.header.metadata, **totals, **metadata}})


def _add_tracks(item: Interaction, lines: Iterable[JournalTrack]) -> Interaction:
    """Return an interaction with the items of other tracks that follow it."""
    found = [line.item for line in lines]
    added = {
        name: (*getattr(item, name), *(each for each in found if isinstance(each, kind)))
        for kind, (_, name) in TRACKS.items()
    }
    return msgspec.structs.replace(item, **added)


def load_cassette(path: Path, *, keep: bool = False) -> CassetteFile:
    """Open a cassette, and first merge the journal that a killed recorder has left.

    With `keep`, its interactions stay parsed, for a command that reads all of them.
    """
    try:
        merge_left_journal(path)
    except OSError:  # not writable for us: merge in memory only
        raw = read_cassette_bytes(path) if path.exists() else b""
        lines = _parse_lines(journal_path(path).read_bytes())
        if _replaces_by_nothing(raw, lines):
            return CassetteFile(raw, path)
        return CassetteFile(_merged_text(raw, lines, {"interrupted": True}, path), path)
    return open_cassette_file(path, keep=keep)


def merge_left_journal(path: Path) -> None:
    """Merge the journal that a killed recorder has left into its cassette.

    A locked journal belongs to a running recorder, and the cassette stays as it is so far.
    """
    journal = journal_path(path)
    try:
        file = os.open(journal, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        return
    try:
        if try_lock(file) and _is_same_file(file, journal):
            _merge(path, file, {"interrupted": True})
    finally:
        close_locked(file)
