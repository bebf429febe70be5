"""The functions that differ between two versions of a file, and those of this process."""

from __future__ import annotations

import gc
import inspect
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Place = tuple[str, str, int]  # the file, the qualified name, the line


@dataclass(frozen=True)
class Change:
    """A function of the old version, and its code in the new one."""

    place: Place
    code: CodeType


def find_functions(files: Iterable[Path]) -> dict[Place, list[FunctionType]]:
    """Return the functions of these files that exist in this process."""
    names = {str(file.resolve()) for file in files}
    found: dict[Place, list[FunctionType]] = {}
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename in names:
            found.setdefault(_place(thing.__code__), []).append(thing)
    return found


def compare(old: str, new: str, file: str) -> list[Change] | None:
    """Return the functions that differ, or None if anything else differs, too."""
    try:
        return _compare(compile(old, file, "exec"), compile(new, file, "exec"))
    except SyntaxError:
        return None


def _compare(old: CodeType, new: CodeType) -> list[Change] | None:
    if old == new:
        return []
    if old.co_flags & inspect.CO_OPTIMIZED:  # a function; a module and a class are not
        same = (old.co_freevars, old.co_name) == (new.co_freevars, new.co_name)
        return [Change(_place(old), new)] if same else None
    if (old.co_code, old.co_names, len(old.co_consts)) != (
        new.co_code, new.co_names, len(new.co_consts),
    ):  # fmt: skip
        return None
    changes: list[Change] = []
    for before, after in zip(old.co_consts, new.co_consts, strict=True):
        if isinstance(before, CodeType) and isinstance(after, CodeType):
            inner = _compare(before, after)
            if inner is None:
                return None
            changes += inner
        elif repr(before) != repr(after):  # 1 == True, but the types differ
            return None
    return changes


def _place(code: CodeType) -> Place:
    return (code.co_filename, code.co_qualname, code.co_firstlineno)
