"""OpenAI's Responses API on the wire: structs, and decoding and validation of requests.

Adjacent items of the model (reasoning, messages, calls) become one message of the assistant. The
instructions, and system or developer messages at the start, become the one `system`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.wire import (
    JsonPath,
    RawBody,
    RequestDecoder,
    Violation,
    rejection,
)
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Content,
    History,
    Image,
    Message,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    parse_arguments,
    parse_custom_input,
)
from offbook.exchange.model import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.exchange.dialects.dialect import ConversationStore
    from offbook.exchange.model import Reply, Request

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
    """A request body; `include` is an option that is validated."""

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
    include: list[Any] | msgspec.UnsetType | None = msgspec.UNSET


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
    output: list[ResponsesItem] | None = None
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


class _ResponsesItemOnly(msgspec.Struct, gc=False):
    item: msgspec.Raw = msgspec.Raw(b"null")


body_decoder = RequestDecoder(ResponsesBody, OPTIONS)
tools_decoder: msgspec.json.Decoder[list[JSON] | None] = msgspec.json.Decoder(list[JSON] | None)
conversation_decoder = msgspec.json.Decoder(ResponsesConversation)
response_decoder = msgspec.json.Decoder(ResponsesResponse)
event_decoder = msgspec.json.Decoder(ResponsesEvent)
raw_item_decoder = msgspec.json.Decoder(_ResponsesItemOnly)


# -------------------------------------------------------------------------------- items

ROLES = "'assistant', 'system', 'developer', and 'user'"

# Items of the model that have no neutral block.
_RAW_MODEL_ITEMS = {
    "compaction",
    "compaction_summary",
    "mcp_approval_request",
    "mcp_list_tools",
}
# A tool of the provider has the name of its calls: `computer` offers `computer_use_preview`.
_PREVIEW = re.compile(r"(_use)?(_preview)?(_\d{4}_\d{2}_\d{2})?$")
_NAMESPACE_DESCRIPTION = "namespace_description"  # in `Tool.more`
_TOOL_FIELDS = {"description", "format", "name", "parameters", "strict", "type"}


class ItemReader:
    """Decodes items into messages, from an earlier state or exchange on."""

    def __init__(
        self,
        rules: frozenset[str],
        conversations: ConversationStore,
        before: ResponsesState,
        raw: RawBody,
    ) -> None:
        self._rules = rules
        self._raw = raw
        self._conversations = conversations
        self._history = before.history
        self._tool_names = dict(before.tool_names)
        self._system = list(before.system)
        self._tools = list(before.tools)
        self._messages: list[Message] = []
        self._assistant_blocks: list[AnyBlock] = []
        # The output of a local shell call may have the id of the item instead of the call.
        self._call_ids: dict[str, str] = {}
        # Whether the same items always have the same meaning, so that they can be cached.
        self.is_cacheable = True

    def continue_from(self, request: Request, reply: Reply) -> None:
        """Continue an earlier exchange, without its instructions, which applied to it alone."""
        self.is_cacheable = False
        instructions = cast("int", request.metadata.get("instructions", 0))
        self._system = [request.system[instructions:].removeprefix("\n\n")]
        self._history = request.messages.plus(reply.message) if reply.blocks else request.messages
        for message in self._history:
            self._tool_names.update((call.id, call.name) for call in message.calls)

    def finish(self) -> ResponsesState:
        """Return the conversation after the items that were read."""
        if self._assistant_blocks:  # the next request may add blocks to this message
            self.is_cacheable = False
        self._close_assistant()
        history = self._history
        history = history.plus(*self._messages) if len(history) else History(self._messages)
        return ResponsesState(tuple(self._system), history, self._tool_names, tuple(self._tools))

    def read(self, items: Sequence[ResponsesItem], *root: str | int) -> None:
        """Read these items; `root` is their path in the body."""
        for index, item in enumerate(items):
            path = (*root, index)
            match item.type:
                case None | "message":
                    self._read_message(item, path)
                case "function_call":
                    arguments = _expect_string(item.arguments, path, "arguments")
                    self._add_call(item, parse_arguments(arguments))
                case "reasoning":
                    self._assistant_blocks.append(_decode_thinking(item))
                case "custom_tool_call":
                    text = _expect_string(item.input, path, "input")
                    self._add_call(item, parse_custom_input(text), custom=True)
                case "additional_tools":
                    self._tools += decode_tools(item.tools or ())
                case "item_reference":
                    self.is_cacheable = False
                    self._assistant_blocks += self._find_item(item.id or "")
                case other:
                    self._read_other(item, other, path)

    def _read_other(self, item: ResponsesItem, kind: str, path: JsonPath) -> None:
        """Read an item of one of the provider's tools, or one that only the provider knows."""
        # A tool search offers the tools that it found.
        if kind == "tool_search_output":
            self._tools += decode_tools(item.tools or ())
        if kind.endswith("_output") and (item.call_id or kind == "local_shell_call_output"):
            self._add_result(item, path)
        elif kind.endswith("_call") and item.call_id is not None:
            # The agent runs it: a shell, a computer or a patch.
            item.name = item.name or kind.removesuffix("_call")
            arguments = cast("JSON", item.arguments) if isinstance(item.arguments, dict) else None
            actions = {"actions": item.actions} if item.actions else {}
            self._add_call(item, arguments or item.action or item.operation or actions)
            self._call_ids[item.id or ""] = item.call_id
        elif kind.endswith("_call") or kind in _RAW_MODEL_ITEMS:
            # The provider ran it: a web or file search.
            self._assistant_blocks.append(self._raw.block(kind, path))
        else:
            self._close_assistant()
            self._messages.append(Message("tool", (self._raw.block(kind, path),)))

    def _read_message(self, item: ResponsesItem, path: JsonPath) -> None:
        role = item.role
        blocks = _decode_content(item.content, self._raw, (*path, "content"))
        if role == "assistant":
            self._assistant_blocks += blocks
            return
        self._close_assistant()
        if role in {"system", "developer"}:
            # At the start they are the system prompt; later ones are messages.
            if self._messages or len(self._history):
                self._messages.append(Message("system", blocks))
            else:
                self._system.append(Message("system", blocks).text)
        elif role == "user" or "unknown_role" not in self._rules:
            self._messages.append(Message("user", blocks))
        else:
            raise openai.unknown_role(role, _render_path(path), ROLES)

    def _add_call(self, item: ResponsesItem, arguments: JSON, *, custom: bool = False) -> None:
        call_id, name = item.call_id or "", item.name or ""
        self._tool_names[call_id] = name
        self._assistant_blocks.append(
            ToolCall(call_id, name, arguments, item.namespace or "", custom)
        )

    def _add_result(self, item: ResponsesItem, path: JsonPath) -> None:
        self._close_assistant()
        call_id = item.call_id or self._call_ids.get(item.id or "", item.id or "")
        output = item.output
        if output is None and item.tools:
            content: tuple[AnyBlock, ...] = (self._raw.block("tools", path),)
        elif isinstance(output, ResponsesPart):
            content = (_decode_part(output, self._raw, (*path, "output")),)
        else:
            content = _decode_content(output, self._raw, (*path, "output"))
        name = self._tool_names.get(call_id, "")
        result = ToolResult(call_id, cast("tuple[Content, ...]", content), None, name)
        self._messages.append(Message("tool", (result,)))

    def _find_item(self, item_id: str) -> tuple[AnyBlock, ...]:
        """Return the blocks of an earlier item: its id has the reply's id and its index."""
        core, _, index = item_id.partition("_")[2].rpartition("_")
        exchange = self._conversations.get(f"resp_{core}")
        groups = group_blocks(exchange[1].blocks) if exchange else []
        if index.isdigit() and int(index) < len(groups):
            return groups[int(index)]
        if "unknown_previous" in self._rules:
            message = f"Item with id '{item_id}' not found."
            raise rejection("unknown_previous", message, status=404, param="input")
        return ()

    def _close_assistant(self) -> None:
        if self._assistant_blocks:
            self._messages.append(Message("assistant", tuple(self._assistant_blocks)))
            self._assistant_blocks = []


