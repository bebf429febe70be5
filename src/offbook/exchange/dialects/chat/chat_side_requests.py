"""What needs no model: the list of models, and vectors for texts."""

from __future__ import annotations

from base64 import b64encode
from typing import cast

import msgspec

from offbook.determinism.clock import EPOCH
from offbook.errors import ModelError
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.dialect import HttpResponse
from offbook.exchange.dialects.side_requests import embed, pack_floats
from offbook.exchange.messages import JSON, to_json

MODELS = ("gpt-5", "gpt-5-mini", "gpt-4o", "gpt-4o-mini", "text-embedding-3-small")

DIMENSIONS = {"text-embedding-3-large": 3072}


class _Embedding(msgspec.Struct, gc=False):
    model: str = ""
    input: str | list[str | int | list[int]] = ""
    encoding_format: str = "float"
    dimensions: int | None = None


embedding = msgspec.json.Decoder(_Embedding)


def answer_aside(body: JSON) -> HttpResponse:
    """An answer that is no completion."""
    data = to_json(body)
    return HttpResponse(
        200, {"content-type": openai.JSON_TYPE, "x-request-id": "req_offbook"}, data
    )


def describe_model(name: str) -> JSON:
    """A model, as the list has it."""
    return {"id": name, "object": "model", "created": EPOCH, "owned_by": "offbook"}


def answer_vectors(asked: _Embedding) -> HttpResponse:
    """A vector for each text, always the same for the same text."""
    given = asked.input
    texts = cast("list[str | list[int]]", given if _is_many(given) else [given])
    size = asked.dimensions or DIMENSIONS.get(asked.model, 1536)
    if size < 1:
        raise ModelError("Invalid 'dimensions': expected a value >= 1.", status=400)
    tokens = sum(len(text) // 4 + 1 if isinstance(text, str) else len(text) for text in texts)
    packed = asked.encoding_format == "base64"
    vectors = (embed(text, size) for text in texts)
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": b64encode(pack_floats(vector)).decode() if packed else vector,
        }
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return answer_aside({"object": "list", "data": data, "model": asked.model, "usage": usage})


def _is_many(given: str | list[str | int | list[int]]) -> bool:
    return isinstance(given, list) and not (given and isinstance(given[0], int))
