"""What an agent sent, part by part, in no provider's words."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import msgspec
from msgspec import Raw

from offbook.errors import ModelError
from offbook.exchange.dialects.gemini import gemini_wire
from offbook.exchange.dialects.validation import rejection
from offbook.exchange.messages import (
    JSON,
    RAW_ARGUMENTS,
    AnyBlock,
    Content,
    Message,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    to_json,
)
from offbook.exchange.model import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from offbook.exchange.dialects.conversations import ConversationStore
    from offbook.exchange.dialects.decoding import BodyDecoder, RawBody


# --- What an agent sent, part by part, in no provider's words.

Place = tuple[str | int, ...]

BESIDE = frozenset(
    {"thought", "thoughtSignature", "thought_signature", "videoMetadata", "video_metadata"}
)
"""What a part says beside what it is."""

SAID = frozenset({"content", "error", "output", "result", "return_value"})
"""Under one of these names a function response holds nothing but what the tool said."""

SKIP = frozenset(
    {
        "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",
        "skip_thought_signature_validator",
        "context_engineering_is_the_way_to_go",
    }
)
"""What clients put where the model gave no signature."""


def find_verb(path: str) -> str:
    """What the path asks for: the word behind its colon."""
    return path.rpartition(":")[2]


def find_model(path: str) -> str:
    """The model that the path names."""
    name = path.rpartition("/models/")[2] if "/models/" in path else path.rpartition("/")[2]
    return unquote(name.rpartition(":")[0])


def read_body(decoder: BodyDecoder[gemini_wire.T], body: bytes) -> gemini_wire.T:
    """The body; Google's refusal of what it cannot read."""
    try:
        return decoder.decode(body or b"{}")
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        place = path.rstrip("`").lstrip(".")
        what = f"Invalid value at '{place}': {text}" if place else text
        raise ModelError(what, status=400) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = f"Invalid JSON payload received. {error}"
        raise ModelError(what, status=400) from error


def read_part(part: gemini_wire.GeminiPart, seen: RawBody, place: Place) -> AnyBlock:
    """The neutral block; what has none is kept as it stands."""
    if part.text is not None:
        return Thinking(part.text) if part.thought else Text(part.text)
    blob = part.inlineData or part.inline_data or part.fileData or part.file_data
    if blob is not None and not (part.videoMetadata or part.video_metadata):
        return blob.image
    kept = seen.keep("", *place)
    kind = next((name for name in kept.data if name not in BESIDE), "part")
    return msgspec.structs.replace(kept, kind=kind)


def sign_thought(blocks: list[AnyBlock], signature: str | None) -> None:
    """A signature stands at what came of a thought; it belongs to the thought before it."""
    if not signature or signature in SKIP:
        return
    at = len(blocks) - 1
    while at >= 0 and not isinstance(blocks[at], Thinking):
        at -= 1
    thought = blocks[at] if at >= 0 else None
    if isinstance(thought, Thinking) and not thought.signature:
        blocks[at] = msgspec.structs.replace(thought, signature=signature)
    else:
        blocks.insert(max(len(blocks) - 1, 0), Thinking("", signature))


def read_response(
    response: gemini_wire.GeminiFunctionResponse,
    call_id: str,
    name: str,
    seen: RawBody,
    place: Place,
) -> ToolResult:
    """What a function answered: its text, or all of it where it is more than that."""
    given = response.response
    pictures = cast(
        "tuple[Content, ...]",
        tuple(
            read_part(part, seen, (*place, "parts", at))
            for at, part in enumerate(response.parts or ())
        ),
    )
    if not isinstance(given, dict):
        content: tuple[Content, ...] = () if given is None else (Text(_show(given)),)
        return ToolResult(call_id, content + pictures, name=name, details=given)
    fields = cast("JSON", given)
    failed = "error" in fields or fields.get("isError") is True
    if len(fields) == 1:
        ((key, value),) = fields.items()
        if key in SAID and isinstance(value, str):
            text = (Text(value),) if value else ()
            return ToolResult(call_id, text + pictures, failed, name)
    return ToolResult(call_id, (Text(_show(fields)), *pictures), failed, name, fields)


