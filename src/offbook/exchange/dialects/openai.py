"""What OpenAI's two ways of talking to a model have in common: bodies, images, refusals."""

from __future__ import annotations

from math import ceil
from typing import TypeVar
from zlib import crc32

import msgspec

from offbook.determinism.clock import stable_id
from offbook.errors import ModelError, categorize
from offbook.exchange.dialects import validation
from offbook.exchange.dialects.decoding import BodyDecoder
from offbook.exchange.dialects.dialect import HttpResponse
from offbook.exchange.messages import JSON, Image, to_json
from offbook.exchange.model import Reply, Request, Tool

T = TypeVar("T")
JSON_TYPE = "application/json"
STREAM_TYPE = "text/event-stream; charset=utf-8"
FAILURE = "The server had an error while processing your request. Sorry about that!"

# category -> type and code of the body
_SHAPES = {
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
_CATEGORIES = {
    code: category for category, (_, code) in _SHAPES.items() if code and category != "not_found"
}
_RETRIED = {408, 409, 429}


def read_body(decoder: BodyDecoder[T], body: bytes | msgspec.Raw) -> T:
    """The body as this decoder reads it; OpenAI's refusal of what it cannot read."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        param = path.strip(".`")
        raise ModelError(
            f"Invalid type for '{param}': {what[:1].lower()}{what[1:]}.".replace("`", "'"),
            status=400,
            details={"param": param, "code": "invalid_type"},
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(
            f"We could not parse the JSON body of your request: {error}.", status=400
        ) from error


def read_answer(decoder: msgspec.json.Decoder[T], data: bytes | str) -> T:
    """What a provider said, as this decoder reads it."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"the provider's answer cannot be read: {error}", status=502) from error


def identify(prefix: str, reply: Reply, request: Request) -> str:
    """The id of a reply: its own if it looks like one, or one made of the whole conversation."""
    if reply.id.startswith(prefix):
        return reply.id
    rest = f"{reply.id}\0{reply.step}\0{request.model}\0{request.system}"
    return f"{prefix}{request.messages.digest()}{crc32(rest.encode('utf-8', 'replace')):08x}"


def check_tools(
    tools: tuple[Tool, ...], refused: frozenset[str], field: str = "parameters"
) -> tuple[Tool, ...]:
    """The tools; OpenAI's refusal of one whose `field` is no schema of an object."""
    breach = validation.find_bad_schema(tools, refused)
    if breach is None:
        return tools
    given = tools[breach.at].schema.get("type")
    raise validation.rejection(
        breach.rule,
        f"Invalid schema for function '{breach.ids[0]}': schema must be a JSON Schema of "
        f"'type: \"object\"', got 'type: {to_json(given).decode()}'.",
        param=f"tools[{breach.at}].{field}",
        code="invalid_function_parameters",
    )


def find_deployment(path: str) -> str | None:
    """The model that Azure's addresses name: `/openai/deployments/MODEL/…`."""
    before, found, rest = path.partition("/deployments/")
    del before
    return rest.partition("/")[0] if found else None


def say_role(role: str | None, where: str, supported: str) -> ModelError:
    """OpenAI's refusal of the role at this place."""
    if role is None:
        return validation.rejection(
            "unknown_role",
            f"Missing required parameter: '{where}.role'.",
            param=f"{where}.role",
            code="missing_required_parameter",
        )
    return validation.rejection(
        "unknown_role",
        f"Invalid value: '{role}'. Supported values are: {supported}.",
        param=f"{where}.role",
        code="invalid_value",
    )


def read_image(url: str) -> Image:
    """A picture from its address, which may hold the picture itself."""
    if url.startswith("data:"):
        head, _, data = url[5:].partition(",")
        return Image(data=data, media_type=head.removesuffix(";base64"))
    return Image(url=url)


def write_image(image: Image) -> str:
    """The address of a picture."""
    return image.url or f"data:{image.media_type};base64,{image.data}"


def describe_error(error: ModelError) -> JSON:
    """The `error` object of a refusal."""
    kind, code = _SHAPES.get(error.category, ("invalid_request_error", None))
    details = error.details
    return {
        "message": error.message,
        "type": details.get("type", kind),
        "param": details.get("param"),
        "code": details.get("code", code),
    }


def refuse(error: ModelError) -> HttpResponse:
    """The answer that says no. What cannot help to repeat says so, or clients would repeat it."""
    headers = {
        "content-type": JSON_TYPE,
        "x-request-id": stable_id("req_", str(error.status), error.message),
    }
    if error.retry_after is not None:
        headers["retry-after"] = str(ceil(error.retry_after))
        headers["retry-after-ms"] = str(round(error.retry_after * 1000))
    if error.status < 500 and error.status not in _RETRIED:  # noqa: PLR2004 - HTTP's own
        headers["x-should-retry"] = "false"
    if rule := error.details.get("rule"):
        headers["x-offbook-rule"] = rule
    body = to_json({"error": describe_error(error)})
    return HttpResponse(error.status, headers, body)


# What comes off the wire holds no cycles, so the collector need not look at it (`gc=False`).


class OpenAIImageUrl(msgspec.Struct, gc=False):
    """Where a picture is."""

    url: str = ""


class OpenAIOutputDetails(msgspec.Struct, gc=False):
    """The tokens of thoughts."""

    reasoning_tokens: int | None = None


class _Said(msgspec.Struct):
    message: str | None = None
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


class _Refusal(msgspec.Struct):
    error: _Said | str | None = None


_refusal = msgspec.json.Decoder(_Refusal)


def read_refusal(answer: HttpResponse) -> ModelError:
    """The error that OpenAI answered with."""
    try:
        error = _refusal.decode(answer.body).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        error = None
    if error is None:
        error = _Said(answer.body.decode(errors="replace").strip() or f"status {answer.status}")
    elif isinstance(error, str):
        error = _Said(error)
    return as_error(error.message or "", error.code, answer.status, _read_wait(answer.headers))


def as_error(
    message: str, code: str | int | None, status: int, retry_after: float | None = None
) -> ModelError:
    """The error of this message and code, with the category that the code tells."""
    category = _CATEGORIES.get(str(code), categorize(status))
    details = {"code": str(code)} if code else {}
    return ModelError(
        message, status=status, category=category, retry_after=retry_after, details=details
    )


def _read_wait(headers: dict[str, str]) -> float | None:
    try:
        if "retry-after-ms" in headers:
            return float(headers["retry-after-ms"]) / 1000
        return float(headers["retry-after"]) if "retry-after" in headers else None
    except ValueError:  # a date: nobody here has a clock to compare it with
        return None


def is_stream(answer: HttpResponse) -> bool:
    """Whether the answer came as events."""
    return bool(answer.chunks) or answer.headers.get("content-type", "").startswith(
        "text/event-stream"
    )


def join_stream(answer: HttpResponse) -> bytes:
    """The events of an answer as they came over the wire."""
    return b"".join(answer.chunks) or answer.body
