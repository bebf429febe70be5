"""Recording and promotion: from a live scenario to scratch, and from scratch to golden.

A recording has the steps and the events of one run, so they agree. It becomes golden only if it
was not edited, contains no secret, and replays.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from offbook.errors import RunError, UsageError, did_you_mean
from offbook.files import write_atomic
from offbook.goldens.fixture_store import (
    FixtureStore,
    GoldenFixture,
    MatchRule,
    Problem,
    read_scenarios,
    sidecar_path,
    write_fixture,
)
from offbook.goldens.golden_replay import VOLATILE_MARKS, canonical_json, replay_all
from offbook.goldens.live_scripts import play_scenario
from offbook.secrets import hide_secrets, is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from offbook.determinism.clock import Clock
    from offbook.goldens.golden_replay import FindComponent
    from offbook.goldens.live_scripts import ComponentRegistry

PYTEST_VARIABLES = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION")
HOME_PATH = re.compile(r"(/home/|/Users/|[A-Za-z]:\\Users\\)[\w.-]+")


class GoldenRecording(NamedTuple):
    """A recorded fixture and the files that were written."""

    fixture: GoldenFixture
    written: list[Path]


async def record(
    store: FixtureStore,
    registry: ComponentRegistry,
    component: str,
    name: str,
    clock: Clock,
    environment: Mapping[str, str] = os.environ,
) -> GoldenRecording:
    """Run a scenario of a live script for real and write its steps and result to scratch."""
    for variable in PYTEST_VARIABLES:
        if variable in environment:
            # a test that records its own expectation can never fail
            raise UsageError(
                f"cannot record in a test run ({variable} is set)",
                hint="record from a shell: offbook golden record COMPONENT/NAME",
            )
    path = store.fixture_path("scratch", component, name)
    definition = registry.scenario(component, name)
    missing = definition.missing_variables(environment)
    if missing:
        raise UsageError(f"the scenario {name!r} needs {', '.join(missing)}, which is not set")
    steps, observation = await play_scenario(registry.find(component), definition)
    if not steps:
        raise UsageError(f"the scenario {name!r} has no steps to record")
    # a volatile field is a string now; a name that no field has is a mistake
    paths = (path for path, _ in _strings([*observation], "$"))
    fields = {re.sub(r"\[\d+\]", "", path) for path in paths}
    for field in definition.rule.volatile:
        if not any(path.endswith(f".{field}") for path in fields):
            known = {path.rpartition(".")[2] for path in fields}
            raise UsageError(
                f"the volatile field {field!r} is in no event and not in the state",
                where=str(registry.script_path(component)),
                hint=did_you_mean(field, known),
            )
    # null means "not compared" in a fixture, so it is not recorded
    expect = {"events": observation.events}
    expect |= {key: value for key, value in observation.state.items() if value is not None}
    now = datetime.fromtimestamp(clock.millis() / 1000, UTC)
    metadata = {
        "recordedAt": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "component": component,
        "description": definition.description,
    }
    fixture = GoldenFixture(f"record-{name}", name, steps, expect, metadata)
    # the hash reveals later edits: see find_problems
    metadata = {**metadata, "provenance": provenance_digest(fixture, definition.rule)}
    fixture = msgspec.structs.replace(fixture, metadata=metadata)
    ignore = store.root / "scratch" / ".gitignore"
    if not ignore.exists():
        write_atomic(ignore, "*\n")
    return GoldenRecording(fixture, write_fixture(path, fixture, definition.rule))


def provenance_digest(fixture: GoldenFixture, rule: MatchRule) -> str:
    """Return the hash of a fixture, except for the hash in it, and of its match rule."""
    metadata = {k: v for k, v in fixture.metadata.items() if k != "provenance"}
    content = [msgspec.structs.replace(fixture, metadata=metadata), msgspec.to_builtins(rule)]
    return f"sha256:{sha256(canonical_json(content).encode()).hexdigest()}"


def find_problems(store: FixtureStore, path: Path) -> Iterator[Problem]:
    """Return the problems of a golden or scratch file, except for those of its replay."""
    scenarios = read_scenarios(path)
    golden = store.fixture_path("golden", path.parent.name, path.stem)
    others = {_content(other.fixture): other for other in store.scenarios() if other.path != golden}
    for scenario in scenarios:
        fixture, line = scenario.fixture, scenario.line
        name, stem = fixture.scenario, path.stem
        # one of several scenarios of a file may add to the name: open-drawer, open-drawer-2
        if name != stem and (len(scenarios) == 1 or not name.startswith(f"{stem}-")):
            yield Problem(path, line, f"the scenario is named {name!r}, but the file {stem!r}")
        recorded = fixture.metadata.get("component", path.parent.name)
        if recorded != path.parent.name:
            yield Problem(path, line, f"recorded from the component {recorded!r}")
        copy = others.get(_content(fixture))
        if copy is not None:
            yield Problem(path, line, f"duplicate of {copy.name} ({copy.location})")
        if not fixture.metadata.get("recordedAt"):
            yield Problem(path, line, "not recorded: metadata.recordedAt is missing")
        if "provenance" not in fixture.metadata:
            yield Problem(path, line, "not recorded: metadata.provenance is missing")
        elif fixture.metadata["provenance"] != provenance_digest(fixture, scenario.rule):
            yield Problem(path, line, "edited after it was recorded")
        for field, text in _strings(msgspec.to_builtins(fixture), "$"):
            if text in VOLATILE_MARKS:
                continue  # the type of a value, not the value
            # the name of a field is enough: a password may look like any word
            if is_secret_name(field.rpartition(".")[2]) or hide_secrets(text) != text:
                yield Problem(path, line, f"contains a secret at {field}")
            elif HOME_PATH.search(text):
                yield Problem(path, line, f"contains a path of a home folder at {field}")


def _content(fixture: GoldenFixture) -> str:
    """Return steps and expectation without the session id, to find copies."""
    content = canonical_json([fixture.steps, fixture.expect])
    return content.replace(canonical_json(fixture.session_id), '"…"')


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Return all strings of a JSON value with their paths."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _strings(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(cast("list[Any]", value)):
            yield from _strings(inner, f"{path}[{number}]")


async def check_promotion(store: FixtureStore, name: str, find_component: FindComponent) -> None:
    """Raise unless a scratch fixture may become golden: a recording, unedited, that replays."""
    scratch = store.find("scratch", name)
    problems = [str(problem) for problem in find_problems(store, scratch)]
    replays = await replay_all(read_scenarios(scratch), find_component)
    problems += [replay.render() for replay in replays if not replay.ok]
    if not problems:
        return
    hint = f"record it again: offbook golden record {name}"
    differences = [each for replay in replays for each in replay.differences]
    paths = [each.partition(": expected ")[0] for each in differences if ": expected " in each]
    fields = sorted({path.rpartition(".")[2] for path in paths if not path.endswith("]")})
    if fields:
        listed = ", ".join(f'"{field}"' for field in fields)
        hint += f"; if a value changes with every run: @scenario(volatile=[{listed}])"
    raise RunError(
        f"cannot promote {name}:\n" + "\n".join(f"  {problem}" for problem in problems),
        hint=hint,
    )


async def promote(
    store: FixtureStore, name: str, find_component: FindComponent, *, replace: bool = False
) -> list[Path]:
    """Make a scratch fixture golden and return the written files."""
    await check_promotion(store, name, find_component)
    scratch = store.find("scratch", name)
    golden = store.fixture_path("golden", scratch.parent.name, scratch.stem)
    # the same content is the same recording, which needs no --replace
    if golden.is_file() and not replace and golden.read_bytes() != scratch.read_bytes():
        raise UsageError(
            f"a different golden {name} exists",
            where=str(golden),
            hint=f"compare: offbook review {name}; then: promote {name} --replace",
        )
    written: list[Path] = []
    # the sidecar first: after an interruption, no fixture is compared by the rule of another
    for source, target in ((sidecar_path(scratch), sidecar_path(golden)), (scratch, golden)):
        if source.is_file():
            write_atomic(target, source.read_bytes())
            written.append(target)
            source.unlink()
        elif target.is_file():
            target.unlink()
    return written
