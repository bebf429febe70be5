"""Wire structs of OpenAI's Responses API: requests, responses and stream events."""

from __future__ import annotations

from typing import Any

import msgspec

from offbook.exchange.dialects import openai
from offbook.exchange.dialects.decoding import RequestDecoder
from offbook.exchange.messages import JSON, History
from offbook.exchange.model import Tool

NAME = "openai-responses"

# The options that are kept unchanged.
OPTIONS = """
    background context_management conversation include max_output_tokens max_tool_calls metadata
    moderation parallel_tool_calls prompt prompt_cache_key prompt_cache_options
    prompt_cache_retention reasoning safety_identifier service_tier store stream_options
    temperature text tool_choice top_logprobs top_p truncation user
"""


# `gc=False`: JSON has no reference cycles, so the garbage collector can skip these structs.
class ResponsesPart(msgspec.Struct, gc=False):
    """A content part of any type."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: str | openai.OpenAIImageUrl | None = None
    stdout: str | None = None
    stderr: str | None = None


class ResponsesItem(msgspec.Struct, gc=False):
    """An item of a conversation, of any type."""

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
    """A request body without its options."""

    model: str | None = None
    input: str | list[ResponsesItem] | None = None
    instructions: str | list[ResponsesItem] | None = None
    previous_response_id: str | None = None
    # Agents send the same tools with every request: as raw bytes they are the key of a cache.
    tools: msgspec.Raw = msgspec.Raw()
    stream: bool | None = None
    generate: bool | None = None
    client_metadata: JSON | None = None
    type: Any = None  # the name of the event, over a WebSocket


class ResponsesState(msgspec.Struct, frozen=True):
    """The decoded items of a conversation, as the prefix cache keeps them.

    `tool_names` has the tool name of every call by its id; `tools` were offered by items.
    """

    system: tuple[str, ...] = ()
    history: History = msgspec.field(default_factory=History)
    tool_names: dict[str, str] = {}
    tools: tuple[Tool, ...] = ()


EMPTY_STATE = ResponsesState()  # shared: a history is immutable


class _ResponsesInputDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class ResponsesUsage(msgspec.Struct, gc=False):
    """Token counts."""

    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_details: _ResponsesInputDetails | None = None
    output_tokens_details: openai.OpenAIOutputDetails | None = None


class _ResponsesIncompleteDetails(msgspec.Struct, gc=False):
    reason: str | None = None


class ResponsesError(msgspec.Struct, gc=False):
    """The error of a failed response."""

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
    incomplete_details: _ResponsesIncompleteDetails | None = None


class ResponsesEvent(msgspec.Struct, gc=False):
    """A stream event."""

    type: str = ""
    delta: Any = None
    item: ResponsesItem | None = None
    response: ResponsesResponse | None = None
    error: ResponsesError | None = None
    message: str | None = None
    code: str | int | None = None
    status: int = 500


class ResponsesConversation(msgspec.Struct, gc=False):
    """A request to create a stored conversation."""

    items: list[ResponsesItem] | None = None


class _ResponsesInputOnly(msgspec.Struct, gc=False):
    input: msgspec.Raw = msgspec.Raw(b"[]")


class _ResponsesItemOnly(msgspec.Struct, gc=False):
    item: msgspec.Raw = msgspec.Raw(b"null")


body_decoder = RequestDecoder(ResponsesBody, OPTIONS)
tools_decoder: msgspec.json.Decoder[list[JSON] | None] = msgspec.json.Decoder(list[JSON] | None)
conversation_decoder = msgspec.json.Decoder(ResponsesConversation)
response_decoder = msgspec.json.Decoder(ResponsesResponse)
event_decoder = msgspec.json.Decoder(ResponsesEvent)
raw_item_decoder = msgspec.json.Decoder(_ResponsesItemOnly)
_input_decoder = msgspec.json.Decoder(_ResponsesInputOnly)


def find_input(body: bytes) -> bytes:
    """Return the JSON of the input in a body."""
    return bytes(_input_decoder.decode(body).input)
