"""Anthropic's Messages API on the wire: structs, and decoding and validation of requests.

Scripted thinking has no signature of the provider. It is sent with an Offbook signature that
contains the thinking itself. So an altered block is detected, one without its text is restored,
and a conversation with both kinds works: signatures of the provider are kept unchanged.
"""

# No `from __future__ import annotations`: msgspec would compile the type of each field anew, and
# the first reply of a server would take 2 ms more.

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from offbook.determinism.run_context import stable_id
from offbook.errors import ModelError
from offbook.exchange.dialects.wire import (
    CallPairing,
    JsonPath,
    RawBody,
    RequestDecoder,
    rejection,
    split_validation_error,
)
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Content,
    History,
    Image,
    Message,
    RawBlock,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from offbook.exchange.model import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offbook.exchange.dialects.wire import Violation
    from offbook.exchange.model import Reply

NAME = "anthropic"
# Those of `anthropic_stores.py`.
STORE_PATH = re.compile(r"/(messages/batches|files)(?:/([^/]+))?(?:/(\w+))?$")

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
    content: "str | list[AnthropicPart] | AnthropicPart | None" = None
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


class AnthropicMessage(msgspec.Struct, kw_only=True):
    """A response."""

    id: str = ""
    model: str = ""
    content: list[AnthropicPart]
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


_decode_body = RequestDecoder(AnthropicBody, OPTIONS).decode
decode_message = msgspec.json.Decoder(AnthropicMessage).decode
decode_event = msgspec.json.Decoder(AnthropicEvent).decode


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


# ------------------------------------------------------------------------------- bodies

_TOOL_FIELDS = {"cache_control", "description", "input_schema", "name", "strict", "type"}
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def decode_body(body: bytes) -> tuple[AnthropicBody, JSON]:
    """Return the decoded body and its unknown fields; raise Anthropic's error if it is invalid."""
    try:
        return _decode_body(body)
    except msgspec.ValidationError as error:
        raise ModelError(_validation_message(error), status=400) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"The request body is not valid JSON: {error}"
        raise ModelError(message, status=400) from error


def _validation_message(error: msgspec.ValidationError) -> str:
    """Return the error in Anthropic's form: `messages.0.role: Field required`."""
    message, path = split_validation_error(error)
    path = path.replace("[", ".").replace("]", "").lstrip(".")
    missing = re.fullmatch(r"Object missing required field `(.+)`", message)
    if missing:
        return f"{path}.{missing[1]}: Field required".lstrip(".")
    return f"{path}: {message}" if path else message


# ------------------------------------------------------------------------------ blocks


def decode_blocks(
    content: str | list[AnthropicPart], raw: RawBody, path: JsonPath
) -> list[AnyBlock]:
    """Decode the content of a message."""
    if isinstance(content, str):
        return [Text(content)]
    return [decode_block(part, raw, (*path, index)) for index, part in enumerate(content)]


def decode_block(part: AnthropicPart, raw: RawBody, path: JsonPath) -> AnyBlock:
    """Decode a block; documents and the blocks of server tools are kept raw."""
    match part.type:
        case "text":
            return Text(part.text)
        case "tool_use":
            return ToolCall(part.id, part.name, part.input or {})
        case "thinking":
            signature = part.signature or ""
            verified = verify_thinking(part.thinking, signature)
            return verified or Thinking(part.thinking, signature)
        case "redacted_thinking":
            return Thinking("", part.data, redacted=True)
        case _:
            return _decode_image(part, raw, path)


def _decode_image(part: AnthropicPart, raw: RawBody, path: JsonPath) -> Image | RawBlock:
    source = part.source
    if (
        part.type == "image"
        and isinstance(source, AnthropicImageSource)
        and (source.data or source.url)
    ):
        return Image(source.data, source.media_type, source.url)
    return raw.block(part.type, path)


