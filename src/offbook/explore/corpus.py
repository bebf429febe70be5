"""The corpus of a long search: the scripts that reached something new, kept in a folder.

Each script is a file with its moves, next to the trace of its run: `offbook view FOLDER` is the
page of what was reached and never reached. A later search plays the scripts again, so that a
finding is seen until it is fixed, and begins a part of its behaviours with their first moves.
"""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.checks.agent_coverage import AgentCoverage, read_coverage
from offbook.errors import FormatError
from offbook.explore.moves import Move, Place
from offbook.files import convert, read_text, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from offbook.trace.events import Event

FORMAT, VERSION = "offbook.corpus", 1
MOST_SCRIPTS = 1000
OPENINGS = 0.3  # of the behaviours begin as a script of the corpus does
PLACE = "$place"  # a value of a result, in the arguments of a stored call
_DIGITS = re.compile(r"\d+")


class StoredScript(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A script of the corpus: its moves, what it reached, and the invariant that it broke."""

    prompt: str
    moves: tuple[Move, ...]
    reached: tuple[str, ...] = ()
    broke: str = ""
    format: str = FORMAT
    version: int = VERSION

    @property
    def name(self) -> str:
        """The name of its files."""
        text = json.dumps(_as_json([self.prompt, self.moves]))
        return blake2b(text.encode(), digest_size=8).hexdigest()


class Corpus:
    """The scripts in a folder; it is made if it does not exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.scripts: list[StoredScript] = []
        self.reached: set[str] = set()
        for path in sorted(self.folder.glob("*.json")):
            script = read_script(path)
            self.scripts.append(script)
            self.reached.update(script.reached)
        self.folder.mkdir(parents=True, exist_ok=True)

    def add(self, script: StoredScript) -> str:
        """Store a script that reached something new, or broke an invariant.

        Return the path for its trace; "" if it is not kept.
        """
        new = {*script.reached} - self.reached
        self.reached |= new
        full = len(self.scripts) >= MOST_SCRIPTS
        if not script.broke and (not new or full):
            return ""
        path = self.folder / f"{script.name}.json"
        if path.exists():
            return ""
        self.scripts.append(script)
        # Half a character is escaped, which msgspec refuses.
        write_atomic(path, json.dumps(_as_json(script), indent=1) + "\n")
        return str(path.with_suffix(".jsonl"))


def choose_opening(scripts: Sequence[StoredScript], seed: str) -> tuple[Move, ...]:
    """Return the first moves for a behaviour; none for most of them."""
    random = Random(f"{seed}:opening")  # noqa: S311 - not for secrets
    if random.random() >= OPENINGS:
        return ()
    moves = [*_first_session(random.choice(scripts).moves)]
    return tuple(moves[: random.randint(1, len(moves))]) if moves else ()


def _first_session(moves: Iterable[Move]) -> Iterator[Move]:
    """Yield the moves of the first prompt, without the faults of the run."""
    for move in moves:
        if move.prompt:
            return
        if not move.fault:
            yield move


def list_reached(events: Iterable[Event], state: str) -> tuple[str, ...]:
    """Return what a run reached: the outcomes of the agent's parts, and a form of state.

    In the form of a state every number is the same: other amounts are not another state.
    """
    coverage = AgentCoverage()
    read_coverage(events, coverage)
    found = [
        f"{kind} {name}: {outcome}" for kind, name, part in coverage for outcome in part.outcomes
    ]
    form = _DIGITS.sub("#", state)
    return (*found, f"state {blake2b(form.encode('utf-8', 'replace'), digest_size=6).hexdigest()}")


# --- The files


def read_script(path: Path) -> StoredScript:
    """Return a stored script."""
    text = read_text(path)
    try:
        content = _with_places(json.loads(text))
    except ValueError as error:
        raise FormatError(f"invalid JSON: {error}", path=path) from error
    script = convert(content, StoredScript, path=path, text=text)
    if script.format != FORMAT:
        raise FormatError(f"expected a script of a corpus, got {script.format!r}", path=path)
    if script.version > VERSION:
        raise FormatError(
            f"version {script.version} is newer than {VERSION}",
            path=path,
            hint="read it with a newer Offbook",
        )
    return script


def _as_json(value: Any) -> Any:
    match value:
        case Place(index, as_text):
            return {PLACE: index, "as_text": as_text}
        case msgspec.Struct():
            return _as_json(msgspec.structs.asdict(value))
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {name: _as_json(item) for name, item in items}
        case list() | tuple():
            return [_as_json(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _with_places(value: Any) -> Any:
    match value:
        case {"$place": index, "as_text": as_text}:
            return Place(index, as_text)
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {name: _with_places(item) for name, item in items}
        case list():
            return [_with_places(item) for item in cast("list[Any]", value)]
        case _:
            return value
