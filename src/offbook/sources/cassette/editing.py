"""Changes the text of a cassette in place: what nobody meant to change stays as it was written.

Comments, order and spelling of a reviewer survive a new recording, a trimming and an upgrade,
because only the lines of what has become different are written anew.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import FormatError
from offbook.sources.cassette.cassette_file import CassetteFile
from offbook.sources.cassette.format import FORMAT, VERSION, Interaction, interaction_to_dict
from offbook.yaml_files import dump_yaml, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from offbook.sources.cassette.cassette_file import Entry

INDENT = 2
_COMMENT = re.compile(r"\s*(?:#.*)?$")
_SIDE_NOTE = re.compile(r"^[^\"'|>]*?:\s+[^\s\"'|>#][^#\"']*?(\s+#.*)$")


class CassetteTitle(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a new cassette says of itself: comments for people, and how its hashes are made."""

    name: str
    recorded: str = ""
    backend: str = ""
    hashed: str = ""
    redactions: dict[str, Any] = {}


def new_cassette(title: CassetteTitle) -> bytes:
    """A cassette with nothing in it yet."""
    told = {"cassette": title.name, "recorded": title.recorded, "backend": title.backend}
    comments = "".join(f"# {name}: {_line(text)}\n" for name, text in told.items() if text)
    header: dict[str, Any] = {"format": FORMAT, "version": VERSION, "hashed": title.hashed}
    if title.redactions:
        header["redactions"] = title.redactions
    return f"{comments}{dump_yaml(header)}\ninteractions:\n".encode()


def _line(text: str) -> str:
    return " ".join(text.split())


def append_interactions(raw: bytes, interactions: Iterable[Interaction]) -> bytes:
    """The text with interactions behind those that are there."""
    tape = CassetteFile(raw) if _has_items(raw) else None
    span = tape.span if tape is not None else None
    if tape is not None and span is None:
        raw = respell(tape)
        span = CassetteFile(raw).span
    if span is None:
        raw = re.sub(rb"^interactions:[ \t]*\[\][ \t]*$", b"interactions:", raw, flags=re.MULTILINE)
    indent = INDENT if span is None else span.indent
    end = _end_of_empty(raw) if span is None else _end_of_items(raw, span.start, span.end)
    spaced = end == len(raw) or raw[end : end + 1] == b"\n"
    new = "\n".join(_dump(one, indent) for one in interactions).encode()
    if not new:
        return raw
    before = raw[:end] if raw[:end].endswith(b"\n") or not end else raw[:end] + b"\n"
    gap = b"" if span is None else b"\n"
    return before + gap + new + (b"" if spaced else b"\n") + raw[end:]


def _has_items(raw: bytes) -> bool:
    found = re.search(rb"^interactions:[ \t]*(\[\])?[ \t]*(?:#[^\n]*)?\n?", raw, re.MULTILINE)
    if found is None:
        return True  # for the tape to say what is wrong
    return re.match(rb"(?:[ \t]*(?:#[^\n]*)?\n)*[ ]*- |[ \t]*\S", raw[found.end() :]) is not None


def _end_of_empty(raw: bytes) -> int:
    found = re.search(rb"^interactions:[^\n]*(?:\n|\Z)", raw, re.MULTILINE)
    return found.end() if found else len(raw)


def _end_of_items(raw: bytes, start: int, end: int) -> int:
    """The end of the last interaction, with the indented comments that follow it."""
    lines = raw[start:end].splitlines(keepends=True)
    while lines and (not lines[-1].strip() or lines[-1].startswith(b"#")):
        lines.pop()
    return start + sum(map(len, lines))


def _dump(interaction: Interaction, indent: int) -> str:
    return dump_yaml([interaction_to_dict(interaction)], indent)


def spell_out(tape: CassetteFile) -> CassetteFile:
    """The cassette in a spelling that can be changed here and there."""
    return tape if tape.span is not None else CassetteFile(respell(tape), tape.path)


def respell(tape: CassetteFile) -> bytes:
    """The whole cassette written anew, one interaction below the other.

    Of its comments only those at its top are kept.
    """
    above = re.match(rb"(?:[ \t]*(?:#[^\n]*)?\n)*", tape.raw)
    header = msgspec.to_builtins(tape.header)
    metadata = header.pop("metadata", {})
    top = {"format": FORMAT, "version": tape.header.version, **header}
    text = f"{above[0].decode() if above else ''}{dump_yaml(top)}\ninteractions:\n"
    text += "\n".join(_dump(item, INDENT) for item in tape)
    return (text + (f"\n{dump_yaml({'metadata': metadata})}" if metadata else "")).encode()


