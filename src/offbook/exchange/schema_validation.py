"""Validation of values by a JSON schema: tool parameters, and the events of a run."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from offbook.errors import UsageError


class SchemaError(NamedTuple):
    """A value that a schema does not allow: its path, the rule, and the value itself."""

    path: tuple[str | int, ...]
    message: str
    value: Any


SchemaValidator = Callable[[Any], list[SchemaError]]


def compile_validator(
    schema: dict[str, Any], where: str, *, kind: str = "JSON schema", hint: str = ""
) -> SchemaValidator:
    """Return a function that returns the errors of a value. `kind` names the schema in errors."""
    try:
        raw = msgspec.json.encode(schema, order="sorted")
    except (TypeError, msgspec.MsgspecError) as error:
        raise UsageError(f"the {kind} is not JSON: {error}", where=where) from error
    return _compile(raw, where, kind, hint)


# Every session registers the same built-in tools: compiling their schemas once saves most of the
# time that a session needs to open.
@lru_cache(maxsize=512)
def _compile(raw: bytes, where: str, kind: str, hint: str) -> SchemaValidator:
    import jsonschema_rs  # imported here because `import offbook` must stay fast

    try:
        validator = jsonschema_rs.validator_for(raw.decode())
    except (jsonschema_rs.ValidationError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"invalid {kind}: {reason}", where=where, hint=hint) from error

    def find_errors(value: Any) -> list[SchemaError]:
        # `is_valid` builds no error objects: valid values are the usual case.
        if validator.is_valid(value):
            return []
        return [
            SchemaError(tuple(error.instance_path), error.message, error.instance)
            for error in validator.iter_errors(value)
        ]

    return find_errors
