"""What an agent sent, block by block, in no provider's words."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.anthropic import anthropic_wire
from offbook.exchange.dialects.anthropic.anthropic_wire import verify_thinking
from offbook.exchange.dialects.decoding import RawBody
from offbook.exchange.dialects.dialect import HttpRequest, request_metadata
from offbook.exchange.dialects.validation import rejection
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Content,
    Image,
    Message,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from offbook.exchange.model import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offbook.exchange.model import Reply


# --- What an agent sent, block by block, in no provider's words.

Place = tuple[str | int, ...]
VERTEX = (":rawPredict", ":streamRawPredict")
"""How a request ends that goes to Anthropic by way of Google's cloud."""

COUNTING = "count-tokens"


def find_messages(body: bytes) -> bytes:
    """The messages of a body, as they stand there."""
    return bytes(anthropic_wire.outline(body).messages)


def find_model(path: str) -> str:
    """The model that Google's addresses name: `…/models/MODEL:rawPredict`."""
    before, found, verb = path.rpartition(":")
    model = before.rpartition("/")[2]
    return unquote(model) if found and f":{verb}" in VERTEX and model != COUNTING else ""


def read_body(body: bytes) -> tuple[anthropic_wire.AnthropicBody, JSON]:
    """The body, and what is beside it; Anthropic's refusal of what it cannot read."""
    try:
        return anthropic_wire.body(body)
    except msgspec.ValidationError as error:
        raise ModelError(complain(error), status=400) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = f"The request body is not valid JSON: {error}"
        raise ModelError(what, status=400) from error


def complain(error: msgspec.ValidationError) -> str:
    """What is wrong with a field, and where, as the provider says it."""
    text, _, path = str(error).partition(" - at `$")
    place = path.rstrip("`").replace("[", ".").replace("]", "").lstrip(".")
    missing = re.fullmatch(r"Object missing required field `(.+)`", text)
    if missing:
        return f"{place}.{missing[1]}: Field required".lstrip(".")
    return f"{place}: {text}" if place else text


def introduce_asker(wire: HttpRequest) -> JSON:
    """What is known about the asker, and the betas it asked for."""
    about = request_metadata(wire, anthropic_wire.NAME)
    beta = wire.headers.get("anthropic-beta")
    if beta:
        about["anthropic-beta"] = beta
    return about


def read_system(system: str | list[anthropic_wire.AnthropicPart] | None) -> str:
    """The system prompt as one text."""
    if system is None or isinstance(system, str):
        return system or ""
    return "\n".join(part.text for part in system)


def read_blocks(
    content: str | list[anthropic_wire.AnthropicPart], seen: RawBody, place: Place
) -> list[AnyBlock]:
    """The neutral blocks of some content."""
    if isinstance(content, str):
        return [Text(content)]
    return [read_block(part, seen, (*place, at)) for at, part in enumerate(content)]


def read_block(part: anthropic_wire.AnthropicPart, seen: RawBody, place: Place) -> AnyBlock:
    """The neutral block; documents and what server tools do are kept as they stand."""
    kind = part.type
    if kind == "text":
        return Text(part.text)
    if kind == "tool_use":
        return ToolCall(part.id, part.name, part.input or {})
    if kind == "thinking":
        signature = part.signature or ""
        return verify_thinking(part.thinking, signature) or Thinking(part.thinking, signature)
    if kind == "redacted_thinking":
        return Thinking("", part.data, redacted=True)
    return _read_picture(part, seen, place)


def _read_picture(
    part: anthropic_wire.AnthropicPart, seen: RawBody, place: Place
) -> Image | RawBlock:
    source = part.source
    if (
        part.type == "image"
        and isinstance(source, anthropic_wire.AnthropicImageSource)
        and (source.data or source.url)
    ):
        return Image(source.data, source.media_type, source.url)
    return seen.keep(part.type, *place)


def read_content(
    content: str | list[anthropic_wire.AnthropicPart] | anthropic_wire.AnthropicPart | None,
    seen: RawBody,
    place: Place,
) -> tuple[Content, ...]:
    """What a tool answered; tools that it found for later use are told by their names."""
    if isinstance(content, str):
        return (Text(content),) if content else ()
    parts = content if isinstance(content, list) else [content] if content else []
    found: list[Content] = []
    for at, part in enumerate(parts):
        match part.type:
            case "text":
                found.append(Text(part.text))
            case "tool_reference":
                found.append(Text(part.tool_name))
            case _:
                inside = (*place, at) if isinstance(content, list) else place
                found.append(_read_picture(part, seen, inside))
    return tuple(found)