def _decode_result_content(
    content: str | list[AnthropicPart] | AnthropicPart | None,
    raw: RawBody,
    path: JsonPath,
) -> tuple[Content, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    parts = content if isinstance(content, list) else [content] if content else []
    decoded: list[Content] = []
    for index, part in enumerate(parts):
        match part.type:
            case "text":
                decoded.append(Text(part.text))
            case "tool_reference":  # a tool that a tool search found
                decoded.append(Text(part.tool_name))
            case _:
                part_path = (*path, index) if isinstance(content, list) else path
                decoded.append(_decode_image(part, raw, part_path))
    return tuple(decoded)


# ------------------------------------------------------------------------------- turns


class AnthropicMessageReader:
    """Decodes and validates the turns of a request.

    It starts after the messages of `before`, or after the reply that a thread continues.
    `tool_names` has the tool name of every call by its id.
    """

    def __init__(
        self,
        rules: frozenset[str],
        before: AnthropicState,
        reply: "Reply | None",
        raw: RawBody,
    ) -> None:
        self._rules = rules
        self._raw = raw
        self._messages: list[Message] = []
        self._last_role = before.history[-1].role if before.history else ""
        self._pairing = CallPairing(rules, before.tool_names)
        self.tool_names = self._pairing.names
        if reply is not None:
            self._add_calls(reply.blocks, -1)

    def read(self, turns: list[AnthropicTurn]) -> list[Message]:
        """Return the messages of these turns; raise Anthropic's error for an invalid one."""
        for index, turn in enumerate(turns):
            role = turn.role
            if role == "assistant":
                self._read_assistant(index, turn.content)
            elif role == "system":
                path = ("messages", index, "content")
                self._add("system", decode_blocks(turn.content, self._raw, path))
            elif role == "user" or "unknown_role" not in self._rules:
                self._read_user(index, turn.content)
            else:
                raise rejection(
                    "unknown_role",
                    f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant"',
                )
        self._require_results()
        return self._messages

    def _add(self, role: Role, blocks: "Sequence[AnyBlock]") -> None:
        self._messages.append(Message(role, tuple(blocks)))
        self._last_role = role
        if role != "tool" and self._pairing.answered:
            self._pairing.answered.clear()

    def _read_user(self, turn: int, content: str | list[AnthropicPart]) -> None:
        """Split a user turn into the messages of its tool results and a message of the user."""
        if isinstance(content, str):
            self._require_results()
            self._add("user", (Text(content),))
            return
        blocks: list[AnyBlock] = []
        has_results = False
        for index, part in enumerate(content):
            path = ("messages", turn, "content", index)
            if part.type == "tool_result":
                has_results = True
                if violation := self._pairing.add_result(part.tool_use_id, turn):
                    raise _result_error(violation, f"messages.{turn}.content.{index}")
                result = ToolResult(
                    part.tool_use_id,
                    _decode_result_content(part.content, self._raw, (*path, "content")),
                    part.is_error is True,
                    self.tool_names.get(part.tool_use_id, ""),
                )
                self._add("tool", (result,))
                continue
            # The results must come before other blocks.
            if self._pairing.pending and "missing_result" in self._rules:
                self._require_results()
            blocks.append(decode_block(part, self._raw, path))
        if blocks or not has_results:
            self._add("user", blocks)

    def _read_assistant(self, turn: int, content: str | list[AnthropicPart]) -> None:
        # Adjacent turns of the model are one reply, whose calls may still be pending.
        if self._last_role != "assistant":
            self._require_results()
        if isinstance(content, str):
            self._add("assistant", (Text(content),))
            return
        blocks: list[AnyBlock] = []
        for index, part in enumerate(content):
            if part.type == "thinking":
                blocks.append(self._read_thinking(part, f"messages.{turn}.content.{index}"))
            else:
                path = ("messages", turn, "content", index)
                blocks.append(decode_block(part, self._raw, path))
        self._add("assistant", blocks)
        self._add_calls(blocks, turn)

    def _read_thinking(self, part: AnthropicPart, path: str) -> Thinking:
        verified = verify_thinking(part.thinking, part.signature or "")
        if "altered_thinking" in self._rules:
            if part.signature is None:
                raise rejection("altered_thinking", f"{path}.thinking.signature: Field required")
            if verified is None or not part.signature:
                raise rejection(
                    "altered_thinking", f"{path}: Invalid `signature` in `thinking` block"
                )
        return verified or Thinking(part.thinking, part.signature or "")

    def _add_calls(self, blocks: "Iterable[AnyBlock]", turn: int) -> None:
        for block in blocks:
            if isinstance(block, ToolCall):
                # Anthropic rejects a repeated id anywhere in the conversation.
                if block.id in self.tool_names and "duplicate_id" in self._rules:
                    raise rejection("duplicate_id", "messages: `tool_use` ids must be unique")
                self._pairing.add_call(block.id, block.name, turn)

    def _require_results(self) -> None:
        """Raise Anthropic's error if a call has no result by now."""
        pairing = self._pairing
        if not pairing.pending:
            return
        if violation := pairing.close():
            raise rejection(
                violation.rule,
                f"messages.{violation.index}: `tool_use` ids were found without `tool_result`"
                f" blocks immediately after: {', '.join(violation.ids)}. Each `tool_use` block must"
                " have a corresponding `tool_result` block in the next message.",
            )


def _result_error(violation: "Violation", path: str) -> ModelError:
    (call_id,) = violation.ids
    if violation.rule == "duplicate_id":
        return rejection(
            violation.rule,
            f"{path}: each tool_use must have a single result. Found multiple `tool_result`"
            f" blocks with id: {call_id}",
        )
    return rejection(
        violation.rule,
        f"{path}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each"
        " `tool_result` block must have a corresponding `tool_use` block in the previous"
        " message.",
    )


def altered_thinking_error(turns: list[AnthropicTurn]) -> ModelError:
    """Return Anthropic's error for altered thinking in the model's last turn."""
    index = max(index for index, turn in enumerate(turns) if turn.role == "assistant")
    content = turns[index].content
    first = "text" if isinstance(content, str) or not content else content[0].type
    if first not in {"thinking", "redacted_thinking"}:
        return rejection(
            "altered_thinking",
            f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but"
            f" found `{first}`. When `thinking` is enabled, a final `assistant` message must start"
            " with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result`"
            " blocks).",
        )
    return rejection(
        "altered_thinking",
        f"messages.{index}.content.0: `thinking` or `redacted_thinking` blocks in the latest"
        " assistant message cannot be modified. These blocks must remain as they were in the"
        " original response.",
    )


# ------------------------------------------------------------------------------- tools


@lru_cache(maxsize=64)  # agents send the same tools with every request
def decode_tools(raw_tools: bytes) -> tuple[tuple[Tool, ...], str]:
    """Return the offered tools, and Anthropic's error message if one of them is invalid."""
    try:
        decoded = msgspec.json.decode(raw_tools, type=list[JSON] | None)
    except msgspec.ValidationError as error:
        raise ModelError(f"tools.{_validation_message(error)}", status=400) from error
    except RecursionError as error:
        raise ModelError(f"tools: {error}", status=400) from error
    tools = tuple(_decode_tool(tool) for tool in decoded or ())
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.kind != "function":
            continue
        if problem := _find_problem(tool):
            return tools, f"tools.{index}.custom.{problem}"
        if tool.name in names:
            return tools, "tools: Tool names must be unique."
        names.add(tool.name)
    return tools, ""


def _decode_tool(tool: JSON) -> Tool:
    """Decode a function; a tool of the provider keeps its options in place of the schema."""
    kind = tool.get("type") or "custom"
    name = str(tool.get("name", kind))
    if kind != "custom":
        options = {key: value for key, value in tool.items() if key not in {"name", "type"}}
        return Tool(name, "", options, kind=kind)
    schema = tool.get("input_schema")
    return Tool(
        name,
        str(tool.get("description") or ""),
        cast("JSON", schema) if isinstance(schema, dict) else {},
        strict=tool.get("strict") is True,
        more={key: value for key, value in tool.items() if key not in _TOOL_FIELDS},
    )


def _find_problem(tool: Tool) -> str:
    if not _TOOL_NAME.fullmatch(tool.name):
        return "name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
    if "type" not in tool.schema:
        return "input_schema.type: Field required"
    if tool.schema["type"] != "object":
        return "input_schema.type: Input should be 'object'"
    return ""
