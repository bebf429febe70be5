"""The responses of real providers: their errors, events and blocks.

A dialect translates the events of its provider into calls of a `StreamAccumulator`, which assembles
the blocks. A server needs none of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import msgspec

from offbook.errors import MAX_RETRY_AFTER, ModelError, categorize
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Text,
    Thinking,
    ToolCall,
    parse_arguments,
    parse_custom_input,
)
from offbook.secrets import excerpt

if TYPE_CHECKING:
    from offbook.exchange.dialects.dialect import HttpResponse

FIRST_ERROR_STATUS = 400


def response_body(response: HttpResponse) -> bytes:
    """Return the body of a response, or the bytes of its stream."""
    return response.body or b"".join(response.chunks)


def is_event_stream(response: HttpResponse) -> bool:
    """Return whether the response is a stream of server-sent events."""
    content_type = response.headers.get("content-type", "")
    begins = response.body.startswith((b"data:", b"event:"))  # not all servers name the type
    return bool(response.chunks) or begins or content_type.startswith("text/event-stream")


# ------------------------------------------------------------------------------ errors


def raise_for_status(response: HttpResponse, categories: Mapping[str, str] | None = None) -> None:
    """Raise a provider's error response as `ModelError`, also one that has the status of a reply.

    The body has the form `{"error": {"message": …, "code": …}}`, `{"error": "…"}` or, from
    Bedrock, `{"message": …}`. Google also sends a list with one such object. `categories` maps the
    provider's error codes to categories of `ModelError`.
    """
    status = response.status
    body = response_body(response)
    failed = status >= FIRST_ERROR_STATUS
    if not failed and not (response.body.startswith(b"{") and b'"error"' in body):
        return
    error: Any = None
    try:
        decoded: Any = msgspec.json.decode(body)
        if isinstance(decoded, list):
            decoded = cast("list[Any]", decoded)[0]
        error = cast("JSON", decoded).get("error", decoded if failed else None)
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, AttributeError, RecursionError):
        pass  # a proxy's HTML page, for example
    fields = cast("JSON", error) if isinstance(error, dict) else {}
    if not failed:
        if not error:
            return
        status = error_status(fields)
    message = error if isinstance(error, str) else fields.get("message") or fields.get("Message")
    if message is None:
        message = excerpt(body.decode("utf-8", "replace").strip(), 200) or f"status {status}"
    retry_after = _retry_after(response, body)
    if retry_after is not None and not 0 <= retry_after <= MAX_RETRY_AFTER:
        retry_after = None
    # Only the OpenAI dialects have error codes that are more precise than the status.
    if categories is None:
        raise ModelError(str(message), status=status, retry_after=retry_after)
    raise error_with_code(str(message), fields.get("code"), status, categories, retry_after)


def error_status(error: JSON) -> int:
    """Return the status of an error in the body of a response that has none of its own."""
    code = error.get("code")
    return code if isinstance(code, int) and code in range(400, 600) else 500


def error_with_code(
    message: str,
    code: object,
    status: int,
    categories: Mapping[str, str],
    retry_after: float | None = None,
) -> ModelError:
    """Return an error whose category follows from the provider's error code."""
    return ModelError(
        message,
        status=status,
        category=categories.get(str(code), categorize(status)),
        retry_after=retry_after,
        details={"code": str(code)} if code else {},
    )


def _retry_after(response: HttpResponse, body: bytes) -> float | None:
    headers = response.headers
    try:
        plain = float(headers["retry-after"]) if "retry-after" in headers else None
        if "retry-after-ms" in headers:
            exact = float(headers["retry-after-ms"]) / 1000
            # A scripted error lets SDKs retry at once; then `retry-after` has the script's delay.
            return exact if plain is None or abs(plain - exact) < 1 else plain
        if plain is not None:
            return plain
    except ValueError:  # a date, which would need the provider's clock
        return None
    google_delay = re.search(rb'"retryDelay":\s*"(\d+(?:\.\d*)?)s"', body)
    return float(google_delay[1]) if google_delay else None


def interrupted_stream(
    message: str = "the stream ended before the reply was complete",
) -> ModelError:
    """Return the error for a stream that has no end."""
    error = ModelError(message, status=502)
    error.interrupted = True
    return error


def invalid_response(provider: str, error: Exception | str) -> ModelError:
    """Return the error for a response that cannot be parsed."""
    return ModelError(f"invalid response of {provider}: {error}", status=502)


# ----------------------------------------------------------------------------- streams

BlockKind = Literal["text", "thinking", "redacted", "call", "custom_call"]
KeyT = TypeVar("KeyT", int, tuple[int, ...])


class StreamedBlock:
    """A block under construction; `kind` can change until its first text arrives."""

    __slots__ = ("call_id", "kind", "name", "parts", "signature")

    def __init__(self, kind: BlockKind) -> None:
        self.kind: BlockKind = kind
        self.call_id = ""
        self.name = ""
        self.signature = ""
        self.parts: list[str] = []

    def add(self, text: str) -> None:
        """Append text, reasoning or arguments."""
        self.parts.append(text)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self.parts)

    def build(self) -> AnyBlock:
        """Return the complete block."""
        match self.kind:
            case "text":
                return Text(self.text)
            case "thinking":
                return Thinking(self.text, self.signature)
            case "redacted":
                return Thinking("", self.signature, redacted=True)
            case "call":
                return ToolCall(self.call_id, self.name, parse_arguments(self.text))
            case "custom_call":
                arguments = parse_custom_input(self.text)
                return ToolCall(self.call_id, self.name, arguments, custom=True)


class StreamAccumulator(Generic[KeyT]):
    """The blocks of a streamed reply, by keys that sort in their order, and its text chunks.

    accumulator.block(0, "text").add("Hel")
    accumulator.block(0, "text").add("lo")
    accumulator.blocks()  # (Text("Hello"),)
    """

    def __init__(self) -> None:
        self._blocks: dict[KeyT, StreamedBlock] = {}
        self.chunks: list[str] = []

    def block(self, key: KeyT, kind: BlockKind) -> StreamedBlock:
        """Return the block with this key, which starts as this kind."""
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = StreamedBlock(kind)
        return block

    def add_text(self, key: KeyT, text: str) -> None:
        """Append a chunk of the reply's text."""
        self.block(key, "text").add(text)
        self.chunks.append(text)

    def items(self) -> list[tuple[KeyT, StreamedBlock]]:
        """Return the keys and the blocks under construction, in their order."""
        # Blocks can be interleaved in a stream, so the order of arrival does not count.
        return sorted(self._blocks.items(), key=itemgetter(0))

    def blocks(self) -> tuple[AnyBlock, ...]:
        """Return the complete blocks, in their order."""
        return tuple([block.build() for _, block in self.items()])


# ------------------------------------------------------------------ server-sent events

_LINE_END = re.compile(r"\r\n|\n|\r")


class SseEvent(msgspec.Struct, frozen=True):
    """A server-sent event."""

    data: str
    name: str = ""


def is_json(text: bytes | str) -> bool:
    """Return whether a text is a whole JSON document."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def parse_sse(stream: bytes) -> Iterator[SseEvent]:
    """Yield the events of a stream; the last empty line may be missing.

    A last event that broke off is left out.
    """
    name = ""
    data: list[str] = []
    lines = _LINE_END.split(stream.decode("utf-8-sig", "replace"))
    # An empty last line ends an event whose own empty line is missing.
    for number, line in enumerate((*lines, "")):
        if not line:
            text = "\n".join(data)
            if data and (number < len(lines) or text == "[DONE]" or is_json(text)):
                yield SseEvent(text, name)
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
