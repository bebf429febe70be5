"""The tools that a request offers, and how a response repeats them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.determinism.clock import EPOCH
from offbook.errors import ModelError
from offbook.exchange.dialects import openai, validation
from offbook.exchange.dialects.decoding import RawBody
from offbook.exchange.dialects.dialect import HttpRequest, request_metadata
from offbook.exchange.dialects.responses import responses_wire
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

    from offbook.exchange.dialects.conversations import ConversationStore
    from offbook.exchange.model import Reply, Request


# --- The tools that a request offers, and how a response repeats them.

ABOUT = "namespace_description"
_KNOWN = {"description", "format", "name", "parameters", "strict", "type"}


def read_tools(wired: Sequence[JSON], namespace: str = "", about: str = "") -> tuple[Tool, ...]:
    """The tools that are offered; those of a namespace say what that is about."""
    tools: list[Tool] = []
    for tool in wired:
        kind = str(tool.get("type", "function"))
        if kind == "namespace":
            told = str(tool.get("description") or "")
            tools += read_tools(tool.get("tools") or (), str(tool.get("name", "")), told)
        elif kind in {"function", "custom"}:
            schema = tool.get("parameters" if kind == "function" else "format")
            name, told = str(tool.get("name", "")), str(tool.get("description") or "")
            strict = tool.get("strict") is True
            more = {key: value for key, value in tool.items() if key not in _KNOWN}
            if about:
                more[ABOUT] = about
            tools.append(Tool(name, told, schema or {}, namespace, kind, strict, more))
        else:
            rest = {key: value for key, value in tool.items() if key != "type"}
            tools.append(Tool(kind, schema=rest, namespace=namespace, kind=kind))
    return tuple(tools)


def write_tools(tools: Sequence[Tool]) -> list[JSON]:
    """The tools, as they were offered."""
    wired: list[JSON] = []
    spaces: dict[str, list[JSON]] = {}
    for tool in tools:
        if tool.namespace and tool.namespace not in spaces:
            inside: list[JSON] = []
            spaces[tool.namespace] = inside
            wired.append(
                {
                    "type": "namespace",
                    "name": tool.namespace,
                    "description": tool.more.get(ABOUT, ""),
                    "tools": inside,
                }
            )
        spaces.get(tool.namespace, wired).append(_write_tool(tool))
    return wired


def _write_tool(tool: Tool) -> JSON:
    told: JSON = {"type": tool.kind, "name": tool.name, "description": tool.description}
    told.update((key, value) for key, value in tool.more.items() if key != ABOUT)
    if tool.kind == "function":
        return {**told, "parameters": tool.schema, "strict": tool.strict}
    if tool.kind == "custom":
        return {**told, "format": tool.schema} if tool.schema else told
    return {"type": tool.kind, **tool.schema}


# --- What an agent sent, in no provider's words.

Place = tuple[str | int, ...]
SPOKEN = {"compaction", "compaction_summary", "mcp_approval_request", "mcp_list_tools"}
"""What the provider gave beside messages, thoughts and calls."""

ROLES = "'assistant', 'system', 'developer', and 'user'"


def find_input(body: bytes) -> bytes:
    """The input of a body, as it stands there."""
    return bytes(responses_wire.outline.decode(body).input)


def find_conversation(given: object) -> str:
    """The id of the conversation that the provider keeps, if it keeps one."""
    if isinstance(given, dict):
        given = cast("JSON", given).get("id")
    return given if isinstance(given, str) else ""


def describe(conversation: str, *, deleted: bool = False) -> JSON:
    """A conversation that is kept."""
    if deleted:
        return {"id": conversation, "object": "conversation.deleted", "deleted": True}
    return {"id": conversation, "object": "conversation", "created_at": EPOCH, "metadata": {}}


def introduce_asker(
    wire: HttpRequest, body: responses_wire.ResponsesBody, instructions: str, conversation: str
) -> JSON:
    """What is known about the asker and what it goes on from."""
    about = request_metadata(wire, responses_wire.NAME)
    if instructions:
        about["instructions"] = len(instructions)
    if body.previous_response_id:
        about["previous_response_id"] = body.previous_response_id
    if conversation:
        about["conversation"] = conversation
    if body.client_metadata:
        about["client_metadata"] = body.client_metadata
    if body.generate is False:
        about["generate"] = False
    return about


def read_instructions(given: str | list[responses_wire.ResponsesItem] | None, seen: RawBody) -> str:
    """The instructions as one text."""
    if not isinstance(given, list):
        return given or ""
    contents = (
        _read_content(item.content, seen, ("instructions", at, "content"))
        for at, item in enumerate(given)
    )
    return "\n\n".join(Message("system", content).text for content in contents)


class ItemReader:
    """Reads items into messages, going on from where an earlier exchange ended."""

    def __init__(
        self,
        refused: frozenset[str],
        threads: ConversationStore,
        before: responses_wire.ResponsesState,
        seen: RawBody,
    ) -> None:
        self._rules = refused
        self._seen = seen
        self._threads = threads
        self._history = before.history
        self._names = dict(before.names)
        self._system = list(before.system)
        self._tools = list(before.tools)
        self._messages: list[Message] = []
        self._spoken: list[AnyBlock] = []
        self._aliases: dict[str, str] = {}  # calls of a local shell are answered by either id
        self.lasting = True  # whether the same items will always mean the same

    def go_on(self, request: Request, reply: Reply) -> None:
        """Begin where that exchange ended. Its instructions held for it alone; the rest stays."""
        self.lasting = False
        instructions = cast("int", request.metadata.get("instructions", 0))
        self._system = [request.system[instructions:].removeprefix("\n\n")]
        self._history = request.messages.plus(reply.message) if reply.blocks else request.messages
        for message in self._history:
            self._names.update((call.id, call.name) for call in message.calls)

    def finish(self) -> responses_wire.ResponsesState:
        """The conversation so far."""
        if self._spoken:  # more of the same message may follow
            self.lasting = False
        self._close()
        history = self._history
        history = history.plus(*self._messages) if len(history) else History(self._messages)
        return responses_wire.ResponsesState(
            tuple(self._system), history, self._names, tuple(self._tools)
        )

    def read(self, items: Sequence[responses_wire.ResponsesItem], *root: str | int) -> None:
        """Go through the items, in their order; `root` is where they stand in the body."""
        for at, item in enumerate(items):
            kind = item.type
            place = (*root, at)
            if kind is None or kind == "message":
                self._read_message(item, place)
            elif kind == "function_call":
                self._call(item, parse_arguments(_expect_text(item.arguments, place, "arguments")))
            elif kind == "reasoning":
                self._spoken.append(_read_thought(item))
            elif kind == "custom_tool_call":
                text = _expect_text(item.input, place, "input")
                self._call(item, parse_custom_input(text), custom=True)
            elif kind == "additional_tools":
                self._tools += read_tools(item.tools or ())
            elif kind == "item_reference":
                self.lasting = False
                self._spoken += self._look_up(item.id or "")
            else:
                self._read_other(item, kind, place)

    def _read_other(self, item: responses_wire.ResponsesItem, kind: str, place: Place) -> None:
        """A tool of the provider's that the agent runs; else what only the provider knows of."""
        if kind == "tool_search_output":
            self._tools += read_tools(item.tools or ())
        if kind.endswith("_output") and (item.call_id or kind == "local_shell_call_output"):
            self._result(item, place)
        elif kind.endswith("_call") and item.call_id is not None:
            item.name = item.name or kind.removesuffix("_call")
            given = cast("JSON", item.arguments) if isinstance(item.arguments, dict) else None
            several = {"actions": item.actions} if item.actions else {}
            self._call(item, given or item.action or item.operation or several)
            self._aliases[item.id or ""] = item.call_id
        elif kind.endswith("_call") or kind in SPOKEN:
            self._spoken.append(self._seen.keep(kind, *place))
        else:
            self._close()
            self._messages.append(Message("tool", (self._seen.keep(kind, *place),)))

    def _read_message(self, item: responses_wire.ResponsesItem, place: Place) -> None:
        role, blocks = item.role, _read_content(item.content, self._seen, (*place, "content"))
        if role == "assistant":
            self._spoken += blocks
            return
        self._close()
        if role in {"system", "developer"}:
            if self._messages or len(self._history):
                self._messages.append(Message("system", blocks))
            else:
                self._system.append(Message("system", blocks).text)
        elif role == "user" or "unknown_role" not in self._rules:
            self._messages.append(Message("user", blocks))
        else:
            raise openai.say_role(role, spell_place(place), ROLES)

    def _call(
        self, item: responses_wire.ResponsesItem, arguments: JSON, *, custom: bool = False
    ) -> None:
        id_, name = item.call_id or "", item.name or ""
        self._names[id_] = name
        self._spoken.append(ToolCall(id_, name, arguments, item.namespace or "", custom))

    def _result(self, item: responses_wire.ResponsesItem, place: Place) -> None:
        self._close()
        id_ = item.call_id or self._aliases.get(item.id or "", item.id or "")
        output = item.output
        if isinstance(output, responses_wire.ResponsesPart):
            content = (_read_part(output, self._seen, (*place, "output")),)
        elif output is None and item.tools:
            content = (self._seen.keep("tools", *place),)
        else:
            content = cast(
                "tuple[Content, ...]", _read_content(output, self._seen, (*place, "output"))
            )
        result = ToolResult(id_, content, name=self._names.get(id_, ""))
        self._messages.append(Message("tool", (result,)))

    def _look_up(self, item_id: str) -> tuple[AnyBlock, ...]:
        """The blocks of an item that was given earlier: its id tells where."""
        core, _, index = item_id.partition("_")[2].rpartition("_")
        found = self._threads.recall(f"resp_{core}")
        groups = group_blocks(found[1].blocks) if found else []
        if index.isdigit() and int(index) < len(groups):
            return groups[int(index)]
        if "unknown_previous" in self._rules:
            raise validation.rejection(
                "unknown_previous",
                f"Item with id '{item_id}' not found.",
                status=404,
                param="input",
            )
        return ()

    def _close(self) -> None:
        """What the model gave one after the other is one message."""
        if self._spoken:
            self._messages.append(Message("assistant", tuple(self._spoken)))
            self._spoken = []


