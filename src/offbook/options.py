"""The values that a user gives, checked once.

The arguments of a function, the options of a command and the fields of a file have types. `decode`
converts a value to its type; an error names the value, what was expected, and the nearest name.

    decode(repeat, Count, "repeat")                 # repeat: expected an integer >= 1, got 0
    decode(given, RedactionRules, "redactions")     # a msgspec.Struct
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Generator, Iterable, Mapping
from functools import cache, lru_cache
from inspect import iscoroutine
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec

from offbook.errors import UsageError, did_you_mean

__tracebackhide__ = True  # pytest shows the line that gave the value
T = TypeVar("T")
Name = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
A_YEAR = 31_536_000
Seconds = Annotated[float, msgspec.Meta(gt=0, le=A_YEAR)]


@overload
def decode(
    value: object, kind: type[T], name: str = "", *, where: str = "", hint: str = ""
) -> T: ...
@overload
def decode(
    value: object, kind: object, name: str = "", *, where: str = "", hint: str = ""
) -> Any: ...
def decode(value: object, kind: Any, name: str = "", *, where: str = "", hint: str = "") -> Any:
    """Return a value as its type: a struct, or a number, text, list or dict with bounds.

    >>> decode(0, Count, "repeat")
    Traceback (most recent call last):
    offbook.errors.UsageError: repeat: expected an integer >= 1, got 0
    """
    try:
        # A struct, whose fields msgspec examines once; a type such as `dict[…]` each time.
        return msgspec.convert({"value": value}, _struct_of(kind)).value
    except msgspec.ValidationError:
        pass
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem, location, nearest = explain_invalid(error, kind)
        if problem.startswith("expected") and ", got " not in problem:  # a bound
            problem += f", got {_value_at(value, location)!r}"
        at = f"{name}{location.removeprefix('$')}".removeprefix(".")
        what = f"{at}: {problem}" if at else problem
        raise UsageError(what, where=where, hint=hint or nearest) from None


@lru_cache(maxsize=512)
def _struct_of(kind: Any) -> type[Any]:
    """Return a struct with one field of this type."""
    return msgspec.defstruct("OneValue", [("value", kind)])


def check_fields(options: msgspec.Struct, name: str) -> None:
    """Raise a UsageError for a field that does not have its type; a constructor checks none."""
    for field in _list_fields(type(options)):
        decode(getattr(options, field.name), field.type, f"{name}.{field.name}")


@cache  # they are read from the annotations
def _list_fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def explain_invalid(error: msgspec.ValidationError, kind: Any) -> tuple[str, str, str]:
    """Return the problem, its location, and a hint: the nearest field, or the valid values."""
    # msgspec writes "Expected `int`, got `str` - at `$.cases[2].limit`"
    problem, _, location = str(error).partition(" - at ")
    location = location.strip("`") if location.startswith("`$") else "$"  # or the key of a dict
    found = _types_at(kind, location)
    names = [name for each in found for name in getattr(each, "__struct_encode_fields__", ())]
    hint = ""
    if unknown := re.search(r"unknown field `(.*)`", problem):
        problem = f"unknown key {unknown[1]!r}"
        hint = did_you_mean(unknown[1], names)
        location = f"{location}.{unknown[1]}"
    elif missing := re.search(r"missing required field `(.*)`", problem):
        problem = f"missing key {missing[1]!r}"
        hint = f"add {missing[1]}; the keys are {', '.join(names)}"
    elif wrong := re.search(r"Invalid enum value '(.*)'", problem):
        values = [str(v) for each in found if get_origin(each) is Literal for v in get_args(each)]
        problem = f"invalid value {wrong[1]!r}"
        close = did_you_mean(wrong[1], values)
        hint = f"expected one of: {', '.join(values)}"
        hint = f"{close} {hint}" if close.startswith("did you mean") else hint
    elif mixed := re.match(r"Expected `(.*)`, got `(.*)`", problem):
        expected, got = (_plain_type(name) for name in mixed.groups())
        problem = f"expected {expected}, got {got}"
        if mixed[1].startswith("str") and mixed[2] in {"int", "float", "bool"}:
            hint = "put the value in quotes to make it a text"
        elif mixed[1].startswith("array"):
            hint = "write it as a list: [ … ], or lines that begin with -"
        elif mixed[1].startswith("object"):
            hint = f"write it with keys: {', '.join(names)}" if names else "write it as key: value"
    elif bound := re.match(r"Expected `(.*)`(.*)", problem):
        problem = f"expected {_plain_type(bound[1])}{bound[2].removesuffix('.0')}"
    return problem, location, hint


_PLAIN_TYPES = {
    "array": "a list",
    "object": "a mapping",
    "str": "a text",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}


def _plain_type(name: str) -> str:
    """Return the type of a message of msgspec in plain words: `str | null` is a text or nothing."""
    return " or ".join(_PLAIN_TYPES.get(part, part) for part in name.split(" | "))


def _types_at(kind: Any, location: str) -> list[Any]:
    """Return the types that a value at a location such as `$.cases[2].name` may have."""
    types = _union_members(kind)
    for key, _ in re.findall(r"\.([^.\[\]]+)|\[([^\]]*)\]", location):
        inner: list[Any] = []
        for each in types:
            if not key:  # an item of a list, or a value of a dict
                inner += [arg for arg in get_args(each)[-1:] if arg is not ...]
                inner += [arg for arg in get_args(each)[:1] if get_args(each)[-1] is ...]
            elif isinstance(each, type) and issubclass(each, msgspec.Struct):
                hints = get_type_hints(each)
                fields = zip(each.__struct_encode_fields__, each.__struct_fields__, strict=True)
                inner += [hints[field] for name, field in fields if name == key]
        types = [member for each in inner for member in _union_members(each)]
    return types


def _union_members(kind: Any) -> list[Any]:
    if get_origin(kind) in {Union, UnionType}:
        return [member for each in get_args(kind) for member in _union_members(each)]
    return [kind]


def _value_at(value: Any, location: str) -> object:
    for key, index in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", location):
        value = value[key] if key else value[int(index)]
    return value


def require_list(value: object, name: str, hint: str = "") -> list[object]:
    """Return the items of a list option, or raise a UsageError."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        kind = type(cast("object", value)).__name__
        raise UsageError(f"{name} must be a list, got {kind}", hint=hint or f"write {name}=[…]")
    return list(cast("Iterable[object]", value))


