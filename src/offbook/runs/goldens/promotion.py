"""From scratch to golden: only what was recorded, is itself, tells no secret, and still holds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from offbook.errors import RunError, UsageError
from offbook.files import write_whole
from offbook.runs.goldens.fixture import Fixture, Scenario, read_scenarios, sidecar_path
from offbook.runs.goldens.library import Library
from offbook.runs.goldens.matching import show
from offbook.runs.goldens.recorder import digest
from offbook.runs.goldens.replay import replay_all
from offbook.secrets import hide_secrets, names_secret

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from offbook.runs.goldens.replay import Find

PERSONAL = re.compile(r"(/home/|/Users/|[A-Za-z]:\\Users\\)(?P<who>[\w.-]+)")


class Complaint(NamedTuple):
    """Something that keeps a fixture from being golden, and where."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def find_complaints(library: Library, path: Path) -> Iterator[Complaint]:
    """What keeps a file from being golden, but for its replay."""
    scenarios = read_scenarios(path)
    others = [one for one in library.scenarios() if one.path != _golden(library, path)]
    twins = {_content(one.fixture): one for one in others}
    for one in scenarios:
        if not _is_called(one, alone=len(scenarios) == 1):
            yield Complaint(
                one.where,
                f"the scenario is called {one.fixture.scenario!r}, the file {path.stem!r}",
            )
        twin = twins.get(_content(one.fixture))
        if twin is not None:
            yield Complaint(one.where, f"it is a copy of {twin.name} ({twin.where})")
        yield from _find_origin(one)
        yield from _find_secrets(one)


def _golden(library: Library, path: Path) -> Path:
    return library.place("golden", path.parent.name, path.stem)


def _is_called(one: Scenario, *, alone: bool) -> bool:
    name, stem = one.fixture.scenario, one.path.stem
    return name == stem if alone else name == stem or name.startswith(f"{stem}-")


def _content(fixture: Fixture) -> str:
    """What a scenario says, whoever says it: two with the same are copies."""
    return show([fixture.steps, fixture.expect]).replace(show(fixture.session_id), '"…"')


def _find_origin(one: Scenario) -> Iterator[Complaint]:
    about = one.fixture.metadata
    if not about.get("recordedAt"):
        yield Complaint(one.where, "metadata.recordedAt is missing: was it recorded?")
    if "provenance" not in about:
        yield Complaint(one.where, "it was made by hand: metadata.provenance is missing")
    elif about["provenance"] != digest(one.fixture, one.rule):
        yield Complaint(one.where, "it was edited by hand since it was recorded")


def _find_secrets(one: Scenario) -> Iterator[Complaint]:
    for place, text in _texts(msgspec.to_builtins(one.fixture), "$"):
        if names_secret(place.rpartition(".")[2]) or hide_secrets(text) != text:
            yield Complaint(one.where, f"it holds a secret at {place}")
        elif PERSONAL.search(text):
            yield Complaint(one.where, f"it holds a personal path at {place}")


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """All texts of a JSON value with their places."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _texts(inner, f"{place}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(cast("list[Any]", value)):
            yield from _texts(inner, f"{place}[{number}]")


async def promote(library: Library, name: str, find: Find, *, replace: bool = False) -> list[Path]:
    """Make a scratch fixture golden; what was written comes back."""
    path = library.find("scratch", name)
    target = _golden(library, path)
    complaints = [str(one) for one in find_complaints(library, path)]
    replayed = await replay_all(read_scenarios(path), find)
    complaints += [one.tell() for one in replayed if not one.ok]
    if complaints:
        raise RunError(
            f"{name} cannot be golden:\n" + "\n".join(f"  {one}" for one in complaints),
            hint=f"record it anew: offbook fixture record {name.replace('/', ' ')}",
        )
    if target.is_file() and not replace and target.read_bytes() != path.read_bytes():
        raise UsageError(
            f"there is another golden {name}",
            where=str(target),
            hint=f"look first: offbook fixture diff {name}; then: promote {name} --replace",
        )
    return _move(path, target)


def _move(path: Path, target: Path) -> list[Path]:
    """Sidecar first: a fixture is never compared by the rule of another."""
    written: list[Path] = []
    for source, place in ((sidecar_path(path), sidecar_path(target)), (path, target)):
        if source.is_file():
            write_whole(place, source.read_bytes())
            written.append(place)
            source.unlink()
        elif place.is_file():
            place.unlink()
    return written
