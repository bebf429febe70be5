"""The wire format of Amazon Bedrock's Converse API, whole and as a stream of binary frames."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import msgspec

from offbook.determinism.ids import stable
from offbook.errors import ModelError
from offbook.exchange.dialects.bedrock import forms, frames
from offbook.exchange.dialects.bedrock.decode import read_messages, read_tools
from offbook.exchange.dialects.bedrock.encode import (
    STOPS,
    write_block,
    write_frames,
    write_tools,
    write_turns,
    write_usage,
)
from offbook.exchange.dialects.bedrock.parse import gather_reply, read_error, read_reply
from offbook.exchange.dialects.dialect import Answer, Wire, introduce, name_reply
from offbook.exchange.foreign import Verbatim
from offbook.exchange.history import History
from offbook.exchange.messages import JSON, to_json
from offbook.exchange.request import Request
from offbook.exchange.rules import ALL, reject

if TYPE_CHECKING:
    from offbook.exchange.reply import Reply
    from offbook.exchange.threads import Threads

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

    name = forms.NAME

    def __init__(self, rules: frozenset[str] = ALL) -> None:
        self._rules = rules

    def claims(self, wire: Wire) -> bool:
        """Whether this request is one for Bedrock."""
        return PATH.search(wire.path) is not None

    def aside(self, wire: Wire, threads: Threads) -> Answer | None:  # noqa: ARG002 - the protocol's
        """Nothing but a model call; the way that each model family has for itself is refused."""
        found = PATH.search(wire.path)
        if found is None or found[2].startswith("converse"):
            return None
        what = f"{found[2]} is not spoken here: only converse and converse-stream are"
        return self.refuse(ModelError(what, status=400))

    def decode(self, wire: Wire, threads: Threads) -> Request:  # noqa: ARG002 - the protocol's
        """The neutral request; a `ModelError` where Bedrock would refuse it."""
        body, rest = forms.read_body(wire.body)
        seen = Verbatim(wire.body, forms.NAME)
        if not body.messages and "missing_field" in self._rules:
            raise reject("missing_field", "The messages field is required.")
        found = PATH.search(wire.path)
        model, verb = (unquote(found[1]), found[2]) if found else ("", "")
        return Request(
            History(read_messages(body.messages or (), self._rules, seen)),
            "\n".join(part.text for part in body.system or () if part.text),
            read_tools(body.toolConfig, self._rules),
            model,
            _pick(body) | rest,
            introduce(wire, forms.NAME),
            verb == "converse-stream",
        )

    def identify(self, reply: Reply, request: Request) -> str:
        """The id of the reply: its own, or one made of the exchange."""
        return name_reply("bedrock-", reply, request)

    def encode(self, reply: Reply, request: Request) -> Answer:
        """The message as JSON, or as the whole stream of its frames."""
        headers = {"x-amzn-requestid": self.identify(reply, request)}
        if request.stream:
            headers["content-type"] = frames.CONTENT_TYPE
            return Answer(200, headers, b"", tuple(write_frames(reply)))
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
        return Answer(200, {**headers, "content-type": "application/json"}, to_json(whole))

    def refuse(self, error: ModelError, request: Request | None = None) -> Answer:  # noqa: ARG002 - the protocol's
        """An error as Bedrock tells it: its kind is in a header."""
        kind = ERRORS.get(error.status) or ERRORS[400 if error.status < 500 else 500]  # noqa: PLR2004 - whose fault it is
        headers = {
            "content-type": "application/json",
            "x-amzn-errortype": kind,
            "x-amzn-requestid": stable("bedrock-", str(error.status), error.message),
        }
        if rule := error.details.get("rule"):
            headers["x-offbook-rule"] = str(rule)
        return Answer(error.status, headers, to_json({"message": error.message}))

    def ask(self, request: Request, base_url: str, key: str) -> Wire:
        """A request to Bedrock, with one of its API keys: signatures are not made here."""
        native = request.metadata.get("dialect", forms.NAME) == forms.NAME
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
        return Wire("POST", path, headers, to_json(body))

    def parse(self, answer: Answer, request: Request) -> Reply:
        """Bedrock's answer, streamed or not."""
        if answer.status >= 400:  # noqa: PLR2004 - the first bad status
            raise read_error(answer)
        body = answer.body or b"".join(answer.chunks)
        named = answer.headers.get("x-amzn-requestid", "")
        streamed = answer.headers.get("content-type", "").startswith(frames.CONTENT_TYPE)
        reply = gather_reply(body) if streamed else read_reply(body)
        return msgspec.structs.replace(reply, id=named, model=request.model)


def _pick(body: forms.Body) -> JSON:
    return {name: given for name in OPTIONS if (given := getattr(body, name)) is not None}