def decode_instructions(instructions: str | list[ResponsesItem] | None, raw: RawBody) -> str:
    """Return the instructions as one text."""
    if not isinstance(instructions, list):
        return instructions or ""
    texts = (
        Message("system", _decode_content(item.content, raw, ("instructions", index, "content")))
        for index, item in enumerate(instructions)
    )
    return "\n\n".join(message.text for message in texts)


def _decode_content(
    content: str | list[ResponsesPart] | None, raw: RawBody, path: JsonPath
) -> tuple[AnyBlock, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    parts = enumerate(content or ())
    return tuple([_decode_part(part, raw, (*path, index)) for index, part in parts])


def _decode_part(part: ResponsesPart, raw: RawBody, path: JsonPath) -> Text | Image | RawBlock:
    if part.text is not None:
        return Text(part.text)
    if part.image_url is not None:
        url = part.image_url
        return openai.parse_image_url(url if isinstance(url, str) else url.url)
    if part.stdout is not None or part.stderr is not None:  # the output of a shell call
        return Text((part.stdout or "") + (part.stderr or ""))
    return Text(part.refusal) if part.refusal else raw.block(part.type, path)


def _decode_thinking(item: ResponsesItem) -> Thinking:
    parts = item.summary or (item.content if isinstance(item.content, list) else ()) or ()
    text = "\n\n".join(part.text or "" for part in parts)
    return Thinking(text, item.encrypted_content or "")


def _expect_string(value: object, path: JsonPath, field: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    param = f"{_render_path(path)}.{field}"
    raise ModelError(
        f"Invalid type for '{param}': expected a string, but got another type instead.",
        status=400,
        details={"param": param, "code": "invalid_type"},
    )


def _render_path(path: JsonPath) -> str:
    """Render the path of an item as OpenAI does: `input[0]`."""
    return f"{path[0]}[{path[1]}]"


def group_blocks(blocks: Sequence[AnyBlock]) -> list[tuple[AnyBlock, ...]]:
    """Group the blocks of a reply by item: adjacent texts are one item, else a block is one."""
    groups: list[tuple[AnyBlock, ...]] = []
    for block in blocks:
        if groups and isinstance(block, Text) and isinstance(groups[-1][-1], Text):
            groups[-1] = (*groups[-1], block)
        else:
            groups.append((block,))
    return groups


# ------------------------------------------------------------------------------- tools


def decode_tools(
    tools: Sequence[JSON], namespace: str = "", namespace_description: str = ""
) -> tuple[Tool, ...]:
    """Decode the offered tools, including those inside a namespace."""
    decoded: list[Tool] = []
    for tool in tools:
        kind = str(tool.get("type", "function"))
        name, description = str(tool.get("name", "")), str(tool.get("description") or "")
        if kind == "namespace":
            decoded += decode_tools(tool.get("tools") or (), name, description)
        elif kind in {"function", "custom"}:
            schema = tool.get("parameters" if kind == "function" else "format")
            strict = tool.get("strict") is True
            more = {key: value for key, value in tool.items() if key not in _TOOL_FIELDS}
            if namespace_description:
                more[_NAMESPACE_DESCRIPTION] = namespace_description
            decoded.append(Tool(name, description, schema or {}, namespace, kind, strict, more))
        else:  # a tool of the provider keeps its options in place of the schema
            options = {key: value for key, value in tool.items() if key != "type"}
            short = _PREVIEW.sub("", kind)
            decoded.append(Tool(short, schema=options, namespace=namespace, kind=kind))
    return tuple(decoded)


def encode_tools(tools: Sequence[Tool]) -> list[JSON]:
    """Encode the tools as they were offered."""
    encoded: list[JSON] = []
    namespaces: dict[str, list[JSON]] = {}
    for tool in tools:
        if tool.namespace and tool.namespace not in namespaces:
            inner: list[JSON] = []
            namespaces[tool.namespace] = inner
            encoded.append(
                {
                    "type": "namespace",
                    "name": tool.namespace,
                    "description": tool.more.get(_NAMESPACE_DESCRIPTION, ""),
                    "tools": inner,
                }
            )
        namespaces.get(tool.namespace, encoded).append(_encode_tool(tool))
    return encoded


def _encode_tool(tool: Tool) -> JSON:
    spec: JSON = {"type": tool.kind, "name": tool.name, "description": tool.description}
    spec.update((key, value) for key, value in tool.more.items() if key != _NAMESPACE_DESCRIPTION)
    if tool.kind == "function":
        return {**spec, "parameters": tool.schema, "strict": tool.strict}
    if tool.kind == "custom":
        return {**spec, "format": tool.schema} if tool.schema else spec
    return {"type": tool.kind, **tool.schema}


# -------------------------------------------------------------------------- validation


def require_fields(body: ResponsesBody, options: JSON) -> None:
    """Raise OpenAI's error if a required field is missing."""
    if not body.model and "prompt" not in options:
        raise openai.missing_parameter("model")
    has_history = body.previous_response_id or options.get("prompt") or options.get("conversation")
    if body.input is None and not has_history:
        raise rejection(
            "missing_field",
            "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' "
            "must be provided.",
            param="input",
            code="missing_required_parameter",
        )


def pairing_error(violation: Violation, messages: Sequence[Message]) -> ModelError:
    """Return OpenAI's error for calls and results that do not match."""
    call_id = violation.ids[0]
    if violation.rule == "missing_result":
        calls = messages[violation.index].calls
        is_custom = any(call.id == call_id and call.custom for call in calls)
        kind = "custom tool call" if is_custom else "function call"
        message = f"No tool output found for {kind} {call_id}."
    elif violation.rule == "orphan_result":
        message = f"No tool call found for function call output with call_id {call_id}."
    else:
        message = f"Duplicate item found with call_id {call_id}."
    return rejection(violation.rule, message, param="input")