def remove_interactions(tape: CassetteFile, numbers: Collection[int]) -> bytes:
    """The text without these interactions and the comments right above them."""
    parts: list[bytes] = []
    at = 0
    for entry in tape.entries:
        if entry.number not in numbers:
            continue
        begin = _above(tape.raw, entry.start)
        stop = min(entry.end, _own_end(tape.raw, entry.start, entry.end))
        parts.append(tape.raw[at : max(at, begin)])
        at = max(at, stop)
    parts.append(tape.raw[at:])
    return b"".join(parts)


def _above(raw: bytes, start: int) -> int:
    """The beginning of the comment lines that stand right above this place."""
    while start:
        line = raw.rfind(b"\n", 0, start - 1) + 1
        if not raw[line:start].strip().startswith(b"#"):
            return start
        start = line
    return start


def _own_end(raw: bytes, start: int, end: int) -> int:
    """The end of an interaction without the comments above the next one; blank lines are its."""
    stop = end
    while stop > start:
        line = raw.rfind(b"\n", start, stop - 1) + 1
        if line <= start or raw[line:stop].strip():
            break
        stop = line
    above = _above(raw, stop)
    return end if above >= stop else above


def update_interactions(tape: CassetteFile, changed: Mapping[int, Interaction]) -> bytes:
    """The text in which the interactions with these numbers say something else."""
    parts: list[bytes] = []
    at = 0
    indent = tape.span.indent if tape.span else INDENT
    for entry in tape.entries:
        if entry.number not in changed:
            continue
        parts.append(tape.raw[at : entry.start])
        text = tape.raw[entry.start : entry.end].decode()
        old = _parse_item(text, entry, tape)
        new = _patch(
            old, interaction_to_dict(tape.read(entry)), interaction_to_dict(changed[entry.number])
        )
        body = text[:indent] + "  " + text[indent + 2 :]  # the dash is put back below
        body = revise(body, old, new, indent + 2)
        parts.append((body[:indent] + "- " + body[indent + 2 :]).encode())
        at = entry.end
    parts.append(tape.raw[at:])
    return b"".join(parts)


def _parse_item(text: str, entry: Entry, tape: CassetteFile) -> Any:
    try:
        return cast("list[Any]", parse_yaml(text, tape.path))[0]
    except FormatError as error:  # as a whole it could be read
        raise FormatError(
            f"interaction {entry.number} has an alias (*name) for something outside of it",
            path=tape.path,
            line=entry.line,
            hint="write out what it stands for, then try again",
        ) from error


def _patch(old: Any, was: Any, now: Any) -> Any:
    """What is written, changed only where its meaning does: also what could be left out stays."""
    if was == now:
        return old
    if not (isinstance(old, dict) and isinstance(was, dict) and isinstance(now, dict)):
        return now
    written = cast("dict[str, Any]", old)
    before, after = cast("dict[str, Any]", was), cast("dict[str, Any]", now)
    patched = {
        name: _patch(held, before.get(name), after.get(name)) if name in after else held
        for name, held in written.items()
        if name in after or name not in before
    }
    order = [*after, *(name for name in patched if name not in after)]
    whole = {**patched, **{name: after[name] for name in after if name not in patched}}
    return {name: whole[name] for name in order}


def update_header(raw: bytes, tape: CassetteFile, changes: Mapping[str, Any]) -> bytes:
    """The text in which the header says something else; what is None is left out."""
    if tape.span is None:
        spelt = spell_out(tape)
        return update_header(spelt.raw, spelt, changes)
    front = raw[: tape.span.start].decode()
    items = raw[tape.span.start : tape.span.end].decode()
    back = raw[tape.span.end :].decode()
    old = cast("dict[str, Any]", parse_yaml(front + back))
    above = {k: v for k, v in changes.items() if k != "metadata"}
    front_old = {k: v for k, v in old.items() if re.search(rf"^{k}:", front, re.MULTILINE)}
    moved = {k: v for k, v in above.items() if k not in front_old and k in old}
    wanted = {**{k: v for k, v in above.items() if k not in moved}}
    front_new = _ordered(front_old, wanted)
    front = revise(front, front_old, front_new, 0)
    back_old = {k: v for k, v in old.items() if k not in front_old}
    back_new = {**back_old, **moved}
    if "metadata" in changes:
        back_new["metadata"] = changes["metadata"]
    back = revise(back, back_old, {k: v for k, v in back_new.items() if v is not None}, 0)
    if back and not back_old and not items.endswith("\n\n"):
        back = f"\n{back}"
    return (front + items + back).encode()


