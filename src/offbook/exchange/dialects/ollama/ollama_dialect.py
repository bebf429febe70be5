"""Ollama's API: chats, completions of a prompt, embeddings and the list of models.

A stream is one JSON object a line, and it is the default. Tool calls have no ids: a call gets the
id that it was given in this run, else a number; a result belongs to the first pending call of its
tool. A completion of a prompt (`generate`) is continued by the `context` of the previous one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.dialect import (
    HttpRequest,
    HttpResponse,
    error_headers,
    make_reply_id,
    request_metadata,
)
from offbook.exchange.dialects.embeddings import embed, estimate_tokens
from offbook.exchange.dialects.provider_responses import (
    StreamAccumulator,
    interrupted_stream,
    invalid_response,
    is_json,
    raise_for_status,
    response_body,
)
from offbook.exchange.dialects.wire import (
    ALL_RULES,
    CallPairing,
    FunctionTool,
    RequestDecoder,
    encode_function,
    find_bad_schema,
    rejection,
    split_reply_text,
    split_words,
    unsupported_block,
)
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    History,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    to_json,
    user,
)
from offbook.exchange.model import Reply, Request, StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from offbook.exchange.dialects.dialect import ConversationStore

NAME = "ollama"
CHAT, GENERATE = "/api/chat", "/api/generate"
MODEL_CALLS = (CHAT, GENERATE)
SIDE_PATHS = tuple(
    f"/api/{name}" for name in ("tags", "ps", "version", "show", "pull", "embed", "embeddings")
)
ND_JSON = "application/x-ndjson"
JSON_TYPE = "application/json; charset=utf-8"
CREATED = "2023-11-14T22:13:20Z"
MODELS = ("llama3.2:latest", "qwen3:latest", "nomic-embed-text:latest")
EMBEDDING_DIMENSIONS = 768
SERVER_ERROR = "an error was encountered while running the model"
# Clients divide the number of tokens by the time, so no duration is 0.
DURATIONS = {
    "total_duration": 4_000_000,
    "load_duration": 1_000_000,
    "prompt_eval_duration": 1_000_000,
    "eval_duration": 2_000_000,
}


# ---------------------------------------------------------------------------- wire types


class OllamaFunction(msgspec.Struct):
    """The name and the arguments of a call."""

    name: str = ""
    arguments: JSON | None = None


class OllamaCall(msgspec.Struct):
    """A tool call; only the latest servers and few clients send its id."""

    function: OllamaFunction = msgspec.field(default_factory=OllamaFunction)
    id: str = ""


class OllamaMessage(msgspec.Struct):
    """A message of a request or a response, or the part of one in a stream."""

    role: str = ""
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None
    name: str | None = None  # the earlier form of `tool_name`
    tool_call_id: str | None = None


class OllamaBody(msgspec.Struct):
    """The body of a chat, or of a completion of a prompt."""

    model: str = ""
    messages: list[OllamaMessage] | None = None
    tools: list[FunctionTool] | None = None
    stream: bool | None = None
    prompt: str | None = None
    system: str | None = None
    images: list[str] | None = None
    context: list[int] | None = None


class OllamaInput(msgspec.Struct):
    """The body of a request for embeddings, or for the description of a model."""

    model: str = ""
    name: str = ""
    input: str | list[str] = ""
    prompt: str = ""
    dimensions: int | None = None
    stream: bool | None = None


class OllamaLine(msgspec.Struct):
    """A response, or a line of a stream."""

    message: OllamaMessage = msgspec.field(default_factory=OllamaMessage)
    response: str = ""
    thinking: str | None = None
    model: str = ""
    done: bool = False
    done_reason: str = ""
    prompt_eval_count: int = 0
    eval_count: int = 0
    error: str = ""


_body_decoder = RequestDecoder(
    OllamaBody, "format options keep_alive think logprobs top_logprobs suffix template raw"
)
_input_decoder = msgspec.json.Decoder(OllamaInput)
_line_decoder = msgspec.json.Decoder(OllamaLine)


# ------------------------------------------------------------------------------- dialect


class Ollama:
    """Ollama's API, with these validation rules."""

    name = NAME
    continues_by_id = True

    def __init__(self, rules: frozenset[str] = ALL_RULES) -> None:
        # Ollama renders any order of calls and results into its prompt.
        self._rules = rules - {"missing_result", "duplicate_id"}

    def claims(self, http_request: HttpRequest) -> bool:
        """Return whether this is a request to Ollama."""
        return http_request.path.endswith((*MODEL_CALLS, *SIDE_PATHS))

    def side_response(
        self,
        http_request: HttpRequest,
        conversations: ConversationStore,  # noqa: ARG002 - the protocol's
    ) -> HttpResponse | None:
        """Return models, embeddings or the loading of a model; None for a model call."""
        path = http_request.path
        try:
            if path.endswith(MODEL_CALLS):
                return _load_model(http_request)
            body = _side_response(path.rpartition("/")[2], http_request.body)
        except ModelError as error:
            return self.encode_error(error)
        return HttpResponse(200, {"content-type": JSON_TYPE}, to_json(body))

    def decode(self, http_request: HttpRequest, conversations: ConversationStore) -> Request:
        """Decode a request; raise `ModelError` where Ollama would reject it."""
        body, options = _decode_body(http_request.body)
        if not body.model and "missing_field" in self._rules:
            raise rejection("missing_field", "model is required")
        metadata = request_metadata(http_request, NAME)
        stream = body.stream is not False
        if http_request.path.endswith(GENERATE):
            history = _continue_completion(body, conversations)
            return Request(
                history, body.system or "", (), body.model, options, metadata, stream=stream
            )
        system, messages = self._decode_messages(body.messages or (), conversations)
        tools = tuple(tool.decode() for tool in body.tools or ())
        if violation := find_bad_schema(tools, self._rules):
            raise rejection(
                violation.rule,
                f"invalid tool {violation.ids[0]!r}: parameters.type must be 'object'",
            )
        return Request(
            History(messages), system, tools, body.model, options, metadata, stream=stream
        )

    def _decode_messages(
        self, sent: Sequence[OllamaMessage], conversations: ConversationStore
    ) -> tuple[str, list[Message]]:
        """Return the system prompt and the messages."""
        system: list[str] = []
        messages: list[Message] = []
        pairing = CallPairing(self._rules)
        for index, message in enumerate(sent):
            images = [Image(data) for data in message.images or ()]
            content = [Text(message.content)] if message.content else []
            match message.role:
                case "system" if not messages:
                    system.append(message.content or "")
                case "system" | "user" as role:
                    messages.append(Message(role, (*content, *images)))
                case "assistant":
                    thinking = [Thinking(message.thinking)] if message.thinking else []
                    calls = [
                        _decode_call(call, pairing, index, conversations)
                        for call in message.tool_calls or ()
                    ]
                    messages.append(Message("assistant", (*thinking, *content, *calls)))
                case "tool":
                    name = message.tool_name or message.name or ""
                    call_id = message.tool_call_id or _find_pending(pairing, name)
                    if violation := pairing.add_result(call_id, index):
                        raise rejection(
                            violation.rule,
                            f"messages[{index}]: a message with the role 'tool' must follow the"
                            " message with its call in 'tool_calls'",
                        )
                    name = name or pairing.names.get(call_id, "")
                    result = ToolResult(call_id, (*content, *images), None, name)
                    messages.append(Message("tool", (result,)))
                case role if "unknown_role" in self._rules:
                    raise rejection(
                        "unknown_role",
                        f"invalid role: {role}, role must be one of [system, user, assistant,"
                        " tool]",
                    )
                case _:
                    messages.append(Message("user", (*content, *images)))
        return "\n\n".join(system), messages

    def reply_id(self, reply: Reply, request: Request) -> str:
        """Return the id of the reply, which only the context of a completion contains."""
        return make_reply_id("ollama-", reply, request)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """Encode the reply, whole or as a stream of lines."""
        completes = str(request.metadata.get("endpoint", "")).endswith(GENERATE)
        fields = _complete if completes else _message
        head: JSON = {"model": reply.model or request.model, "created_at": CREATED}
        end: JSON = {"done": True, "done_reason": DONE_REASONS.get(reply.stop, "stop")}
        if completes:
            end["context"] = list(self.reply_id(reply, request).encode())
        end |= DURATIONS
        end |= {"prompt_eval_count": reply.usage.input, "eval_count": reply.usage.output}
        if not request.stream:
            if reply.stop == "error":
                return self.encode_error(ModelError(SERVER_ERROR, status=500), request)
            body = {**head, **fields(reply.blocks), **end}
            return HttpResponse(200, {"content-type": JSON_TYPE}, to_json(body))
        lines: list[JSON] = [{**head, **fields((part,)), "done": False} for part in _split(reply)]
        last = {"error": SERVER_ERROR} if reply.stop == "error" else {**head, **fields(()), **end}
        chunks = tuple(to_json(line) + b"\n" for line in (*lines, last))
        return HttpResponse(200, {"content-type": ND_JSON}, b"", chunks)

    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:  # noqa: ARG002 - the protocol's
        """Encode an error."""
        headers = {"content-type": JSON_TYPE, **error_headers(error)}
        return HttpResponse(error.status, headers, to_json({"error": error.message}))

    def build_request(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """Build a request to a server of Ollama; `OLLAMA_HOST` may be `host:port`."""
        body: JSON = {"model": request.model, "stream": request.stream}
        path = CHAT
        if str(request.metadata.get("endpoint", "")).endswith(GENERATE):
            path = GENERATE
            body |= {"prompt": request.prompt, "system": request.system}
        else:
            body["messages"] = list(_encode_messages(request))
            if request.tools:
                body["tools"] = [encode_function(tool) for tool in request.tools]
        # The options of other dialects have other names.
        if request.metadata.get("dialect", NAME) == NAME:
            body |= request.parameters
        base = base_url.rstrip("/") if "//" in base_url else f"http://{base_url}"
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        return HttpRequest("POST", f"{base}{path}", headers, to_json(body))

    def parse_response(self, response: HttpResponse, request: Request) -> Reply:
        """Parse a response of Ollama, whole or as lines."""
        raise_for_status(response)
        *whole, last = response_body(response).split(b"\n")
        if not (request.stream and last.startswith(b"{")) or is_json(last):
            whole.append(last)  # else the stream broke off in this line
        try:
            lines = [_line_decoder.decode(line) for line in whole if line.strip()]
        except msgspec.MsgspecError as error:
            raise invalid_response("Ollama", error) from error
        return _parse_lines(lines, request)


# ---------------------------------------------------------------------------- decoding


def _decode_body(body: bytes) -> tuple[OllamaBody, JSON]:
    try:
        return _body_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = "missing request body" if not body else str(error)
        raise ModelError(problem, status=400) from error


def _decode_call(
    call: OllamaCall, pairing: CallPairing, index: int, conversations: ConversationStore
) -> ToolCall:
    name, arguments = call.function.name, call.function.arguments or {}
    call_id = call.id or conversations.find_call_id(name, arguments, pairing.names)
    call_id = call_id or f"call-{len(pairing.names) + 1}"
    pairing.add_call(call_id, name, index)
    return ToolCall(call_id, name, arguments)


def _find_pending(pairing: CallPairing, name: str) -> str:
    """Return the first pending call of this tool; without a name, the first of any tool."""
    return next((id_ for id_ in pairing.pending if name in ("", pairing.names[id_])), "")


def _continue_completion(body: OllamaBody, conversations: ConversationStore) -> History:
    """Return the conversation of a completion; `context` is the id of the previous reply."""
    prompt = user(body.prompt or "")
    if body.images:
        prompt = Message("user", (*prompt.blocks, *(Image(data) for data in body.images)))
    reply_id = "".join(chr(number) for number in body.context or () if 0 < number < 128)  # noqa: PLR2004 - ASCII
    if (exchange := conversations.get(reply_id)) is None:
        return History([prompt])
    before, reply = exchange
    return before.messages.plus(reply.message, prompt)


# ------------------------------------------------------------------------ side requests


def _load_model(http_request: HttpRequest) -> HttpResponse | None:
    """Return the response to a request without a prompt, which loads a model or unloads it."""
    body, options = _decode_body(http_request.body)
    if not body.model or body.messages or body.prompt:
        return None
    is_chat = http_request.path.endswith(CHAT)
    content: JSON = {"message": {"role": "assistant", "content": ""}} if is_chat else _complete(())
    reason = "unload" if options.get("keep_alive") in (0, "0") else "load"
    loaded = {"model": body.model, "created_at": CREATED, **content}
    line = to_json({**loaded, "done": True, "done_reason": reason})
    return HttpResponse(200, {"content-type": JSON_TYPE}, line)


def _side_response(operation: str, raw: bytes) -> JSON:
    if operation == "version":
        return {"version": "0.12.0"}
    if operation in {"tags", "ps"}:
        return {"models": [_describe_model(name) for name in MODELS]}
    try:
        body = _input_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(str(error), status=400) from error
    name = body.model or body.name
    if not name:
        raise ModelError("model is required", status=400)
    size = EMBEDDING_DIMENSIONS if body.dimensions is None else body.dimensions
    if size < 1:
        raise ModelError("dimensions must be a positive number", status=400)
    match operation:
        case "embed":
            texts = [body.input] if isinstance(body.input, str) else body.input
            return {
                "model": name,
                "embeddings": [embed(text, size) for text in texts],
                "total_duration": DURATIONS["total_duration"],
                "load_duration": DURATIONS["load_duration"],
                "prompt_eval_count": sum(estimate_tokens(len(text)) for text in texts),
            }
        case "embeddings":
            return {"embedding": embed(body.prompt, size)}
        case "pull":
            return {"status": "success"}
        case _:
            return {
                "modelfile": f"FROM {name}\n",
                "parameters": "",
                "template": "{{ .Prompt }}",
                "details": _describe_model(name)["details"],
                "model_info": {"general.architecture": "llama", "llama.context_length": 131_072},
                "capabilities": ["completion", "tools", "thinking", "vision"],
                "modified_at": CREATED,
            }


def _describe_model(name: str) -> JSON:
    return {
        "name": name,
        "model": name,
        "modified_at": CREATED,
        "size": 2_000_000_000,
        "digest": "0" * 64,
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": "llama",
            "families": ["llama"],
            "parameter_size": "3.2B",
            "quantization_level": "Q4_K_M",
        },
    }


