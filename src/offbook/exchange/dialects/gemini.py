"""The wire format of Google's Gemini API.

Its clients write names in camel case or with underscores, and mix them; both are read. A function
call may have no id: then it gets the number of its place in the conversation, and the responses
find their calls by id, else by name and order.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import parse_qs, unquote

import msgspec
from msgspec import UNSET, Raw

from offbook.determinism.ids import stable
from offbook.errors import ModelError
from offbook.exchange import sse
from offbook.exchange.dialects.dialect import Answer, Wire, introduce
from offbook.exchange.embeddings import embed
from offbook.exchange.history import History
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    Content,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from offbook.exchange.pieces import cut_reply, cut_words
from offbook.exchange.reply import Reply, Stop, Usage
from offbook.exchange.request import Request, Tool
from offbook.exchange.rules import ALL, reject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from offbook.exchange.threads import Threads

NAME = "gemini"
_T = TypeVar("_T")
MODELS = ("gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-embedding-001")
DIMENSIONS = 768
CALLS = frozenset({"generateContent", "streamGenerateContent"})
BESIDE = frozenset({"countTokens", "embedContent", "batchEmbedContents"})
PARAMETERS = {"max_tokens": "maxOutputTokens", "temperature": "temperature", "top_p": "topP"}
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

FINISHES: dict[Stop, str] = {
    "stop": "STOP",
    "tool_use": "STOP",
    "stop_sequence": "STOP",
    "length": "MAX_TOKENS",
    "refusal": "SAFETY",
    "error": "OTHER",
}
REASONS: dict[str, Stop] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
}
STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}
RETRIED = frozenset({408, 409, 429})

_encode = msgspec.json.Encoder(enc_hook=repr).encode
_TOOL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_VERSION = re.compile(r"/v\d\w*$")


# ---------------------------------------------------------------------- what stands on the wire


class _Call(msgspec.Struct):
    name: str = ""
    args: JSON | None = None
    id: str | None = None


class _Response(msgspec.Struct):
    name: str = ""
    response: Any = None
    id: str | None = None
    parts: list[_Part] | None = None


class _Blob(msgspec.Struct):
    data: str = ""
    mimeType: str = ""  # noqa: N815 - the provider's name
    mime_type: str = ""
    fileUri: str = ""  # noqa: N815 - as above
    file_uri: str = ""

    @property
    def image(self) -> Image:
        return Image(self.data, self.mimeType or self.mime_type, self.fileUri or self.file_uri)


class _Part(msgspec.Struct):
    """A part of any kind; each kind uses some of the fields."""

    text: str | None = None
    thought: bool | None = None
    functionCall: _Call | None = None  # noqa: N815 - the provider's name
    function_call: _Call | None = None
    functionResponse: _Response | None = None  # noqa: N815 - as above
    function_response: _Response | None = None
    inlineData: _Blob | None = None  # noqa: N815 - as above
    inline_data: _Blob | None = None
    fileData: _Blob | None = None  # noqa: N815 - as above
    file_data: _Blob | None = None
    thoughtSignature: str | None = None  # noqa: N815 - as above
    thought_signature: str | None = None


class _Turn(msgspec.Struct):
    parts: list[_Part] | _Part | None = None
    role: str | None = None

    @property
    def listed(self) -> Sequence[_Part]:
        parts = self.parts
        return parts if isinstance(parts, list) else (parts,) if parts else ()


class _Body(msgspec.Struct):
    contents: list[_Turn] | _Turn | None = None
    systemInstruction: _Turn | None = None  # noqa: N815 - the provider's name
    system_instruction: _Turn | None = None
    tools: Raw = Raw(b"null")
    toolConfig: Any = UNSET  # noqa: N815 - as above
    tool_config: Any = UNSET
    generationConfig: Any = UNSET  # noqa: N815 - as above
    generation_config: Any = UNSET
    safetySettings: Any = UNSET  # noqa: N815 - as above
    safety_settings: Any = UNSET
    cachedContent: Any = UNSET  # noqa: N815 - as above
    cached_content: Any = UNSET
    labels: Any = UNSET

    @property
    def turns(self) -> Sequence[_Turn]:
        contents = self.contents
        return contents if isinstance(contents, list) else (contents,) if contents else ()

    @property
    def options(self) -> JSON:
        found: JSON = {}
        for name, other in _OPTIONS:
            value = getattr(self, name)
            if value is UNSET:
                value = getattr(self, other)
            if value is not UNSET:
                found[name] = value
        return found


_OPTIONS = (
    ("generationConfig", "generation_config"),
    ("toolConfig", "tool_config"),
    ("safetySettings", "safety_settings"),
    ("cachedContent", "cached_content"),
    ("labels", "labels"),
)


class _Embed(msgspec.Struct):
    content: _Turn = msgspec.field(default_factory=_Turn)
    outputDimensionality: int | None = None  # noqa: N815 - the provider's name
    output_dimensionality: int | None = None

    @property
    def vector(self) -> JSON:
        text = "".join(part.text or "" for part in self.content.listed)
        wanted = self.outputDimensionality or self.output_dimensionality
        return {"values": embed(text, wanted or DIMENSIONS)}


class _Batch(msgspec.Struct):
    requests: list[_Embed] = []


class _Candidate(msgspec.Struct):
    content: _Turn | None = None
    finishReason: str | None = None  # noqa: N815 - as above


class _Counts(msgspec.Struct):
    promptTokenCount: int = 0  # noqa: N815 - as above
    candidatesTokenCount: int = 0  # noqa: N815 - as above
    thoughtsTokenCount: int = 0  # noqa: N815 - as above
    cachedContentTokenCount: int = 0  # noqa: N815 - as above


class _Result(msgspec.Struct):
    candidates: list[_Candidate] = []
    usageMetadata: _Counts | None = None  # noqa: N815 - as above
    modelVersion: str = ""  # noqa: N815 - as above
    responseId: str = ""  # noqa: N815 - as above
    promptFeedback: JSON | None = None  # noqa: N815 - as above
    error: JSON | None = None


_read_body = msgspec.json.Decoder(_Body)
_read_batch = msgspec.json.Decoder(_Batch)
_read_embed = msgspec.json.Decoder(_Embed)
_read_result = msgspec.json.Decoder(_Result).decode
_read_results = msgspec.json.Decoder(list[_Result]).decode


# ---------------------------------------------------------------------------------- the dialect


class Gemini:
    """Google's Gemini API, holding requests to these rules."""

    name = NAME

    def __init__(self, rules: frozenset[str] = ALL) -> None:
        self._rules = rules

    def claims(self, wire: Wire) -> bool:
        """Whether this request is one for Gemini."""
        verb = _verb(wire.path)
        return verb in CALLS or verb in BESIDE or "x-goog-api-key" in wire.headers

    def aside(self, wire: Wire, threads: Threads) -> Answer | None:  # noqa: ARG002 - the protocol's
        """Models, counted tokens and embeddings."""
        if _verb(wire.path) in CALLS:
            return None
        try:
            return _answer(_look_up(wire))
        except ModelError as error:
            return self.refuse(error)

    def decode(self, wire: Wire, threads: Threads) -> Request:  # noqa: ARG002 - the protocol's
        """The neutral request; a `ModelError` where Gemini would refuse it."""
        body = _load(_read_body, wire.body)
        turns = body.turns
        if not turns and "missing_field" in self._rules:
            what = "* GenerateContentRequest.contents: contents is not specified\n"
            raise reject("missing_field", what)
        tools, wrong = _read_tools(bytes(body.tools))
        if wrong and "bad_tool_schema" in self._rules:
            raise reject("bad_tool_schema", wrong)
        system = body.systemInstruction or body.system_instruction
        stream = _verb(wire.path) == "streamGenerateContent"
        about = introduce(wire, NAME)
        if stream and "sse" not in parse_qs(wire.query).get("alt", ()):
            about["framing"] = "array"
        return Request(
            History(_Walk(self._rules).read(turns)),
            "\n".join(part.text or "" for part in system.listed) if system else "",
            tools,
            _model(wire.path),
            body.options,
            about,
            stream,
        )

    def identify(self, reply: Reply, request: Request) -> str:
        """The id of the response: its own, or one made of the exchange."""
        return reply.id or stable(
            "",
            request.messages.digest(),
            request.model,
            f"{reply.role}{reply.step}",
            reply.text,
            *(call.id for call in reply.calls),
            length=22,
        )

    def encode(self, reply: Reply, request: Request) -> Answer:
        """The response as JSON, or in pieces as a stream."""
        tail: JSON = {
            "usageMetadata": _write_usage(reply.usage),
            "modelVersion": reply.model or request.model,
            "responseId": self.identify(reply, request),
        }
        if not request.stream:
            candidate = _candidate(_write_parts(reply.blocks), FINISHES[reply.stop])
            return _answer({"candidates": [candidate], **tail})
        return _stream(reply, _encode(tail)[1:], array=request.metadata.get("framing") == "array")

    def refuse(self, error: ModelError, request: Request | None = None) -> Answer:
        """An error as Google tells it."""
        status = error.status
        headers = {"content-type": "application/json; charset=UTF-8"}
        about: JSON = {"code": status, "message": error.message, "status": _status(status)}
        if error.retry_after is not None:
            headers["retry-after"] = f"{error.retry_after:g}"
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            about["details"] = [{"@type": kind, "retryDelay": f"{error.retry_after:g}s"}]
        if status < 500 and status not in RETRIED:  # noqa: PLR2004 - the client's fault
            headers["x-should-retry"] = "false"
        if rule := error.details.get("rule"):
            headers["x-offbook-rule"] = rule
        body: object = {"error": about}
        if request is not None and request.metadata.get("framing") == "array":
            body = [body]
        return Answer(status, headers, _encode(body))

    def ask(self, request: Request, base_url: str, key: str) -> Wire:
        """A request to Google."""
        base = base_url.rstrip("/")
        if not _VERSION.search(base):
            base += "/v1beta"
        verb = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
        body: JSON = {"contents": list(_write_turns(request.messages)), **_write_options(request)}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools:
            body["tools"] = _write_tools(request.tools)
        headers = {"content-type": "application/json", "x-goog-api-key": key}
        path, _, query = f"{base}/models/{request.model}:{verb}".partition("?")
        return Wire("POST", path, headers, _encode(body), query)

    def parse(self, answer: Answer, request: Request) -> Reply:
        """The reply in an answer of Google's."""
        body = answer.body or b"".join(answer.chunks)
        if answer.status >= 400:  # noqa: PLR2004 - an error, in HTTP
            raise _read_error(body, answer.status, answer.headers)
        try:
            match body.lstrip()[:1]:
                case b"{":
                    results = [_read_result(body)]
                case b"[":
                    results = _read_results(body)
                case _:
                    results = [_read_result(event.data) for event in sse.read(body)]
        except msgspec.MsgspecError as error:
            what = f"the answer is not one of Gemini's: {error}"
            raise ModelError(what, status=502) from error
        return _assemble(results, request)