def find_thoughts(blocks: Iterable[AnyBlock]) -> tuple[Thinking, ...]:
    """The thoughts among these blocks."""
    return tuple(block for block in blocks if isinstance(block, Thinking))


# --- The tools that a request offers, and what Anthropic would say against them.

_KNOWN = {"cache_control", "description", "input_schema", "name", "strict", "type"}
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


@lru_cache(maxsize=64)
def read_tools(raw: bytes) -> tuple[tuple[Tool, ...], str]:
    """The tools offered, and what is wrong with them.

    Agents repeat them with every request, so they are read once.
    """
    try:
        listed = msgspec.json.decode(raw, type=list[JSON] | None)
    except msgspec.ValidationError as error:
        raise ModelError(f"tools.{complain(error)}", status=400) from error
    except RecursionError as error:
        raise ModelError(f"tools: {error}", status=400) from error
    tools = tuple(_read_tool(tool) for tool in listed or ())
    return tools, _doubt_tools(tools)


def _read_tool(tool: JSON) -> Tool:
    """A function; anything else keeps its options where a function has its schema."""
    kind = tool.get("type") or "custom"
    name = str(tool.get("name", kind))
    if kind != "custom":
        rest = {key: value for key, value in tool.items() if key not in {"name", "type"}}
        return Tool(name, "", rest, kind=kind)
    schema = tool.get("input_schema")
    return Tool(
        name,
        str(tool.get("description") or ""),
        cast("JSON", schema) if isinstance(schema, dict) else {},
        strict=tool.get("strict") is True,
        more={name: value for name, value in tool.items() if name not in _KNOWN},
    )


def _doubt_tools(tools: Iterable[Tool]) -> str:
    names: set[str] = set()
    for at, tool in enumerate(tools):
        if tool.kind != "function":
            continue
        if wrong := _doubt_tool(tool):
            return f"tools.{at}.custom.{wrong}"
        if tool.name in names:
            return "tools: Tool names must be unique."
        names.add(tool.name)
    return ""


def _doubt_tool(tool: Tool) -> str:
    """What is wrong with a function, if anything is."""
    if not _TOOL_NAME.fullmatch(tool.name):
        return "name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
    if "type" not in tool.schema:
        return "input_schema.type: Field required"
    if tool.schema["type"] != "object":
        return "input_schema.type: Input should be 'object'"
    return ""


def write_tool(tool: Tool) -> JSON:
    """A tool, as Anthropic is told of it."""
    if tool.kind != "function":
        return {"type": tool.kind, "name": tool.name, **tool.schema}
    name = f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name
    wire: JSON = {"name": name, "input_schema": tool.schema or {"type": "object"}, **tool.more}
    if tool.description:
        wire["description"] = tool.description
    return {**wire, "strict": True} if tool.strict else wire


# --- The turns of a request become messages, and are held to the rules.