# ---------------------------------------------------------------------------- encoding

# Ollama ends a reply with calls, too, by `stop`.
DONE_REASONS: dict[StopReason, str] = {"length": "length"}


def _message(blocks: Iterable[AnyBlock]) -> JSON:
    """Return the field of a chat's response with these blocks."""
    content, thinking, calls = "", "", list[JSON]()
    for block in blocks:
        match block:
            case Text(text):
                content += text
            case Thinking(text):
                thinking += text
            case ToolCall(_, name, arguments):
                calls.append({"function": {"name": name, "arguments": arguments}})
            case _:
                raise unsupported_block(block, NAME)
    message: JSON = {"role": "assistant", "content": content}
    if thinking:
        message["thinking"] = thinking
    if calls:
        message["tool_calls"] = calls
    return {"message": message}


def _complete(blocks: Iterable[AnyBlock]) -> JSON:
    """Return the fields of a completion's response; it has no tool calls."""
    response, thinking = "", ""
    for block in blocks:
        match block:
            case Text(text):
                response += text
            case Thinking(text):
                thinking += text
            case _:
                raise unsupported_block(block, f"{NAME} ({GENERATE})")
    return {"response": response, **({"thinking": thinking} if thinking else {})}


def _split(reply: Reply) -> Iterator[AnyBlock]:
    """Yield the parts of a stream: words, and whole calls."""
    for block in reply.blocks:
        match block:
            case Text(text):
                yield from (Text(chunk) for chunk in split_reply_text(reply, text))
            case Thinking(text):
                yield from (Thinking(chunk) for chunk in split_words(text))
            case _:
                yield block


