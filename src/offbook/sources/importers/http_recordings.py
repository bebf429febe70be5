"""HTTP recordings of vcrpy and pytest-recording: the requests to providers in them.

    interactions:
      - request: {method: POST, uri: https://api.openai.com/v1/chat/completions, body: …}
        response: {status: {code: 200}, headers: {…}, body: {string: …}}

A body is read by the dialect of its provider, as a live response is. It is a text, or bytes as the
server sent them: `!!binary` in YAML, and a name with `base64_` in JSON.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from offbook.errors import FormatError, ModelError, OffbookError
from offbook.exchange.dialects.dialect import ConversationStore, HttpRequest, HttpResponse
from offbook.exchange.messages import ToolCall, ToolResult
from offbook.exchange.model import Reply
from offbook.exchange.providers import detect_dialect
from offbook.secrets import excerpt
from offbook.sources.importers.importer import (
    ImportedExchange,
    Skipped,
    TraceRecord,
    as_fields,
    as_items,
    as_text,
)
from offbook.sources.live import FIRST_ERROR, read_reply

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from offbook.exchange.dialects.dialect import Dialect
    from offbook.exchange.model import Request

Fields = dict[str, Any]
GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
DEFLATE = -zlib.MAX_WBITS  # without the header of zlib, as some servers send it
REASON_LENGTH = 80
_EVENT = re.compile(rb".*?(?:\r?\n\r?\n|\Z)", re.DOTALL)
# What a call of a reply and one of a later request have in common, the most telling first. A
# format without ids numbers the calls of each reply and of each request anew.
_COMMON = (("id", "name", "arguments"), ("name", "arguments"), ("id", "name"))


class VcrImporter:
    """Imports a cassette of vcrpy or pytest-recording, in YAML or JSON."""

    name = "vcr"

    def recognizes(self, records: list[TraceRecord]) -> bool:
        """Return whether the first record has interactions with a URI."""
        interactions = as_items(records[0].value.get("interactions"))
        return bool(interactions) and "uri" in as_fields(interactions[0].get("request"))

    def read(
        self,
        records: list[TraceRecord],
        path: Path,  # noqa: ARG002 - the protocol's
        trace_id: str | None,  # noqa: ARG002 - an HTTP recording has no traces
        skipped: Skipped,
    ) -> list[ImportedExchange]:
        """Return the exchanges with providers; count the requests to other hosts."""
        conversations = ConversationStore()
        calls = _RecordedCalls()
        found: list[ImportedExchange] = []
        results: dict[str, str] = {}
        for interaction in as_items(records[0].value.get("interactions")):
            try:
                http_request = _read_request(as_fields(interaction.get("request")))
            except FormatError as error:
                skipped[f"unreadable request ({error.what})"] += 1
                continue
            dialect = detect_dialect(http_request, frozenset())  # it was sent: no rule is checked
            if dialect is None:
                skipped[f"request to {http_request.host}"] += 1
                continue
            try:
                request = dialect.decode(http_request, conversations)
            except OffbookError:
                skipped[f"request to {http_request.host} that is not for a model"] += 1
                continue
            results |= calls.take_results(request)
            try:
                response = _read_response(as_fields(interaction.get("response")))
                reply, failure = _read_reply(dialect, response, request)
            except FormatError as error:
                skipped[f"unreadable response ({error.what})"] += 1
                continue
            reply = calls.add(reply)
            if dialect.continues_by_id:
                reply_id = reply.id or dialect.reply_id(reply, request)
                conversations.add(reply_id, request, reply)
            found.append(
                ImportedExchange(
                    reply,
                    request.latest_prompt or None,
                    provider=dialect.name,
                    error=failure,
                    usage_known=failure is None,
                    results=results,
                )
            )
            results = {}
        return found


def _read_reply(
    dialect: Dialect, response: HttpResponse, request: Request
) -> tuple[Reply, ModelError | None]:
    """Return the reply, or the error that the provider sent; raise `FormatError` for others."""
    try:
        return read_reply(dialect, response, request), None
    except ModelError as error:
        body = response.body or b"".join(response.chunks)
        written = (json.dumps(error.message, ensure_ascii=flag)[1:-1] for flag in (True, False))
        if response.status >= FIRST_ERROR or any(text.encode() in body for text in written):
            return Reply(()), error
        raise FormatError(excerpt(error.message, REASON_LENGTH)) from error


class _RecordedCalls:
    """The calls of all replies of a file, each with its own id."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._waiting: list[tuple[ToolCall, ...]] = []  # by reply; their results come later

    def add(self, reply: Reply) -> Reply:
        """Return a reply in which no call has the id of an earlier one."""
        blocks = tuple(
            self._with_own_id(block) if isinstance(block, ToolCall) else block
            for block in reply.blocks
        )
        reply = msgspec.structs.replace(reply, blocks=blocks)
        if reply.calls:
            self._waiting.append(reply.calls)
        return reply

    def _with_own_id(self, call: ToolCall) -> ToolCall:
        if call.id in self._ids:
            call = msgspec.structs.replace(call, id=f"imported-{len(self._ids) + 1}")
        self._ids.add(call.id)
        return call

    def take_results(self, request: Request) -> dict[str, str]:
        """Return the results of the reply that a request continues: its calls are the last ones."""
        made = [call for message in request.messages for call in message.calls]
        results = {
            block.call_id: block.text
            for message in request.messages
            for block in message.blocks
            if isinstance(block, ToolResult)
        }
        for common in _COMMON:
            for calls in self._waiting:
                sent = made[-len(calls) :]
                if _describe(calls, common) == _describe(sent, common):
                    self._waiting.remove(calls)
                    pairs = zip(calls, sent, strict=True)
                    return {call.id: results[s.id] for call, s in pairs if s.id in results}
        return {}


