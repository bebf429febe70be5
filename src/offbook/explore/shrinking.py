"""Makes a script that breaks an invariant smaller, as long as it breaks the same one.

The script is shortened, not the random choices behind it: that takes a few runs instead of a few
hundred. At the end, each step, call, argument and option was left out once, and each value replaced
by a simpler one, and what was left no longer failed.

A reader believes what a model would really do: a call that its schema allows is preferred to a
shorter one that it forbids, a known tool to an unknown one, and two conversations one after the
other to the same two side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.determinism.shrinking import MAX_RUNS, without_parts
from offbook.determinism.shrinking import shrink as shrink_value
from offbook.errors import UsageError
from offbook.exchange.messages import JSON
from offbook.exchange.model import compile_validator
from offbook.explore.moves import END, GeneratedCall, Move, Place, has_place, map_values

if TYPE_CHECKING:
    from offbook.exchange.model import Tool

SIMPLE_VALUES: tuple[Any, ...] = (None, False, 0, 1, "", "a", [], {})
FORBIDDEN = 10_000  # more than any other part of a script: an allowed call stays allowed
UNLIKELY = 300  # of a tool that does not exist: a known one with its arguments is simpler
MAX_NAMED = 3  # values of an enum that are tried
SCALARS = (bool, int, float, str, Place)
Moves = tuple[Move, ...]


def shrink(
    moves: Moves,
    fails: Callable[[Moves], bool],
    max_runs: int = MAX_RUNS,
    tools: Mapping[str, Tool] | None = None,
) -> tuple[Moves, int]:
    """Return the smallest moves for which `fails` still holds, and the number of tries.

    `tools` are those of the agent: a call that their schemas allow stays one.
    """
    known = tools or {}
    return shrink_value(
        moves,
        fails,
        lambda some: chain(_smaller(some), _more_likely(some, known)),
        lambda some: _size(some) + FORBIDDEN * _count_forbidden(some, known),
        max_runs,
    )


def _size(moves: Moves) -> int:
    """Return how much a reader has to understand."""
    size = 0
    for move in moves:
        options = (move.stop != "stop") + (move.status not in {0, 500}) + bool(move.status)
        options += move.denied + bool(move.declined) + move.fresh + move.beside
        size += 1000 + 20 * options + (len(move.text) if move != END else 1)
        for made in move.calls:
            size += 200 + UNLIKELY * made.unknown + _value_size(made.arguments)
    return size


def _count_forbidden(moves: Moves, tools: Mapping[str, Tool]) -> int:
    """Return the number of calls that the schema of their tool forbids."""
    return sum(not _is_allowed(made, tools) for move in moves for made in move.calls)


def _is_allowed(made: GeneratedCall, tools: Mapping[str, Tool]) -> bool:
    """Return whether a schema allows a call; a value of a result is not known here."""
    tool = tools.get(made.tool)
    if made.unknown or tool is None or has_place(made.arguments):
        return True
    try:
        return not compile_validator(tool.schema, tool.name)(made.arguments)
    except (UsageError, UnicodeEncodeError):  # a schema that no validator reads, half a character
        return True


def _more_likely(moves: Moves, tools: Mapping[str, Tool]) -> Iterator[Moves]:
    """Yield the moves with what a model would rather do."""
    for index, move in enumerate(moves):
        before, after = moves[:index], moves[index + 1 :]
        if move.beside:  # the second conversation may have to come first
            yield (*after, msgspec.structs.replace(move, beside=False), *before)
        for number, made in enumerate(() if move.obeys else move.calls):
            for other in _likely_calls(made, tools):
                calls = (*move.calls[:number], other, *move.calls[number + 1 :])
                yield (*before, msgspec.structs.replace(move, calls=calls), *after)


def _likely_calls(made: GeneratedCall, tools: Mapping[str, Tool]) -> Iterator[GeneratedCall]:
    """Yield calls of known tools for an unknown one, and calls that a schema allows."""
    if made.unknown:
        for tool in tools.values():
            yield GeneratedCall(tool.name, _fit(tool.schema))
    elif (tool := tools.get(made.tool)) is not None and not _is_allowed(made, tools):
        fitting = _fit(tool.schema)
        properties = _part(tool.schema.get("properties"))
        yield GeneratedCall(made.tool, {**fitting, **_keep(made.arguments, properties)})
        for name, part in properties.items():
            for value in _list_fitting(_part(part)):
                yield GeneratedCall(made.tool, {**fitting, **made.arguments, name: value})
        yield GeneratedCall(made.tool, fitting)


def _part(value: Any) -> JSON:
    return cast("JSON", value) if isinstance(value, dict) else {}


def _keep(arguments: JSON, properties: JSON) -> JSON:
    return {name: value for name, value in arguments.items() if name in properties}


def _fit(schema: JSON) -> JSON:
    """Return the simplest arguments that a schema is likely to allow."""
    properties = _part(schema.get("properties"))
    required = cast("list[str]", schema.get("required") or [])
    parts = {name: _part(properties.get(name)) for name in required}
    return {name: next(iter(_list_fitting(part)), "a") for name, part in parts.items()}


def _list_fitting(schema: JSON) -> list[Any]:
    """Return a few simple values that a part of a schema is likely to allow."""
    named = [*schema.get("enum", ()), *schema.get("examples", ())][:MAX_NAMED]
    named += [schema[word] for word in ("const", "default", "minimum", "maximum") if word in schema]
    if named:
        return named
    kinds = schema.get("type", "string")
    kind = next(iter(cast("list[str]", kinds)), "") if isinstance(kinds, list) else kinds
    text = "a" * max(1, schema.get("minLength", 0))
    simple: JSON = {"string": text, "integer": 1, "number": 1, "boolean": False}
    simple |= {"array": [], "object": {}}
    return [simple[kind]] if kind in simple else [None]


def _value_size(value: Any) -> int:
    match value:
        case dict():
            items = cast("dict[str, Any]", value).items()
            return sum(10 + len(name) + _value_size(item) for name, item in items)
        case list():
            return sum(5 + _value_size(item) for item in cast("list[Any]", value))
        case Place():
            return 60
        case None | "" | 0 | False:
            return 1
        case 1 | "a" | True:
            return 2
        case _:
            return 3 + len(repr(value))


def _smaller(moves: Moves) -> Iterator[Moves]:
    """Yield shorter and simpler scripts, those that remove most first."""
    # 1. Half of the moves, then a quarter, then single ones.
    yield from without_parts(moves)
    # 2. Of one message: one call of several, its text, the way it stops.
    for index, move in enumerate(moves):
        for simpler in _simpler_messages(move):
            yield (*moves[:index], simpler, *moves[index + 1 :])
    # 3. Equal values together: a bug may need two that are the same.
    for value in _repeated_values(moves):
        for simple in _simpler_scalars(value):
            yield tuple(_map_arguments(move, {repr(value): simple}.get) for move in moves)
    # 4. Simpler arguments.
    for index, move in enumerate(moves):
        for number, made in enumerate(() if move.obeys else move.calls):
            for arguments in _simpler_objects(made.arguments):
                calls = list(move.calls)
                calls[number] = GeneratedCall(made.tool, arguments, made.unknown)
                changed = msgspec.structs.replace(move, calls=tuple(calls))
                yield (*moves[:index], changed, *moves[index + 1 :])


def _simpler_messages(move: Move) -> Iterator[Move]:
    replace = msgspec.structs.replace
    if len(move.calls) > 1:
        for skipped in range(len(move.calls)):
            yield replace(move, calls=move.calls[:skipped] + move.calls[skipped + 1 :])
    if move.stop != "stop":
        yield replace(move, stop="stop")
        yield replace(move, stop="stop", text="" if move.calls else END.text)
    if move.text and (move.calls or move.stop != "stop"):
        yield replace(move, text="")
    if move.denied:
        yield replace(move, denied=False)
    if move.declined:
        yield replace(move, declined="")
    if move.fresh:
        yield replace(move, fresh=False, beside=False)
    if move.beside:
        yield replace(move, beside=False)
    if move.prompt or move.fault:
        return
    if move.status:
        yield replace(move, status=500)
    elif not move.calls and move.stop == "stop":
        yield END


def _simpler_objects(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the arguments without one of them, and with a simpler one."""
    for name, item in value.items():
        yield {key: other for key, other in value.items() if key != name}
        match item:
            case dict():
                for inner in ({}, *_simpler_objects(cast("dict[str, Any]", item))):
                    yield {**value, name: inner}
            case list():
                items = cast("list[Any]", item)
                yield {**value, name: []}
                for index, one in enumerate(items):
                    rest = items[:index], items[index + 1 :]
                    yield {**value, name: [*rest[0], *rest[1]]}
                    if isinstance(one, dict):
                        for inner in _simpler_objects(cast("dict[str, Any]", one)):
                            yield {**value, name: [*rest[0], inner, *rest[1]]}
                    else:
                        for simple in _simpler_scalars(one):
                            yield {**value, name: [*rest[0], simple, *rest[1]]}
            case _:
                for simple in _simpler_scalars(item):
                    yield {**value, name: simple}


