"""Contracts: JSON schemas that the events of every run must match.

    # contracts.yaml
    topics:                          # published events: the schema of the payload
      build.done: {type: string, minLength: 1}
      review.*: {type: object, required: [verdict]}
      note: true                     # any payload
    events:                          # any event of the trace: the schema of its data
      tool.call: {properties: {input: {type: object}}}
      tool.call refund: {properties: {input: {required: [number]}}}   # of one tool

    [tool.offbook]                   # in pyproject.toml: all runs in this folder and below
    contracts = "contracts.yaml"

    Contracts(topics={"build.done": BuildDone})      # in Python, also of msgspec types

A topic that no contract names breaks them, if there are contracts of topics. An event that breaks
a contract fails the run. A contract that matched no event is `unused`: it has checked nothing.
A contract of `tool.call` holds for what the model asks, and for what the tool gets if that differs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from offbook.errors import ContractBroken, FormatError, UsageError, did_you_mean
from offbook.exchange.model import SchemaValidator, compile_validator
from offbook.files import read_document, read_settings
from offbook.options import require_some
from offbook.secrets import excerpt
from offbook.trace.events import (
    PUBLISH,
    TOOL_CALL,
    TOOL_RESULT,
    TOOL_START,
    Event,
    topic_matches,
)

SHOWN_VALUE = 200
JSON_TYPES = ("array", "boolean", "integer", "number", "object")
# The keywords of JSON Schema (drafts 4 to 2020-12) by what is below them.
SCHEMA_KEYWORDS = {
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items",
    "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
LIST_KEYWORDS = {"allOf", "anyOf", "oneOf", "prefixItems"}
NAMED_KEYWORDS = {
    "$defs", "definitions", "dependentSchemas", "patternProperties", "properties",
}  # fmt: skip
ANNOTATIONS = {
    "$anchor", "$comment", "$defs", "$dynamicAnchor", "$id", "$recursiveAnchor", "$schema",
    "$vocabulary", "contentEncoding", "contentMediaType", "contentSchema", "default",
    "definitions", "deprecated", "description", "example", "examples", "id", "readOnly", "title",
    "writeOnly",
}  # fmt: skip
VALUE_KEYWORDS = {
    "$dynamicRef", "$recursiveRef", "$ref", "const", "dependencies", "dependentRequired",
    "discriminator", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "maxContains",
    "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength",
    "minProperties", "minimum", "multipleOf", "nullable", "pattern", "required", "type",
    "uniqueItems",
}  # fmt: skip
KEYWORDS = SCHEMA_KEYWORDS | LIST_KEYWORDS | NAMED_KEYWORDS | ANNOTATIONS | VALUE_KEYWORDS


class ContractFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of a file of contracts."""

    topics: dict[str, dict[str, Any] | bool] = {}
    events: dict[str, dict[str, Any]] = {}


class ContractViolation(NamedTuple):
    """An event that breaks a contract: where, what was expected, and the value."""

    seq: int
    event: str
    contract: str
    path: str
    expected: str
    actual: Any
    hint: str = ""

    def __str__(self) -> str:
        shown = excerpt(repr(self.actual), SHOWN_VALUE)
        place = f"event {self.seq}, {self.event}"
        return f"{place}: {self.contract} at {self.path}: expected {self.expected}, got {shown}"


class _Contract(NamedTuple):
    name: str  # `tool.call`, or `tool.call refund`: that of one tool
    validator: SchemaValidator
    takes_json: bool

    @property
    def pattern(self) -> str:
        return self.name.partition(" ")[0]

    def is_about(self, event: Event) -> bool:
        tool = self.name.partition(" ")[2]
        return not tool or tool == event.data.get("tool")