def _describe(calls: Iterable[ToolCall], names: tuple[str, ...]) -> list[list[Any]]:
    return [[getattr(call, name) for name in names] for call in calls]


def _read_request(recorded: Fields) -> HttpRequest:
    try:
        url = urlsplit(as_text(recorded.get("uri")))
    except ValueError as error:
        raise FormatError(f"invalid URI: {error}") from error
    headers = _read_headers(recorded.get("headers")) | {"host": url.netloc}
    body = _read_body(recorded, headers)
    method = as_text(recorded.get("method")) or "POST"
    return HttpRequest(method, url.path, headers, body, url.query)


def _read_response(recorded: Fields) -> HttpResponse:
    headers = _read_headers(recorded.get("headers"))
    status = recorded.get("status", recorded.get("status_code"))
    code = as_fields(status).get("code", status)
    body = _read_body(recorded, headers)
    code = code if isinstance(code, int) else 200
    if "event-stream" in headers.get("content-type", ""):
        events = tuple(event for event in _EVENT.findall(body) if event.strip())
        return HttpResponse(code, headers, chunks=events)
    return HttpResponse(code, headers, body)


def _read_headers(recorded: Any) -> dict[str, str]:
    """Return headers by their names in lower case; vcrpy keeps a list of values for each."""
    headers: dict[str, str] = {}
    for name, value in as_fields(recorded).items():
        values = cast("list[Any]", value) if isinstance(value, list) else [value]
        headers[as_text(name).lower()] = ", ".join(map(as_text, values))
    return headers


def _read_body(recorded: Fields, headers: dict[str, str]) -> bytes:
    """Return the body of a request or a response; raise `FormatError` if it cannot be decoded."""
    for name in ("body", "content"):
        value = recorded.get(name)
        encoded = recorded.get(f"base64_{name}", as_fields(value).get("base64_string"))
        if encoded is not None:
            return _decode_body(as_text(encoded), headers.get("content-encoding", ""))
        if value is not None:  # a text, which the client has decoded
            return as_text(as_fields(value).get("string", value)).encode(errors="replace")
    return b""


def _decode_body(text: str, encodings: str) -> bytes:
    try:
        body = b64decode(text)
    except ValueError as error:  # also of a text that is not ASCII
        raise FormatError("invalid base64") from error
    for encoding in reversed(encodings.lower().split(",")):
        match encoding.strip():
            case "" | "identity":
                pass
            case "gzip" | "x-gzip" | "deflate":
                body = _decompress(body)
            case other:
                raise FormatError(f"content-encoding {other}")
    return body


def _decompress(body: bytes) -> bytes:
    for form in (GZIP_OR_ZLIB, DEFLATE):
        try:
            return zlib.decompress(body, form)
        except zlib.error:
            continue
    return body  # the client has decoded it, and kept the header
