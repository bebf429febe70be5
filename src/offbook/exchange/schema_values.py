"""Plain values that fit the JSON schema of a tool or an answer, and how such a schema is read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offbook.exchange.messages import JSON

# Values for parameters whose schema says no more than their type, by a part of their name. Tools
# run for real with them, so none names a file or a folder that a project is likely to have.
PLAUSIBLE: tuple[tuple[str, Any], ...] = (
    (r"command|cmd|script", "echo offbook"),
    (r"city|location|place|destination", "Paris"),
    (r"country", "France"),
    (r"e?mail|recipient|^to$", "ada@example.com"),
    (r"date|day", "2024-02-29"),
    (r"time", "12:00"),
    (r"url|link|uri", "https://example.com"),
    (r"expression|formula|equation", "2 + 2"),
    (r"currency", "EUR"),
    (r"language|locale", "en"),
    (r"dir|folder|^cwd$", "."),
    (r"file|path", "offbook.txt"),
    (r"(user|customer|person|full)_?name|^name$|author", "Ada"),
    (r"query|question|search|topic|keyword|term", "tea"),
    (r"amount|price|total|quantity|count|limit|number|days", 2),
    (r"(id|number|key|code|order|ticket)$", "1"),
)
IDS = PLAUSIBLE[-1][0]
DATE_FORMATS = {"date": "2024-02-29", "date-time": "2024-02-29T12:00:00Z", "time": "12:00:00"}
FORMATS = {
    **DATE_FORMATS,
    "email": "ada@example.com",
    "ipv4": "127.0.0.1",
    "path": "offbook.txt",
    "uri": "https://example.com/a",
    "url": "https://example.com/a",
    "uuid": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
}
MAX_DEPTH = 8  # of a schema that contains itself
_NUMBER = re.compile(r"\b\d{1,9}\b")


def make_arguments(
    schema: JSON, prompt: str = "", given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return plain arguments that fit a schema: the `given` ones, and nothing optional."""
    return _make_object(resolve_schema(schema, schema), schema, prompt, 0, given or {})


def make_answer(schema: JSON, prompt: str = "") -> dict[str, Any]:
    """Return a plain answer that fits the schema which a request requires: all of its fields."""
    resolved = resolve_schema(schema, schema)
    required = {**resolved, "required": [*properties_of(resolved)]}
    return _make_object(required, schema, prompt, 0, {})


def find_output_schema(parameters: Any) -> JSON | None:
    """Return the schema that the options of a request require of the answer, or None."""
    if not isinstance(parameters, dict):
        return None
    for key, value in cast("JSON", parameters).items():
        if not isinstance(value, dict) or key in {"tools", "tool_choice"}:
            continue
        if re.fullmatch(r"schema|response_?(json_?)?schema", key, re.IGNORECASE):
            return cast("JSON", value)
        if (inner := find_output_schema(value)) is not None:
            return inner
    return None


def properties_of(schema: JSON) -> dict[str, Any]:
    """Return the schemas of the properties of an object, by name."""
    properties = schema.get("properties")
    return cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}


def resolve_schema(schema: Any, root: JSON) -> JSON:
    """Return a schema without `$ref` and `allOf`; a `$ref` to nothing is left."""
    resolved = cast("JSON", schema) if isinstance(schema, dict) else {}
    for _ in range(MAX_DEPTH):
        found = _follow(resolved.get("$ref"), root)
        if found is None:
            break
        resolved = {**found, **{k: v for k, v in resolved.items() if k != "$ref"}}
    for part in resolved.get("allOf", ()):
        other = resolve_schema(part, root)
        properties = {**properties_of(resolved), **properties_of(other)}
        required = [*resolved.get("required", ()), *other.get("required", ())]
        resolved = {**resolved, **other, "properties": properties, "required": required}
    return resolved


def _follow(reference: Any, root: JSON) -> JSON | None:
    """Return the schema that a local reference such as `#/$defs/Order` names."""
    if not isinstance(reference, str):
        return None
    found: Any = root
    for part in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
        found = cast("JSON", found).get(part) if isinstance(found, dict) else None
    return cast("JSON", found) if isinstance(found, dict) else None


def list_plausible(name: str, prompt: str) -> list[Any]:
    """Return values for a parameter of this name; the ids of the prompt come first."""
    lowered = name.lower()
    ids = _NUMBER.findall(prompt) if re.search(IDS, lowered) else []
    return [*ids, *(value for pattern, value in PLAUSIBLE if re.search(pattern, lowered))]


def _make_object(
    rules: JSON, root: JSON, prompt: str, depth: int, given: Mapping[str, Any]
) -> dict[str, Any]:
    properties = properties_of(rules)
    return {
        key: given[key]
        if key in given
        else _make(properties.get(key, {}), root, key, prompt, depth + 1)
        for key in rules.get("required", ())
    }


def _make(schema: Any, root: JSON, name: str, prompt: str, depth: int) -> Any:  # noqa: PLR0911 - one case for each keyword
    rules = resolve_schema(schema, root)
    if depth > MAX_DEPTH:
        return None
    if "const" in rules:
        return rules["const"]
    for key in ("enum", "examples"):
        if rules.get(key):
            return rules[key][0]
    for key in ("anyOf", "oneOf"):
        options = [o for o in rules.get(key, ()) if not _is_null(o)]
        if options:
            merged = {k: v for k, v in {**rules, **options[0]}.items() if k != key}
            return _make(merged, root, name, prompt, depth + 1)
    kind = rules.get("type", "object" if "properties" in rules else "string")
    if isinstance(kind, list):
        kind = next((one for one in cast("list[str]", kind) if one != "null"), "null")
    match str(kind).lower():  # Gemini writes the types in capitals
        case "object":
            return _make_object(rules, root, prompt, depth, {})
        case "array":
            first = [*rules.get("prefixItems", ())]
            count = max(1, len(first), int(rules.get("minItems", 1)))
            items = [*first, *[rules.get("items", {})] * (count - len(first))]
            return [_make(item, root, name, prompt, depth + 1) for item in items]
        case "integer" | "number":
            return _make_number(rules, prompt)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return _make_text(rules, name, prompt)


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and cast("JSON", schema).get("type") == "null"


def _make_number(rules: JSON, prompt: str) -> Any:
    low = rules.get("minimum", rules.get("exclusiveMinimum", float("-inf")))
    high = rules.get("maximum", rules.get("exclusiveMaximum", float("inf")))
    low += "exclusiveMinimum" in rules
    high -= "exclusiveMaximum" in rules
    step = rules.get("multipleOf", 1)
    named = map(int, _NUMBER.findall(prompt))
    for number in (*named, 1, 0, step, low, high):
        if low <= number <= high and number % step == 0 and abs(number) != float("inf"):
            return number
    return 1


def _make_text(rules: JSON, name: str, prompt: str) -> str:
    if (form := rules.get("format")) in FORMATS:
        return FORMATS[form]
    text = next((v for v in list_plausible(name, prompt) if isinstance(v, str)), "test")
    text = text.ljust(int(rules.get("minLength", 0)), "p")
    return text[: int(rules["maxLength"])] if "maxLength" in rules else text
