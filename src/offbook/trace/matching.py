"""Comparison of a value with what is expected of it: the one place where subsets are matched.

    contains({"id": 7, "note": "x"}, {"id": 7})                       # True: a subset
    contains({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, subset="top")  # False: exact below
    [m.path for m in find_mismatches({"a": [1]}, {"a": [2]})]         # [".a[0]"]

Tool calls, host mocks, steps and golden transcripts all compare by `find_mismatches`. They differ
in what two single values must have in common (`matches`) and in where further keys are allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast

import msgspec

from offbook.secrets import outgoing
from offbook.trace.text_patterns import compile_pattern

Subset = Literal["deep", "top", "none"]
Matches = Callable[[Any, Any], bool]


class Note(str):
    """A side of a mismatch that is not a value; it is shown without quotes."""

    __slots__ = ()


MISSING = Note("nothing")
"""The side that does not have the key."""


class Mismatch(NamedTuple):
    """A place where a value differs; a key that one side does not have is `MISSING` there."""

    path: str
    expected: Any
    actual: Any

    def __str__(self) -> str:
        return (
            f"{self.path}: expected {render_value(self.expected)}, got {render_value(self.actual)}"
        )


def values_equal(actual: Any, expected: Any) -> bool:
    """Return whether two values are equal. In Python True == 1, in JSON they differ."""
    return bool(actual == expected) and isinstance(actual, bool) == isinstance(expected, bool)


def text_matches(actual: Any, expected: Any) -> bool:
    """Return whether an expected text, a regular expression, is found; other values are equal."""
    if isinstance(expected, str) and isinstance(actual, str):
        return compile_pattern(expected).search(actual) is not None
    return values_equal(actual, expected)


def find_mismatches(
    actual: Any,
    expected: Any,
    *,
    matches: Matches = values_equal,
    subset: Subset = "deep",
    missing: Any = MISSING,
    path: str = "",
) -> Iterator[Mismatch]:
    """Yield each place where a value does not have what is expected of it.

    A dict may have further keys: everywhere (`deep`), in the outermost dict only (`top`), or
    nowhere (`none`). Lists have the same length. `missing` is compared for a key that is not there.
    """
    below: Subset = "deep" if subset == "deep" else "none"
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        wanted, found = cast("Mapping[Any, Any]", expected), cast("Mapping[Any, Any]", actual)
        for key, value in wanted.items():
            at = f"{path}.{key}"
            item = found.get(key, missing)
            if item is MISSING:
                yield Mismatch(at, value, MISSING)
            else:
                yield from find_mismatches(
                    item, value, matches=matches, subset=below, missing=missing, path=at
                )
        for key in found if subset == "none" else ():
            if key not in wanted:
                yield Mismatch(f"{path}.{key}", MISSING, found[key])
    elif isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        items, others = cast("list[Any]", expected), cast("list[Any]", actual)
        if len(items) != len(others):
            yield Mismatch(path, Note(f"{len(items)} items"), Note(len(others)))
        for index, (value, item) in enumerate(zip(items, others, strict=False)):
            yield from find_mismatches(
                item, value, matches=matches, subset=below, missing=missing, path=f"{path}[{index}]"
            )
    elif not matches(actual, expected):
        yield Mismatch(path, expected, actual)


def contains(
    actual: Any, expected: Any, *, matches: Matches = values_equal, subset: Subset = "deep"
) -> bool:
    """Return whether a value has everything that is expected of it."""
    return next(find_mismatches(actual, expected, matches=matches, subset=subset), None) is None


def render_value(value: object, max_length: int | None = 79) -> str:
    """Return a value as JSON on one line, shortened to the given length."""
    plain = isinstance(value, Note)
    text = value if plain else msgspec.json.encode(value, enc_hook=repr).decode()
    if max_length is None or len(text) <= max_length:
        return text
    return f"{outgoing(text)[:max_length]}…"
