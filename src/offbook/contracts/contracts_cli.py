"""Contracts: enforced in a `with` block, inferred from traces, and the command `offbook contract`.

Inferred contracts are a proposal to edit, which the traces themselves match. A schema has the types
that were seen, the fields of each object, and as required those that every object had. Texts,
numbers and lists are not limited further.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from offbook.cli_options import (
    FILE_PATH,
    echo,
    json_option,
    print_json,
    refuse_together,
    refuse_without,
)
from offbook.errors import UsageError, counted, require_known
from offbook.trace.event_contracts import ContractFile, ContractReader, Contracts
from offbook.trace.events import PUBLISH, Event
from offbook.trace.recorder import observe_traces

if TYPE_CHECKING:
    from offbook.trace.event_contracts import ContractViolation
    from offbook.trace.events import Event


@contextmanager
def enforce(contracts: Contracts) -> Generator[Contracts]:
    """Fail each run that is opened inside and breaks one of these contracts.

    with enforce(Contracts(topics={"build.done": BuildDone})) as contracts:
        ...
    assert not contracts.unused
    """
    with observe_traces(lambda: ContractReader(contracts)):
        yield contracts


class SeenValues:
    """The values of one place: their types, and the values inside them."""

    def __init__(self) -> None:
        self._types: set[str] = set()
        self._objects = 0
        self._fields: dict[str, SeenValues] = {}
        self._counts: dict[str, int] = {}
        self._items: SeenValues | None = None

    def add(self, value: Any) -> None:
        """Note a value."""
        match value:
            case None:
                self._types.add("null")
            case bool():
                self._types.add("boolean")
            case int():
                self._types.add("integer")
            case float():
                self._types.add("number")
            case str():
                self._types.add("string")
            case list():
                self._types.add("array")
                for item in cast("list[Any]", value):
                    self._items = self._items or SeenValues()
                    self._items.add(item)
            case _:
                self._types.add("object")
                self._objects += 1
                for key, item in cast("Mapping[str, Any]", value).items():
                    self._fields.setdefault(key, SeenValues()).add(item)
                    self._counts[key] = self._counts.get(key, 0) + 1

    def schema(self) -> dict[str, Any]:
        """Return a schema that all values match."""
        types = self._types - ({"integer"} if "number" in self._types else set())
        schema: dict[str, Any] = {"type": min(types) if len(types) == 1 else sorted(types)}
        if self._items is not None:
            schema["items"] = self._items.schema()
        if self._fields:
            names = sorted(self._fields)
            schema["properties"] = {name: self._fields[name].schema() for name in names}
            if required := [name for name in names if self._counts[name] == self._objects]:
                schema["required"] = required
        return schema


def infer_contracts(events: Iterable[Event], names: Iterable[str] = ()) -> ContractFile:
    """Return contracts for all published topics, and for the data of events of these names.

    Events about a tool have a contract for each tool.
    """
    wanted = set(names)
    topics: dict[str, SeenValues] = {}
    data: dict[str, SeenValues] = {}
    for event in events:
        if event.event == PUBLISH and event.data.get("topic"):
            payload = event.data.get("payload")
            topics.setdefault(str(event.data["topic"]), SeenValues()).add(_read_payload(payload))
        if event.event in wanted:
            # Each tool has another input.
            name = f"{event.event} {event.data.get('tool', '')}".rstrip()
            data.setdefault(name, SeenValues()).add(event.data)
    return ContractFile(
        {topic: seen.schema() for topic, seen in sorted(topics.items())},
        # A contract of events without data would accept every event.
        {
            name: schema
            for name, seen in sorted(data.items())
            if (schema := seen.schema()).get("properties")
        },
    )


def _read_payload(payload: Any) -> Any:
    """Return the object of a payload that is its JSON; any other text stays a text."""
    if isinstance(payload, str) and payload.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(payload)
        except msgspec.DecodeError:
            return payload
    return payload


SHOWN = 20

EXAMPLE = """\b
Example:
  offbook contract run.jsonl --contracts contracts.json
  offbook contract traces/*.jsonl --infer > contracts.json
  offbook contract run.jsonl --infer --event tool.call --out contracts.json

\b
Edit the inferred file, and name it in pyproject.toml:
  [tool.offbook]
  contracts = "contracts.json"

\b
Exit codes:
  0  every event matches, and every contract was used; or contracts were inferred
  1  an event breaks a contract, or a contract matched no event
  2  wrong usage, a file that cannot be read, or nothing to infer from
"""


@click.command("contract", epilog=EXAMPLE)
@click.argument("traces", nargs=-1, required=True, type=FILE_PATH, metavar="TRACE…")
@click.option("--contracts", type=FILE_PATH, metavar="FILE", help="Default: [tool.offbook].")
@click.option("--infer", "infers", is_flag=True, help="Propose contracts instead, from the traces.")
@click.option("--event", multiple=True, metavar="NAME", help="Infer also for events of this name.")
@click.option("--out", type=FILE_PATH, metavar="FILE", help="Write the inferred .json file.")
@json_option
def contract(
    traces: tuple[Path, ...],
    *,
    contracts: Path | None,
    infers: bool,
    event: tuple[str, ...],
    out: Path | None,
    as_json: bool,
) -> int:
    """Check stored traces by contracts, or infer contracts from traces.

    A contract without an event is not a pass. Inferred are the topics that were published, with
    the types of their payloads.
    """
    refuse_together(contracts=contracts, infer=infers)
    if infers:
        return _infer(traces, event, out)
    refuse_without("--infer", event=event, out=out)
    return _check(traces, contracts, as_json=as_json)


def _infer(traces: tuple[Path, ...], event: tuple[str, ...], out: Path | None) -> int:
    from offbook.files import write_atomic

    seen: set[str] = set()
    inferred = infer_contracts(_read(traces, seen), event)
    for name in event:
        require_known("no trace has an event", name, seen)
    if not inferred.topics and not inferred.events:
        raise UsageError("the traces publish no topic", hint="name events: --event tool.call")
    text = msgspec.json.format(msgspec.json.encode(inferred), indent=2).decode()
    if out is None:
        echo(text)
    else:
        write_atomic(out, text + "\n")
        echo(f"wrote {len(inferred.topics) + len(inferred.events)} contracts to {out}")
    return 0


def _check(traces: tuple[Path, ...], contracts: Path | None, *, as_json: bool) -> int:
    from offbook.trace.event_contracts import Contracts, project_contracts

    held = project_contracts() if contracts is None else Contracts.read(contracts)
    if held is None:
        raise UsageError(
            "no contracts", hint="give --contracts FILE, or [tool.offbook] contracts = …"
        )
    broken: list[ContractViolation] = []
    for event in _read(traces, set()):
        broken += held.check(event)
    if as_json:
        violations: list[dict[str, Any]] = [violation._asdict() for violation in broken]
        result = {"violations": violations, "unused": held.unused, "matched": held.matched}
        print_json({"passed": not broken and not held.unused, **result})
    else:
        lines = [f"{v}\n{v.hint}" if v.hint else str(v) for v in broken[:SHOWN]]
        lines += [f"… and {len(broken) - SHOWN} more"] if len(broken) > SHOWN else []
        lines += [f"{name}: unused, no event matched it" for name in held.unused]
        used = sum(held.matched.values())
        echo(
            "\n".join(
                [*lines, f"{counted(used, 'event')} checked, {counted(len(broken), 'violation')}"]
            )
        )
    return int(bool(broken or held.unused))


def _read(traces: tuple[Path, ...], seen: set[str]) -> Iterator[Event]:
    from offbook.trace.reader import Trace, raise_if_corrupt

    for path in traces:
        trace = Trace(path)
        for event in trace:
            seen.add(event.event)
            yield event
        raise_if_corrupt(trace.faults, path)
