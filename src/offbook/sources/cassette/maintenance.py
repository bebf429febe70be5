"""Looks after cassettes: what is in them, what is of no use, what is old, what has drifted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import FormatError, ModelError, UsageError
from offbook.exchange.messages import History, ToolCall
from offbook.exchange.model import Request
from offbook.files import write_atomic
from offbook.sources.cassette.cassette_file import PRIVATE_MODE, CassetteFile, write_cassette_bytes
from offbook.sources.cassette.editing import (
    remove_interactions,
    spell_out,
    update_header,
    update_interactions,
)
from offbook.sources.cassette.format import (
    FORMAT,
    MAIN_HAT,
    VERSION,
    Interaction,
    reply_from_response,
)
from offbook.sources.cassette.journal import load_cassette
from offbook.sources.cassette.normalize import Normalizer, number_call_ids

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from offbook.exchange.messages import AnyBlock, Message
    from offbook.exchange.model import ModelSource
    from offbook.sources.cassette.cassette_file import Entry


class CassetteStats(msgspec.Struct, frozen=True):
    """A cassette in numbers."""

    path: str
    version: int
    interactions: int
    hats: dict[str, int]
    models: dict[str, int]
    errors: int
    tokens: int
    cost_dollars: float | None
    bytes: int
    stale: tuple[int, ...]


def cassette_stats(path: Path) -> CassetteStats:
    """A cassette in numbers; `stale` are interactions whose hash is not that of their request."""
    tape = load_cassette(path)
    items = list(tape)
    models = (tape.head(entry).model or item.response.model for entry, item in _pairs(tape))
    costs = [i.response.cost_dollars for i in items if i.response.cost_dollars is not None]
    return CassetteStats(
        str(path),
        tape.header.version,
        len(tape),
        dict(Counter(entry.hat for entry in tape.entries)),
        dict(Counter(filter(None, models))),
        sum(item.response.error is not None for item in items),
        sum(item.response.tokens for item in items),
        round(sum(costs), 8) if costs else None,
        len(tape.raw),
        tuple(stale_interactions(tape)),
    )


def _pairs(tape: CassetteFile) -> Iterator[tuple[Entry, Interaction]]:
    return ((entry, tape.read(entry)) for entry in tape.entries)


def stale_interactions(tape: CassetteFile) -> list[int]:
    """The interactions that somebody has edited without making their hash anew."""
    normal = Normalizer(tape.header.redactions)
    if tape.header.hashed and tape.header.hashed != normal.seal:
        return []  # made by other rules: they are all made anew when it is opened
    made = tape.rehash(normal)
    return [e.number for e, hash_ in zip(tape.entries, made, strict=True) if e.hash != hash_]


def trim_cassette(path: Path, numbers: Collection[int]) -> int:
    """Take these interactions out; what others refer to is written out there. Tells how many."""
    tape = load_cassette(path)
    unknown = sorted(set(numbers) - {entry.number for entry in tape.entries})
    if unknown:
        raise UsageError(
            f"there is no interaction {unknown[0]}",
            where=str(path),
            hint=f"they are numbered from 1 to {len(tape)}",
        )
    tape = spell_out(tape)
    gone = {entry.id for entry in tape.entries if entry.number in numbers}
    changed = {
        entry.number: _stand_alone(tape, entry, gone)
        for entry in tape.entries
        if entry.number not in numbers and {entry.after, entry.again, entry.head} & gone
    }
    if changed:
        tape = CassetteFile(update_interactions(tape, changed), path)
    raw = remove_interactions(tape, set(numbers))
    CassetteFile(raw, path) if len(numbers) < len(tape) else None
    write_cassette_bytes(path, raw)
    return len(set(numbers))


def _stand_alone(tape: CassetteFile, entry: Entry, gone: set[int]) -> Interaction:
    item = tape.read(entry)
    asked = item.request
    if asked.head in gone:
        head = msgspec.structs.asdict(tape.head(entry, asked))
        asked = msgspec.structs.replace(asked, head=None, **head)
    if {asked.after, asked.again} & gone:
        whole = tape.messages(entry)
        asked = msgspec.structs.replace(asked, after=None, again=None, messages=whole)
    return msgspec.structs.replace(item, request=asked)


def upgrade_cassette(path: Path) -> list[int]:
    """Bring a cassette to today's version, its hashes made anew; tells which ones changed."""
    tape = load_cassette(path)
    tape = spell_out(tape)
    normal = Normalizer(tape.header.redactions)
    made = tape.rehash(normal)
    changed: dict[int, Interaction] = {}
    for entry, hash_ in zip(tape.entries, made, strict=True):
        item = tape.read(entry)
        asked = msgspec.structs.replace(item.request, prompt_hash=hash_)
        new = msgspec.structs.replace(item, id=entry.id, request=asked)
        if new != item:
            changed[entry.number] = new
    raw = update_interactions(tape, changed) if changed else tape.raw
    tape = CassetteFile(raw, path)
    header = {"format": FORMAT, "version": VERSION, "hashed": normal.seal}
    raw = update_header(raw, tape, header)
    CassetteFile(raw, path)
    write_cassette_bytes(path, raw)
    return sorted(changed)


def rewrite_cassette(path: Path, text: str) -> list[int]:
    """Put an edited text in the place of a cassette, its hashes made anew.

    A text that is no cassette stays beside it, for another try.
    """
    try:
        CassetteFile(text.encode(), path)
    except FormatError as error:
        beside = path.with_name(f".{path.name}.rejected")
        write_atomic(beside, text, mode=PRIVATE_MODE)
        hint = f"{error.hint or 'mend it'}\nnothing was overwritten: your text is in {beside}"
        raise FormatError(error.what, path=path, line=error.line, hint=hint) from error
    write_atomic(path, text, mode=PRIVATE_MODE)
    return upgrade_cassette(path)


