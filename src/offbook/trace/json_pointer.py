"""JSON Pointer (RFC 6901): `/stages/0/name` is a field of a document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from offbook.errors import UsageError
from offbook.trace.matching import MISSING

_INDEX = re.compile(r"0|[1-9][0-9]*")


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
