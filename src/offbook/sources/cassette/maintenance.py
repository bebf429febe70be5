"""Maintenance of cassettes: statistics, faults, trimming, upgrades, edits, drift, and partings."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import FormatError, ModelError, UsageError, counted
from offbook.exchange.messages import History, ToolCall
from offbook.exchange.model import Request
from offbook.files import write_atomic
from offbook.secrets.masks import find_secrets
from offbook.sources.cassette.cassette_file import (
    INDENT,
    PRIVATE_MODE,
    CassetteFile,
    find_items,
    journal_path,
    read_cassette_bytes,
    split_items,
    write_cassette_bytes,
)
from offbook.sources.cassette.format import (
    FORMAT,
    MAIN_HAT,
    MODEL_VERSION,
    VERSION,
    Interaction,
    Normalizer,
    interaction_to_dict,
    merge_rules,
    number_call_ids,
    reply_from_response,
)
from offbook.sources.cassette.journal import (
    as_block_sequence,
    load_cassette,
    remove_interactions,
    update_header,
    update_interactions,
)
from offbook.sources.cassette.mismatch import describe_differences, find_differences, recorded_body
from offbook.trace.redaction import Redaction, parse_redaction_rules

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from offbook.exchange.messages import AnyBlock, Message
    from offbook.exchange.model import ModelSource
    from offbook.sources.cassette.cassette_file import Entry


class CassetteStats(msgspec.Struct, frozen=True):
    """The numbers of a cassette; `stale` interactions were edited after they were hashed."""

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
    tracks: tuple[str, ...] = ("model",)
    tools: int = 0
    limits: tuple[str, ...] = ()


def cassette_stats(path: Path) -> CassetteStats:
    """Return the numbers of a cassette."""
    file = load_cassette(path, keep=True)
    responses = [interaction.response for interaction in file]
    models = [
        file.settings(entry).model or response.model
        for entry, response in zip(file.entries, responses, strict=True)
    ]
    costs = [r.cost_dollars for r in responses if r.cost_dollars is not None]
    return CassetteStats(
        str(path),
        file.header.version,
        len(file),
        dict(Counter(entry.hat for entry in file.entries)),
        dict(Counter(filter(None, models))),
        sum(response.error is not None for response in responses),
        sum(response.tokens for response in responses),
        round(sum(costs), 8) if costs else None,
        len(file.raw),
        tuple(stale_interactions(file)),
        file.header.tracks or ("model",),
        sum(len(interaction.tools) for interaction in file),
        tuple(describe_limits(file)),
    )


NO_PYTHON = (
    "the command has no Python process: its clock and its random values are real in a replay"
)
MANY_FILES = "the folder has too many files: changes of some of them are not on the tape"


def describe_limits(file: CassetteFile) -> list[str]:
    """Return what a replay of all tracks of a tape cannot answer, a line for each tool."""
    metadata = file.header.metadata
    lines = [NO_PYTHON] if metadata.get("clock_processes") == 0 else []
    lines += [MANY_FILES] if metadata.get("files_truncated") else []
    if "tools" not in file.header.tracks:
        return lines
    limits: dict[str, str] = {}
    effects: dict[str, None] = {}
    for item in file:
        seen = {tool.call for tool in item.tools}
        for block in item.response.reply_blocks:
            if isinstance(block, ToolCall) and block.id not in seen:
                limits[block.name] = "was called, but not seen to run: it may run for real"
        for tool in item.tools:
            effects |= dict.fromkeys(f"{tool.tool} {effect}" for effect in tool.effects)
            if tool.real:
                limits[tool.tool] = "pauses or refuses its input: it runs again up to there"
            elif not tool.exact:
                kind = tool.type or (tool.error and tool.error.type) or "a value"
                limits[tool.tool] = f"returned {kind}, which is not restored exactly"
    lines += [f"{tool} {limit}" for tool, limit in limits.items()]
    return lines + [f"{effect}, which a replay does not repeat" for effect in effects]


def count_hats(path: Path) -> Counter[str]:
    """Return how many interactions each hat has, without parsing them: lists must be fast."""
    if journal_path(path).exists():
        load_cassette(path)  # merge what a killed recorder has left
    raw = read_cassette_bytes(path)
    span = find_items(raw)
    if span is None:
        return Counter(entry.hat for entry in load_cassette(path).entries)
    # A key of the request is indented twice more than its dash; no text of a value is.
    hat = re.compile(rb"\n {%d}hat: *[\"']?([^\n\"']+)" % (span.indent + 2 * INDENT))
    items = split_items(raw, span)
    found = (hat.search(raw, start, end) for start, end in items)
    return Counter(
        match[1].decode(errors="replace").strip() if match else MAIN_HAT for match in found
    )


def stale_interactions(file: CassetteFile) -> list[int]:
    """Return the numbers of the interactions whose hash is not that of their request."""
    normalizer = Normalizer(file.header.redactions)
    if file.header.hashed and file.header.hashed != normalizer.fingerprint:
        return []  # hashed by other rules: a replay computes all hashes again
    hashes = file.rehash(normalizer)
    return [e.number for e, hash_ in zip(file.entries, hashes, strict=True) if e.hash != hash_]


def find_faults(path: Path) -> list[str]:
    """Return what must not be committed: a secret, a request edited by hand, an empty cassette."""
    file = load_cassette(path, keep=True)
    items = list(file)  # parses every interaction
    faults = [] if items else [f"{path}: no interactions"]
    faults += [
        f"{path}: interaction {number}: the request was edited; "
        f"fix: offbook cassette edit {shlex.quote(str(path))} --upgrade"
        for number in stale_interactions(file)
    ]
    text = file.raw.decode("utf-8", "replace")
    in_text = set(find_secrets(text))
    places = [
        f"{path}:{text.count(chr(10), 0, found.start()) + 1}"
        for secret in sorted(in_text)
        for found in re.finditer(re.escape(secret), text)
    ]
    # YAML can fold or escape a text, so that the file does not have its characters in a row.
    places += [
        f"{path}: interaction {number}"
        for number, item in enumerate(items, 1)
        if {*find_secrets(msgspec.json.encode(interaction_to_dict(item)).decode())} - in_text
    ]
    fix = "fix: replace it with a redaction, and revoke the key"
    return faults + [f"{place}: looks like a secret; {fix}" for place in places]


# --------------------------------------------------------------------------------------- changes


def _save(path: Path, raw: bytes) -> None:
    """Write a changed cassette, if its text is that of a valid one."""
    CassetteFile(raw, path)
    write_cassette_bytes(path, raw)


def trim_cassette(path: Path, numbers: Collection[int]) -> int:
    """Remove interactions and return how many.

    An interaction that refers to a removed one gets the messages and settings that it needs.
    """
    file = load_cassette(path)
    for number in sorted(set(numbers)):
        file.find(number)
    file = as_block_sequence(file)
    removed = {entry.id for entry in file.entries if entry.number in numbers}
    changed: dict[int, Interaction] = {}
    for entry in file.entries:
        if entry.number in numbers or not {entry.after, entry.again, entry.head} & removed:
            continue
        interaction = file.read(entry)
        request = interaction.request
        if request.head in removed:
            settings = msgspec.structs.asdict(file.settings(entry, request))
            request = msgspec.structs.replace(request, head=None, **settings)
        if {request.after, request.again} & removed:
            messages = file.messages(entry)
            request = msgspec.structs.replace(request, after=None, again=None, messages=messages)
        changed[entry.number] = msgspec.structs.replace(interaction, request=request)
    if changed:
        file = CassetteFile(update_interactions(file, changed), path)
    _save(path, remove_interactions(file, set(numbers)))
    return len(set(numbers))


def upgrade_cassette(path: Path) -> list[int]:
    """Bring a cassette to the newest version, and return the interactions that changed."""
    file = as_block_sequence(load_cassette(path, keep=True))
    normalizer = Normalizer(file.header.redactions)
    changed: dict[int, Interaction] = {}
    for entry, hash_ in zip(file.entries, file.rehash(normalizer), strict=True):
        interaction = file.read(entry)
        request = msgspec.structs.replace(interaction.request, prompt_hash=hash_)
        upgraded = msgspec.structs.replace(interaction, id=entry.id, request=request)
        if upgraded != interaction:
            changed[entry.number] = upgraded
    if changed:
        file = CassetteFile(update_interactions(file, changed), path)
    # With the fingerprint of today's rules, the next replay trusts the stored hashes.
    version = VERSION if file.header.tracks else MODEL_VERSION
    header = {"format": FORMAT, "version": version, "hashed": normalizer.fingerprint}
    _save(path, update_header(file, header))
    return sorted(changed)


def add_redactions(path: Path, rules: Mapping[str, Any]) -> list[int]:
    """Add redactions to those of a cassette, and return the interactions with new hashes."""
    file = load_cassette(path)
    merged = merge_rules(parse_redaction_rules(file.header.redactions), rules)
    Redaction(merged, environment={})  # check them before they are written
    stored = {name: rule for name, rule in msgspec.to_builtins(merged).items() if rule}
    _save(path, update_header(file, {"redactions": stored}))
    return upgrade_cassette(path)


def rewrite_cassette(path: Path, text: str) -> list[int]:
    """Replace a cassette by an edited text, and return the interactions with new hashes.

    A text that is not a valid cassette is saved next to it, for another try.
    """
    try:
        CassetteFile(text.encode(), path)
    except FormatError as error:
        rejected = path.with_name(f".{path.name}.rejected")
        write_atomic(rejected, text, mode=PRIVATE_MODE)
        hint = (
            f"{error.hint or 'correct it'}\nthe cassette is unchanged: your text is in {rejected}"
        )
        raise FormatError(error.what, path=path, line=error.line, hint=hint) from error
    write_atomic(path, text, mode=PRIVATE_MODE)
    return upgrade_cassette(path)  # an edited request has another hash


def replace_interaction(path: Path, number: int, interaction: Interaction) -> None:
    """Replace one interaction, and update the hashes of those that continue it."""
    file = as_block_sequence(load_cassette(path))
    _save(path, update_interactions(file, {number: interaction}))
    upgrade_cassette(path)


# ----------------------------------------------------------------------------------------- drift


class Drift(msgspec.Struct, frozen=True):
    """The differences in structure between two replies, by path."""

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
    """Send all recorded requests to a source, and compare the structure of the replies."""
    file = load_cassette(path)
    repeatable = _repeatable(file)
    if not repeatable:
        raise FormatError(
            "no request is stored in this cassette, so none can be sent again", path=path
        )
    drifts: list[Drift] = []
    for entry in repeatable:
        try:
            reply = await source.reply(rebuild_request(file, entry))
            shape = _reply_shape(reply.blocks, reply.stop)
        except ModelError as error:
            shape = _error_shape(error)
        drift = compare_shapes(entry.number, response_shape(file.read(entry)), shape)
        if drift is not None:
            drifts.append(drift)
    return drifts


def _repeatable(file: CassetteFile) -> list[Entry]:
    return [entry for entry in file.entries if entry.has_request and not entry.prompt_only]


def count_unverifiable(path: Path) -> int:
    """Return how many interactions cannot be sent again because their request is not stored."""
    file = load_cassette(path)
    return len(file) - len(_repeatable(file))


def rebuild_request(file: CassetteFile, entry: Entry) -> Request:
    """Return a recorded request, in its normalized form, to send it again."""
    settings = file.settings(entry)
    recorded = file.read(entry).request
    metadata = {"dialect": recorded.dialect} if recorded.dialect else {}
    if entry.hat != MAIN_HAT:
        metadata["hat"] = entry.hat
    # The stored ids were replaced by numbers; calls and results must still agree.
    ids: dict[str, str] = {}
    messages: list[Message] = [number_call_ids(message, ids) for message in file.messages(entry)]
    return Request(
        History(messages),
        settings.system,
        settings.tools,
        settings.model,
        settings.parameters,
        metadata,
        recorded.stream,
    )


def response_shape(interaction: Interaction) -> dict[str, str]:
    """Return the structure of a recorded reply: the type at each path."""
    try:
        reply = reply_from_response(interaction.response, number=1, role="")
    except ModelError as error:
        return _error_shape(error)
    return _reply_shape(reply.blocks, reply.stop)


def _error_shape(error: ModelError) -> dict[str, str]:
    return {"$.error": f"{error.status} {error.category}"}


def _reply_shape(blocks: tuple[AnyBlock, ...], stop: str) -> dict[str, str]:
    shape = {"$.stop": stop}
    for block in blocks:
        if isinstance(block, ToolCall):
            shape |= _types(f"$.calls.{block.name}", block.arguments)
        else:  # two texts never agree in their words, so only their presence counts
            shape[f"$.{type(block).__name__.lower()}"] = "text"
    return shape


def _types(path: str, value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        types = {path: "object"}
        for name, field in cast("dict[str, Any]", value).items():
            types |= _types(f"{path}.{name}", field)
        return types
    if isinstance(value, (list, tuple)):
        types = {path: "array"}
        for item in cast("list[Any]", value):
            types |= _types(f"{path}[*]", item)
        return types
    # JSON has one type for numbers: 1 and 1.0 are equal.
    names = {str: "text", bool: "boolean", int: "number", float: "number", type(None): "null"}
    return {path: names.get(cast("Any", type(value)), type(value).__name__)}


def compare_shapes(number: int, recorded: dict[str, str], current: dict[str, str]) -> Drift | None:
    """Return the differences between two structures, or None."""
    if recorded == current:
        return None
    return Drift(
        number,
        added=tuple(f"{path}: {current[path]}" for path in current if path not in recorded),
        removed=tuple(f"{path}: {recorded[path]}" for path in recorded if path not in current),
        changed=tuple(
            f"{path}: {recorded[path]} became {current[path]}"
            for path in recorded
            if path in current and recorded[path] != current[path]
        ),
    )


def compare_cassettes(path: Path, other: Path) -> list[Drift]:
    """Return the differences in structure between the replies of two cassettes."""
    one, two = load_cassette(path), load_cassette(other)
    if len(one) != len(two):
        raise UsageError(
            f"{path} has {counted(len(one), 'interaction')}, {other} has {len(two)}",
            hint="compare recordings of the same run",
        )
    drifts = (
        compare_shapes(number, response_shape(first), response_shape(second))
        for number, (first, second) in enumerate(zip(one, two, strict=True), 1)
    )
    return [drift for drift in drifts if drift is not None]


# --------------------------------------------------------------------------------------- parting
# Where two tapes part: a fork and its parent, or two recordings of the same task.

# Of a response: what differs in every recording, and does not matter to the agent.
MEASURED = ("duration_ms", "chunks", "id", "usage", "tokens", "cost_dollars", "model")
TRACKS = ("tools", "people", "http")


class Parting(msgspec.Struct, frozen=True):
    """The first interaction in which two tapes differ: its track, both sides, and the diff.

    `common` is the number of interactions before it. A tape that ended there has no side.
    """

    common: int
    lengths: tuple[int, int]
    track: str = ""
    sides: tuple[str | None, str | None] = (None, None)
    diff: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """True if the tapes do not differ."""
        return not self.track

    def lines(self, before: Path, after: Path) -> list[str]:
        """Return the parting as lines for a reader."""
        if self.same:
            return [f"the tapes are the same: {self.common} interactions"]
        fact = f"the tapes part at interaction {self.common + 1} (track: {self.track})"
        shown = [
            f"  {path} ({length}): {side or 'ends'}"
            for path, length, side in zip((before, after), self.lengths, self.sides, strict=True)
        ]
        return [fact, *shown, *(f"  {line}" for line in self.diff)]


def find_parting(before: Path, after: Path) -> Parting:
    """Return where two tapes part."""
    one, two = load_cassette(before), load_cassette(after)
    lengths = (len(one), len(two))
    pairs = zip_longest(one.entries, two.entries)
    for number, (first, second) in enumerate(pairs):
        if first is None or second is None:
            titles = [
                None if entry is None else file.read(entry).request.title
                for file, entry in ((one, first), (two, second))
            ]
            return Parting(number, lengths, "model", (titles[0], titles[1]))
        left, right = _parts(one, first), _parts(two, second)
        for track, value in left.items():
            if value != right[track]:
                found = [*find_differences(value, right[track])]
                titles = [f.read(e).request.title for f, e in ((one, first), (two, second))]
                diff = tuple(describe_differences(found))
                name = "model" if track in {"request", "response"} else track
                return Parting(number, lengths, name, (titles[0], titles[1]), diff)
    return Parting(lengths[0], lengths)


def _parts(file: CassetteFile, entry: Entry) -> dict[str, Any]:
    """Return an interaction as JSON, by its parts, without what differs in every recording."""
    item = interaction_to_dict(file.read(entry))
    request = recorded_body(file, entry, Normalizer(file.header.redactions))
    response = {k: v for k, v in item.get("response", {}).items() if k not in MEASURED}
    tracks = {track: item.get(track, []) for track in TRACKS if track in (file.header.tracks or ())}
    return {"request": request, "response": response} | {
        track: tracks.get(track, []) for track in TRACKS
    }


# ----------------------------------------------------------------------------------------- folders


def find_cassettes(folder: Path) -> Iterator[Path]:
    """Yield the cassettes in a folder and its subfolders, except hidden ones."""
    for path in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        with path.open("rb") as file:
            start = file.read(4096)  # enough for the header: large YAML files are not read
        if b"offbook.cassette" in start or b"\ninteractions:" in b"\n" + start:
            yield path