class AnthropicMessageReader:
    """Goes through the turns of a request, makes messages of them and holds them to the rules.

    It begins behind what was read before, or behind the reply that a thread goes on from.
    """

    def __init__(
        self,
        rules: frozenset[str],
        before: anthropic_wire.AnthropicState,
        reply: Reply | None,
        seen: RawBody,
    ) -> None:
        self.names: dict[str, str] = dict(before.names)
        self._rules = rules
        self._seen = seen
        self._messages: list[Message] = []
        self._waiting: dict[str, int] = {}
        self._role = before.history[-1].role if before.history else ""
        if reply is not None:
            self._expect(reply.calls, -1)

    def read(self, turns: list[anthropic_wire.AnthropicTurn]) -> list[Message]:
        for at, turn in enumerate(turns):
            role = turn.role
            if role == "assistant":
                self._hear_model(at, turn.content)
            elif role == "system":
                place = ("messages", at, "content")
                self._add("system", read_blocks(turn.content, self._seen, place))
            elif role == "user" or "unknown_role" not in self._rules:
                self._hear_user(at, turn.content)
            else:
                raise rejection(
                    "unknown_role",
                    f'messages: Unexpected role "{role}". Allowed roles are "user" or "assistant"',
                )
        self._settle()
        return self._messages

    def _add(self, role: Any, blocks: Sequence[AnyBlock]) -> None:
        self._messages.append(Message(role, tuple(blocks)))
        self._role = role

    def _hear_user(self, at: int, content: str | list[anthropic_wire.AnthropicPart]) -> None:
        if isinstance(content, str):
            if self._waiting:
                self._settle()
            self._add("user", (Text(content),))
            return
        said: list[AnyBlock] = []
        answered = False
        for place, part in enumerate(content):
            if part.type == "tool_result":
                self._add("tool", (self._answer(part, at, place),))
                answered = True
                continue
            if self._waiting and "missing_result" in self._rules:  # results come first
                self._settle()
            said.append(self._read(part, at, place))
        if said or not answered:
            self._add("user", said)

    def _hear_model(self, at: int, content: str | list[anthropic_wire.AnthropicPart]) -> None:
        if self._waiting and self._role != "assistant":
            self._settle()
        if isinstance(content, str):
            self._add("assistant", (Text(content),))
            return
        blocks: list[AnyBlock] = []
        for place, part in enumerate(content):
            if part.type == "thinking":
                blocks.append(self._unseal(part, at, place))
                continue
            blocks.append(self._read(part, at, place))
        self._add("assistant", blocks)
        self._expect((block for block in blocks if isinstance(block, ToolCall)), at)

    def _read(self, part: anthropic_wire.AnthropicPart, at: int, place: int) -> AnyBlock:
        return read_block(part, self._seen, ("messages", at, "content", place))

    def _expect(self, calls: Iterable[ToolCall], at: int) -> None:
        for call in calls:
            if call.id in self.names and "duplicate_id" in self._rules:
                raise rejection("duplicate_id", "messages: `tool_use` ids must be unique")
            self.names[call.id] = call.name
            self._waiting[call.id] = at

    def _answer(self, part: anthropic_wire.AnthropicPart, at: int, place: int) -> ToolResult:
        call_id = part.tool_use_id
        if self._waiting.pop(call_id, None) is None:
            self._object(call_id, at, place)
        return ToolResult(
            call_id,
            read_content(part.content, self._seen, ("messages", at, "content", place, "content")),
            part.is_error is True,
            self.names.get(call_id, ""),
        )

    def _object(self, call_id: str, at: int, place: int) -> None:
        twice = self._role == "tool"
        where = f"messages.{at}.content.{place}"
        if twice and "duplicate_id" in self._rules and call_id in self.names:
            raise rejection(
                "duplicate_id",
                f"{where}: each tool_use must have a single result. Found multiple `tool_result`"
                f" blocks with id: {call_id}",
            )
        if "orphan_result" in self._rules:
            raise rejection(
                "orphan_result",
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each"
                " `tool_result` block must have a corresponding `tool_use` block in the previous"
                " message.",
            )

    def _settle(self) -> None:
        """Nothing may go on before every call has its result."""
        if self._waiting and "missing_result" in self._rules:
            at = next(iter(self._waiting.values()))
            raise rejection(
                "missing_result",
                f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately"
                f" after: {', '.join(self._waiting)}. Each `tool_use` block must have a"
                " corresponding `tool_result` block in the next message.",
            )
        self._waiting.clear()

    def _unseal(self, part: anthropic_wire.AnthropicPart, at: int, place: int) -> Thinking:
        thought = verify_thinking(part.thinking, part.signature or "")
        if "altered_thinking" in self._rules:
            where = f"messages.{at}.content.{place}"
            if part.signature is None:
                raise rejection("altered_thinking", f"{where}.thinking.signature: Field required")
            if thought is None or not part.signature:
                raise rejection(
                    "altered_thinking", f"{where}: Invalid `signature` in `thinking` block"
                )
        return thought or Thinking(part.thinking, part.signature or "")


def blame_turns(turns: list[anthropic_wire.AnthropicTurn]) -> str:
    """What became of the thoughts in the last of the model's turns."""
    at = max(at for at, turn in enumerate(turns) if turn.role == "assistant")
    content = turns[at].content
    first = "text" if isinstance(content, str) or not content else content[0].type
    if first not in {"thinking", "redacted_thinking"}:
        return (
            f"messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found"
            f" `{first}`. When `thinking` is enabled, a final `assistant` message must start with"
            " a thinking block (preceeding the lastmost set of `tool_use` and `tool_result`"
            " blocks)."
        )
    return (
        f"messages.{at}.content.0: `thinking` or `redacted_thinking` blocks in the latest"
        " assistant message cannot be modified. These blocks must remain as they were in the"
        " original response."
    )
