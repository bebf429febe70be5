"""Comparison of a value with what is expected of it: the one place where subsets are matched.

    contains({"id": 7, "note": "x"}, {"id": 7})                       # True: a subset
    contains({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, subset="top")  # False: exact below
    [m.path for m in find_mismatches({"a": [1]}, {"a": [2]})]         # [".a[0]"]

Tool calls, host mocks, steps and golden transcripts all compare by `find_mismatches`. They differ
in what two single values must have in common (`matches`) and in where further keys are allowed.
A JSON Pointer (RFC 6901) names a field of a document: `/stages/0/name`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast

import msgspec

from offbook.errors import UsageError
from offbook.secrets import outgoing
from offbook.trace.text_patterns import compile_pattern

Subset = Literal["deep", "top", "none"]
Matches = Callable[[Any, Any], bool]
_INDEX = re.compile(r"0|[1-9][0-9]*")


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
    """Return whether an expected text, a regular expression, is found; other values are equal.

    An empty text equals only itself: as an expression it would match every text.
    """
    if isinstance(expected, str) and isinstance(actual, str) and expected:
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


# --- JSON Pointers


def resolve_pointer(document: Any, pointer: str, default: Any = MISSING) -> Any:
    """Return the value at a pointer, or `default` if the document has no such field.

    >>> resolve_pointer({"a/b": [7]}, "/a~1b/0")
    7
    """
    value = document
    for key in parse_pointer(pointer):
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            if key not in fields:
                return default
            value = fields[key]
        elif isinstance(value, (list, tuple)):
            items = cast("list[Any]", value)
            # `-` is the place after the last item, where nothing is yet.
            if _INDEX.fullmatch(key) is None or int(key) >= len(items):
                return default
            value = items[int(key)]
        else:
            return default
    return value


def parse_pointer(pointer: str) -> list[str]:
    """Return the keys of a pointer; the empty pointer is the whole document."""
    if not isinstance(pointer, str):
        raise UsageError(f"a JSON pointer is a text, got {type(pointer).__name__}")
    if not pointer:
        return []
    where = f"JSON pointer {pointer!r}"
    if not pointer.startswith("/"):
        fix = f"write '/{pointer.removeprefix('$').lstrip('.').replace('.', '/')}'"
        raise UsageError("pointer must be empty or start with '/'", where=where, hint=fix)
    for escape in re.finditer(r"~([^01]|\Z)", pointer):
        at = f"{where}, character {escape.start() + 1}"
        what = f"invalid escape '~{escape[1]}'" if escape[1] else "dangling '~'"
        raise UsageError(what, where=at, hint="write ~0 for ~, and ~1 for /")
    # `~01` is `~1`, so the slash is replaced first.
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer[1:].split("/")]