def _verb(path: str) -> str:
    return path.rpartition(":")[2]


def _model(path: str) -> str:
    name = path.rpartition("/models/")[2] if "/models/" in path else path.rpartition("/")[2]
    return unquote(name.rpartition(":")[0])


def _status(status: int) -> str:
    return STATUSES.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION")  # noqa: PLR2004 - HTTP's


# --------------------------------------------------------------------------------- what is read


def _load(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    try:
        return decoder.decode(body or b"{}")
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        place = path.rstrip("`").lstrip(".")
        what = f"Invalid value at '{place}': {text}" if place else text
        raise ModelError(what, status=400) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = f"Invalid JSON payload received. {error}"
        raise ModelError(what, status=400) from error


def _count(body: bytes) -> JSON:
    """Tokens, as a rule of thumb: four characters each."""
    _load(_read_body, body)
    total = len(body) // 4 + 1
    details = [{"modality": "TEXT", "tokenCount": total}]
    return {"totalTokens": total, "promptTokensDetails": details}


@lru_cache(maxsize=64)
def _read_tools(raw: bytes) -> tuple[tuple[Tool, ...], str]:
    """The tools offered, and what is wrong with them.

    Agents repeat them with every request, so they are read once.
    """
    try:
        groups = msgspec.json.decode(raw, type=list[dict[str, Raw]] | None)
        tools = tuple(tool for group in groups or () for tool in _read_group(group))
    except msgspec.ValidationError as error:
        raise ModelError(f"Invalid value at 'tools': {error}", status=400) from error
    return tools, _doubt_tools(tools)


class _Function(msgspec.Struct):
    name: str = ""
    description: str | None = None
    parameters: JSON | None = None
    parametersJsonSchema: JSON | None = None  # noqa: N815 - the provider's name
    parameters_json_schema: JSON | None = None


def _read_group(group: dict[str, Raw]) -> Iterator[Tool]:
    """Functions; anything else keeps its options where a function has its schema."""
    for kind, given in group.items():
        if kind not in {"functionDeclarations", "function_declarations"}:
            options = msgspec.json.decode(given, type=JSON | None)
            yield Tool(kind, "", options or {}, kind=kind)
            continue
        for one in msgspec.json.decode(given, type=list[_Function] | None) or ():
            schema = one.parametersJsonSchema or one.parameters_json_schema
            yield Tool(one.name, one.description or "", schema or _lower(one.parameters or {}))


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


class _Walk:
    """Goes through the turns of a request, makes messages of them and holds them to the rules."""

    def __init__(self, rules: frozenset[str]) -> None:
        self._rules = rules
        self._messages: list[Message] = []
        self._waiting: dict[str, str] = {}
        self._count = 0
        self._model = False

    def read(self, turns: Iterable[_Turn]) -> list[Message]:
        for turn in turns:
            match turn.role:
                case "model":
                    self._hear_model(turn.listed)
                case "user" | "function" | "" | None:
                    self._hear_user(turn.listed)
                case _ if "unknown_role" in self._rules:
                    raise reject("unknown_role", "Please use a valid role: user, model.")
                case _:
                    self._hear_user(turn.listed)
        self._settle()
        return self._messages

    def _hear_user(self, parts: Sequence[_Part]) -> None:
        said: list[AnyBlock] = []
        answered = False
        for part in parts:
            response = part.functionResponse or part.function_response
            if response is not None:
                self._messages.append(Message("tool", (self._answer(response),)))
                answered = True
            elif (block := _read_part(part)) is not None:
                said.append(block)
        if said:
            self._settle()
        if said or not answered:
            self._messages.append(Message("user", tuple(said)))
        self._model = False

    def _hear_model(self, parts: Sequence[_Part]) -> None:
        if not self._model:
            self._settle()
        self._model = True
        blocks: list[AnyBlock] = []
        for part in parts:
            call = part.functionCall or part.function_call
            if call is not None:
                blocks.append(self._expect(call))
            elif (block := _read_part(part)) is not None:
                blocks.append(block)
            _sign(blocks, part.thoughtSignature or part.thought_signature)
        self._messages.append(Message("assistant", tuple(blocks)))

    def _expect(self, call: _Call) -> ToolCall:
        self._count += 1
        call_id = call.id or f"call-{self._count}"
        if call_id in self._waiting and "duplicate_id" in self._rules:
            raise reject("duplicate_id", f"Duplicate function call id found: {call_id}")
        self._waiting[call_id] = call.name
        return ToolCall(call_id, call.name, call.args or {})

    def _answer(self, response: _Response) -> ToolResult:
        call_id = self._find(response)
        if call_id is None and "orphan_result" in self._rules:
            raise reject(
                "orphan_result",
                _MISCOUNTED
                if self._messages and self._messages[-1].role in {"assistant", "tool"}
                else "Please ensure that function response turn comes immediately after a function"
                " call turn.",
            )
        found = call_id or response.id or ""
        name = self._waiting.pop(found, response.name)
        return _read_response(response, found, name)

    def _find(self, response: _Response) -> str | None:
        """The call that this answers: by its id, else the first of its name."""
        if response.id:
            return response.id if response.id in self._waiting else None
        return next((i for i, name in self._waiting.items() if name == response.name), None)

    def _settle(self) -> None:
        if self._waiting and "missing_result" in self._rules:
            raise reject("missing_result", _MISCOUNTED)
        self._waiting.clear()


_MISCOUNTED = (
    "Please ensure that the number of function response parts is equal to the number of function"
    " call parts of the function call turn."
)


def _read_part(part: _Part) -> AnyBlock | None:
    """The neutral block; what has none is left out."""
    if part.text is not None:
        return Thinking(part.text) if part.thought else Text(part.text)
    blob = part.inlineData or part.inline_data or part.fileData or part.file_data
    return blob.image if blob is not None else None


def _sign(blocks: list[AnyBlock], signature: str | None) -> None:
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


def _read_response(response: _Response, call_id: str, name: str) -> ToolResult:
    """What a function answered: its text, or all of it where it is more than that."""
    given = response.response
    pictures = tuple(
        block for part in response.parts or () if isinstance(block := _read_part(part), Image)
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
    return value if isinstance(value, str) else _encode(value).decode()


# ------------------------------------------------------------------------------ what is written


def _look_up(wire: Wire) -> JSON:
    path = wire.path
    match _verb(path):
        case "countTokens":
            return _count(wire.body)
        case "embedContent":
            return {"embedding": _load(_read_embed, wire.body).vector}
        case "batchEmbedContents":
            return {"embeddings": [one.vector for one in _load(_read_batch, wire.body).requests]}
        case _ if path.endswith("/models"):
            return {"models": [_describe_model(name) for name in MODELS]}
        case _ if "/models/" in path:
            return _describe_model(path.rpartition("/")[2])
        case _:
            raise ModelError("Requested entity was not found.", status=404)


def _answer(body: object) -> Answer:
    return Answer(200, {"content-type": "application/json; charset=UTF-8"}, _encode(body))


def _describe_model(name: str) -> JSON:
    embeds = "embed" in name
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name.replace("-", " ").title(),
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": ["embedContent"]
        if embeds
        else sorted(CALLS | {"countTokens"}),
    }


def _write_usage(usage: Usage) -> JSON:
    counts: JSON = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": max(usage.output - usage.reasoning, 0),
        "totalTokenCount": usage.input + usage.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input}],
    }
    if usage.cache_read:
        counts["cachedContentTokenCount"] = usage.cache_read
    if usage.reasoning:
        counts["thoughtsTokenCount"] = usage.reasoning
    return counts