def replace_interaction(path: Path, number: int, item: Interaction) -> None:
    """Put another interaction in the place of this one, and make the hashes after it anew."""
    tape = load_cassette(path)
    tape = spell_out(tape)
    raw = update_interactions(tape, {number: item})
    CassetteFile(raw, path)
    write_cassette_bytes(path, raw)
    upgrade_cassette(path)


# ------------------------------------------------------------------------------------- drift


class Drift(msgspec.Struct, frozen=True):
    """What is in one answer and not in the other, by its path; or is there as something else."""

    number: int
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"interaction {self.number}:"]
        lines += [f"  + {path}" for path in self.added]
        lines += [f"  - {path}" for path in self.removed]
        lines += [f"  ~ {path}" for path in self.changed]
        return "\n".join(lines)


async def verify_cassette(path: Path, source: ModelSource) -> list[Drift]:
    """Ask a source everything that was recorded, and compare the structure of its answers."""
    tape = load_cassette(path)
    asked = _askable(tape)
    if not asked:
        raise FormatError(
            "no request is kept in this cassette, so none can be asked again", path=path
        )
    found: list[Drift] = []
    for entry in asked:
        shape = await _shape_of(source, rebuild_request(tape, entry))
        drift = compare_shapes(entry.number, response_shape(tape.read(entry)), shape)
        if drift is not None:
            found.append(drift)
    return found


def _askable(tape: CassetteFile) -> list[Entry]:
    return [entry for entry in tape.entries if entry.kept and not entry.prompted]


def count_unverifiable(path: Path) -> int:
    """How many interactions cannot be asked again, because their request is not all there."""
    tape = load_cassette(path)
    return len(tape) - len(_askable(tape))


def rebuild_request(tape: CassetteFile, entry: Entry) -> Request:
    """A recorded request, as it was normalised, to be asked again."""
    head = tape.head(entry)
    asked = tape.read(entry).request
    about = {"dialect": asked.dialect} if asked.dialect else {}
    if entry.hat != MAIN_HAT:
        about["hat"] = entry.hat
    ids: dict[str, str] = {}
    messages: list[Message] = [number_call_ids(message, ids) for message in tape.messages(entry)]
    return Request(
        History(messages),
        head.system,
        head.tools,
        head.model,
        head.parameters,
        about,
        asked.stream,
    )


async def _shape_of(source: ModelSource, request: Request) -> dict[str, str]:
    try:
        reply = await source.reply(request)
    except ModelError as error:
        return _error_shape(error)
    return _shape(reply.blocks, reply.stop)


def response_shape(item: Interaction) -> dict[str, str]:
    """The structure of a recorded answer: the type at each path."""
    try:
        reply = reply_from_response(item.response, number=1, role="")
    except ModelError as error:
        return _error_shape(error)
    return _shape(reply.blocks, reply.stop)


def _error_shape(error: ModelError) -> dict[str, str]:
    return {"$.error": f"{error.status} {error.category}"}


def _shape(blocks: tuple[AnyBlock, ...], stop: str) -> dict[str, str]:
    shape = {"$.stop": stop}
    for block in blocks:
        if isinstance(block, ToolCall):
            shape |= _types(f"$.calls.{block.name}", block.arguments)
        else:
            shape[f"$.{type(block).__name__.lower()}"] = "text"
    return shape


def _types(path: str, value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        found = {path: "object"}
        for name, held in fields.items():
            found |= _types(f"{path}.{name}", held)
        return found
    if isinstance(value, (list, tuple)):
        found = {path: "array"}
        for held in cast("list[Any]", value):
            found |= _types(f"{path}[*]", held)
        return found
    names = {str: "text", bool: "boolean", int: "number", float: "number", type(None): "null"}
    return {path: names.get(cast("Any", type(value)), type(value).__name__)}


def compare_shapes(number: int, recorded: dict[str, str], now: dict[str, str]) -> Drift | None:
    """How two structures differ, or nothing."""
    if recorded == now:
        return None
    changed = tuple(
        f"{path}: {recorded[path]} became {now[path]}"
        for path in recorded
        if path in now and recorded[path] != now[path]
    )
    added = tuple(f"{path}: {now[path]}" for path in now if path not in recorded)
    removed = tuple(f"{path}: {recorded[path]}" for path in recorded if path not in now)
    return Drift(number, added, removed, changed)


def compare_cassettes(path: Path, other: Path) -> list[Drift]:
    """How the answers of two cassettes differ in structure, turn by turn."""
    one, two = load_cassette(path), load_cassette(other)
    if len(one) != len(two):
        raise UsageError(
            f"{path} has {len(one)} interactions, {other} has {len(two)}",
            hint="compare recordings of the same run",
        )
    drifts = (
        compare_shapes(number, response_shape(first), response_shape(second))
        for number, (first, second) in enumerate(zip(one, two, strict=True), 1)
    )
    return [drift for drift in drifts if drift is not None]


def find_cassettes(folder: Path) -> Iterator[Path]:
    """The cassettes below a folder."""
    for path in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        with path.open("rb") as file:
            begin = file.read(4096)
        if b"offbook.cassette" in begin or b"\ninteractions:" in b"\n" + begin:
            yield path