def _show(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value).decode()


# --- The tools that a request offers, and what Gemini would say against them.

# Where a list is due, Google takes the one thing that would stand in it.
_Groups = dict[str, Raw] | list[dict[str, Raw]] | None
_Functions = gemini_wire.GeminiFunction | list[gemini_wire.GeminiFunction] | None

_TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")


@lru_cache(maxsize=64)
def read_tools(raw: bytes) -> tuple[tuple[Tool, ...], str]:
    """The tools offered, and what is wrong with them.

    Agents repeat them with every request, so they are read once.
    """
    try:
        groups = msgspec.json.decode(raw, type=_Groups)
        listed = cast(
            "list[dict[str, Raw]]", [groups] if isinstance(groups, dict) else groups or []
        )
        tools = tuple(tool for group in listed for tool in _read_group(group))
    except (msgspec.ValidationError, RecursionError) as error:
        raise ModelError(f"Invalid value at 'tools': {error}", status=400) from error
    return tools, _doubt_tools(tools)


def _read_group(group: dict[str, Raw]) -> Iterator[Tool]:
    """Functions; anything else keeps its options where a function has its schema."""
    for kind, given in group.items():
        if kind not in {"functionDeclarations", "function_declarations"}:
            options = msgspec.json.decode(given, type=JSON | list[Any] | None)
            yield Tool(
                kind,
                "",
                {RAW_ARGUMENTS: options} if isinstance(options, list) else options or {},
                kind=kind,
            )
            continue
        functions = msgspec.json.decode(given, type=_Functions)
        for one in (
            [functions] if isinstance(functions, gemini_wire.GeminiFunction) else functions or ()
        ):
            schema = one.parametersJsonSchema or one.parameters_json_schema
            parameters = schema or _lower(one.parameters or {})
            yield Tool(one.name, one.description or "", parameters, more=one.more)


def _doubt_tools(tools: Iterable[Tool]) -> str:
    names: set[str] = set()
    for at, tool in enumerate(tools):
        if tool.kind != "function":
            continue
        where = f"* GenerateContentRequest.tools[0].function_declarations[{at}]"
        if not _TOOL_NAME.fullmatch(tool.name):
            return (
                f"{where}.name: Invalid function name. Must start with a letter or an underscore."
                " Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or"
                " dashes (-), with a maximum length of 128.\n"
            )
        if tool.schema and tool.schema.get("type") != "object":
            return f"{where}.parameters schema should be of type OBJECT.\n"
        if tool.name in names:
            return f"Duplicate function declaration found: {tool.name}"
        names.add(tool.name)
    return ""


def _lower(schema: Any) -> Any:
    """A schema whose types are written as JSON Schema writes them: `object`, not `OBJECT`."""
    if isinstance(schema, dict):
        return {
            key: value.lower() if key == "type" and isinstance(value, str) else _lower(value)
            for key, value in cast("JSON", schema).items()
        }
    return (
        [_lower(value) for value in cast("list[Any]", schema)]
        if isinstance(schema, list)
        else schema
    )


def write_tools(tools: Iterable[Tool]) -> list[JSON]:
    """The tools, as Google is told of them."""
    functions: list[JSON] = []
    others: list[JSON] = []
    for tool in tools:
        if tool.kind != "function":
            others.append({tool.kind: tool.schema.get(RAW_ARGUMENTS, tool.schema)})
            continue
        name = f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name
        function: JSON = {"name": name, "description": tool.description, **tool.more}
        functions.append(
            {**function, "parametersJsonSchema": tool.schema} if tool.schema else function
        )
    return [{"functionDeclarations": functions}, *others] if functions else others


# --- The turns of a request become messages, and are held to the rules.