def _candidate(parts: list[JSON], finish: str | None) -> JSON:
    candidate: JSON = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return candidate


def _write_parts(blocks: Iterable[AnyBlock]) -> list[JSON]:
    """The parts; the seal of a thought stands at the part that follows it."""
    parts: list[JSON] = []
    seal = ""
    for block in blocks:
        if isinstance(block, Thinking):
            if seal:
                parts[-1]["thoughtSignature"] = seal
            seal = block.signature
            if block.text or not seal:
                parts.append({"text": block.text, "thought": True})
            continue
        part = _write_part(block)
        if seal:
            part["thoughtSignature"] = seal
            seal = ""
        parts.append(part)
    if seal:
        if not parts:
            parts.append({"text": "", "thought": True})
        parts[-1]["thoughtSignature"] = seal
    return parts


def _write_part(block: AnyBlock) -> JSON:
    match block:
        case Text(text):
            return {"text": text}
        case ToolCall(call_id, name, arguments):
            name = f"{block.namespace}__{name}" if block.namespace else name
            call: JSON = {"name": name, "args": arguments}
            return {"functionCall": {"id": call_id, **call} if call_id else call}
        case Image(data, media_type, url):
            if url:
                return {"fileData": {"fileUri": url, "mimeType": media_type}}
            return {"inlineData": {"data": data, "mimeType": media_type}}
        case ToolResult():
            return _write_response(block)
        case Thinking(text):
            return {"text": text, "thought": True}


