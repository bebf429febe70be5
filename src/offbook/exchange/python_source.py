"""Values and names as Python source, for the tests that Offbook writes."""

from __future__ import annotations

import re
from typing import Any, cast

WIDTH = 96  # of a text of one character: a longer one is written as a product


def literal(value: Any) -> str:
    """Return a value of JSON as Python, with double quotes where that needs no escapes."""
    match value:
        case str():
            if len(value) > WIDTH and len(set(value)) == 1:
                return f"{literal(value[0])} * {len(value)}"
            quoted = repr(value)
            plain = quoted[0] == "'" and '"' not in quoted and "\\'" not in quoted
            return f'"{quoted[1:-1]}"' if plain else quoted
        case dict():
            items = cast("dict[str, Any]", value).items()
            return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in items) + "}"
        case list():
            return "[" + ", ".join(map(literal, cast("list[Any]", value))) + "]"
        case _:
            return repr(value)


def identifier(text: str, default: str = "test") -> str:
    """Return a text as a part of a name, such as `refund_order_7`."""
    return re.sub(r"\W+", "_", text.lower()).strip("_") or default