def _expect_text(given: object, place: Place, field: str) -> str:
    if given is None or isinstance(given, str):
        return given or ""
    where = f"{spell_place(place)}.{field}"
    raise ModelError(
        f"Invalid type for '{where}': expected a string, but got another type instead.",
        status=400,
        details={"param": where, "code": "invalid_type"},
    )


def spell_place(place: Place) -> str:
    """A place as OpenAI names it: `input[0]`."""
    return f"{place[0]}[{place[1]}]"


def _read_content(
    content: str | list[responses_wire.ResponsesPart] | None, seen: RawBody, place: Place
) -> tuple[AnyBlock, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    parts = enumerate(content or ())
    return tuple([_read_part(part, seen, (*place, at)) for at, part in parts])


def _read_part(
    part: responses_wire.ResponsesPart, seen: RawBody, place: Place
) -> Text | Image | RawBlock:
    if part.text is not None:
        return Text(part.text)
    if part.image_url is not None:
        url = part.image_url
        return openai.read_image(url if isinstance(url, str) else url.url)
    if part.stdout is not None or part.stderr is not None:  # what a shell of the provider's printed
        return Text((part.stdout or "") + (part.stderr or ""))
    return Text(part.refusal) if part.refusal else seen.keep(part.type, *place)


def _read_thought(item: responses_wire.ResponsesItem) -> Thinking:
    parts = item.summary or (item.content if isinstance(item.content, list) else ()) or ()
    text = "\n\n".join(part.text or "" for part in parts)
    return Thinking(text, item.encrypted_content or "")


def group_blocks(blocks: Sequence[AnyBlock]) -> list[tuple[AnyBlock, ...]]:
    """The blocks that make up each item: texts side by side are one message."""
    groups: list[tuple[AnyBlock, ...]] = []
    for block in blocks:
        if groups and isinstance(block, Text) and isinstance(groups[-1][-1], Text):
            groups[-1] = (*groups[-1], block)
        else:
            groups.append((block,))
    return groups


# --- What OpenAI would refuse of a response, in its words.


def require(body: responses_wire.ResponsesBody) -> None:
    """Refuse a body that lacks what it must have."""
    options = cast("Any", body)
    if not body.model and options.prompt is msgspec.UNSET:
        raise validation.rejection(
            "missing_field",
            "Missing required parameter: 'model'.",
            param="model",
            code="missing_required_parameter",
        )
    given = (options.prompt, options.conversation)
    if body.input is None and not body.previous_response_id and not any(given):
        raise validation.rejection(
            "missing_field",
            "One of 'input' or 'previous_response_id' or 'prompt' or 'conversation' "
            "must be provided.",
            param="input",
            code="missing_required_parameter",
        )


def say_breach(breach: validation.Violation, messages: Sequence[Message]) -> ModelError:
    """The refusal of calls and results that do not belong together."""
    id_ = breach.ids[0]
    if breach.rule == "missing_result":
        custom = any(call.id == id_ and call.custom for call in messages[breach.at].calls)
        kind = "custom tool call" if custom else "function call"
        message = f"No tool output found for {kind} {id_}."
    elif breach.rule == "orphan_result":
        message = f"No tool call found for function call output with call_id {id_}."
    else:
        message = f"Duplicate item found with call_id {id_}."
    return validation.rejection(breach.rule, message, param="input")