def _write_response(result: ToolResult) -> JSON:
    details = result.details
    key = "error" if result.is_error else "result"
    response: JSON = {
        "name": result.name,
        "response": details if isinstance(details, dict) else {key: result.text},
    }
    if result.call_id:
        response["id"] = result.call_id
    pictures = [_write_part(part) for part in result.content if isinstance(part, Image)]
    if pictures:
        response["parts"] = pictures
    return {"functionResponse": response}


def _stream(reply: Reply, tail: bytes, *, array: bool) -> Answer:
    """The response in pieces; the last one tells why it ended."""
    groups = list(_cut(reply))
    last = len(groups) - 1
    finish = b'"finishReason":%b' % _encode(FINISHES[reply.stop])
    results = [
        b'{"candidates":[{"content":{"parts":%b,"role":"model"},"index":0%b}],%b'
        % (_encode(parts), b"," + finish if at == last else b"", tail)
        for at, parts in enumerate(groups)
    ]
    if array:
        headers = {"content-type": "application/json; charset=UTF-8"}
        chunks = [b"[" + results[0], *(b",\r\n" + result for result in results[1:]), b"]"]
        return Answer(200, headers, b"", tuple(chunks))
    headers = {"content-type": "text/event-stream", "cache-control": "no-cache"}
    return Answer(200, headers, b"", tuple(b"data: %b\r\n\r\n" % result for result in results))