def _simpler_scalars(value: Any) -> Iterator[Any]:
    """Yield simpler values of the same type."""
    yield from (
        simple for simple in SIMPLE_VALUES if type(simple) is type(value) and simple != value
    )
    match value:
        case bool():
            return
        case int() if abs(value) > 9:  # noqa: PLR2004 - a shorter number
            yield value // 10 if value > 0 else -1
            yield 10 ** (len(str(abs(value))) - 1) * (1 if value > 0 else -1)
        case int() if value < -1:
            yield -1
        case float():
            yield float(int(value)) if abs(value) < 1e15 else 0.0  # noqa: PLR2004 - as an integer
        case str() if len(value) > 2:  # noqa: PLR2004 - a shorter text
            yield value[: len(value) // 2]
            yield value[len(value) // 2 :]
        case _:
            return


def _repeated_values(moves: Moves) -> list[Any]:
    """Return the values that occur more than once."""
    counts: Counter[str] = Counter()
    values: dict[str, Any] = {}

    def note(text: str, value: Any) -> Any:
        counts[text] += 1
        return values.setdefault(text, value)

    for move in moves:
        _map_arguments(move, note)
    return [values[text] for text, count in counts.items() if count > 1]


def _map_arguments(move: Move, change: Callable[[str, Any], Any]) -> Move:
    """Return the move with each plain value changed; `change` gets its text and the value."""

    def apply(value: Any) -> Any:
        return change(repr(value), value) if isinstance(value, SCALARS) else value

    if not move.calls or move.obeys:
        return move
    calls = tuple(
        GeneratedCall(made.tool, map_values(made.arguments, apply), made.unknown)
        for made in move.calls
    )
    return msgspec.structs.replace(move, calls=calls)
