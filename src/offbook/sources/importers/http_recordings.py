"""HTTP recordings of vcrpy and pytest-recording: the requests to providers in them.

    interactions:
      - request: {method: POST, uri: https://api.openai.com/v1/chat/completions, body: …}
        response: {status: {code: 200}, headers: {…}, body: {string: …}}

A body is read by the dialect of its provider, as a live response is.
"""

from __future__ import annotations

import binascii
import re
import zlib
from base64 import b64decode
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from offbook.errors import ModelError, OffbookError
from offbook.exchange.dialects.dialect import ConversationStore, HttpRequest, HttpResponse
from offbook.exchange.messages import ToolResult
from offbook.exchange.model import Reply
from offbook.exchange.providers import detect_dialect
from offbook.sources.importers.importer import (
    ImportedExchange,
    Skipped,
    TraceRecord,
    as_fields,
    as_items,
    as_text,
)
from offbook.sources.live import read_reply

if TYPE_CHECKING:
    from pathlib import Path

    from offbook.exchange.dialects.dialect import Dialect
    from offbook.exchange.model import Request

Fields = dict[str, Any]
GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_EVENT = re.compile(rb".*?(?:\r?\n\r?\n|\Z)", re.DOTALL)


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
        found: list[ImportedExchange] = []
        for interaction in as_items(records[0].value.get("interactions")):
            http_request = _read_request(as_fields(interaction.get("request")))
            dialect = detect_dialect(http_request, frozenset())  # it was sent: no rule is checked
            if dialect is None:
                skipped[f"request to {http_request.host}"] += 1
                continue
            try:
                request = dialect.decode(http_request, conversations)
            except OffbookError:
                skipped[f"request to {http_request.host} that is not for a model"] += 1
                continue
            response = _read_response(as_fields(interaction.get("response")))
            found.append(_read_exchange(dialect, request, response))
        return found


def _read_exchange(dialect: Dialect, request: Request, response: HttpResponse) -> ImportedExchange:
    results = {
        block.call_id: block.text
        for message in request.messages
        for block in message.blocks
        if isinstance(block, ToolResult)
    }
    prompt = request.latest_prompt or None
    try:
        reply = read_reply(dialect, response, request)
    except ModelError as error:
        return ImportedExchange(Reply(()), prompt, provider=dialect.name, error=error)
    return ImportedExchange(reply, prompt, provider=dialect.name, usage_known=True, results=results)


def _read_request(recorded: Fields) -> HttpRequest:
    url = urlsplit(as_text(recorded.get("uri")))
    headers = _read_headers(recorded.get("headers")) | {"host": url.netloc}
    body = _read_body(recorded.get("body"), headers)
    method = as_text(recorded.get("method")) or "POST"
    return HttpRequest(method, url.path, headers, body, url.query)


def _read_response(recorded: Fields) -> HttpResponse:
    headers = _read_headers(recorded.get("headers"))
    status = recorded.get("status", recorded.get("status_code"))
    code = as_fields(status).get("code", status)
    body = _read_body(recorded.get("body", recorded.get("content")), headers)
    code = code if isinstance(code, int) else 200
    if "event-stream" in headers.get("content-type", ""):
        events = tuple(event for event in _EVENT.findall(body) if event.strip())
        return HttpResponse(code, headers, chunks=events)
    return HttpResponse(code, headers, body)


def _read_headers(recorded: Any) -> dict[str, str]:
    """Return headers by their names in lower case; vcrpy keeps a list of values for each."""
    return {
        name.lower(): as_text(value[0] if isinstance(value, list) and value else value)
        for name, value in as_fields(recorded).items()
    }


def _read_body(recorded: Any, headers: dict[str, str]) -> bytes:
    """Return the bytes of a body: a text, or `!!binary` of YAML, which is compressed as a rule."""
    recorded = as_fields(recorded).get("string", recorded)
    body = as_text(recorded).encode()
    if headers.get("content-encoding") in {"gzip", "deflate"}:
        try:
            return zlib.decompress(b64decode(body, validate=False), GZIP_OR_ZLIB)
        except (binascii.Error, ValueError, zlib.error):
            return body  # it was recorded as a text, decoded
    return body