def _cut(reply: Reply) -> Iterator[list[JSON]]:
    """The parts of each piece: texts come bit by bit, calls whole and together."""
    calls: list[JSON] = []
    some = False
    for part in _write_parts(reply.blocks):
        some = True
        if "functionCall" in part:
            calls.append(part)
            continue
        if calls:
            yield calls
            calls = []
        yield from _cut_part(part, reply)
    if calls:
        yield calls
    if not some:
        yield [{"text": ""}]


def _cut_part(part: JSON, reply: Reply) -> Iterator[list[JSON]]:
    text = part.get("text", "")
    pieces = cut_words(text) if "thought" in part else cut_reply(reply, text)
    if not pieces:
        yield [part]
        return
    *others, last = pieces
    about = {"thought": True} if "thought" in part else {}
    for piece in others:
        yield [{"text": piece, **about}]
    yield [{**part, "text": last}]


# ----------------------------------------------------------------------------- the asking side


def _write_turns(messages: Iterable[Message]) -> Iterator[JSON]:
    """The turns of a conversation: results stand together, before what the user says."""
    results: list[JSON] = []
    for message in messages:
        parts = _write_parts(message.blocks)
        if message.role == "tool":
            results += parts
            continue
        if message.role == "assistant":
            if results:
                yield {"role": "user", "parts": results}
            yield {"role": "model", "parts": parts}
        else:
            yield {"role": "user", "parts": results + parts}
        results = []
    if results:
        yield {"role": "user", "parts": results}


