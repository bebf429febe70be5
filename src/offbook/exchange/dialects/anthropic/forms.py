"""What stands on the wire of Anthropic's messages, as it is read."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from offbook.exchange.dialects.dialect import Options
from offbook.exchange.foreign import Bodies
from offbook.exchange.history import History
from offbook.exchange.messages import JSON

NAME = "anthropic"

ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Picture(msgspec.Struct):
    """Where a picture comes from."""

    type: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""


class Part(msgspec.Struct):
    """A content block of any kind; each kind uses some of the fields."""

    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: JSON | None = None
    tool_use_id: str = ""
    content: str | list[Part] | Part | None = None
    is_error: bool | None = None
    thinking: str = ""
    signature: str | None = None
    data: str = ""
    source: Picture | str | None = None  # a search result names its own
    tool_name: str = ""


class Turn(msgspec.Struct):
    """One turn of a conversation."""

    role: str
    content: str | list[Part]


class Thread(msgspec.Struct):
    """The conversation that a request goes on with."""

    type: str = ""
    previous_message_id: str = ""


class Body(msgspec.Struct):
    """A request."""

    messages: list[Turn]
    model: str = ""
    system: str | list[Part] | None = None
    tools: Raw = Raw(b"null")
    stream: bool | None = None
    thread: Thread | None = None
    max_tokens: int | UnsetType | None = UNSET
    temperature: Any = UNSET
    thinking: JSON | UnsetType | None = UNSET
    tool_choice: Any = UNSET
    output_config: Any = UNSET
    output_format: Any = UNSET
    stop_sequences: Any = UNSET
    top_p: Any = UNSET
    top_k: Any = UNSET
    metadata: Any = UNSET
    context_management: Any = UNSET
    service_tier: Any = UNSET
    cache_control: Any = UNSET
    container: Any = UNSET
    mcp_servers: Any = UNSET
    inference_geo: Any = UNSET
    speed: Any = UNSET


class Usage(msgspec.Struct):
    """Tokens; in a stream, those that are told so far."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: dict[str, int] | None = None


class Message(msgspec.Struct):
    """A reply."""

    id: str = ""
    model: str = ""
    content: list[Part] = []
    stop_reason: str | None = None
    usage: Usage = msgspec.field(default_factory=Usage)


class Delta(msgspec.Struct):
    """What an event of a stream adds."""

    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str
    index: int = 0
    message: Message | None = None
    content_block: Part | None = None
    delta: Delta | None = None
    usage: Usage | None = None
    error: JSON | None = None


options = Options(Body, "max_tokens")


body = Bodies(Body).decode


message = msgspec.json.Decoder(Message).decode


event = msgspec.json.Decoder(_Event).decode


class _Outline(msgspec.Struct):
    messages: Raw = Raw(b"[]")


class Read(msgspec.Struct, frozen=True):
    """What was read from a conversation: its messages, and its tools by the ids of their calls."""

    history: History
    names: dict[str, str]


NOTHING = Read(History(), {})


outline = msgspec.json.Decoder(_Outline).decode