def require_mapping(value: object, name: str) -> Mapping[str, Any]:
    """Return a dict option, empty for None, or raise a UsageError."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise UsageError(f"{name} must be a dict, got {kind}", hint=f'write {name}={{"name": …}}')
    return cast("Mapping[str, Any]", value)


def require_bools(**options: object) -> None:
    """Raise an error for an option that is not a bool: a text such as "no" would be true."""
    for name, value in options.items():
        if not isinstance(value, bool):
            raise UsageError(f"{name}: expected a bool, got {value!r}", hint=f"write {name}=False")


def require_some(values: T, what: str, *, where: object = "", hint: str = "") -> T:
    """Return the values, or raise a UsageError if there are none: to check nothing is no pass."""
    if not values:
        raise UsageError(what, where=str(where), hint=hint)
    return values


def require_function(value: object, what: str, *, where: str = "", hint: str = "") -> None:
    """Raise a UsageError for a value that cannot be called."""
    if not callable(value):
        kind = type(value).__name__
        raise UsageError(f"{what}: expected a function, got {kind}", where=where, hint=hint)


def decide(result: object, what: str) -> tuple[object, str]:
    """Return what a condition of a user says, and the reason if it is False.

    `(bool, reason)` is unpacked. A coroutine or a generator is true in Python, but has not run.

    >>> decide((False, "too late"), "the condition")
    (False, 'too late')
    """
    kind = type(result).__name__
    if iscoroutine(result):
        result.close()  # without a warning that nothing awaited it
    if isinstance(result, (Awaitable, Generator, AsyncGenerator)):
        raise UsageError(
            f"{what} returned {kind}, which never ran",
            hint="write a plain `def` that returns True, False or (False, reason)",
        )
    match result:
        case False:
            return False, "it returned False"
        case (bool() as holds, object() as reason):
            return holds, "" if holds else str(reason) or "it returned False"
        case _:
            return result, ""
