"""Edits of a cassette file that keep everything else as it was written.

People review cassettes and write comments into them. An edit therefore touches only the
interactions that change: their text goes through a round-trip YAML library, which keeps comments,
order and quoting, and all other bytes are copied.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import FormatError
from offbook.sources.cassette.cassette_file import INDENT, CassetteFile
from offbook.sources.cassette.format import FORMAT, VERSION, Interaction, interaction_to_dict
from offbook.yaml_files import dump_round_trip, dump_yaml, load_round_trip, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from offbook.sources.cassette.cassette_file import Entry
    from offbook.sources.cassette.format import CassetteTitle

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
    header: dict[str, Any] = {"format": FORMAT, "version": VERSION, "hashed": title.hashed}
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