class GeminiMessageReader:
    """Goes through the turns of a request, makes messages of them and holds them to the rules.

    A call that comes without its id has the one that it was given in this run, if it was.
    """

    def __init__(
        self, rules: frozenset[str], seen: RawBody, threads: ConversationStore | None = None
    ) -> None:
        self._rules = rules
        self._seen = seen
        self._threads = threads
        self._met: set[str] = set()
        self._messages: list[Message] = []
        self._waiting: dict[str, str] = {}
        self._count = 0
        self._model = False

    def read(self, turns: Iterable[gemini_wire.GeminiTurn], *root: str | int) -> list[Message]:
        """The messages; `root` is where the turns stand in the body."""
        for at, turn in enumerate(turns):
            place = (*root, at, "parts")
            match turn.role:
                case "model":
                    self._hear_model(turn.listed, place)
                case "user" | "function" | "" | None:
                    self._hear_user(turn.listed, place)
                case _ if "unknown_role" in self._rules:
                    raise rejection("unknown_role", "Please use a valid role: user, model.")
                case _:
                    self._hear_user(turn.listed, place)
        self._settle()
        return self._messages

    def _hear_user(self, parts: Sequence[gemini_wire.GeminiPart], place: Place) -> None:
        said: list[AnyBlock] = []
        answered = False
        for at, part in enumerate(parts):
            response = part.functionResponse or part.function_response
            if response is not None:
                name = "functionResponse" if part.functionResponse else "function_response"
                result = self._answer(response, (*place, at, name))
                self._messages.append(Message("tool", (result,)))
                answered = True
            else:
                said.append(read_part(part, self._seen, (*place, at)))
        if said:
            self._settle()
        if said or not answered:
            self._messages.append(Message("user", tuple(said)))
        self._model = False

    def _hear_model(self, parts: Sequence[gemini_wire.GeminiPart], place: Place) -> None:
        if not self._model:
            self._settle()
        self._model = True
        blocks: list[AnyBlock] = []
        for at, part in enumerate(parts):
            call = part.functionCall or part.function_call
            if call is not None:
                blocks.append(self._expect(call))
            else:
                blocks.append(read_part(part, self._seen, (*place, at)))
            if not isinstance(blocks[-1], RawBlock):  # that has its signature with it
                sign_thought(blocks, part.thoughtSignature or part.thought_signature)
        self._messages.append(Message("assistant", tuple(blocks)))

    def _expect(self, call: gemini_wire.GeminiCall) -> ToolCall:
        self._count += 1
        call_id = call.id or self._recall(call) or f"call-{self._count}"
        self._met.add(call_id)
        if call_id in self._waiting and "duplicate_id" in self._rules:
            raise rejection("duplicate_id", f"Duplicate function call id found: {call_id}")
        self._waiting[call_id] = call.name
        return ToolCall(call_id, call.name, call.args or {})

    def _recall(self, call: gemini_wire.GeminiCall) -> str | None:
        if self._threads is None:
            return None
        return self._threads.find_call(call.name, call.args or {}, self._met)

    def _answer(self, response: gemini_wire.GeminiFunctionResponse, place: Place) -> ToolResult:
        call_id = self._find(response)
        if call_id is None and "orphan_result" in self._rules:
            raise rejection(
                "orphan_result",
                _MISCOUNTED
                if self._messages and self._messages[-1].role in {"assistant", "tool"}
                else "Please ensure that function response turn comes immediately after a function"
                " call turn.",
            )
        found = call_id or response.id or ""
        name = self._waiting.pop(found, response.name)
        return read_response(response, found, name, self._seen, place)

    def _find(self, response: gemini_wire.GeminiFunctionResponse) -> str | None:
        """The call that this answers: by its id, else the first of its name."""
        if response.id:
            return response.id if response.id in self._waiting else None
        return next((i for i, name in self._waiting.items() if name == response.name), None)

    def _settle(self) -> None:
        if self._waiting and "missing_result" in self._rules:
            raise rejection("missing_result", _MISCOUNTED)
        self._waiting.clear()


_MISCOUNTED = (
    "Please ensure that the number of function response parts is equal to the number of function"
    " call parts of the function call turn."
)
