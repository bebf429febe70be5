"""Amazon Bedrock's Converse API: whole messages, and streams of binary frames.

The APIs of the single model families (`invoke`) are not supported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import msgspec

from offbook.determinism.clock import stable_id
from offbook.errors import ModelError
from offbook.exchange.dialects.bedrock import bedrock_wire as wire
from offbook.exchange.dialects.bedrock.bedrock_client import (
    encode_tools,
    encode_turns,
    parse_message,
    parse_stream,
)
from offbook.exchange.dialects.bedrock.bedrock_stream import (
    EVENT_STREAM,
    SERVER_ERROR,
    encode_frames,
    encode_message,
)
from offbook.exchange.dialects.decoding import ALL_RULES, RawBody, rejection
from offbook.exchange.dialects.dialect import (
    HttpRequest,
    HttpResponse,
    error_headers,
    make_reply_id,
    request_metadata,
)
from offbook.exchange.dialects.response_parsing import raise_for_status, response_body
from offbook.exchange.messages import JSON, History, to_json
from offbook.exchange.model import Request

if TYPE_CHECKING:
    from offbook.exchange.dialects.conversations import ConversationStore
    from offbook.exchange.model import Reply

PATH = re.compile(r"/model/([^/]+)/(converse|converse-stream|invoke|invoke-with-response-stream)$")
ERROR_TYPES = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}


class Bedrock:
    """Bedrock's Converse and ConverseStream, with these validation rules."""

    name = wire.NAME
    continues_by_id = False

    def __init__(self, rules: frozenset[str] = ALL_RULES) -> None:
        self._rules = rules

    def claims(self, http_request: HttpRequest) -> bool:
        """Return whether this is a request to Bedrock."""
        return PATH.search(http_request.path) is not None

    def side_response(
        self,
        http_request: HttpRequest,
        conversations: ConversationStore,  # noqa: ARG002 - the protocol's
    ) -> HttpResponse | None:
        """Return an error for an unsupported operation; None for a model call."""
        match = PATH.search(http_request.path)
        if match is None or match[2].startswith("converse"):
            return None
        message = f"unsupported operation {match[2]}: use converse or converse-stream"
        return self.encode_error(ModelError(message, status=400))

    def decode(self, http_request: HttpRequest, conversations: ConversationStore) -> Request:  # noqa: ARG002 - the protocol's
        """Decode a request; raise `ModelError` where Bedrock would reject it."""
        body, options = wire.decode_body(http_request.body)
        if not body.messages and "missing_field" in self._rules:
            raise rejection("missing_field", "The messages field is required.")
        match = PATH.search(http_request.path)
        model, operation = (unquote(match[1]), match[2]) if match else ("", "")
        raw = RawBody(http_request.body, wire.NAME)
        return Request(
            History(wire.decode_messages(body.messages or (), self._rules, raw)),
            "\n".join(part.text for part in body.system or () if part.text),
            wire.decode_tools(body.toolConfig, self._rules),
            model,
            options,
            request_metadata(http_request, wire.NAME),
            operation == "converse-stream",
        )

    def reply_id(self, reply: Reply, request: Request) -> str:
        """Return the id of the reply."""
        return make_reply_id("bedrock-", reply, request)

    def encode(self, reply: Reply, request: Request) -> HttpResponse:
        """Encode the message, whole or as a stream of frames."""
        headers = {"x-amzn-requestid": self.reply_id(reply, request)}
        if request.stream:
            headers["content-type"] = EVENT_STREAM
            return HttpResponse(200, headers, b"", tuple(encode_frames(reply)))
        if reply.stop == "error":
            return self.encode_error(ModelError(SERVER_ERROR, status=500), request)
        headers["content-type"] = "application/json"
        return HttpResponse(200, headers, encode_message(reply))

    def encode_error(self, error: ModelError, request: Request | None = None) -> HttpResponse:  # noqa: ARG002 - the protocol's
        """Encode an error; its type is in a header."""
        default = ERROR_TYPES[400 if error.status < 500 else 500]  # noqa: PLR2004 - HTTP's
        headers = {
            "content-type": "application/json",
            "x-amzn-errortype": ERROR_TYPES.get(error.status, default),
            "x-amzn-requestid": stable_id("bedrock-", str(error.status), error.message),
        }
        headers |= error_headers(error)
        return HttpResponse(error.status, headers, to_json({"message": error.message}))

    def build_request(self, request: Request, base_url: str, key: str) -> HttpRequest:
        """Build a request to Bedrock with an API key; AWS signatures are not supported."""
        body: JSON = {"messages": encode_turns(request.messages)}
        if request.system:
            body["system"] = [{"text": request.system}]
        if request.tools:
            body["toolConfig"] = {"tools": encode_tools(request.tools)}
        # The options of other dialects have other names.
        if request.metadata.get("dialect", wire.NAME) == wire.NAME:
            body |= request.parameters
        operation = "converse-stream" if request.stream else "converse"
        url = f"{base_url.rstrip('/')}/model/{quote(request.model, safe='')}/{operation}"
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        return HttpRequest("POST", url, headers, to_json(body))

    def parse_response(self, response: HttpResponse, request: Request) -> Reply:
        """Parse a response of Bedrock, streamed or not."""
        raise_for_status(response)
        body = response_body(response)
        is_stream = response.headers.get("content-type", "").startswith(EVENT_STREAM)
        reply = parse_stream(body) if is_stream else parse_message(body)
        reply_id = response.headers.get("x-amzn-requestid", "")
        return msgspec.structs.replace(reply, id=reply_id, model=request.model)
