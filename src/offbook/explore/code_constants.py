"""The constants of an agent's code that are worth a try: what it compares with, keys of tables."""

from __future__ import annotations

import dis
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from inspect import unwrap
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, cast

MAX_FUNCTIONS, MAX_CONSTANTS, MAX_KEYS, MAX_LENGTH = 80, 40, 12, 60
MAX_OTHERS, MAX_DEPTH = 200, 4
# What a check of the code calls with a part of the texts that it allows.
CHECKING = {"startswith", "endswith", "removeprefix", "removesuffix", "split", "partition"}
MATCHING = {"match", "fullmatch", "search", "compile", "fnmatch"}
COMPARISONS = {"COMPARE_OP", "CONTAINS_OP"}
MAX_WORDS = 4  # of a text that a check allows; others describe something
MAX_TEXT = 2000
_ADDRESSED = re.compile(r"[^\s\"'<>()]+(?:@|://)[^\s\"'<>()]*[\w/]")  # in a longer text
_ESCAPED = re.compile(r"\\([^\w\s])")
_EXPRESSION = re.compile(r"\0|\\[A-Za-z]|\[[^\]]*\]|[\^$*+?{}|()]")
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
    for code, function in _walk_code(world):
        names = function.__globals__
        for value in (*_compared(code, names), *_keys(code, names)):
            found.setdefault(repr(value), value)
    return [*found.values()][:MAX_CONSTANTS]


class CodeTexts(NamedTuple):
    """The short texts in the code of an agent.

    Those `checked` are compared with, or are arguments of `startswith` and others, or literal parts
    of regular expressions. All `others` are in its tables and constants.
    """

    checked: Sequence[str] = ()
    others: Sequence[str] = ()


def find_texts(world: Callable[..., Any]) -> CodeTexts:
    """Return the texts that a check of the code may allow."""
    checked: dict[str, None] = {}
    others: dict[str, None] = {}
    for code, function in _walk_code(world, in_tables=True):
        names = function.__globals__
        for value in (*_compared(code, names), *_arguments_of_checks(code, names)):
            checked |= dict.fromkeys(_texts(value))
        for name in code.co_names:
            others |= dict.fromkeys(_texts(names.get(name)))
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # it is empty so far
                others |= dict.fromkeys(_texts(cell.cell_contents))
        # Not what describes the code.
        constants = [c for c in code.co_consts[1:] if not isinstance(c, CodeType)]
        others |= dict.fromkeys(_texts(constants))
    return CodeTexts([*checked][:MAX_CONSTANTS], [*others][:MAX_OTHERS])


def _walk_code(
    world: Callable[..., Any], *, in_tables: bool = False
) -> Iterator[tuple[CodeType, FunctionType]]:
    """Yield the code of a function, and of those of its module that it uses.

    With `in_tables`, also of the functions in its tables.
    """
    waiting: list[Any] = [world]
    visited: set[int] = set()
    while waiting and len(visited) < MAX_FUNCTIONS:
        function = _to_function(waiting.pop(0))
        if function is None or id(function.__code__) in visited:
            continue
        visited.add(id(function.__code__))
        package = (function.__module__ or "").partition(".")[0]
        for code in _nested(function.__code__):
            yield code, function
            for name in code.co_names:
                used: Any = function.__globals__.get(name)
                if in_tables:
                    waiting += _list_items(used)
                if (getattr(used, "__module__", None) or "").partition(".")[0] == package:
                    waiting += vars(used).values() if isinstance(used, type) else [used]
        for cell in function.__closure__ or ():
            try:
                waiting.append(cell.cell_contents)
            except ValueError:  # it is empty so far
                continue


def _list_items(table: Any) -> list[Any]:
    return [*cast("dict[Any, Any]", table).values()] if isinstance(table, dict) else []


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


def _arguments_of_checks(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """Yield the constants that follow a method such as `startswith`, and parts of expressions."""
    method = ""
    for instruction in dis.get_instructions(code):
        value = instruction.argval
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"} and value not in MATCHING:
            value = names.get(value)
        elif instruction.opname != "LOAD_CONST":
            if value in CHECKING | MATCHING:
                method = value
            elif instruction.opname.startswith("CALL"):
                method = ""
            continue
        if method in CHECKING:
            yield value
        elif isinstance(value, re.Pattern):
            yield _literal_parts(cast("re.Pattern[Any]", value).pattern)
        elif method in MATCHING and isinstance(value, str):
            yield _literal_parts(value)


def _literal_parts(pattern: object) -> list[str]:
    """Return the longest texts of a regular expression that are matched as they are written."""
    if not isinstance(pattern, str):
        return []
    plain = _ESCAPED.sub(r"\1", pattern.replace("\\b", "\0").replace(".*", "\0"))
    return [part for part in _EXPRESSION.split(plain) if len(part) > 1]


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the short texts in a value, also those of nested tables."""
    match value:
        case str():
            if 0 < len(value) <= MAX_LENGTH and "\n" not in value and value.count(" ") < MAX_WORDS:
                yield value
            else:
                yield from _ADDRESSED.findall(value[:MAX_TEXT])
        case dict() if depth < MAX_DEPTH and FORMS.isdisjoint(cast("dict[Any, Any]", value)):
            for key, item in cast("dict[Any, Any]", value).items():
                yield from _texts(key, depth + 1)
                yield from _texts(item, depth + 1)
        case tuple() | frozenset() | set() | list() if depth < MAX_DEPTH:
            for item in sorted(cast("set[Any]", value), key=repr)[:MAX_KEYS]:
                yield from _texts(item, depth + 1)
        case _:
            return


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
