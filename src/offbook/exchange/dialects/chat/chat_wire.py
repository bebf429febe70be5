"""Wire structs of OpenAI's chat completions: requests, responses and stream chunks."""

from __future__ import annotations

from typing import Any

import msgspec

from offbook.exchange.dialects import openai
from offbook.exchange.dialects.decoding import RequestDecoder
from offbook.exchange.messages import JSON, History

NAME = "openai-chat"


# The options that are kept unchanged: OpenAI's own, then those of compatible servers.
OPTIONS = """
    audio frequency_penalty function_call logit_bias logprobs max_completion_tokens max_tokens
    metadata modalities moderation n parallel_tool_calls prediction presence_penalty
    prompt_cache_key prompt_cache_retention reasoning_effort response_format safety_identifier
    seed service_tier stop store stream_options temperature tool_choice top_logprobs top_p user
    verbosity web_search_options
    chat_template_kwargs extra_body guided_json min_p provider reasoning repetition_penalty
    thinking top_k transforms
"""


EXTRA_FIELDS = "beside"
"""The kind of the raw block with the message fields that have no neutral block.

The value is part of recorded traces and cassettes.
"""

_EXTRA_FIELDS = ("name", "annotations", "audio", "images", "reasoning_details", "thinking_blocks")


# `gc=False`: JSON has no reference cycles, so the garbage collector can skip these structs.
class ChatFunctionCall(msgspec.Struct, gc=False):
    """A call of a function."""

    name: str | None = None
    arguments: str | None = None


class ChatCustomCall(msgspec.Struct, gc=False):
    """A call of a custom tool, which takes text."""

    name: str | None = None
    input: str | None = None


class ChatToolCall(msgspec.Struct, gc=False):
    """A tool call, or the part of one in a stream chunk."""

    id: str | None = None
    index: int | None = None
    function: ChatFunctionCall | None = None
    custom: ChatCustomCall | None = None


class ChatPart(msgspec.Struct, gc=False):
    """A content part of any type."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    image_url: openai.OpenAIImageUrl | None = None


class ChatMessage(msgspec.Struct, gc=False):
    """A message of a request or response, or the delta of one in a stream chunk."""

    role: str | None = None
    content: str | list[ChatPart] | None = None
    tool_calls: list[ChatToolCall] | None = None
    function_call: ChatFunctionCall | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    # Fields without a neutral block, kept unchanged.
    name: Any = None
    annotations: Any = None
    audio: Any = None
    images: Any = None
    reasoning_details: Any = None
    thinking_blocks: Any = None

    @property
    def extra_fields(self) -> JSON:
        """The fields without a neutral block."""
        if not (self.name or self.annotations or self.audio or self.images) and not (
            self.reasoning_details or self.thinking_blocks
        ):  # the usual case
            return {}
        fields = ((name, getattr(self, name)) for name in _EXTRA_FIELDS)
        return {name: value for name, value in fields if value}

    @property
    def thinking(self) -> str:
        """The reasoning, under the name that DeepSeek uses or the one of OpenRouter."""
        return self.reasoning_content or (self.reasoning if isinstance(self.reasoning, str) else "")


class ChatToolSpec(msgspec.Struct, gc=False):
    """The name and parameters of an offered tool."""

    name: str = ""
    description: str | None = None
    parameters: JSON | None = None
    format: JSON | None = None
    strict: bool | None = None


class ChatTool(msgspec.Struct, gc=False):
    """An offered tool."""

    type: str = "function"
    function: ChatToolSpec | None = None
    custom: ChatToolSpec | None = None


class ChatBody(msgspec.Struct, gc=False):
    """A request body without its options."""

    model: str | None = None
    messages: list[ChatMessage] | None = None
    # Agents send the same tools with every request: as raw bytes they are the key of a cache.
    tools: msgspec.Raw = msgspec.Raw()
    stream: bool | None = None
    functions: list[ChatToolSpec] | None = None


class ChatState(msgspec.Struct, frozen=True):
    """The decoded messages of a conversation, as the prefix cache keeps them.

    `tool_names` has the tool name of every call by its id; `has_tools` is whether there are calls
    or results to be paired. A conversation with function calls is not cacheable: their ids belong
    to one run.
    """

    system: tuple[str, ...] = ()
    history: History = msgspec.field(default_factory=History)
    tool_names: dict[str, str] = {}
    has_tools: bool = False
    is_cacheable: bool = True


EMPTY_STATE = ChatState()  # shared: a history is immutable


class _ChatCachedTokens(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class ChatUsage(msgspec.Struct, gc=False):
    """Token counts."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _ChatCachedTokens | None = None
    completion_tokens_details: openai.OpenAIOutputDetails | None = None


class ChatChoice(msgspec.Struct, gc=False):
    """One choice of a response or stream chunk."""

    message: ChatMessage = msgspec.field(default_factory=ChatMessage)
    delta: ChatMessage = msgspec.field(default_factory=ChatMessage)
    finish_reason: str | None = None


class ChatCompletion(msgspec.Struct, gc=False):
    """A response, or a stream chunk."""

    id: str = ""
    model: str = ""
    choices: list[ChatChoice] = []
    usage: ChatUsage | None = None
    error: JSON | None = None


class ChatEmbeddingBody(msgspec.Struct, gc=False):
    """A request for embeddings."""

    model: str = ""
    input: str | list[str | int | list[int]] = ""
    encoding_format: str = "float"
    dimensions: int | None = None


class _ChatMessagesOnly(msgspec.Struct, gc=False):
    messages: msgspec.Raw = msgspec.Raw(b"[]")


body_decoder = RequestDecoder(ChatBody, OPTIONS)
tools_decoder: msgspec.json.Decoder[list[ChatTool] | None] = msgspec.json.Decoder(
    list[ChatTool] | None
)
completion_decoder = msgspec.json.Decoder(ChatCompletion)
embedding_decoder = msgspec.json.Decoder(ChatEmbeddingBody)
_messages_decoder = msgspec.json.Decoder(_ChatMessagesOnly)


def find_messages(body: bytes) -> bytes:
    """Return the JSON of the messages in a body."""
    return bytes(_messages_decoder.decode(body).messages)
