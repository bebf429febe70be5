"""OpenAI's endpoints that keep something: files, vector stores and batches.

What a client uploads is kept for the run, and comes back as it was. A search in a vector store is a
model call: the prompt is the query, and a script answers with the text that is found.

    role("search", [say("Lamps: aisle 3")], model="vector_store")

The requests of a batch are answered by the script when the batch is made. The client sees it end at
its next look.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.determinism.run_context import EPOCH
from offbook.errors import ModelError, UsageError
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.chat import chat_wire as wire
from offbook.exchange.dialects.dialect import (
    TO_HOST,
    BatchRequest,
    ConversationStore,
    HttpRequest,
    HttpResponse,
    request_metadata,
)
from offbook.exchange.dialects.stored import ObjectStore, parse_form
from offbook.exchange.messages import JSON, History, to_json, user
from offbook.exchange.model import Request

if TYPE_CHECKING:
    from offbook.exchange.model import Reply

FILE, VECTOR_STORE, BATCH = "File object", "vector store", "batch"
SEARCH_MODEL = "vector_store"  # of the request by which a script answers a search
BATCH_PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/moderations")
FIRST_ERROR = 400


def store_response(http_request: HttpRequest, conversations: ConversationStore) -> HttpResponse:
    """Return the response to a request for files, vector stores or batches."""
    store = conversations.stored
    kind, object_id, rest = _split(http_request.path)
    method = http_request.method
    if (kind, method, rest) == ("files", "GET", "content"):
        content = store.get(FILE, object_id).content
        return HttpResponse(200, {"content-type": "application/octet-stream"}, content)
    if kind == "files":
        body = _answer_files(http_request, store, object_id)
    elif kind == "batches":
        body = _answer_batches(http_request, conversations, object_id, rest)
    else:
        body = _answer_vector_stores(http_request, store, object_id, rest)
    headers = {"content-type": openai.JSON_TYPE, "x-request-id": "req_offbook"}
    return HttpResponse(200, headers, to_json(body))


def _split(path: str) -> tuple[str, str, str]:
    """Return the kind of an object in a path, its id, and the rest."""
    found = re.search(wire.STORE_PATH, path)
    kind, object_id, rest = found.groups("") if found else ("", "", "")
    return kind, object_id, rest


def _decode(http_request: HttpRequest) -> JSON:
    try:
        return msgspec.json.decode(http_request.body or b"{}", type=JSON)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"We could not parse the JSON body of your request: {error}."
        raise ModelError(message, status=400) from error


def _list(data: list[JSON]) -> JSON:
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": False}


def _unsupported(http_request: HttpRequest) -> ModelError:
    message = f"Offbook does not support {http_request.method} {http_request.path}"
    return ModelError(message, status=404, details={"code": ""})


# ---------------------------------------------------------------------------------------- files


def _answer_files(http_request: HttpRequest, store: ObjectStore, file_id: str) -> JSON:
    method = http_request.method
    if file_id and method == "DELETE":
        store.remove(FILE, file_id)
        return {"id": file_id, "object": "file", "deleted": True}
    if method == "GET":
        return store.get(FILE, file_id).description if file_id else _list(store.descriptions(FILE))
    if method != "POST" or file_id:
        raise _unsupported(http_request)
    fields = {
        field.name: field
        for field in parse_form(http_request.headers.get("content-type", ""), http_request.body)
    }
    for name in ("file", "purpose"):
        if name not in fields:
            raise openai.missing_parameter(name)
    file = fields["file"]
    return _add_file(store, file.filename, fields["purpose"].content.decode().strip(), file.content)


def _add_file(store: ObjectStore, name: str, purpose: str, content: bytes) -> JSON:
    description = {
        "object": "file",
        "bytes": len(content),
        "created_at": EPOCH,
        "filename": name,
        "purpose": purpose,
        "status": "processed",
    }
    return store.add(FILE, "file-", description, content)


# -------------------------------------------------------------------------------- vector stores


def _answer_vector_stores(
    http_request: HttpRequest, store: ObjectStore, store_id: str, rest: str
) -> JSON:
    method = http_request.method
    if not store_id:
        if method == "GET":
            return _list(store.descriptions(VECTOR_STORE))
        return _make_vector_store(_decode(http_request), store)
    described = store.get(VECTOR_STORE, store_id).description
    if rest:
        return _answer_store_files(http_request, store, described, rest)
    if method == "DELETE":
        store.remove(VECTOR_STORE, store_id)
        return {"id": store_id, "object": "vector_store.deleted", "deleted": True}
    if method == "POST":
        changes = _decode(http_request)
        described.update({key: changes[key] for key in ("name", "metadata") if key in changes})
    return described


def _make_vector_store(body: JSON, store: ObjectStore) -> JSON:
    described = store.add(
        VECTOR_STORE,
        "vs_",
        {
            "object": "vector_store",
            "created_at": EPOCH,
            "last_active_at": EPOCH,
            "name": body.get("name"),
            "status": "completed",
            "metadata": body.get("metadata") or {},
        },
    )
    for file_id in body.get("file_ids") or ():
        _add_store_file(store, described, str(file_id))
    _count_store_files(store, described)
    return described


def _files_kind(described: JSON) -> str:
    return f"file of the vector store {described['id']}"


def _add_store_file(store: ObjectStore, described: JSON, file_id: str) -> JSON:
    file = store.get(FILE, file_id).description
    kind = _files_kind(described)
    entry: JSON = {
        "object": "vector_store.file",
        "created_at": EPOCH,
        "vector_store_id": described["id"],
        "status": "completed",
        "usage_bytes": file["bytes"],
        "last_error": None,
        "attributes": {},
    }
    return store.put(kind, file_id, {"id": file_id, **entry})


def _count_store_files(store: ObjectStore, described: JSON) -> None:
    files = store.descriptions(_files_kind(described))
    described["usage_bytes"] = sum(file["usage_bytes"] for file in files)
    described["file_counts"] = _file_counts(len(files))


def _file_counts(count: int) -> JSON:
    return {"in_progress": 0, "completed": count, "failed": 0, "cancelled": 0, "total": count}


def _answer_store_files(
    http_request: HttpRequest, store: ObjectStore, described: JSON, rest: str
) -> JSON:
    method, kind = http_request.method, _files_kind(described)
    part, _, file_id = rest.partition("/")
    if part == "file_batches" and method == "POST" and not file_id:
        file_ids = [str(each) for each in _decode(http_request).get("file_ids") or ()]
        for each in file_ids:
            _add_store_file(store, described, each)
        _count_store_files(store, described)
        batch = {
            "object": "vector_store.files_batch",
            "created_at": EPOCH,
            "vector_store_id": described["id"],
            "status": "completed",
            "file_counts": _file_counts(len(file_ids)),
        }
        return store.add(f"{kind}, batch", "vsfb_", batch)
    if part == "file_batches" and method == "GET" and file_id:
        return store.get(f"{kind}, batch", file_id).description
    if part != "files":
        raise _unsupported(http_request)
    if method == "POST" and not file_id:
        body = _decode(http_request)
        if "file_id" not in body:
            raise openai.missing_parameter("file_id")
        added = _add_store_file(store, described, str(body["file_id"]))
        _count_store_files(store, described)
        return added
    if method == "DELETE":
        store.remove(kind, file_id)
        _count_store_files(store, described)
        return {"id": file_id, "object": "vector_store.file.deleted", "deleted": True}
    return store.get(kind, file_id).description if file_id else _list(store.descriptions(kind))


def decode_search(http_request: HttpRequest, conversations: ConversationStore) -> Request:
    """Decode a search: its prompt is the query."""
    conversations.stored.get(VECTOR_STORE, _split(http_request.path)[1])
    body = _decode(http_request)
    query = body.get("query")
    if not query:
        raise openai.missing_parameter("query")
    queries = [str(each) for each in query] if isinstance(query, list) else [str(query)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any JSON
    return Request(
        History([user("\n".join(queries))]),
        model=SEARCH_MODEL,
        parameters={name: body[name] for name in body.keys() - {"query"}},
        metadata=request_metadata(http_request, wire.NAME),
    )


def encode_search(reply: Reply, request: Request) -> HttpResponse:
    """Encode what the script says is found; an empty text is no result."""
    if reply.calls:
        raise UsageError(
            "cannot script a tool call for a search in a vector store", hint="script say(…)"
        )
    found: list[JSON] = []
    if reply.text:
        found.append(
            {
                "file_id": "file-offbook",
                "filename": "found.txt",
                "score": 1.0,
                "attributes": {},
                "content": [{"type": "text", "text": reply.text}],
            }
        )
    body = {
        "object": "vector_store.search_results.page",
        "search_query": request.messages[-1].text.split("\n"),
        "data": found,
        "has_more": False,
        "next_page": None,
    }
    return HttpResponse(200, {"content-type": openai.JSON_TYPE}, to_json(body))


# -------------------------------------------------------------------------------------- batches


class BatchLine(msgspec.Struct):
    """A line of the file of a batch."""

    custom_id: str
    url: str
    body: msgspec.Raw
    method: str = "POST"


def _answer_batches(
    http_request: HttpRequest, conversations: ConversationStore, batch_id: str, rest: str
) -> JSON:
    method, store = http_request.method, conversations.stored
    if not batch_id:
        if method == "GET":
            return _list(store.descriptions(BATCH))
        return _make_batch(http_request, conversations)
    described = store.get(BATCH, batch_id).description
    if rest == "cancel" and method == "POST":
        status = described["status"]
        raise ModelError(f"Cannot cancel a batch with status '{status}'.", status=409)
    if rest or method != "GET":
        raise _unsupported(http_request)
    return described


def _make_batch(http_request: HttpRequest, conversations: ConversationStore) -> JSON:
    store = conversations.stored
    body = _decode(http_request)
    for name in ("input_file_id", "endpoint", "completion_window"):
        if not body.get(name):
            raise openai.missing_parameter(name)
    content = store.get(FILE, str(body["input_file_id"])).content
    described = store.add(
        BATCH,
        "batch_",
        {
            "object": "batch",
            "endpoint": body["endpoint"],
            "errors": None,
            "input_file_id": body["input_file_id"],
            "completion_window": body["completion_window"],
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": EPOCH,
            "metadata": body.get("metadata"),
        },
    )
    lines, wrong = _read_lines(content, str(body["endpoint"]))
    described["request_counts"] = {"total": len(lines), "completed": 0, "failed": 0}
    if wrong:
        described.update(status="failed", errors={"object": "list", "data": wrong})
        return described
    made = dict(described)  # what the client gets now
    ended: list[tuple[BatchLine, HttpResponse]] = []
    host = http_request.path.split("/")[2] if http_request.path.startswith(TO_HOST) else ""
    before = f"{TO_HOST}{host}" if host else ""
    headers = {**http_request.headers, "content-type": openai.JSON_TYPE}
    for line in lines:
        request = HttpRequest("POST", f"{before}{line.url}", headers, bytes(line.body))
        finish = partial(_finish_line, store, described, ended, line)
        conversations.batch_requests.append(BatchRequest(request, finish))
    described["status"] = "in_progress"
    return made


def _read_lines(content: bytes, path: str) -> tuple[list[BatchLine], list[JSON]]:
    """Return the lines of a batch, and what is wrong with them."""
    lines: list[BatchLine] = []
    wrong: list[JSON] = []

    def refuse(number: int, code: str, message: str) -> None:
        wrong.append({"code": code, "line": number, "message": message, "param": None})

    for number, text in enumerate(content.splitlines(), 1):
        if not text.strip():
            continue
        try:
            line = msgspec.json.decode(text, type=BatchLine)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            refuse(number, "invalid_json_line", f"This line is not a valid request: {error}")
            continue
        if line.url != path:
            refuse(number, "mismatched_endpoint", f"The url {line.url!r} is not {path!r}")
        elif any(line.custom_id == other.custom_id for other in lines):
            refuse(number, "duplicate_custom_id", f"The custom_id {line.custom_id!r} is not unique")
        lines.append(line)
    if path not in BATCH_PATHS:
        refuse(0, "invalid_endpoint", f"Offbook does not support batches of {path}")
    elif not (lines or wrong):
        refuse(0, "empty_file", "The input file is empty")
    return lines, wrong


def _finish_line(
    store: ObjectStore,
    described: JSON,
    ended: list[tuple[BatchLine, HttpResponse]],
    line: BatchLine,
    response: HttpResponse,
) -> None:
    """Note the response to a line; the last one ends the batch."""
    if response.chunks:  # a body with `stream`
        message = "A request of a batch cannot be streamed."
        response = openai.error_response(ModelError(message, status=400))
    ended.append((line, response))
    counts = described["request_counts"]
    counts["completed" if response.status < FIRST_ERROR else "failed"] += 1
    if len(ended) < counts["total"]:
        return
    described["status"] = "completed"
    for field, failed in (("output_file_id", False), ("error_file_id", True)):
        results = [
            to_json(_describe_result(each, answer))
            for each, answer in ended
            if (answer.status >= FIRST_ERROR) is failed
        ]
        if results:
            name = f"{described['id']}_{'error' if failed else 'output'}.jsonl"
            content = b"\n".join(results) + b"\n"
            described[field] = _add_file(store, name, "batch_output", content)["id"]


def _describe_result(line: BatchLine, response: HttpResponse) -> Any:
    request_id = f"batch_req_{line.custom_id}"
    answer = {"status_code": response.status, "request_id": request_id}
    body = {**answer, "body": msgspec.Raw(response.body)}
    return {"id": request_id, "custom_id": line.custom_id, "response": body, "error": None}