class Contracts:
    """The contracts of a project, and how many events each has matched."""

    def __init__(
        self,
        *,
        topics: Mapping[str, Any] | None = None,
        events: Mapping[str, Any] | None = None,
        where: str = "contracts",
    ) -> None:
        self.where = where
        any_payload = compile_validator({}, where)  # a known topic, `true` in a file
        hint = "or `true` for any payload of a topic"
        self._topics = [
            _Contract(name, any_payload, takes_json=False)
            if given is True
            else _compile(name, given, where, hint)
            for name, given in (topics or {}).items()
        ]
        self._events = [
            _compile(name, given, where, only_objects=True)
            for name, given in (events or {}).items()
        ]
        given = self._topics or self._events
        require_some(given, "no contract is given", where=where, hint="name topics or events")
        self._asked: dict[str, Any] = {}  # the input of each open call of the model
        self.matched = {
            **{f"topic {contract.name}": 0 for contract in self._topics},
            **{f"event {contract.name}": 0 for contract in self._events},
        }

    @classmethod
    def read(cls, path: Path) -> Contracts:
        """Return the contracts of a JSON or YAML file."""
        file = read_document(path, ContractFile)
        return cls(topics=file.topics, events=file.events, where=str(path))

    @property
    def unused(self) -> list[str]:
        """The contracts that matched no event: they have checked nothing."""
        return [name for name, count in self.matched.items() if not count]

    def wants(self, name: str) -> bool:
        """Return whether events of this name are checked."""
        if name == PUBLISH and self._topics:
            return True
        names = (name, TOOL_CALL) if name in {TOOL_START, TOOL_RESULT} else (name,)
        return any(topic_matches(c.pattern, n) for c in self._events for n in names)

    def check(self, event: Event) -> list[ContractViolation]:
        """Return what is wrong with an event."""
        found: list[ContractViolation] = []
        names = {event.event, TOOL_CALL} if self._is_other_call(event) else {event.event}
        for contract in self._events:
            if contract.is_about(event) and any(
                topic_matches(contract.pattern, name) for name in names
            ):
                self.matched[f"event {contract.name}"] += 1
                found += _violations(contract, event, event.data, "", contract.name)
        if event.event == PUBLISH and self._topics:
            found += self._check_topic(event)
        return found

    def _is_other_call(self, event: Event) -> bool:
        """Return whether a tool got something else than the model asked for, if it asked."""
        call_id, given = str(event.data.get("call_id")), event.data.get("input")
        if event.event == TOOL_CALL:
            self._asked[call_id] = given
        elif event.event == TOOL_START:
            return call_id not in self._asked or self._asked[call_id] != given
        elif event.event == TOOL_RESULT:
            self._asked.pop(call_id, None)
            return given is not None  # it has an input only if the agent's request has another
        return False

    def _check_topic(self, event: Event) -> list[ContractViolation]:
        topic = str(event.data.get("topic", ""))
        matching = [c for c in self._topics if topic_matches(c.name, topic)]
        if not matching:
            known = [contract.name for contract in self._topics]
            hint = did_you_mean(topic, known)
            expected = "a topic with a contract"
            return [
                ContractViolation(event.seq, event.event, "topic", ".topic", expected, topic, hint)
            ]
        found: list[ContractViolation] = []
        for contract in matching:
            self.matched[f"topic {contract.name}"] += 1
            payload: Any = event.data.get("payload")
            # Agents publish text: where anything else is expected, it is the JSON of it.
            if contract.takes_json and isinstance(payload, str):
                with suppress(msgspec.DecodeError):  # the schema says what is wrong
                    payload = msgspec.json.decode(payload)
            found += _violations(contract, event, payload, ".payload", f"topic {topic}")
        return found


class ContractReader:
    """Checks a trace that is being written: the first broken contract fails the run."""

    def __init__(self, contracts: Contracts) -> None:
        self.wants = contracts.wants
        self._check = contracts.check
        self._where = contracts.where

    def on_event(self, event: Event) -> None:
        """Raise if the event breaks a contract."""
        if violations := self._check(event):
            first, *others = violations
            error = ContractBroken(str(first), where=self._where, hint=first.hint)
            for other in others:
                error.add_note(str(other))
            raise error

    def on_close(self) -> None:
        """Do nothing: each event was checked alone."""


def project_contracts() -> Contracts | None:
    """Return the contracts of `[tool.offbook]` in the nearest pyproject.toml, if it names some."""
    return _contracts_of(os.getcwd())  # noqa: PTH109 - for each run


@cache
def _contracts_of(folder: str) -> Contracts | None:
    settings, path = read_settings(Path(folder))
    name = settings.contracts
    if name is None:
        return None
    if not (path.parent / name).is_file():
        raise FormatError(
            f"[tool.offbook] contracts: expected a file, got {name!r}",
            path=path,
            hint="offbook contract TRACE… --infer --out contracts.json writes one",
        )
    return Contracts.read(path.parent / name)


