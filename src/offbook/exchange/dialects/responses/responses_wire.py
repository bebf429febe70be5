"""What stands on the wire of responses, as it is read."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from offbook.exchange.dialects import openai
from offbook.exchange.dialects.decoding import LenientDecoder
from offbook.exchange.dialects.dialect import OptionPicker
from offbook.exchange.messages import JSON, History
from offbook.exchange.model import Tool

NAME = "openai-responses"

OPTIONS = (
    "background",
    "context_management",
    "conversation",
    "include",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "moderation",
    "parallel_tool_calls",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)


# What comes off the wire holds no cycles, so the collector need not look at it (`gc=False`).
class ResponsesPart(msgspec.Struct, gc=False):
    """A part of some content, of whatever type."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: str | openai.OpenAIImageUrl | None = None
    stdout: str | None = None
    stderr: str | None = None


class ResponsesItem(msgspec.Struct, gc=False):
    """An item of a conversation, of whatever type."""

    type: str | None = None
    role: str | None = None
    id: str | None = None
    content: str | list[ResponsesPart] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Any = None
    action: JSON | None = None
    actions: list[JSON] | None = None
    operation: JSON | None = None
    input: Any = None
    output: str | list[ResponsesPart] | ResponsesPart | None = None
    summary: list[ResponsesPart] | None = None
    encrypted_content: str | None = None
    tools: list[JSON] | None = None


class ResponsesBody(msgspec.Struct, gc=False):
    """A request."""

    model: str | None = None
    input: str | list[ResponsesItem] | None = None
    instructions: str | list[ResponsesItem] | None = None
    previous_response_id: str | None = None
    # the tools come again with every request, byte for byte: each offer is read once
    tools: msgspec.Raw = msgspec.Raw()
    stream: bool | None = None
    generate: bool | None = None
    client_metadata: JSON | None = None
    type: Any = None  # the name of an event, over a WebSocket


class _Outline(msgspec.Struct, gc=False):
    input: msgspec.Raw = msgspec.Raw(b"[]")


class ResponsesState(msgspec.Struct, frozen=True):
    """What was read from the items so far."""

    system: tuple[str, ...]
    history: History
    names: dict[str, str]
    tools: tuple[Tool, ...]


class _Cached(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class ResponsesUsage(msgspec.Struct, gc=False):
    """Tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_details: _Cached | None = None
    output_tokens_details: openai.OpenAIOutputDetails | None = None


class _Reason(msgspec.Struct, gc=False):
    reason: str | None = None


class ResponsesError(msgspec.Struct, gc=False):
    """What went wrong."""

    code: str | int | None = None
    message: str | None = None


class ResponsesResponse(msgspec.Struct, gc=False):
    """A response."""

    id: str = ""
    model: str = ""
    status: str | None = None
    output: list[ResponsesItem] = []
    usage: ResponsesUsage | None = None
    error: ResponsesError | None = None
    incomplete_details: _Reason | None = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: Any = None
    item: ResponsesItem | None = None
    response: ResponsesResponse | None = None
    error: ResponsesError | None = None
    message: str | None = None
    code: str | int | None = None
    status: int = 500


_Whole = msgspec.defstruct(
    "_Whole", [(name, Any, msgspec.UNSET) for name in OPTIONS], bases=(ResponsesBody,), gc=False
)


options = OptionPicker(_Whole, OPTIONS[0])


body = LenientDecoder(cast("type[ResponsesBody]", _Whole))


tools: msgspec.json.Decoder[list[JSON] | None] = msgspec.json.Decoder(list[JSON] | None)

NOTHING = ResponsesState((), History(), {}, ())


outline = msgspec.json.Decoder(_Outline)


class _Beginning(msgspec.Struct, gc=False):
    items: list[ResponsesItem] | None = None


beginning = msgspec.json.Decoder(_Beginning)


class _RawItem(msgspec.Struct, gc=False):
    item: msgspec.Raw = msgspec.Raw(b"null")


raw_item = msgspec.json.Decoder(_RawItem)


response = msgspec.json.Decoder(ResponsesResponse)


event = msgspec.json.Decoder(_Event)
