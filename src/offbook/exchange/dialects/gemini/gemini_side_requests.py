"""What needs no model: the models, counted tokens and embeddings."""

from __future__ import annotations

import msgspec

from offbook.errors import ModelError
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.exchange.dialects.gemini import gemini_wire
from offbook.exchange.dialects.gemini.gemini_messages import find_verb, read_body
from offbook.exchange.dialects.side_requests import embed
from offbook.exchange.messages import JSON, to_json

MODELS = ("gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-embedding-001")

DIMENSIONS = 768

BESIDE = frozenset({"countTokens", "embedContent", "batchEmbedContents"})


class _Embed(msgspec.Struct):
    content: gemini_wire.GeminiTurn = msgspec.field(default_factory=gemini_wire.GeminiTurn)
    outputDimensionality: int | None = None  # noqa: N815 - the provider's name
    output_dimensionality: int | None = None

    @property
    def vector(self) -> JSON:
        text = "".join(part.text or "" for part in self.content.listed)
        wanted = self.outputDimensionality or self.output_dimensionality
        return {"values": embed(text, wanted or DIMENSIONS)}


class _Batch(msgspec.Struct):
    requests: list[_Embed] = []


_read_batch = msgspec.json.Decoder(_Batch)


_read_embed = msgspec.json.Decoder(_Embed)


def _count(body: bytes) -> JSON:
    """Tokens, as a rule of thumb: four characters each."""
    read_body(gemini_wire.body, body)
    total = len(body) // 4 + 1
    details = [{"modality": "TEXT", "tokenCount": total}]
    return {"totalTokens": total, "promptTokensDetails": details}


def look_up(wire: HttpRequest) -> JSON:
    """What there is to tell about this path."""
    path = wire.path
    match find_verb(path):
        case "countTokens":
            return _count(wire.body)
        case "embedContent":
            return {"embedding": read_body(_read_embed, wire.body).vector}
        case "batchEmbedContents":
            return {
                "embeddings": [one.vector for one in read_body(_read_batch, wire.body).requests]
            }
        case _ if path.endswith("/models"):
            return {"models": [_describe_model(name) for name in MODELS]}
        case _ if "/models/" in path:
            return _describe_model(path.rpartition("/")[2])
        case _:
            raise ModelError("Requested entity was not found.", status=404)


def answer_json(body: object) -> HttpResponse:
    """An answer of this JSON."""
    return HttpResponse(200, {"content-type": "application/json; charset=UTF-8"}, to_json(body))


def _describe_model(name: str) -> JSON:
    embeds = "embed" in name
    return {
        "name": f"models/{name}",
        "version": "001",
        "displayName": name.replace("-", " ").title(),
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": ["embedContent"]
        if embeds
        else sorted(gemini_wire.CALLS | {"countTokens"}),
    }
