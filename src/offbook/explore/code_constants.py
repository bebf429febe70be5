"""The constants of an agent's code that are worth a try: what it compares with, keys of tables."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from functools import partial
from inspect import unwrap
from types import CodeType, FunctionType, MethodType
from typing import Any, cast

MAX_FUNCTIONS, MAX_CONSTANTS, MAX_KEYS, MAX_LENGTH = 80, 40, 12, 60
COMPARISONS = {"COMPARE_OP", "CONTAINS_OP"}
NEAR = 3  # instructions between a constant and its comparison
# The keys of schemas, messages and results name nothing that exists.
FORMS = frozenset(
    """
    type properties required description parameters function name role content tool_call_id messages
    model input_schema is_error text id title items enum tool_use_id status
    """.split()  # noqa: SIM905 - a table of words reads better than a list of strings
)


def find_constants(world: Callable[..., Any]) -> list[Any]:
    """Return the constants of a function, and of those of its module that it uses."""
    found: dict[str, Any] = {}
    waiting: list[Any] = [world]
    visited: set[int] = set()
    while waiting and len(visited) < MAX_FUNCTIONS:
        function = _to_function(waiting.pop(0))
        if function is None or id(function.__code__) in visited:
            continue
        visited.add(id(function.__code__))
        package = (function.__module__ or "").partition(".")[0]
        for code in _nested(function.__code__):
            for value in (*_compared(code, names := function.__globals__), *_keys(code, names)):
                found.setdefault(repr(value), value)
            for name in code.co_names:
                used = function.__globals__.get(name)
                if (getattr(used, "__module__", None) or "").partition(".")[0] == package:
                    waiting += vars(used).values() if isinstance(used, type) else [used]
        for cell in function.__closure__ or ():
            try:
                waiting.append(cell.cell_contents)
            except ValueError:  # it is empty so far
                continue
    return [*found.values()][:MAX_CONSTANTS]


def _to_function(value: Any) -> FunctionType | None:
    while isinstance(value, partial):
        value = cast("partial[Any]", value).func
    if isinstance(value, MethodType):
        value = value.__func__
    if isinstance(value, (staticmethod, classmethod)):
        value = cast("staticmethod[..., Any]", value).__func__
    value = unwrap(value) if callable(value) else value
    return value if isinstance(value, FunctionType) else None


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _compared(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """Yield the constants, and the constants of the module, in front of a comparison."""
    instructions = [*dis.get_instructions(code)]
    for index, instruction in enumerate(instructions):
        after = instructions[index + 1 : index + 1 + NEAR]
        if not any(other.opname in COMPARISONS for other in after):
            continue
        if instruction.opname == "LOAD_CONST":
            yield from _scalars(instruction.argval)
        elif instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            yield from _scalars(names.get(instruction.argval))


def _keys(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """Yield the keys of the tables that the code makes, or has in its module."""
    previous: Any = None
    for instruction in dis.get_instructions(code):
        table: Any = None
        if instruction.opname == "BUILD_CONST_KEY_MAP":
            table = previous
        elif instruction.opname == "LOAD_GLOBAL":
            table = names.get(instruction.argval)
            table = cast("dict[Any, Any]", table) if isinstance(table, dict) else None
        if table and FORMS.isdisjoint(table):
            yield from _scalars(table)
        previous = instruction.argval


def _scalars(value: Any) -> Iterator[Any]:
    match value:
        case bool() | None:
            return
        case int() | float():
            yield value
        case str():
            if 0 < len(value) <= MAX_LENGTH and "\n" not in value:
                yield value
        case tuple() | frozenset() | set() | list() | dict():
            for item in sorted(cast("set[Any]", value), key=repr)[:MAX_KEYS]:
                if isinstance(item, (str, int, float)):
                    yield from _scalars(item)
        case _:
            return
