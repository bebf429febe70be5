"""What stands on the wire of Anthropic's messages, as it is read."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from offbook.determinism.clock import stable_id
from offbook.exchange.dialects.decoding import LenientDecoder
from offbook.exchange.dialects.dialect import OptionPicker
from offbook.exchange.messages import JSON, History, Thinking

# --- What stands on the wire of Anthropic's messages, as it is read.

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


class AnthropicImageSource(msgspec.Struct):
    """Where a picture comes from."""

    type: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""


class AnthropicPart(msgspec.Struct):
    """A content block of any kind; each kind uses some of the fields."""

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
    source: AnthropicImageSource | str | None = None  # a search result names its own
    tool_name: str = ""


class AnthropicTurn(msgspec.Struct):
    """One turn of a conversation."""

    role: str
    content: str | list[AnthropicPart]


class AnthropicThread(msgspec.Struct):
    """The conversation that a request goes on with."""

    type: str = ""
    previous_message_id: str = ""


class AnthropicBody(msgspec.Struct):
    """A request."""

    messages: list[AnthropicTurn]
    model: str = ""
    system: str | list[AnthropicPart] | None = None
    tools: Raw = Raw(b"null")
    stream: bool | None = None
    thread: AnthropicThread | None = None
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


class AnthropicUsage(msgspec.Struct):
    """Tokens; in a stream, those that are told so far."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: dict[str, int] | None = None


class AnthropicMessage(msgspec.Struct):
    """A reply."""

    id: str = ""
    model: str = ""
    content: list[AnthropicPart] = []
    stop_reason: str | None = None
    usage: AnthropicUsage = msgspec.field(default_factory=AnthropicUsage)


class AnthropicDelta(msgspec.Struct):
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
    message: AnthropicMessage | None = None
    content_block: AnthropicPart | None = None
    delta: AnthropicDelta | None = None
    usage: AnthropicUsage | None = None
    error: JSON | None = None


options = OptionPicker(AnthropicBody, "max_tokens")


body = LenientDecoder(AnthropicBody).decode


message = msgspec.json.Decoder(AnthropicMessage).decode


event = msgspec.json.Decoder(_Event).decode


class _Outline(msgspec.Struct):
    messages: Raw = Raw(b"[]")


class AnthropicState(msgspec.Struct, frozen=True):
    """What was read from a conversation: its messages, and its tools by the ids of their calls."""

    history: History
    names: dict[str, str]


NOTHING = AnthropicState(History(), {})


outline = msgspec.json.Decoder(_Outline).decode


# --- The seals on thoughts: the provider's are kept, ours can be opened.

_MAGIC = b"offbook\0"


def sign_thinking(text: str) -> str:
    """Our seal on a thought, with the thought in it."""
    said = text.encode()
    return b64encode(_MAGIC + stable_id("", text, length=8).encode() + said).decode()


def verify_thinking(text: str, signature: str) -> Thinking | None:
    """The thought that was sealed; None if it was altered. Other seals cannot be opened."""
    if not signature.startswith(_SEALED):
        return Thinking(text, signature)
    try:
        opened = b64decode(signature, validate=True)[len(_MAGIC) :]
        sealed = opened[8:].decode()
    except (NotBase64, UnicodeDecodeError):
        return None
    if opened[:8] != stable_id("", sealed, length=8).encode() or text not in {sealed, ""}:
        return None
    return Thinking(sealed)


_SEALED = b64encode(_MAGIC)[:10].decode()
