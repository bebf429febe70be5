"""The wire format of Google's Gemini API.

Its clients write names in camel case or with underscores, and mix them; both are read. A function
call may have no id: then it gets the number of its place in the conversation, and the responses
find their calls by id, else by name and order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects import streaming
from offbook.exchange.dialects.decoding import RawBody
from offbook.exchange.dialects.dialect import (
    HttpRequest,
    HttpResponse,
    make_reply_id,
    request_metadata,
)
from offbook.exchange.dialects.validation import ALL_RULES, rejection
from offbook.exchange.messages import JSON, History
from offbook.exchange.model import Request

if TYPE_CHECKING:
    from offbook.exchange.dialects.conversations import ConversationStore
    from offbook.exchange.model import Reply
from offbook.exchange.dialects.gemini import gemini_wire
from offbook.exchange.dialects.gemini.gemini_client import (
    gather_reply,
    read_error,
    write_options,
    write_turns,
)
from offbook.exchange.dialects.gemini.gemini_messages import (
    GeminiMessageReader,
    find_model,
    find_verb,
    read_body,
    read_tools,
    write_tools,
)
from offbook.exchange.dialects.gemini.gemini_side_requests import BESIDE, answer_json, look_up
from offbook.exchange.dialects.gemini.gemini_stream import (
    FINISHES,
    answer_stream,
    write_candidate,
    write_parts,
    write_usage,
)
from offbook.exchange.messages import to_json

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

_VERSION = re.compile(r"/v\d\w*$")


class Gemini:
    """Google's Gemini API, holding requests to these rules."""

    name = gemini_wire.NAME

    def __init__(self, rules: frozenset[str] = ALL_RULES) -> None:
        self._rules = rules

    def claims(self, wire: HttpRequest) -> bool:
        """Whether this request is one for Gemini."""
        verb = find_verb(wire.path)
        return verb in gemini_wire.CALLS or verb in BESIDE or "x-goog-api-key" in wire.headers

    def side_response(self, wire: HttpRequest, threads: ConversationStore) -> HttpResponse | None:  # noqa: ARG002 - the protocol's
        """Models, counted tokens and embeddings."""
        if find_verb(wire.path) in gemini_wire.CALLS:
            return None
        try:
            return answer_json(look_up(wire))
        except ModelError as error:
            return self.refuse(error)

    def decode(self, wire: HttpRequest, threads: ConversationStore) -> Request:
        """The neutral request; a `ModelError` where Gemini would refuse it."""
        body, rest = read_body(gemini_wire.body, wire.body)
        seen = RawBody(wire.body or b"{}", gemini_wire.NAME)
        turns = body.turns
        if not turns and "missing_field" in self._rules:
            what = "* GenerateContentRequest.contents: contents is not specified\n"
            raise rejection("missing_field", what)
        tools, wrong = read_tools(bytes(body.tools))
        if wrong and "bad_tool_schema" in self._rules:
            raise rejection("bad_tool_schema", wrong)
        system = body.systemInstruction or body.system_instruction
        stream = find_verb(wire.path) == "streamGenerateContent"
        about = request_metadata(wire, gemini_wire.NAME)
        if stream and "sse" not in parse_qs(wire.query).get("alt", ()):
            about["framing"] = "array"
        return Request(
            History(GeminiMessageReader(self._rules, seen, threads).read(turns, "contents")),
            "\n".join(part.text or "" for part in system.listed) if system else "",
            tools,
            find_model(wire.path),
            body.options | rest,
            about,
            stream,
        )

    def identify(self, reply: Reply, request: Request) -> str:
        """The id of the response: its own, or one made of the exchange."""
        return make_reply_id("", reply, request, length=22)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """The response as JSON, or in pieces as a stream."""
        tail: JSON = {
            "usageMetadata": write_usage(reply.usage),
            "modelVersion": reply.model or request.model,
            "responseId": self.identify(reply, request),
        }
        if not request.stream:
            candidate = write_candidate(write_parts(reply.blocks), FINISHES[reply.stop])
            return answer_json({"candidates": [candidate], **tail})
        return answer_stream(
            reply, to_json(tail)[1:], array=request.metadata.get("framing") == "array"
        )

    def refuse(self, error: ModelError, request: Request | None = None) -> HttpResponse:
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
        return HttpResponse(status, headers, to_json(body))

    def ask(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """A request to Google."""
        base = base_url.rstrip("/")
        if not _VERSION.search(base):
            base += "/v1beta"
        verb = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
        body: JSON = {"contents": list(write_turns(request.messages)), **write_options(request)}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools:
            body["tools"] = write_tools(request.tools)
        headers = {"content-type": "application/json", "x-goog-api-key": key}
        path, _, query = f"{base}/models/{request.model}:{verb}".partition("?")
        return HttpRequest("POST", path, headers, to_json(body), query)

    def parse(self, answer: HttpResponse, request: Request) -> Reply:
        """The reply in an answer of Google's."""
        body = answer.body or b"".join(answer.chunks)
        if answer.status >= 400:  # noqa: PLR2004 - an error, in HTTP
            raise read_error(body, answer.status, answer.headers)
        try:
            match body.lstrip()[:1]:
                case b"{":
                    return gather_reply([body], request)
                case b"[":
                    return gather_reply(gemini_wire.results(body), request)
                case _:
                    return gather_reply(
                        [event.data for event in streaming.parse_sse(body)], request
                    )
        except msgspec.MsgspecError as error:
            what = f"the answer is not one of Gemini's: {error}"
            raise ModelError(what, status=502) from error


def _status(status: int) -> str:
    return STATUSES.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION")  # noqa: PLR2004 - HTTP's
