"""OpenAI's other endpoints that return one value: moderations, images, speech to text and back.

Each is a model call whose prompt is the input, so a script answers it with a plain value:

    role("moderation", [say("violence")], model="moderation")  # or say("ok")
    role("image", [say("iVBORw0KGgo=")], model="image")  # base64, or a URL
    role("transcript", [say("Hello.")], model="transcribe")
    role("voice", [say("Hello.")], model="tts")  # the bytes of the text are the audio

Embeddings are the exception: they need no script.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.determinism.run_context import EPOCH
from offbook.errors import ModelError, UsageError
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.chat import chat_wire as wire
from offbook.exchange.dialects.dialect import HttpResponse, request_metadata
from offbook.exchange.dialects.embeddings import embed, estimate_tokens, pack_floats
from offbook.exchange.dialects.stored import parse_form
from offbook.exchange.dialects.wire import EVENT_STREAM, encode_sse, split_words
from offbook.exchange.messages import JSON, History, to_json, user
from offbook.exchange.model import Request

if TYPE_CHECKING:
    from offbook.exchange.dialects.dialect import HttpRequest
    from offbook.exchange.model import Reply

MODERATIONS = "/moderations"
IMAGES = ("/images/generations", "/images/edits")
TRANSCRIPTS = ("/audio/transcriptions", "/audio/translations")
SPEECH = "/audio/speech"
ALLOWED = "ok"  # what a script says of a text without a violation
CATEGORIES = (
    *("harassment", "harassment/threatening", "hate", "hate/threatening", "illicit"),
    *("illicit/violent", "self-harm", "self-harm/instructions", "self-harm/intent", "sexual"),
    *("sexual/minors", "violence", "violence/graphic"),
)


def decode_media(http_request: HttpRequest) -> Request:
    """Decode a request; its prompt is the text, or the name of the file, that it sends."""
    if http_request.headers.get("content-type", "").startswith("multipart/"):
        body = _decode_form(http_request)
    else:
        try:
            body = msgspec.json.decode(http_request.body, type=JSON)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"We could not parse the JSON body of your request: {error}."
            raise ModelError(message, status=400) from error
    prompt = body.get("prompt") or body.get("input") or body.get("file") or ""
    if not prompt:
        field = "input" if http_request.path.endswith((MODERATIONS, SPEECH)) else "prompt"
        raise openai.missing_parameter(field)
    options = {name: body[name] for name in body.keys() - {"model", "stream"}}
    return Request(
        History([user(_text_of(prompt))]),
        model=str(body.get("model") or _default_model(http_request.path)),
        parameters=options,
        metadata=request_metadata(http_request, wire.NAME),
        stream=body.get("stream") in (True, "true"),
    )


def _default_model(path: str) -> str:
    return "omni-moderation-latest" if path.endswith(MODERATIONS) else "gpt-image-1"


def _text_of(value: Any) -> str:
    """Return the text of an input: a string, a list of strings, or a list of parts."""
    if isinstance(value, list):
        return "\n".join(_text_of(entry) for entry in value)  # pyright: ignore[reportUnknownVariableType] - any JSON
    if isinstance(value, dict):
        return str(value.get("text", ""))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - any JSON
    return str(value)


def _decode_form(http_request: HttpRequest) -> JSON:
    """Return the fields of a form; a file is its name."""
    return {
        field.name: field.filename or field.content.decode("utf-8", "replace").strip()
        for field in parse_form(http_request.headers["content-type"], http_request.body)
    }


def encode_media(reply: Reply, request: Request) -> HttpResponse:
    """Encode the value that the script says."""
    path = str(request.metadata.get("endpoint", ""))
    if reply.calls:
        raise UsageError(
            f"cannot script a tool call for {path}: it has no tools", hint="script say(…)"
        )
    text, headers = reply.text, {"content-type": openai.JSON_TYPE}
    if path.endswith(SPEECH):
        return HttpResponse(200, {"content-type": "audio/mpeg"}, text.encode())
    if path.endswith(TRANSCRIPTS):
        if request.stream:
            kind = "transcript.text"
            chunks: list[JSON] = [
                {"type": f"{kind}.delta", "delta": word} for word in split_words(text)
            ]
            chunks.append({"type": f"{kind}.done", "text": text})
            events = tuple(encode_sse(to_json(chunk)) for chunk in chunks)
            return HttpResponse(200, {"content-type": EVENT_STREAM}, b"", events)
        if request.parameters.get("response_format") in ("text", "srt", "vtt"):
            return HttpResponse(200, {"content-type": "text/plain"}, text.encode())
        return HttpResponse(200, headers, to_json({"text": text}))
    if path.endswith(IMAGES):
        field = "url" if text.startswith(("http://", "https://")) else "b64_json"
        count = request.parameters.get("n")
        images = [{field: text}] * (count if isinstance(count, int) and count > 0 else 1)
        return HttpResponse(200, headers, to_json({"created": EPOCH, "data": images}))
    return HttpResponse(200, headers, to_json(_moderate(text, reply, request)))


def _moderate(text: str, reply: Reply, request: Request) -> JSON:
    """Return the result of a moderation: `text` is `ok`, or the violated categories."""
    flagged = [] if text.strip() == ALLOWED else [name.strip() for name in text.split(",")]
    for name in flagged:
        if name not in CATEGORIES:
            raise UsageError(
                f"unknown category {name!r} of a moderation",
                hint=f'say("{ALLOWED}"), or: {", ".join(CATEGORIES)}',
            )
    result = {
        "flagged": bool(flagged),
        "categories": {name: name in flagged for name in CATEGORIES},
        "category_scores": {name: 0.99 if name in flagged else 0.01 for name in CATEGORIES},
        "category_applied_input_types": {name: ["text"] for name in CATEGORIES},
    }
    inputs = request.parameters.get("input")
    count = len(inputs) if isinstance(inputs, list) and isinstance(inputs[0], str) else 1  # pyright: ignore[reportUnknownArgumentType] - any JSON
    moderation_id = f"modr-{reply.id.removeprefix('chatcmpl-')}"
    return {"id": moderation_id, "model": request.model, "results": [result] * count}


# -------------------------------------------------------------------------------- embeddings

EMBEDDING_DIMENSIONS = {"text-embedding-3-large": 3072}


class ChatEmbeddingBody(msgspec.Struct, gc=False):
    """A request for embeddings."""

    model: str = ""
    input: str | list[str | int | list[int]] = ""
    encoding_format: str = "float"
    dimensions: int | None = None


_decoder = msgspec.json.Decoder(ChatEmbeddingBody)


def make_embeddings(raw: bytes) -> JSON:
    """Return the embedding of each text, or of each list of token numbers."""
    body = openai.decode_body(_decoder, raw)
    inputs = body.input
    is_batch = isinstance(inputs, list) and not (inputs and isinstance(inputs[0], int))
    texts = cast("list[str | list[int]]", inputs if is_batch else [inputs])
    size = body.dimensions or EMBEDDING_DIMENSIONS.get(body.model, 1536)
    if size < 1:
        raise ModelError("Invalid 'dimensions': expected a value >= 1.", status=400)
    tokens = sum(
        estimate_tokens(len(text)) if isinstance(text, str) else len(text) for text in texts
    )
    data: list[JSON] = []
    for index, text in enumerate(texts):
        vector: list[float] | str = embed(text, size)
        if body.encoding_format == "base64":
            vector = b64encode(pack_floats(vector)).decode()
        data.append({"object": "embedding", "index": index, "embedding": vector})
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body.model, "usage": usage}
