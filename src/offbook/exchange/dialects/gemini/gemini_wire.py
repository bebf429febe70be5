"""Google's Gemini API on the wire: structs, and decoding and validation of requests.

The clients send field names in camel case or with underscores, and mix them, so most fields exist
twice. A function call may have no id. Then it gets the id that it was given in this run, else a
number; and a function response belongs to the pending call with its id, else to the first with its
name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from offbook.errors import ModelError
from offbook.exchange.dialects.embeddings import embed, estimate_tokens
from offbook.exchange.dialects.wire import (
    CallPairing,
    RequestDecoder,
    rejection,
    split_validation_error,
)
from offbook.exchange.messages import (
    JSON,
    RAW_ARGUMENTS,
    AnyBlock,
    Content,
    Image,
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

    from offbook.exchange.dialects.dialect import ConversationStore
    from offbook.exchange.dialects.wire import BodyDecoder, JsonPath, RawBody

NAME = "gemini"
MODEL_CALLS = frozenset({"generateContent", "streamGenerateContent"})
EMBEDDING_DIMENSIONS = 768

# The options with two names.
OPTIONS = {
    "generation_config": "generationConfig",
    "tool_config": "toolConfig",
    "safety_settings": "safetySettings",
    "cached_content": "cachedContent",
}

# ruff: noqa: N815 - the field names are Google's


class GeminiCall(msgspec.Struct):
    """A function call."""

    name: str = ""
    args: JSON | None = None
    id: str | None = None


class GeminiFunctionResponse(msgspec.Struct):
    """The result of a function."""

    name: str = ""
    response: Any = None
    id: str | None = None
    parts: list[GeminiPart] | None = None


class GeminiBlob(msgspec.Struct):
    """Inline data or a file."""

    data: str = ""
    mimeType: str = ""
    mime_type: str = ""
    fileUri: str = ""
    file_uri: str = ""

    @property
    def image(self) -> Image:
        return Image(self.data, self.mimeType or self.mime_type, self.fileUri or self.file_uri)


class GeminiPart(msgspec.Struct):
    """A part of any type; each type uses some of the fields."""

    text: str | None = None
    thought: bool | None = None
    functionCall: GeminiCall | None = None
    function_call: GeminiCall | None = None
    functionResponse: GeminiFunctionResponse | None = None
    function_response: GeminiFunctionResponse | None = None
    inlineData: GeminiBlob | None = None
    inline_data: GeminiBlob | None = None
    fileData: GeminiBlob | None = None
    file_data: GeminiBlob | None = None
    thoughtSignature: str | None = None
    thought_signature: str | None = None
    videoMetadata: Any = None
    video_metadata: Any = None


class GeminiTurn(msgspec.Struct):
    """One turn of a conversation."""

    parts: list[GeminiPart] | GeminiPart | None = None
    role: str | None = None

    @property
    def part_list(self) -> Sequence[GeminiPart]:
        """The parts; Google accepts one part in place of a list."""
        parts = self.parts
        return parts if isinstance(parts, list) else (parts,) if parts else ()


class GeminiBody(msgspec.Struct):
    """A request body; `generationConfig` is an option that is validated."""

    contents: list[GeminiTurn] | GeminiTurn | None = None
    systemInstruction: GeminiTurn | None = None
    system_instruction: GeminiTurn | None = None
    tools: Raw = Raw(b"null")
    generationConfig: JSON | UnsetType | None = UNSET
    generation_config: JSON | UnsetType | None = UNSET

    @property
    def turns(self) -> Sequence[GeminiTurn]:
        """The turns; Google accepts one turn in place of a list."""
        contents = self.contents
        return contents if isinstance(contents, list) else (contents,) if contents else ()


class GeminiFunction(msgspec.Struct):
    """An offered function."""

    name: str = ""
    description: str | None = None
    parameters: JSON | None = None
    parametersJsonSchema: JSON | None = None
    parameters_json_schema: JSON | None = None
    behavior: Any = None
    response: Any = None
    responseJsonSchema: Any = None
    response_json_schema: Any = None

    @property
    def more(self) -> JSON:
        """The fields without a neutral form."""
        schema = self.responseJsonSchema or self.response_json_schema
        fields = {
            "behavior": self.behavior,
            "response": self.response,
            "responseJsonSchema": schema,
        }
        return {name: value for name, value in fields.items() if value is not None}


class GeminiCandidate(msgspec.Struct):
    """A candidate of a response."""

    content: GeminiTurn | None = None
    finishReason: str | None = None


class GeminiUsage(msgspec.Struct):
    """Token counts."""

    promptTokenCount: int = 0
    candidatesTokenCount: int = 0
    thoughtsTokenCount: int = 0
    cachedContentTokenCount: int = 0


class GeminiResponse(msgspec.Struct):
    """A response, or a chunk of one."""

    candidates: list[GeminiCandidate] = []
    usageMetadata: GeminiUsage | None = None
    modelVersion: str = ""
    responseId: str = ""
    promptFeedback: JSON | None = None
    error: JSON | None = None


class GeminiEmbedding(msgspec.Struct):
    """A request for an embedding."""

    content: GeminiTurn = msgspec.field(default_factory=GeminiTurn)
    outputDimensionality: int | None = None
    output_dimensionality: int | None = None

    @property
    def vector(self) -> JSON:
        """The embedding."""
        text = "".join(part.text or "" for part in self.content.part_list)
        dimensions = self.outputDimensionality or self.output_dimensionality
        return {"values": embed(text, dimensions or EMBEDDING_DIMENSIONS)}


class GeminiEmbeddingBatch(msgspec.Struct):
    """A request for several embeddings."""

    requests: list[GeminiEmbedding] = []


class VertexInstance(msgspec.Struct):
    """A text for an embedding of Vertex AI."""

    content: str | None = None


class VertexPrediction(msgspec.Struct):
    """A request to Vertex AI for embeddings, or for what Offbook does not support."""

    instances: list[VertexInstance] = []
    parameters: JSON | None = None

    @property
    def embeddings(self) -> JSON:
        """The embeddings; raises for another prediction, such as an image."""
        texts = [entry.content for entry in self.instances if entry.content is not None]
        if not texts or len(texts) != len(self.instances):
            message = "Offbook does not support predictions other than embeddings of texts"
            raise ModelError(message, status=404)
        size = (self.parameters or {}).get("outputDimensionality")
        size = size if isinstance(size, int) and size > 0 else EMBEDDING_DIMENSIONS
        predictions = [
            {
                "embeddings": {
                    "values": embed(text, size),
                    "statistics": {
                        "truncated": False,
                        "token_count": estimate_tokens(len(text)),
                    },
                }
            }
            for text in texts
        ]
        return {
            "predictions": predictions,
            "metadata": {"billableCharacterCount": sum(len(text) for text in texts)},
        }


body_decoder = RequestDecoder(GeminiBody, " ".join((*OPTIONS, *OPTIONS.values(), "labels")))
embedding_decoder = msgspec.json.Decoder(GeminiEmbedding)
embedding_batch_decoder = msgspec.json.Decoder(GeminiEmbeddingBatch)
prediction_decoder = msgspec.json.Decoder(VertexPrediction)
decode_response = msgspec.json.Decoder(GeminiResponse).decode
decode_response_list = msgspec.json.Decoder(list[Raw]).decode


# ------------------------------------------------------------------------------- bodies

T = TypeVar("T")

# The fields of a part that do not determine its type.
_PART_ATTRIBUTES = frozenset(
    {"thought", "thoughtSignature", "thought_signature", "videoMetadata", "video_metadata"}
)

# A function response with only one of these fields has just the text of the result.
_RESULT_FIELDS = frozenset({"content", "error", "output", "result", "return_value"})

# Values that clients send if the model gave no signature.
SKIPPED_SIGNATURES = frozenset(
    {
        "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",
        "skip_thought_signature_validator",
        "context_engineering_is_the_way_to_go",
    }
)

_WRONG_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function"
    " call parts of the function call turn."
)
_TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")


def decode_body(decoder: BodyDecoder[T], body: bytes) -> T:
    """Decode a body; raise Google's error if it is invalid."""
    try:
        return decoder.decode(body or b"{}")
    except msgspec.ValidationError as error:
        message, path = split_validation_error(error)
        message = f"Invalid value at '{path}': {message}" if path else message
        raise ModelError(message, status=400) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"Invalid JSON payload received. {error}"
        raise ModelError(message, status=400) from error


