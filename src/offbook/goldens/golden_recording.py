"""Records scenarios: steps and events from one and the same run, to scratch and nowhere else."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from offbook.errors import RunError, UsageError
from offbook.files import write_atomic
from offbook.goldens.fixture_store import (
    FixtureStore,
    GoldenFixture,
    GoldenScenario,
    MatchRule,
    read_scenarios,
    sidecar_path,
    write_fixture,
)
from offbook.goldens.golden_replay import canonical_json, replay_all
from offbook.goldens.live_scripts import ScenarioDef, play_scenario
from offbook.secrets import hide_secrets, is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from offbook.determinism.clock import Clock
    from offbook.goldens.golden_replay import Find
    from offbook.goldens.live_scripts import ComponentRegistry


# --- Records scenarios: steps and events from one and the same run, to scratch and nowhere else.

TEST_RUN = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION")


class GoldenRecording(NamedTuple):
    """What was recorded, and where it was written."""

    fixture: GoldenFixture
    written: list[Path]


async def record(
    library: FixtureStore,
    registry: ComponentRegistry,
    component: str,
    name: str,
    clock: Clock,
    environment: Mapping[str, str] = os.environ,
) -> GoldenRecording:
    """Play a scenario of a live script for real, and write what came of it to scratch."""
    refuse_in_tests(environment)
    path = library.place("scratch", component, name)
    take = registry.take(component, name)
    missing = [key for key in take.needs if not environment.get(key)]
    if missing:
        raise UsageError(f"{name!r} needs {', '.join(missing)} to run for real")
    fixture = await capture(registry, component, take, clock)
    return GoldenRecording(fixture, write_fixture(path, fixture, take.rule))


async def capture(
    registry: ComponentRegistry, component: str, take: ScenarioDef, clock: Clock
) -> GoldenFixture:
    """Play a scenario, and make a fixture of what came of it."""
    steps, observed = await play_scenario(registry.find(component), take)
    if not steps:
        raise UsageError(f"the scenario {take.name!r} did nothing, so there is nothing to record")
    expect: dict[str, Any] = {"events": observed.events}
    state = msgspec.to_builtins(observed.state, enc_hook=repr)
    expect |= {key: value for key, value in state.items() if value is not None}
    at = datetime.fromtimestamp(clock.millis() / 1000, UTC)
    about = {
        "recordedAt": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "component": component,
        "description": take.description,
    }
    fixture = GoldenFixture(f"record-{take.name}", take.name, steps, expect, about)
    return seal(fixture, take.rule)


def refuse_in_tests(environment: Mapping[str, str]) -> None:
    """A test run never records: what it writes, it could not fail on."""
    for name in TEST_RUN:
        if name in environment:
            raise UsageError(
                f"this is a test run ({name} is set): nothing is recorded in one",
                hint="record from a shell: offbook fixture record COMPONENT NAME",
            )


def seal(fixture: GoldenFixture, rule: MatchRule) -> GoldenFixture:
    """The same with the hash of all that was recorded, by which later changes are seen."""
    metadata = {**fixture.metadata, "provenance": digest(fixture, rule)}
    return msgspec.structs.replace(fixture, metadata=metadata)


def digest(fixture: GoldenFixture, rule: MatchRule) -> str:
    """The hash of a fixture and how it is compared, but for the hash itself."""
    metadata = {k: v for k, v in fixture.metadata.items() if k != "provenance"}
    whole = [msgspec.structs.replace(fixture, metadata=metadata), msgspec.to_builtins(rule)]
    return f"sha256:{sha256(canonical_json(whole).encode()).hexdigest()}"


# --- From scratch to golden: only what was recorded, is itself, tells no secret, and still holds.

PERSONAL = re.compile(r"(/home/|/Users/|[A-Za-z]:\\Users\\)(?P<who>[\w.-]+)")


class Complaint(NamedTuple):
    """Something that keeps a fixture from being golden, and where."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def find_complaints(library: FixtureStore, path: Path) -> Iterator[Complaint]:
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


def _golden(library: FixtureStore, path: Path) -> Path:
    return library.place("golden", path.parent.name, path.stem)


def _is_called(one: GoldenScenario, *, alone: bool) -> bool:
    name, stem = one.fixture.scenario, one.path.stem
    return name == stem if alone else name == stem or name.startswith(f"{stem}-")


def _content(fixture: GoldenFixture) -> str:
    """What a scenario says, whoever says it: two with the same are copies."""
    return canonical_json([fixture.steps, fixture.expect]).replace(
        canonical_json(fixture.session_id), '"…"'
    )


def _find_origin(one: GoldenScenario) -> Iterator[Complaint]:
    about = one.fixture.metadata
    if not about.get("recordedAt"):
        yield Complaint(one.where, "metadata.recordedAt is missing: was it recorded?")
    if "provenance" not in about:
        yield Complaint(one.where, "it was made by hand: metadata.provenance is missing")
    elif about["provenance"] != digest(one.fixture, one.rule):
        yield Complaint(one.where, "it was edited by hand since it was recorded")


def _find_secrets(one: GoldenScenario) -> Iterator[Complaint]:
    for place, text in _texts(msgspec.to_builtins(one.fixture), "$"):
        if is_secret_name(place.rpartition(".")[2]) or hide_secrets(text) != text:
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


async def promote(
    library: FixtureStore, name: str, find: Find, *, replace: bool = False
) -> list[Path]:
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
            write_atomic(place, source.read_bytes())
            written.append(place)
            source.unlink()
        elif place.is_file():
            place.unlink()
    return written
