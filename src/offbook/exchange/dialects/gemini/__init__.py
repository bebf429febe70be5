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
from offbook.exchange import sse
from offbook.exchange.dialects.dialect import Answer, Wire, introduce, name_reply
from offbook.exchange.foreign import Verbatim
from offbook.exchange.history import History
from offbook.exchange.messages import JSON
from offbook.exchange.request import Request
from offbook.exchange.rules import ALL, reject

if TYPE_CHECKING:
    from offbook.exchange.reply import Reply
    from offbook.exchange.threads import Threads
from offbook.exchange.dialects.gemini import forms
from offbook.exchange.dialects.gemini.asides import BESIDE, answer_json, look_up
from offbook.exchange.dialects.gemini.asking import (
    gather_reply,
    read_error,
    write_options,
    write_turns,
)
from offbook.exchange.dialects.gemini.decode import find_model, find_verb, read_body
from offbook.exchange.dialects.gemini.encode import (
    FINISHES,
    write_candidate,
    write_parts,
    write_usage,
)
from offbook.exchange.dialects.gemini.stream import answer_stream
from offbook.exchange.dialects.gemini.tools import read_tools, write_tools
from offbook.exchange.dialects.gemini.walk import Walk
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

    name = forms.NAME

    def __init__(self, rules: frozenset[str] = ALL) -> None:
        self._rules = rules

    def claims(self, wire: Wire) -> bool:
        """Whether this request is one for Gemini."""
        verb = find_verb(wire.path)
        return verb in forms.CALLS or verb in BESIDE or "x-goog-api-key" in wire.headers

    def aside(self, wire: Wire, threads: Threads) -> Answer | None:  # noqa: ARG002 - the protocol's
        """Models, counted tokens and embeddings."""
        if find_verb(wire.path) in forms.CALLS:
            return None
        try:
            return answer_json(look_up(wire))
        except ModelError as error:
            return self.refuse(error)

    def decode(self, wire: Wire, threads: Threads) -> Request:
        """The neutral request; a `ModelError` where Gemini would refuse it."""
        body, rest = read_body(forms.body, wire.body)
        seen = Verbatim(wire.body or b"{}", forms.NAME)
        turns = body.turns
        if not turns and "missing_field" in self._rules:
            what = "* GenerateContentRequest.contents: contents is not specified\n"
            raise reject("missing_field", what)
        tools, wrong = read_tools(bytes(body.tools))
        if wrong and "bad_tool_schema" in self._rules:
            raise reject("bad_tool_schema", wrong)
        system = body.systemInstruction or body.system_instruction
        stream = find_verb(wire.path) == "streamGenerateContent"
        about = introduce(wire, forms.NAME)
        if stream and "sse" not in parse_qs(wire.query).get("alt", ()):
            about["framing"] = "array"
        return Request(
            History(Walk(self._rules, seen, threads).read(turns, "contents")),
            "\n".join(part.text or "" for part in system.listed) if system else "",
            tools,
            find_model(wire.path),
            body.options | rest,
            about,
            stream,
        )

    def identify(self, reply: Reply, request: Request) -> str:
        """The id of the response: its own, or one made of the exchange."""
        return name_reply("", reply, request, length=22)

    def encode(self, reply: Reply, request: Request) -> Answer:
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
        return Answer(status, headers, to_json(body))

    def ask(self, request: Request, base_url: str, key: str) -> Wire:
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
        return Wire("POST", path, headers, to_json(body), query)

    def parse(self, answer: Answer, request: Request) -> Reply:
        """The reply in an answer of Google's."""
        body = answer.body or b"".join(answer.chunks)
        if answer.status >= 400:  # noqa: PLR2004 - an error, in HTTP
            raise read_error(body, answer.status, answer.headers)
        try:
            match body.lstrip()[:1]:
                case b"{":
                    return gather_reply([body], request)
                case b"[":
                    return gather_reply(forms.results(body), request)
                case _:
                    return gather_reply([event.data for event in sse.read(body)], request)
        except msgspec.MsgspecError as error:
            what = f"the answer is not one of Gemini's: {error}"
            raise ModelError(what, status=502) from error


def _status(status: int) -> str:
    return STATUSES.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION")  # noqa: PLR2004 - HTTP's
