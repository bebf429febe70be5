"""Google's Gemini API."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.decoding import ALL_RULES, RawBody, rejection
from offbook.exchange.dialects.dialect import (
    HttpRequest,
    HttpResponse,
    error_headers,
    make_reply_id,
    request_metadata,
)
from offbook.exchange.dialects.gemini import gemini_wire as wire
from offbook.exchange.dialects.gemini.gemini_client import (
    encode_options,
    encode_tools,
    encode_turns,
    parse_responses,
)
from offbook.exchange.dialects.gemini.gemini_stream import (
    JSON_TYPE,
    encode_response,
    encode_stream,
    encode_usage,
)
from offbook.exchange.dialects.response_parsing import (
    invalid_response,
    raise_for_status,
    response_body,
)
from offbook.exchange.dialects.side_requests import estimate_tokens
from offbook.exchange.dialects.streaming import parse_sse
from offbook.exchange.messages import JSON, History, to_json
from offbook.exchange.model import Request

if TYPE_CHECKING:
    from offbook.exchange.dialects.conversations import ConversationStore
    from offbook.exchange.model import Reply

STATUS_NAMES = {
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

MODELS = ("gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-embedding-001")
SIDE_VERBS = frozenset({"countTokens", "embedContent", "batchEmbedContents"})

_API_VERSION = re.compile(r"/v\d\w*$")


class Gemini:
    """Google's Gemini API, with these validation rules."""

    name = wire.NAME
    continues_by_id = False

    def __init__(self, rules: frozenset[str] = ALL_RULES) -> None:
        self._rules = rules

    def claims(self, http_request: HttpRequest) -> bool:
        """Return whether this is a request to Gemini."""
        verb = _find_verb(http_request.path)
        return (
            verb in wire.MODEL_CALLS
            or verb in SIDE_VERBS
            or "x-goog-api-key" in http_request.headers
        )

    def side_response(
        self,
        http_request: HttpRequest,
        conversations: ConversationStore,  # noqa: ARG002 - the protocol's
    ) -> HttpResponse | None:
        """Return models, token counts or embeddings; None for a model call."""
        if _find_verb(http_request.path) in wire.MODEL_CALLS:
            return None
        try:
            body = _side_response(http_request)
        except ModelError as error:
            return self.encode_error(error)
        return HttpResponse(200, {"content-type": JSON_TYPE}, to_json(body))

    def decode(self, http_request: HttpRequest, conversations: ConversationStore) -> Request:
        """Decode a request; raise `ModelError` where Gemini would reject it."""
        body, options = wire.decode_body(wire.body_decoder, http_request.body)
        for snake_name, name in wire.OPTIONS.items():
            if snake_name in options:
                options.setdefault(name, options.pop(snake_name))
        turns = body.turns
        if not turns and "missing_field" in self._rules:
            message = "* GenerateContentRequest.contents: contents is not specified\n"
            raise rejection("missing_field", message)
        tools, tool_problem = wire.decode_tools(bytes(body.tools))
        if tool_problem and "bad_tool_schema" in self._rules:
            raise rejection("bad_tool_schema", tool_problem)
        path = http_request.path
        is_stream = _find_verb(path) == "streamGenerateContent"
        metadata = request_metadata(http_request, wire.NAME)
        if is_stream and "sse" not in parse_qs(http_request.query).get("alt", ()):
            metadata["framing"] = "array"  # without `alt=sse` a stream is a JSON array
        raw = RawBody(http_request.body or b"{}", wire.NAME)
        reader = wire.GeminiMessageReader(self._rules, raw, conversations)
        system = body.systemInstruction or body.system_instruction
        model = path.rpartition("/models/")[2] if "/models/" in path else path.rpartition("/")[2]
        return Request(
            History(reader.read(turns, "contents")),
            "\n".join(part.text or "" for part in system.part_list) if system else "",
            tools,
            unquote(model.rpartition(":")[0]),
            options,
            metadata,
            is_stream,
        )

    def reply_id(self, reply: Reply, request: Request) -> str:
        """Return the id of the response."""
        return make_reply_id("", reply, request, length=22)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """Encode the response, whole or as a stream."""
        fields: JSON = {
            "usageMetadata": encode_usage(reply.usage),
            "modelVersion": reply.model or request.model,
            "responseId": self.reply_id(reply, request),
        }
        if not request.stream:
            return encode_response(reply, fields)
        return encode_stream(reply, fields, as_array=_is_array(request))

    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:
        """Encode an error."""
        status = error.status
        default_name = "INTERNAL" if status >= 500 else "FAILED_PRECONDITION"  # noqa: PLR2004 - HTTP's
        status_name = STATUS_NAMES.get(status, default_name)
        headers = {"content-type": JSON_TYPE, **error_headers(error)}
        fields: JSON = {"code": status, "message": error.message, "status": status_name}
        if error.retry_after is not None:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            fields["details"] = [{"@type": kind, "retryDelay": f"{error.retry_after:g}s"}]
        body: object = {"error": fields}
        if request is not None and _is_array(request):
            body = [body]
        return HttpResponse(status, headers, to_json(body))

    def build_request(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """Build a request to Google."""
        base = base_url.rstrip("/")
        if not _API_VERSION.search(base):
            base += "/v1beta"
        verb, query = (
            ("streamGenerateContent", "alt=sse")
            if request.stream
            else (
                "generateContent",
                "",
            )
        )
        body: JSON = {"contents": list(encode_turns(request.messages)), **encode_options(request)}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools:
            body["tools"] = encode_tools(request.tools)
        headers = {"content-type": "application/json", "x-goog-api-key": key}
        path = f"{base}/models/{request.model}:{verb}"
        return HttpRequest("POST", path, headers, to_json(body), query)

    def parse_response(self, response: HttpResponse, request: Request) -> Reply:
        """Parse a response of Google."""
        raise_for_status(response)
        body = response_body(response)
        try:
            match body.lstrip()[:1]:
                case b"{":
                    return parse_responses([body], request)
                case b"[":
                    return parse_responses(wire.decode_response_list(body), request)
                case _:
                    return parse_responses([event.data for event in parse_sse(body)], request)
        except msgspec.MsgspecError as error:
            raise invalid_response("Gemini", error) from error


def _find_verb(path: str) -> str:
    """Return the method in a path: `…/models/MODEL:generateContent`."""
    return path.rpartition(":")[2]


def _is_array(request: Request) -> bool:
    return request.metadata.get("framing") == "array"


def _side_response(http_request: HttpRequest) -> JSON:
    path, body = http_request.path, http_request.body
    match _find_verb(path):
        case "countTokens":
            wire.decode_body(wire.body_decoder, body)
            total = estimate_tokens(len(body))
            details = [{"modality": "TEXT", "tokenCount": total}]
            return {"totalTokens": total, "promptTokensDetails": details}
        case "embedContent":
            return {"embedding": wire.decode_body(wire.embedding_decoder, body).vector}
        case "batchEmbedContents":
            batch = wire.decode_body(wire.embedding_batch_decoder, body)
            return {"embeddings": [embedding.vector for embedding in batch.requests]}
        case _ if path.endswith("/models"):
            return {"models": [_describe_model(name) for name in MODELS]}
        case _ if "/models/" in path:
            return _describe_model(path.rpartition("/")[2])
        case _:
            raise ModelError("Requested entity was not found.", status=404)


def _describe_model(name: str) -> JSON:
    methods = ["embedContent"] if "embed" in name else sorted(wire.MODEL_CALLS | {"countTokens"})
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name.replace("-", " ").title(),
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": methods,
    }
