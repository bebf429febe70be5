"""Records scenarios: steps and events from one and the same run, to scratch and nowhere else."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from offbook.errors import UsageError
from offbook.runs.goldens.fixture import Fixture, Rule
from offbook.runs.goldens.library import Library, write_fixture
from offbook.runs.goldens.matching import show
from offbook.runs.goldens.scenario import Take, play_take

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from offbook.determinism.clock import Clock
    from offbook.runs.goldens.registry import Registry

TEST_RUN = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION")


class Recorded(NamedTuple):
    """What was recorded, and where it was written."""

    fixture: Fixture
    written: list[Path]


async def record(
    library: Library,
    registry: Registry,
    component: str,
    name: str,
    clock: Clock,
    environment: Mapping[str, str] = os.environ,
) -> Recorded:
    """Play a scenario of a live script for real, and write what came of it to scratch."""
    refuse_in_tests(environment)
    path = library.place("scratch", component, name)
    take = registry.take(component, name)
    missing = [key for key in take.needs if not environment.get(key)]
    if missing:
        raise UsageError(f"{name!r} needs {', '.join(missing)} to run for real")
    fixture = await capture(registry, component, take, clock)
    return Recorded(fixture, write_fixture(path, fixture, take.rule))


async def capture(registry: Registry, component: str, take: Take, clock: Clock) -> Fixture:
    """Play a scenario, and make a fixture of what came of it."""
    steps, observed = await play_take(registry.find(component), take)
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
    fixture = Fixture(f"record-{take.name}", take.name, steps, expect, about)
    return seal(fixture, take.rule)


def refuse_in_tests(environment: Mapping[str, str]) -> None:
    """A test run never records: what it writes, it could not fail on."""
    for name in TEST_RUN:
        if name in environment:
            raise UsageError(
                f"this is a test run ({name} is set): nothing is recorded in one",
                hint="record from a shell: offbook fixture record COMPONENT NAME",
            )


def seal(fixture: Fixture, rule: Rule) -> Fixture:
    """The same with the hash of all that was recorded, by which later changes are seen."""
    metadata = {**fixture.metadata, "provenance": digest(fixture, rule)}
    return msgspec.structs.replace(fixture, metadata=metadata)


def digest(fixture: Fixture, rule: Rule) -> str:
    """The hash of a fixture and how it is compared, but for the hash itself."""
    metadata = {k: v for k, v in fixture.metadata.items() if k != "provenance"}
    whole = [msgspec.structs.replace(fixture, metadata=metadata), msgspec.to_builtins(rule)]
    return f"sha256:{sha256(show(whole).encode()).hexdigest()}"
