"""Anthropic's batches of messages, and its files.

The requests of a batch are answered by the script when the batch is made. The client sees it end at
its next look. A file is kept for the run, and comes back as it was.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.anthropic import anthropic_wire as wire
from offbook.exchange.dialects.dialect import (
    TO_HOST,
    BatchRequest,
    ConversationStore,
    HttpRequest,
    HttpResponse,
)
from offbook.exchange.dialects.stored import ObjectStore, parse_form
from offbook.exchange.messages import JSON, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

BATCH, FILE = "message batch", "file"
CREATED, EXPIRES = "2023-11-14T22:13:20Z", "2023-11-15T22:13:20Z"
FIRST_ERROR = 400
JSON_TYPE = "application/json"


class BatchEntry(msgspec.Struct):
    """A request of a batch."""

    custom_id: str
    params: msgspec.Raw


class BatchBody(msgspec.Struct):
    """The body of a new batch."""

    requests: list[BatchEntry]


def store_response(http_request: HttpRequest, conversations: ConversationStore) -> HttpResponse:
    """Return the response to a request for batches or files."""
    store, method = conversations.stored, http_request.method
    found = wire.STORE_PATH.search(http_request.path)
    words, object_id, rest = found.groups("") if found else ("", "", "")
    kind = FILE if words == "files" else BATCH
    if rest == ("content" if kind == FILE else "results") and method == "GET":
        content = store.get(kind, object_id).content
        types = {FILE: "application/octet-stream", BATCH: "application/x-jsonl"}
        return HttpResponse(200, {"content-type": types[kind]}, content)
    if method == "GET" and not rest:
        if object_id:
            body = store.get(kind, object_id).description
        else:
            body = _list(store.descriptions(kind))
    elif method == "DELETE" and object_id and not rest:
        store.remove(kind, object_id)
        deleted = "file_deleted" if kind == FILE else "message_batch_deleted"
        body = {"id": object_id, "type": deleted}
    elif method == "POST" and rest == "cancel" and kind == BATCH:
        body = store.get(BATCH, object_id).description  # which has ended
    elif method == "POST" and not object_id:
        if kind == FILE:
            body = _add_file(http_request, store)
        else:
            body = _make_batch(http_request, conversations)
    else:
        message = f"Offbook does not support {method} {http_request.path}"
        raise ModelError(message, status=404)
    return HttpResponse(200, {"content-type": JSON_TYPE}, to_json(body))


def _list(data: Sequence[JSON]) -> JSON:
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"data": data, "has_more": False, "first_id": first, "last_id": last}


def _add_file(http_request: HttpRequest, store: ObjectStore) -> JSON:
    file = next(
        (
            field
            for field in parse_form(http_request.headers.get("content-type", ""), http_request.body)
            if field.name == "file"
        ),
        None,
    )
    if file is None:
        raise ModelError("file: Field required", status=400)
    description = {
        "type": "file",
        "filename": file.filename,
        "mime_type": file.content_type,
        "size_bytes": len(file.content),
        "created_at": CREATED,
        "downloadable": False,
    }
    return store.add(FILE, "file_", description, file.content)


def _make_batch(http_request: HttpRequest, conversations: ConversationStore) -> JSON:
    store = conversations.stored
    try:
        entries = msgspec.json.decode(http_request.body, type=BatchBody).requests
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"requests: {error}", status=400) from error
    ids = [entry.custom_id for entry in entries]
    if not ids or len(set(ids)) < len(ids):
        wrong = "List should have at least 1 item" if not ids else "custom_id must be unique"
        raise ModelError(f"requests: {wrong}", status=400)
    counts = {"processing": len(ids), "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
    described = store.add(
        BATCH,
        "msgbatch_",
        {
            "type": "message_batch",
            "processing_status": "in_progress",
            "request_counts": counts,
            "created_at": CREATED,
            "expires_at": EXPIRES,
            "ended_at": None,
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": None,
        },
    )
    made = {**described, "request_counts": dict(counts)}  # what the client gets now
    path = http_request.path.removesuffix("/batches")
    headers = {**http_request.headers, "content-type": JSON_TYPE}
    for entry in entries:
        request = HttpRequest("POST", path, headers, bytes(entry.params), http_request.query)
        finish = partial(_finish_entry, conversations, described["id"], path, entry)
        conversations.batch_requests.append(BatchRequest(request, finish))
    return made


def _finish_entry(
    conversations: ConversationStore,
    batch_id: str,
    path: str,
    entry: BatchEntry,
    response: HttpResponse,
) -> None:
    """Note the response to a request; the last one ends the batch."""
    batch = conversations.stored.get(BATCH, batch_id)
    succeeded = response.status < FIRST_ERROR and not response.chunks
    body = msgspec.Raw(response.body)
    result: JSON = {"type": "succeeded", "message": body}
    if response.chunks:  # a request with `stream`
        message = "stream: a request of a batch cannot be streamed"
        error = {"type": "invalid_request_error", "message": message}
        result = {"type": "errored", "error": {"type": "error", "error": error}}
    elif not succeeded:
        result = {"type": "errored", "error": body}
    line = to_json({"custom_id": entry.custom_id, "result": result})
    batch.content += line + b"\n"
    counts = batch.description["request_counts"]
    counts["succeeded" if succeeded else "errored"] += 1
    counts["processing"] -= 1
    if not counts["processing"]:
        base = conversations.url or "https://api.anthropic.com"
        if path.startswith(TO_HOST):  # it came through the proxy
            host, _, path = path.removeprefix(TO_HOST).partition("/")
            base, path = f"https://{host}", f"/{path}"
        results = f"{base}{path}/batches/{batch_id}/results"
        batch.description.update(processing_status="ended", ended_at=CREATED, results_url=results)
