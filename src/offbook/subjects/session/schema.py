"""Parameters are checked against the tool's JSON schema. The door of jsonschema-rs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec

from offbook.errors import UsageError

Validator = Callable[[dict[str, Any]], "str | None"]


def compile_schema(schema: dict[str, Any], where: str) -> Validator:
    """A function that tells what is wrong with the parameters, or None."""
    try:
        raw = msgspec.json.encode(schema, order="sorted")
    except (TypeError, msgspec.MsgspecError) as error:
        raise UsageError(f"the schema is not JSON: {error}", where=where) from error
    return _compiled(raw, where)


@functools.lru_cache(maxsize=512)
def _compiled(raw: bytes, where: str) -> Validator:
    import jsonschema_rs

    try:
        validator = jsonschema_rs.validator_for(raw.decode())
    except (jsonschema_rs.ValidationError, ValueError) as error:
        message = str(error).splitlines()[0]
        raise UsageError(
            f"the parameters' schema is wrong: {message}",
            where=where,
            hint='give a JSON schema: {"type": "object", "properties": {…}, "required": […]}',
        ) from error

    def check(params: dict[str, Any]) -> str | None:
        if validator.is_valid(params):
            return None
        return "; ".join(
            f"{'.'.join(map(str, error.instance_path)) or 'parameters'}: {error.message}"
            for error in validator.iter_errors(params)
        )

    return check