# ------------------------------------------------------------------------------- parts


def _decode_part(part: GeminiPart, raw: RawBody, path: JsonPath) -> AnyBlock:
    """Decode a part; one without a neutral form is kept raw."""
    if part.text is not None:
        return Thinking(part.text) if part.thought else Text(part.text)
    blob = part.inlineData or part.inline_data or part.fileData or part.file_data
    if blob is not None and not (part.videoMetadata or part.video_metadata):
        return blob.image
    block = raw.block("", path)
    kind = next((name for name in block.data if name not in _PART_ATTRIBUTES), "part")
    return msgspec.structs.replace(block, kind=kind)


def _add_signature(blocks: list[AnyBlock], signature: str | None) -> None:
    """Add the signature of the last part to the thinking before it.

    Gemini sends the signature not with the thinking but with the part that follows it.
    """
    if not signature or signature in SKIPPED_SIGNATURES:
        return
    index = len(blocks) - 1
    while index >= 0 and not isinstance(blocks[index], Thinking):
        index -= 1
    thinking = blocks[index] if index >= 0 else None
    if isinstance(thinking, Thinking) and not thinking.signature:
        blocks[index] = msgspec.structs.replace(thinking, signature=signature)
    else:  # the model hides its thinking
        blocks.insert(max(len(blocks) - 1, 0), Thinking("", signature))