def _compile(
    pattern: str, given: Any, where: str, hint: str = "", *, only_objects: bool = False
) -> _Contract:
    """Return a contract of a JSON schema or of a type."""
    if isinstance(given, Mapping):
        schema = dict(cast("Mapping[str, Any]", given))
    else:
        try:
            schema = msgspec.json.schema(given)
        except (TypeError, RuntimeError) as error:
            raise UsageError(
                f"{pattern}: expected a JSON schema or a type, got {given!r}", where=where
            ) from error
    check_keywords(schema, f"{where}: {pattern}")
    validator = compile_validator(schema, f"{where}: {pattern}")
    if accepts_everything(schema, validator, only_objects=only_objects):
        every = accepts_everything(schema, validator, only_objects=False)
        what = "every value" if every else "the data of every event"
        raise UsageError(
            f"the schema accepts {what}",
            where=f"{where}: {pattern}",
            hint=f"name a type{' of a property' * only_objects}{hint and ', '}{hint}",
        )
    takes_json = "$ref" in schema or schema.get("type") in JSON_TYPES
    return _Contract(pattern, validator, takes_json)


# Of these keywords it is decided by trial whether a schema accepts everything.
TRIED_KEYWORDS = ANNOTATIONS | LIST_KEYWORDS | {
    "additionalProperties", "items", "minItems", "minLength", "minProperties", "not", "nullable",
    "properties", "required", "type",
}  # fmt: skip
TRIED_VALUES: tuple[Any, ...] = (None, False, 7.5, "", "x", [], [None, 7.5], {}, {"\0": None})


def accepts_everything(
    schema: Mapping[str, Any], validator: SchemaValidator, *, only_objects: bool
) -> bool:
    """Return whether a schema accepts every value; with `only_objects`, every object."""
    values = _values_to_try(schema)
    if values is None:
        return False
    tried: list[Any] = [v for v in values if not only_objects or isinstance(v, dict)]
    return not any(validator(value) for value in tried)


def _values_to_try(schema: Any) -> list[Any] | None:
    """Return values of which a schema refuses one, if it refuses any; None if that is not known."""
    values = list(TRIED_VALUES)
    if not isinstance(schema, Mapping):  # true and false are schemas
        return values
    fields = cast("Mapping[str, Any]", schema)
    if any(key not in TRIED_KEYWORDS and not key.startswith("x-") for key in fields):
        return None
    # The schemas below, and the property or the item that each is about.
    inner: list[tuple[str | int | None, Any]] = [
        *cast("Mapping[str, Any]", fields.get("properties", {})).items(),
        ("\0", fields.get("additionalProperties", True)),
        (0, fields.get("items", True)),
        (None, fields.get("not", True)),
        *((None, below) for key in LIST_KEYWORDS for below in fields.get(key, ())),
    ]
    for place, below in inner:
        found = _values_to_try(below)
        if found is None:
            return None
        for value in found:
            values.append({place: value} if isinstance(place, str) else value)
            values += [[value]] if place == 0 else []
    return values


def check_keywords(schema: Any, where: str, path: str = "$") -> None:
    """Raise for a keyword that JSON Schema does not have: a validator ignores it."""
    if not isinstance(schema, Mapping):
        return
    for key, value in cast("Mapping[str, Any]", schema).items():
        if key not in KEYWORDS and not key.startswith("x-"):
            raise UsageError(
                f"unknown keyword {key!r} (at {path})",
                where=where,
                hint=did_you_mean(key, KEYWORDS),
            )
        if key in SCHEMA_KEYWORDS:
            check_keywords(value, where, f"{path}.{key}")
        if key in LIST_KEYWORDS or (key == "items" and isinstance(value, list)):
            for number, item in enumerate(value if isinstance(value, list) else []):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - any list
                check_keywords(item, where, f"{path}.{key}[{number}]")
        if key in NAMED_KEYWORDS and isinstance(value, Mapping):
            for name, item in cast("Mapping[str, Any]", value).items():
                check_keywords(item, where, f"{path}.{key}.{name}")


def _violations(
    contract: _Contract, event: Event, value: Any, prefix: str, title: str
) -> list[ContractViolation]:
    return [
        ContractViolation(
            event.seq,
            event.event,
            f"the contract of {title}",
            "".join([prefix, *(f".{key}" for key in error.path)]) or ".",
            error.message,
            error.value,
        )
        for error in contract.validator(value)
    ]
