"""The wire format of Amazon Bedrock's Converse API, whole and as a stream of binary frames."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import msgspec

from offbook.determinism.clock import stable_id
from offbook.errors import ModelError
from offbook.exchange.dialects.bedrock import bedrock_stream, bedrock_wire
from offbook.exchange.dialects.bedrock.bedrock_client import gather_reply, read_error, read_reply
from offbook.exchange.dialects.bedrock.bedrock_stream import (
    STOPS,
    write_block,
    write_frames,
    write_tools,
    write_turns,
    write_usage,
)
from offbook.exchange.dialects.bedrock.bedrock_wire import read_messages, read_tools
from offbook.exchange.dialects.decoding import RawBody
from offbook.exchange.dialects.dialect import (
    HttpRequest,
    HttpResponse,
    make_reply_id,
    request_metadata,
)
from offbook.exchange.dialects.validation import ALL_RULES, rejection
from offbook.exchange.messages import JSON, History, to_json
from offbook.exchange.model import Request

if TYPE_CHECKING:
    from offbook.exchange.dialects.conversations import ConversationStore
    from offbook.exchange.model import Reply

PATH = re.compile(r"/model/([^/]+)/(converse|converse-stream|invoke|invoke-with-response-stream)$")
ERRORS = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}
OPTIONS = ("inferenceConfig", "additionalModelRequestFields", "guardrailConfig", "outputConfig")


class Bedrock:
    """Bedrock's Converse and ConverseStream, holding requests to these rules."""

    name = bedrock_wire.NAME

    def __init__(self, rules: frozenset[str] = ALL_RULES) -> None:
        self._rules = rules

    def claims(self, wire: HttpRequest) -> bool:
        """Whether this request is one for Bedrock."""
        return PATH.search(wire.path) is not None

    def side_response(self, wire: HttpRequest, threads: ConversationStore) -> HttpResponse | None:  # noqa: ARG002 - the protocol's
        """Nothing but a model call; the way that each model family has for itself is refused."""
        found = PATH.search(wire.path)
        if found is None or found[2].startswith("converse"):
            return None
        what = f"{found[2]} is not spoken here: only converse and converse-stream are"
        return self.refuse(ModelError(what, status=400))

    def decode(self, wire: HttpRequest, threads: ConversationStore) -> Request:  # noqa: ARG002 - the protocol's
        """The neutral request; a `ModelError` where Bedrock would refuse it."""
        body, rest = bedrock_wire.read_body(wire.body)
        seen = RawBody(wire.body, bedrock_wire.NAME)
        if not body.messages and "missing_field" in self._rules:
            raise rejection("missing_field", "The messages field is required.")
        found = PATH.search(wire.path)
        model, verb = (unquote(found[1]), found[2]) if found else ("", "")
        return Request(
            History(read_messages(body.messages or (), self._rules, seen)),
            "\n".join(part.text for part in body.system or () if part.text),
            read_tools(body.toolConfig, self._rules),
            model,
            _pick(body) | rest,
            request_metadata(wire, bedrock_wire.NAME),
            verb == "converse-stream",
        )

    def identify(self, reply: Reply, request: Request) -> str:
        """The id of the reply: its own, or one made of the exchange."""
        return make_reply_id("bedrock-", reply, request)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """The message as JSON, or as the whole stream of its frames."""
        headers = {"x-amzn-requestid": self.identify(reply, request)}
        if request.stream:
            headers["content-type"] = bedrock_stream.CONTENT_TYPE
            return HttpResponse(200, headers, b"", tuple(write_frames(reply)))
        if reply.stop == "error":
            return self.refuse(ModelError("Internal server error", status=500), request)
        content = [wire for block in reply.blocks if (wire := write_block(block))]
        stop = "tool_use" if reply.calls else STOPS[reply.stop]
        whole = {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": stop,
            "usage": write_usage(reply.usage),
            "metrics": {"latencyMs": 0},
        }
        return HttpResponse(200, {**headers, "content-type": "application/json"}, to_json(whole))

    def refuse(self, error: ModelError, request: Request | None = None) -> HttpResponse:  # noqa: ARG002 - the protocol's
        """An error as Bedrock tells it: its kind is in a header."""
        kind = ERRORS.get(error.status) or ERRORS[400 if error.status < 500 else 500]  # noqa: PLR2004 - whose fault it is
        headers = {
            "content-type": "application/json",
            "x-amzn-errortype": kind,
            "x-amzn-requestid": stable_id("bedrock-", str(error.status), error.message),
        }
        if rule := error.details.get("rule"):
            headers["x-offbook-rule"] = str(rule)
        return HttpResponse(error.status, headers, to_json({"message": error.message}))

    def ask(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """A request to Bedrock, with one of its API keys: signatures are not made here."""
        native = request.metadata.get("dialect", bedrock_wire.NAME) == bedrock_wire.NAME
        body: JSON = {"messages": write_turns(request.messages)}
        if request.system:
            body["system"] = [{"text": request.system}]
        if request.tools:
            body["toolConfig"] = {"tools": write_tools(request.tools)}
        if native:
            body |= request.parameters
        verb = "converse-stream" if request.stream else "converse"
        path = f"{base_url.rstrip('/')}/model/{quote(request.model, safe='')}/{verb}"
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        return HttpRequest("POST", path, headers, to_json(body))

    def parse(self, answer: HttpResponse, request: Request) -> Reply:
        """Bedrock's answer, streamed or not."""
        if answer.status >= 400:  # noqa: PLR2004 - the first bad status
            raise read_error(answer)
        body = answer.body or b"".join(answer.chunks)
        named = answer.headers.get("x-amzn-requestid", "")
        streamed = answer.headers.get("content-type", "").startswith(bedrock_stream.CONTENT_TYPE)
        reply = gather_reply(body) if streamed else read_reply(body)
        return msgspec.structs.replace(reply, id=named, model=request.model)


def _pick(body: bedrock_wire.BedrockBody) -> JSON:
    return {name: given for name in OPTIONS if (given := getattr(body, name)) is not None}
