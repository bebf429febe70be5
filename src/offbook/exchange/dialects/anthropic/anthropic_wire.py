"""Wire structs of Anthropic's Messages API, and the signatures of thinking blocks.

Scripted thinking has no signature of the provider. It is sent with an Offbook signature that
contains the thinking itself. So an altered block is detected, one without its text is restored,
and a conversation with both kinds works: signatures of the provider are kept unchanged.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64

import msgspec
from msgspec import UNSET, Raw, UnsetType

from offbook.determinism.clock import stable_id
from offbook.exchange.dialects.decoding import RequestDecoder
from offbook.exchange.messages import JSON, History, Thinking

NAME = "anthropic"

# The options that are kept unchanged.
OPTIONS = """
    max_tokens thinking temperature tool_choice output_config output_format stop_sequences top_p
    top_k metadata context_management service_tier cache_control container mcp_servers
    inference_geo speed
"""

ERROR_TYPES = {
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


class AnthropicImageSource(msgspec.Struct):
    """The source of an image."""

    type: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""


class AnthropicPart(msgspec.Struct):
    """A content block of any type; each type uses some of the fields."""

    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: JSON | None = None
    tool_use_id: str = ""
    content: str | list[AnthropicPart] | AnthropicPart | None = None
    is_error: bool | None = None
    thinking: str = ""
    signature: str | None = None
    data: str = ""
    source: AnthropicImageSource | str | None = None  # a string in a search result
    tool_name: str = ""


class AnthropicTurn(msgspec.Struct):
    """One turn of a conversation."""

    role: str
    content: str | list[AnthropicPart]


class AnthropicThread(msgspec.Struct):
    """The stored conversation that a request continues."""

    type: str = ""
    previous_message_id: str = ""


class AnthropicBody(msgspec.Struct):
    """A request body; `max_tokens` and `thinking` are options that are validated."""

    messages: list[AnthropicTurn]
    model: str = ""
    system: str | list[AnthropicPart] | None = None
    tools: Raw = Raw(b"null")
    stream: bool | None = None
    thread: AnthropicThread | None = None
    max_tokens: int | UnsetType | None = UNSET
    thinking: JSON | UnsetType | None = UNSET


class AnthropicUsage(msgspec.Struct):
    """Token counts; in a stream, the counts so far."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: dict[str, int] | None = None


class AnthropicMessage(msgspec.Struct):
    """A response."""

    id: str = ""
    model: str = ""
    content: list[AnthropicPart] = []
    stop_reason: str | None = None
    usage: AnthropicUsage = msgspec.field(default_factory=AnthropicUsage)


class AnthropicDelta(msgspec.Struct):
    """The delta of a stream event."""

    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None


class AnthropicEvent(msgspec.Struct):
    """A stream event."""

    type: str
    index: int = 0
    message: AnthropicMessage | None = None
    content_block: AnthropicPart | None = None
    delta: AnthropicDelta | None = None
    usage: AnthropicUsage | None = None
    error: JSON | None = None


class AnthropicState(msgspec.Struct, frozen=True):
    """The decoded messages of a conversation, and the tool name of every call by its id."""

    history: History = msgspec.field(default_factory=History)
    tool_names: dict[str, str] = {}


EMPTY_STATE = AnthropicState()  # shared: a history is immutable


class _AnthropicMessagesOnly(msgspec.Struct):
    messages: Raw = Raw(b"[]")


decode_body = RequestDecoder(AnthropicBody, OPTIONS).decode
decode_message = msgspec.json.Decoder(AnthropicMessage).decode
decode_event = msgspec.json.Decoder(AnthropicEvent).decode
_decode_messages_only = msgspec.json.Decoder(_AnthropicMessagesOnly).decode


def find_messages(body: bytes) -> bytes:
    """Return the JSON of the messages in a body."""
    return bytes(_decode_messages_only(body).messages)


# -------------------------------------------------------------------------- signatures

_MAGIC = b"offbook\0"
_OWN_PREFIX = b64encode(_MAGIC)[:10].decode()


def sign_thinking(text: str) -> str:
    """Return a signature that contains the thinking."""
    return b64encode(_MAGIC + stable_id("", text, length=8).encode() + text.encode()).decode()


def verify_thinking(text: str, signature: str) -> Thinking | None:
    """Return the thinking that was signed, or None if it was altered.

    Signatures of the provider cannot be verified and are accepted.
    """
    if not signature.startswith(_OWN_PREFIX):
        return Thinking(text, signature)
    try:
        decoded = b64decode(signature, validate=True)[len(_MAGIC) :]
        signed = decoded[8:].decode()
    except (NotBase64, UnicodeDecodeError):
        return None
    if decoded[:8] != stable_id("", signed, length=8).encode() or text not in {signed, ""}:
        return None
    return Thinking(signed)
