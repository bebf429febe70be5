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
        text = _dump([self.prompt, self.moves])
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
        write_atomic(path, _dump(script, 1) + "\n")
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
        content = json.loads(text, object_hook=_decode)
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


def _dump(value: object, indent: int | None = None) -> str:
    # Half a character is escaped, which msgspec refuses.
    return json.dumps(value, indent=indent, default=_encode)


def _encode(value: object) -> dict[str, Any]:
    if isinstance(value, Place):
        return {PLACE: value.index, "as_text": value.as_text}
    return msgspec.structs.asdict(cast("msgspec.Struct", value))


def _decode(content: dict[str, Any]) -> Any:
    is_place = {PLACE, "as_text"} <= content.keys()
    return Place(content[PLACE], content["as_text"]) if is_place else content
