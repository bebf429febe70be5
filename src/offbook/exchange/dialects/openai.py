"""Code shared by OpenAI's two dialects, chat completions and responses."""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import TypeVar
from zlib import crc32

import msgspec

from offbook.determinism.run_context import stable_id
from offbook.errors import ModelError
from offbook.exchange.dialects.dialect import HttpResponse, error_headers
from offbook.exchange.dialects.wire import (
    BodyDecoder,
    find_bad_schema,
    rejection,
    split_validation_error,
)
from offbook.exchange.messages import JSON, Image, to_json
from offbook.exchange.model import Reply, Request, Tool

T = TypeVar("T")
JSON_TYPE = "application/json"
SERVER_ERROR = "The server had an error while processing your request. Sorry about that!"

# Category of a `ModelError` -> type and code of OpenAI's error object.
_ERROR_TYPES = {
    "auth": ("invalid_request_error", "invalid_api_key"),
    "permission": ("permission_error", None),
    "not_found": ("invalid_request_error", "model_not_found"),
    "rate_limit": ("requests", "rate_limit_exceeded"),
    "quota": ("insufficient_quota", "insufficient_quota"),
    "context_overflow": ("invalid_request_error", "context_length_exceeded"),
    "content_filter": ("invalid_request_error", "content_filter"),
    "server_error": ("server_error", None),
    "overloaded": ("server_error", "server_is_overloaded"),
    "timeout": ("server_error", None),
}
# For parsing; `model_not_found` follows from the status.
ERROR_CATEGORIES = {
    code: category
    for category, (_, code) in _ERROR_TYPES.items()
    if code and category != "not_found"
}


# `gc=False` on wire structs: JSON has no reference cycles, so the garbage collector can skip them.


class OpenAIImageUrl(msgspec.Struct, gc=False):
    """The URL of an image."""

    url: str = ""


class OpenAIOutputDetails(msgspec.Struct, gc=False):
    """The number of reasoning tokens."""

    reasoning_tokens: int | None = None


# ------------------------------------------------------------------- decoding requests


def decode_body(decoder: BodyDecoder[T], body: bytes | msgspec.Raw) -> T:
    """Decode a request body; raise OpenAI's error if it is invalid."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        message, param = split_validation_error(error)
        raise ModelError(
            f"Invalid type for '{param}': {message[:1].lower()}{message[1:]}.".replace("`", "'"),
            status=400,
            details={"param": param, "code": "invalid_type"},
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(
            f"We could not parse the JSON body of your request: {error}.", status=400
        ) from error


def check_tools(
    tools: tuple[Tool, ...], rules: frozenset[str], field: str = "parameters"
) -> tuple[Tool, ...]:
    """Return the tools; raise OpenAI's error for one whose `field` is not an object schema."""
    violation = find_bad_schema(tools, rules)
    if violation is None:
        return tools
    schema_type = tools[violation.index].schema.get("type")
    raise rejection(
        violation.rule,
        f"Invalid schema for function '{violation.ids[0]}': schema must be a JSON Schema of "
        f"'type: \"object\"', got 'type: {to_json(schema_type).decode()}'.",
        param=f"tools[{violation.index}].{field}",
        code="invalid_function_parameters",
    )


def unknown_role(role: str | None, path: str, supported: str) -> ModelError:
    """Return OpenAI's error for the role of the message at this path."""
    # OpenAI reports a missing role as a missing parameter.
    if role is None:
        return missing_parameter(f"{path}.role", rule="unknown_role")
    return rejection(
        "unknown_role",
        f"Invalid value: '{role}'. Supported values are: {supported}.",
        param=f"{path}.role",
        code="invalid_value",
    )


def missing_parameter(param: str, *, rule: str = "missing_field") -> ModelError:
    """Return OpenAI's error for a missing field."""
    return rejection(
        rule,
        f"Missing required parameter: '{param}'.",
        param=param,
        code="missing_required_parameter",
    )


def parse_image_url(url: str) -> Image:
    """Return the image at a URL; a `data:` URL contains the image."""
    if url.startswith("data:"):
        head, _, data = url[5:].partition(",")
        return Image(data=data, media_type=head.removesuffix(";base64"))
    return Image(url=url)


def image_url(image: Image) -> str:
    """Return the URL of an image."""
    return image.url or f"data:{image.media_type};base64,{image.data}"


# ------------------------------------------------------------------- encoding responses


def make_openai_id(prefix: str, reply: Reply, request: Request) -> str:
    """Return the reply's id if it has this prefix, else a stable one for the whole conversation."""
    if reply.id.startswith(prefix):
        return reply.id
    rest = _checksum(reply.id, reply.step, request.model, request.system)
    return prefix + request.messages.digest() + rest


@lru_cache(maxsize=16)  # they are the same in most requests
def _checksum(*parts: str | int) -> str:
    """Return what distinguishes the replies to one conversation."""
    text = "\0".join(map(str, parts))
    return f"{crc32(text.encode('utf-8', 'replace')):08x}"


def error_object(error: ModelError) -> JSON:
    """Return the `error` object of an error response."""
    error_type, code = _ERROR_TYPES.get(error.category, ("invalid_request_error", None))
    details = error.details
    return {
        "message": error.message,
        "type": details.get("type", error_type),
        "param": details.get("param"),
        "code": details.get("code", code),
    }


def error_response(error: ModelError) -> HttpResponse:
    """Return the error response."""
    request_id = stable_id("req_", str(error.status), error.message)
    headers = {"content-type": JSON_TYPE, "x-request-id": request_id, **error_headers(error)}
    if error.retry_after is not None:
        headers["retry-after"] = str(ceil(error.retry_after))  # whole seconds only
        headers["retry-after-ms"] = str(round(error.retry_after * 1000))
    return HttpResponse(error.status, headers, to_json({"error": error_object(error)}))


# ------------------------------------------------------------------- parsing responses


def decode_response(decoder: msgspec.json.Decoder[T], data: bytes | str) -> T:
    """Decode a response body or an event of the real provider."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"invalid response of the provider: {error}", status=502) from error