def _decode_result(
    response: GeminiFunctionResponse,
    call_id: str,
    name: str,
    raw: RawBody,
    path: JsonPath,
) -> ToolResult:
    """Decode a function response: its text, or the whole JSON if there is more than text."""
    images = cast(
        "tuple[Content, ...]",
        tuple(
            _decode_part(part, raw, (*path, "parts", index))
            for index, part in enumerate(response.parts or ())
        ),
    )
    value = response.response
    # The API documents an object; a plain value is accepted, too.
    if not isinstance(value, dict):
        content: tuple[Content, ...] = () if value is None else (Text(_to_text(value)),)
        return ToolResult(call_id, content + images, name=name, details=value)
    fields = cast("JSON", value)
    is_error = "error" in fields or fields.get("isError") is True
    if len(fields) == 1:
        ((key, text),) = fields.items()
        if key in _RESULT_FIELDS and isinstance(text, str):
            content = (Text(text),) if text else ()
            return ToolResult(call_id, content + images, is_error, name)
    return ToolResult(call_id, (Text(_to_text(fields)), *images), is_error, name, fields)


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value).decode()


# ------------------------------------------------------------------------------- turns


class GeminiMessageReader:
    """Decodes and validates the turns of a request, or the parts of a response."""

    def __init__(
        self, rules: frozenset[str], raw: RawBody, conversations: ConversationStore | None = None
    ) -> None:
        self._rules = rules
        self._raw = raw
        self._conversations = conversations
        self._pairing = CallPairing(rules)
        self._messages: list[Message] = []
        self._call_count = 0
        self._after_model = False

    def read(self, turns: Iterable[GeminiTurn], *root: str | int) -> list[Message]:
        """Return the messages of these turns; `root` is their path in the body."""
        for index, turn in enumerate(turns):
            path = (*root, index, "parts")
            if turn.role == "model":
                self._read_model(turn.part_list, path)
            elif turn.role in {"user", "function", "", None} or "unknown_role" not in self._rules:
                self._read_user(turn.part_list, path)
            else:
                raise rejection("unknown_role", "Please use a valid role: user, model.")
        self._require_results()
        return self._messages

    def _read_user(self, parts: Sequence[GeminiPart], path: JsonPath) -> None:
        """Split a user turn into the messages of its function responses and of the user."""
        blocks: list[AnyBlock] = []
        has_results = False
        for index, part in enumerate(parts):
            response = part.functionResponse or part.function_response
            if response is not None:
                name = "functionResponse" if part.functionResponse else "function_response"
                result = self._read_result(response, (*path, index, name))
                self._messages.append(Message("tool", (result,)))
                has_results = True
            else:
                blocks.append(_decode_part(part, self._raw, (*path, index)))
        # A prompt may only follow when all calls have their results.
        if blocks:
            self._require_results()
        if blocks or not has_results:
            self._messages.append(Message("user", tuple(blocks)))
        self._after_model = False

    def _read_model(self, parts: Sequence[GeminiPart], path: JsonPath) -> None:
        if not self._after_model:  # clients may split a reply into several model turns
            self._require_results()
        self._after_model = True
        blocks: list[AnyBlock] = []
        for index, part in enumerate(parts):
            call = part.functionCall or part.function_call
            if call is not None:
                blocks.append(self._read_call(call))
            else:
                blocks.append(_decode_part(part, self._raw, (*path, index)))
            if not isinstance(blocks[-1], RawBlock):  # a raw part contains its signature
                _add_signature(blocks, part.thoughtSignature or part.thought_signature)
        self._messages.append(Message("assistant", tuple(blocks)))

    def _read_call(self, call: GeminiCall) -> ToolCall:
        self._call_count += 1
        arguments = call.args or {}
        call_id = call.id
        if not call_id and self._conversations is not None:
            used = self._pairing.names
            call_id = self._conversations.find_call_id(call.name, arguments, used)
        call_id = call_id or f"call-{self._call_count}"
        if self._pairing.add_call(call_id, call.name, len(self._messages)):
            raise rejection("duplicate_id", f"Duplicate function call id found: {call_id}")
        return ToolCall(call_id, call.name, arguments)

    def _read_result(self, response: GeminiFunctionResponse, path: JsonPath) -> ToolResult:
        pending, names = self._pairing.pending, self._pairing.names
        call_id = response.id or ""
        name = response.name or names.get(call_id, "")
        if not call_id:
            call_id = next((id_ for id_ in pending if names[id_] == response.name), "")
        if violation := self._pairing.add_result(call_id, len(self._messages)):
            follows_call = self._messages and self._messages[-1].role in {"assistant", "tool"}
            raise rejection(
                violation.rule,
                _WRONG_COUNT
                if follows_call
                else "Please ensure that function response turn comes immediately after a function"
                " call turn.",
            )
        return _decode_result(response, call_id, name, self._raw, path)

    def _require_results(self) -> None:
        if violation := self._pairing.close():
            raise rejection(violation.rule, _WRONG_COUNT)