def _ordered(old: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """New keys before the interactions, old ones where they are."""
    merged = {**{k: v for k, v in old.items() if k != "interactions"}, **wanted}
    merged["interactions"] = old.get("interactions")
    return {k: v for k, v in merged.items() if v is not None or k == "interactions"}


def revise(text: str, old: dict[str, Any], new: dict[str, Any], indent: int) -> str:
    """A mapping in block style that says `new` where it said `old`, the rest untouched."""
    preface, blocks = _split(text, indent)
    out = [preface]
    there = {name for name, _ in blocks}
    told = set(_next_keys("", new, there))
    out += [dump_yaml({name: new[name]}, indent) for name in new if name in told and there]
    if not there:
        told.clear()
    for key, block in blocks:
        told.add(key)
        lines, rest = _tail(block)
        if key in new:
            out.append(_revise_block(key, lines, old.get(key), new[key], indent))
        out.append(rest)
        following = _next_keys(key, new, there | told)
        for name in following:
            told.add(name)
            out.append(dump_yaml({name: new[name]}, indent))
    missing = {name: held for name, held in new.items() if name not in told}
    if missing:
        whole = "".join(out)
        if whole and not whole.endswith("\n"):
            out.append("\n")
        out.append(dump_yaml(missing, indent))
    return "".join(out)


def _next_keys(key: str, new: dict[str, Any], told: set[str]) -> list[str]:
    """The new keys that come right after this one; first of all, after none."""
    names = list(new)
    if key and key not in names:
        return []
    found: list[str] = []
    for name in names[names.index(key) + 1 if key else 0 :]:
        if name in told:
            break
        found.append(name)
    return found


def _split(text: str, indent: int) -> tuple[str, list[tuple[str, str]]]:
    begins = re.compile(
        rf"^ {{{indent}}}(?:\"([^\"]+)\"|'([^']+)'|([^\s#\"'\-][^:\n]*?))\s*:(?=\s|$)"
    )
    preface: list[str] = []
    blocks: list[tuple[str, list[str]]] = []
    for line in text.splitlines(keepends=True):
        found = begins.match(line)
        if found:
            blocks.append((found[1] or found[2] or found[3], [line]))
        elif blocks:
            blocks[-1][1].append(line)
        else:
            preface.append(line)
    return "".join(preface), [(key, "".join(lines)) for key, lines in blocks]


def _tail(block: str) -> tuple[str, str]:
    """A block, and the blank lines and comments after it."""
    lines = block.splitlines(keepends=True)
    end = len(lines)
    while end > 1 and _COMMENT.match(lines[end - 1]):
        end -= 1
    return "".join(lines[:end]), "".join(lines[end:])


def _revise_block(key: str, block: str, old: Any, new: Any, indent: int) -> str:
    if old == new and type(old) is type(new):
        return block
    first, _, rest = block.partition("\n")
    nested = re.match(rf"^ {{{indent}}}[^:]+:\s*(#.*)?$", first)
    if isinstance(old, dict) and isinstance(new, dict) and old and new and nested and rest:
        inner = len(rest) - len(rest.lstrip(" "))
        if not rest.lstrip(" ").startswith(("#", "\n")):
            held = revise(rest, cast("dict[str, Any]", old), cast("dict[str, Any]", new), inner)
            return f"{first}\n{held}"
    comments = "" if isinstance(old, str) else _comments(rest)
    written = dump_yaml({key: new}, indent)
    note = _SIDE_NOTE.match(first)
    if note and not rest and written.count("\n") == 1:
        written = f"{written[:-1]}{note[1]}\n"
    return comments + written


def _comments(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if line.lstrip().startswith("#"))