# ------------------------------------------------------------------------- client side


def _encode_messages(request: Request) -> Iterator[JSON]:
    if request.system:
        yield {"role": "system", "content": request.system}
    for message in request.messages:
        if message.role == "tool":
            for result in message.results:
                yield {"role": "tool", "content": result.text, "tool_name": result.name}
            continue
        encoded = (
            cast("JSON", _message(message.blocks)["message"])
            if message.role == "assistant"
            else {"content": message.text}
        )
        encoded["role"] = message.role
        images = [block.data for block in message.blocks if isinstance(block, Image)]
        yield {**encoded, "images": images} if images else encoded


_THINKING, _TEXT, _CALLS = range(3)


def _parse_lines(lines: Sequence[OllamaLine], request: Request) -> Reply:
    accumulator = StreamAccumulator[tuple[int, ...]]()
    calls: list[Any] = []
    last = OllamaLine()
    for line in lines:
        if line.error:
            raise ModelError(line.error, status=500)
        last = line
        message = line.message
        if thinking := line.thinking or message.thinking:
            accumulator.block((_THINKING,), "thinking").add(thinking)
        if text := line.response or message.content:
            accumulator.add_text((_TEXT,), text)
        for call in message.tool_calls or ():
            call_id = call.id or f"call-{len(calls) + 1}"
            calls.append(ToolCall(call_id, call.function.name, call.function.arguments or {}))
    if not last.done:
        raise interrupted_stream()
    stop: StopReason = "length" if last.done_reason == "length" else "stop"
    if calls and stop == "stop":
        stop = "tool_use"
    return Reply(
        (*accumulator.blocks(), *calls),
        stop,
        Usage(last.prompt_eval_count, last.eval_count),
        last.model or request.model,
        chunks=tuple(accumulator.chunks) if request.stream else (),
    )