# ------------------------------------------------------------------------------- tools

# Google accepts one object in place of a list.
_ToolGroups = dict[str, Raw] | list[dict[str, Raw]] | None
_Functions = GeminiFunction | list[GeminiFunction] | None


@lru_cache(maxsize=64)  # agents send the same tools with every request
def decode_tools(raw_tools: bytes) -> tuple[tuple[Tool, ...], str]:
    """Return the offered tools, and Google's error message if one of them is invalid."""
    try:
        groups = msgspec.json.decode(raw_tools, type=_ToolGroups)
        group_list = cast(
            "list[dict[str, Raw]]", [groups] if isinstance(groups, dict) else groups or []
        )
        tools = tuple(tool for group in group_list for tool in _decode_group(group))
    except (msgspec.ValidationError, RecursionError) as error:
        raise ModelError(f"Invalid value at 'tools': {error}", status=400) from error
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.kind != "function":
            continue
        path = f"* GenerateContentRequest.tools[0].function_declarations[{index}]"
        if not _TOOL_NAME.fullmatch(tool.name):
            return tools, (
                f"{path}.name: Invalid function name. Must start with a letter or an underscore."
                " Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or"
                " dashes (-), with a maximum length of 128.\n"
            )
        if tool.schema and tool.schema.get("type") != "object":
            return tools, f"{path}.parameters schema should be of type OBJECT.\n"
        if tool.name in names:
            return tools, f"Duplicate function declaration found: {tool.name}"
        names.add(tool.name)
    return tools, ""


def _decode_group(group: dict[str, Raw]) -> Iterator[Tool]:
    """Decode functions; a tool of the provider keeps its options in place of the schema."""
    for kind, value in group.items():
        if kind not in {"functionDeclarations", "function_declarations"}:
            options = msgspec.json.decode(value, type=JSON | list[Any] | None)
            fields: JSON = {RAW_ARGUMENTS: options} if isinstance(options, list) else options or {}
            yield Tool(kind, "", fields, kind=kind)
            continue
        functions = msgspec.json.decode(value, type=_Functions)
        for function in [functions] if isinstance(functions, GeminiFunction) else functions or ():
            schema = function.parametersJsonSchema or function.parameters_json_schema
            schema = schema or _lower_types(function.parameters or {})
            yield Tool(function.name, function.description or "", schema, more=function.more)


def _lower_types(schema: Any) -> Any:
    """Return a schema with the type names of JSON Schema: `object` instead of `OBJECT`."""
    if isinstance(schema, dict):
        return {
            key: value.lower() if key == "type" and isinstance(value, str) else _lower_types(value)
            for key, value in cast("JSON", schema).items()
        }
    if isinstance(schema, list):
        return [_lower_types(value) for value in cast("list[Any]", schema)]
    return schema