def _write_options(request: Request) -> JSON:
    if request.metadata.get("dialect") == NAME:
        return request.parameters
    given = {
        own: request.parameters[name]
        for name, own in PARAMETERS.items()
        if name in request.parameters
    }
    return {"generationConfig": given} if given else {}


def _write_tools(tools: Iterable[Tool]) -> list[JSON]:
    functions: list[JSON] = []
    others: list[JSON] = []
    for tool in tools:
        if tool.kind != "function":
            others.append({tool.kind: tool.schema})
            continue
        name = f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name
        function: JSON = {"name": name, "description": tool.description}
        functions.append(
            {**function, "parametersJsonSchema": tool.schema} if tool.schema else function
        )
    return [{"functionDeclarations": functions}, *others] if functions else others


def _read_error(body: bytes, status: int, headers: dict[str, str]) -> ModelError:
    try:
        whole: Any = msgspec.json.decode(body)
        first: Any = whole[0] if body.lstrip()[:1] == b"[" else whole
        message = str(first["error"]["message"])
    except (msgspec.MsgspecError, LookupError, TypeError):
        message = body[:200].decode("utf-8", "replace")
    return ModelError(
        message or f"status {status}", status=status, retry_after=_read_delay(headers, body)
    )


def _read_delay(headers: dict[str, str], body: bytes) -> float | None:
    told = re.search(rb'"retryDelay":\s*"([\d.]+)s"', body)
    try:
        return float(headers.get("retry-after") or (told[1] if told else b""))
    except ValueError:
        return None


def _assemble(results: list[_Result], request: Request) -> Reply:
    """The reply whose pieces these are."""
    parts: list[_Part] = []
    chunks: list[str] = []
    whole = Reply(model=request.model)
    finish = ""
    for result in results:
        if result.error is not None:
            raise ModelError(
                str(result.error.get("message", "")), status=int(result.error.get("code", 500))
            )
        finish = "SAFETY" if result.promptFeedback and not result.candidates else finish
        for candidate in result.candidates[:1]:
            finish = candidate.finishReason or finish
            _merge(parts, candidate.content.listed if candidate.content else (), chunks)
        whole = msgspec.structs.replace(
            whole,
            usage=_read_usage(result.usageMetadata) if result.usageMetadata else whole.usage,
            model=result.modelVersion or whole.model,
            id=result.responseId or whole.id,
        )
    messages = _Walk(frozenset()).read([_Turn(parts, "model")])
    blocks = messages[0].blocks
    stop = REASONS.get(finish, "error" if finish else "stop")
    if stop == "stop" and any(isinstance(block, ToolCall) for block in blocks):
        stop = "tool_use"
    streamed = tuple(chunks) if len(results) > 1 else ()
    return msgspec.structs.replace(whole, blocks=blocks, stop=stop, chunks=streamed)


def _merge(parts: list[_Part], more: Sequence[_Part], chunks: list[str]) -> None:
    """Pieces of one text become one part again."""
    for part in more:
        if part.text is not None and not part.thought:
            chunks.append(part.text)
        last = parts[-1] if parts else None
        if (
            last is not None
            and last.text is not None
            and part.text is not None
            and bool(last.thought) == bool(part.thought)
            and not last.thoughtSignature
        ):
            last.text += part.text
            last.thoughtSignature = part.thoughtSignature
        else:
            parts.append(part)


def _read_usage(counts: _Counts) -> Usage:
    return Usage(
        counts.promptTokenCount,
        counts.candidatesTokenCount + counts.thoughtsTokenCount,
        counts.cachedContentTokenCount,
        reasoning=counts.thoughtsTokenCount,
    )
