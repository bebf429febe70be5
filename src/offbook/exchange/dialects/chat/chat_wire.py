"""What stands on the wire of chat completions, as it is read."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from offbook.exchange.dialects import openai
from offbook.exchange.dialects.decoding import LenientDecoder
from offbook.exchange.dialects.dialect import OptionPicker
from offbook.exchange.messages import JSON, History

NAME = "openai-chat"


# The options that are kept as they came: OpenAI's own, then those of servers that imitate it.
OPTIONS = (
    "audio",
    "frequency_penalty",
    "function_call",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "modalities",
    "moderation",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream_options",
    "temperature",
    "tool_choice",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
    "chat_template_kwargs",
    "extra_body",
    "guided_json",
    "min_p",
    "provider",
    "reasoning",
    "repetition_penalty",
    "thinking",
    "top_k",
    "transforms",
)


BESIDE = "beside"
"""The kind of block that keeps what a message says beside its content, by these names."""

_BESIDE = ("name", "annotations", "audio", "images", "reasoning_details", "thinking_blocks")


# What comes off the wire holds no cycles, so the collector need not look at it (`gc=False`).
class ChatFunctionCall(msgspec.Struct, gc=False):
    """A call of a function."""

    name: str | None = None
    arguments: str | None = None


class ChatCustomCall(msgspec.Struct, gc=False):
    """A call of a custom tool."""

    name: str | None = None
    input: str | None = None


class ChatToolCall(msgspec.Struct, gc=False):
    """A tool call, or a piece of one."""

    id: str | None = None
    index: int | None = None
    function: ChatFunctionCall | None = None
    custom: ChatCustomCall | None = None


class ChatPart(msgspec.Struct, gc=False):
    """A part of some content, of whatever type."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: openai.OpenAIImageUrl | None = None


class ChatMessage(msgspec.Struct, gc=False):
    """A message of a request or a reply, or the piece of one that a stream brings."""

    role: str | None = None
    content: str | list[ChatPart] | None = None
    tool_calls: list[ChatToolCall] | None = None
    function_call: ChatFunctionCall | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    # what has no block of its own, and is kept as it came
    name: Any = None
    annotations: Any = None
    audio: Any = None
    images: Any = None
    reasoning_details: Any = None
    thinking_blocks: Any = None

    @property
    def beside(self) -> JSON:
        """What the message says beside its content."""
        if not (self.name or self.annotations or self.audio or self.images) and not (
            self.reasoning_details or self.thinking_blocks
        ):  # as nearly always
            return {}
        given = ((name, getattr(self, name)) for name in _BESIDE)
        return {name: value for name, value in given if value}

    @property
    def thoughts(self) -> str:
        return self.reasoning_content or (self.reasoning if isinstance(self.reasoning, str) else "")


class ChatToolSpec(msgspec.Struct, gc=False):
    """What a tool is called and takes."""

    name: str = ""
    description: str | None = None
    parameters: JSON | None = None
    format: JSON | None = None
    strict: bool | None = None


class ChatTool(msgspec.Struct, gc=False):
    """A tool that is offered."""

    type: str = "function"
    function: ChatToolSpec | None = None
    custom: ChatToolSpec | None = None


class ChatBody(msgspec.Struct, gc=False):
    """A request."""

    model: str | None = None
    messages: list[ChatMessage] | None = None
    # the tools come again with every request, byte for byte: each offer is read once
    tools: msgspec.Raw = msgspec.Raw()
    stream: bool | None = None
    functions: list[ChatToolSpec] | None = None


class _Outline(msgspec.Struct, gc=False):
    messages: msgspec.Raw = msgspec.Raw(b"[]")


class ChatState(msgspec.Struct, frozen=True):
    """What was read from the messages so far: the system, the rest, and who is called what."""

    system: tuple[str, ...]
    history: History
    names: dict[str, str]
    tooled: bool


class _Cached(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class ChatUsage(msgspec.Struct, gc=False):
    """Tokens."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Cached | None = None
    completion_tokens_details: openai.OpenAIOutputDetails | None = None


class ChatChoice(msgspec.Struct, gc=False):
    """One of the replies, or a piece of one."""

    message: ChatMessage = msgspec.field(default_factory=ChatMessage)
    delta: ChatMessage = msgspec.field(default_factory=ChatMessage)
    finish_reason: str | None = None


class ChatCompletion(msgspec.Struct, gc=False):
    """A reply, or a chunk of one."""

    id: str = ""
    model: str = ""
    choices: list[ChatChoice] = []
    usage: ChatUsage | None = None
    error: JSON | None = None


_Whole = msgspec.defstruct(
    "_Whole", [(name, Any, msgspec.UNSET) for name in OPTIONS], bases=(ChatBody,), gc=False
)


options = OptionPicker(_Whole, OPTIONS[0])


body = LenientDecoder(cast("type[ChatBody]", _Whole))


tools: msgspec.json.Decoder[list[ChatTool] | None] = msgspec.json.Decoder(list[ChatTool] | None)

NOTHING = ChatState((), History(), {}, tooled=False)


outline = msgspec.json.Decoder(_Outline)


completion = msgspec.json.Decoder(ChatCompletion)
