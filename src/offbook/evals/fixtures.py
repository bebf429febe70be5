"""Fixtures: the files that cases refer to, read and checked by their kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from offbook.errors import FormatError, UsageError
from offbook.evals.friction import FrictionEvent, parse_friction_events
from offbook.evals.imported_runs import read_stored_trace
from offbook.evals.pack import FixtureRef, LoadedPack
from offbook.evals.run_record import (
    ReplayExpectation,
    StoredRun,
    parse_replay_fixture,
    parse_run_record,
)
from offbook.files import parse_json, read_text
from offbook.trace.reader import Trace

# The kinds of fixtures that a key of a case accepts.
ROLES = {
    "run": ("run-record", "recorded-run"),
    "trace": ("trace", "jsonl-trace"),
    "friction_events": ("friction-events",),
    "fixture": ("replay-fixture",),
    "compare_to": ("run-record", "recorded-run", "trace"),
    "playbook": ("playbook",),
    "cassette": ("cassette",),
}


def check_fixture(loaded: LoadedPack, fixture: FixtureRef) -> None:
    """Raise an error if the content of a fixture does not fit its kind."""
    path = loaded.fixture_path(fixture) if fixture.path else loaded.path
    match fixture.kind:
        case "run-record" | "recorded-run":
            parse_run_record(_document(loaded, fixture), path)
        case "replay-fixture":
            parse_replay_fixture(_document(loaded, fixture), path)
        case "friction-events":
            parse_friction_events(_document(loaded, fixture), path)
        case "jsonl-trace" | "trace":
            check_trace(_records(loaded, fixture), fixture, path)
        case "provider-events":
            _check_provider_events(_records(loaded, fixture), fixture, path)
        case "connector-payload":
            if not isinstance(_document(loaded, fixture), (dict, list)):
                raise FormatError("a connector payload is an object or a list", path=path)
        case _:  # a cassette or a playbook
            from offbook.sources.loading import open_source  # few packs run subjects

            if not fixture.path:
                raise FormatError(f"the {fixture.kind} {fixture.id!r} needs a path", path=path)
            open_source(path)


def _document(loaded: LoadedPack, fixture: FixtureRef) -> Any:
    """Return the JSON value of a fixture."""
    if fixture.inline is not None:
        return fixture.inline
    path = loaded.fixture_path(fixture)
    return parse_json(read_text(path), path)


def _records(loaded: LoadedPack, fixture: FixtureRef) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file, a JSON list, or `{"events": […]}`."""
    path = loaded.path
    if fixture.inline is not None:
        value = fixture.inline
    else:
        path = loaded.fixture_path(fixture)
        text = read_text(path)
        if path.suffix == ".json":
            value = parse_json(text, path)
        else:
            lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
            value = [parse_json(line, path, n) for n, line in lines]
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("events", [value])
    if not isinstance(value, list) or not value:
        raise FormatError(f"the fixture {fixture.id!r} has no records", path=path)
    for number, record in enumerate(cast("list[Any]", value), 1):
        if not isinstance(record, dict):
            raise FormatError(
                f"expected an object, got {type(record).__name__}", path=path, line=number
            )
    return cast("list[dict[str, Any]]", value)


def check_trace(records: list[dict[str, Any]], fixture: FixtureRef, path: Path) -> None:
    """Check the records of a trace: Offbook's own, or prompts with responses."""
    if fixture.trace_id and not any(r.get("trace_id") == fixture.trace_id for r in records):
        raise FormatError(f"no record has the trace_id {fixture.trace_id!r}", path=path)
    for number, record in enumerate(records, 1):
        if not {"event", "type", "prompt"} & record.keys():
            raise FormatError(
                "a record of a trace has an event, a type or a prompt", path=path, line=number
            )


def _check_provider_events(records: list[dict[str, Any]], fixture: FixtureRef, path: Path) -> None:
    """Check that the events are of the provider and the kind that the fixture names."""
    for wanted, keys in (
        (fixture.provider, ("provider",)),
        (fixture.event_kind, ("kind", "event_kind", "type", "event")),
    ):
        named = [record for record in records if any(key in record for key in keys)]
        found = [record for record in named if wanted in (record.get(key) for key in keys)]
        # Events without the field belong to the provider of the file.
        if wanted and named and not found:
            raise FormatError(f"no event has the {keys[0]} {wanted!r}", path=path)


# --- The data of a case


def load_run(loaded: LoadedPack, reference: str) -> StoredRun:
    """Return the run record that a case or a baseline refers to; a trace is converted to one."""
    fixture = loaded.fixtures.get(reference)
    path = loaded.resolve(reference)
    if fixture is not None and fixture.inline is not None:
        return parse_run_record(fixture.inline, loaded.path)
    if path.suffix == ".jsonl" or (fixture is not None and fixture.kind == "trace"):
        return read_stored_trace(path)
    return parse_run_record(parse_json(read_text(path), path), path)


def load_replay_fixture(loaded: LoadedPack, reference: str) -> ReplayExpectation:
    """Return the replay fixture that a case refers to."""
    fixture = loaded.fixtures.get(reference)
    if fixture is not None:
        return parse_replay_fixture(_document(loaded, fixture), loaded.path)
    path = loaded.resolve(reference)
    return parse_replay_fixture(parse_json(read_text(path), path), path)


def load_friction_events(loaded: LoadedPack, reference: str) -> list[FrictionEvent]:
    """Return the friction events that a case refers to."""
    fixture = loaded.fixtures.get(reference)
    if fixture is not None:
        return parse_friction_events(_document(loaded, fixture), loaded.resolve(reference))
    path = loaded.resolve(reference)
    return parse_friction_events(parse_json(read_text(path), path), path)


def trace_path(loaded: LoadedPack, reference: str) -> Path:
    """Return the file of the trace that a case refers to."""
    path = loaded.resolve(reference)
    if not path.is_file():
        raise UsageError("no such trace", where=str(path))
    _ = Trace(path)
    return path
