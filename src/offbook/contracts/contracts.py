"""Contracts in Python: enforced in a `with` block, or inferred from traces.

Inferred contracts are a proposal to edit, which the traces themselves match. A schema has the types
that were seen, the fields of each object, and as required those that every object had. Texts,
numbers and lists are not limited further.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, cast

import msgspec

from offbook.trace.event_contracts import ContractFile, ContractReader, Contracts
from offbook.trace.events import PUBLISH, Event
from offbook.trace.recorder import observe_traces


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
    """Return contracts for all published topics, and for the data of events of these names."""
    wanted = set(names)
    topics: dict[str, SeenValues] = {}
    data: dict[str, SeenValues] = {}
    for event in events:
        if event.event == PUBLISH and event.data.get("topic"):
            payload = event.data.get("payload")
            topics.setdefault(str(event.data["topic"]), SeenValues()).add(_read_payload(payload))
        if event.event in wanted:
            data.setdefault(event.event, SeenValues()).add(event.data)
    return ContractFile(
        {topic: seen.schema() for topic, seen in sorted(topics.items())},
        {name: seen.schema() for name, seen in sorted(data.items())},
    )


def _read_payload(payload: Any) -> Any:
    """Return the object of a payload that is its JSON; any other text stays a text."""
    if isinstance(payload, str) and payload.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(payload)
        except msgspec.DecodeError:
            return payload
    return payload
