"""Wire structs of Google's Gemini API.

The clients send field names in camel case or with underscores, and mix them, so most fields exist
twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from offbook.exchange.dialects.decoding import RequestDecoder
from offbook.exchange.dialects.side_requests import embed
from offbook.exchange.messages import JSON, Image

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "gemini"
MODEL_CALLS = frozenset({"generateContent", "streamGenerateContent"})
EMBEDDING_DIMENSIONS = 768

# The options with two names.
OPTIONS = {
    "generation_config": "generationConfig",
    "tool_config": "toolConfig",
    "safety_settings": "safetySettings",
    "cached_content": "cachedContent",
}

# ruff: noqa: N815 - the field names are Google's


class GeminiCall(msgspec.Struct):
    """A function call."""

    name: str = ""
    args: JSON | None = None
    id: str | None = None


class GeminiFunctionResponse(msgspec.Struct):
    """The result of a function."""

    name: str = ""
    response: Any = None
    id: str | None = None
    parts: list[GeminiPart] | None = None


class GeminiBlob(msgspec.Struct):
    """Inline data or a file."""

    data: str = ""
    mimeType: str = ""
    mime_type: str = ""
    fileUri: str = ""
    file_uri: str = ""

    @property
    def image(self) -> Image:
        return Image(self.data, self.mimeType or self.mime_type, self.fileUri or self.file_uri)


class GeminiPart(msgspec.Struct):
    """A part of any type; each type uses some of the fields."""

    text: str | None = None
    thought: bool | None = None
    functionCall: GeminiCall | None = None
    function_call: GeminiCall | None = None
    functionResponse: GeminiFunctionResponse | None = None
    function_response: GeminiFunctionResponse | None = None
    inlineData: GeminiBlob | None = None
    inline_data: GeminiBlob | None = None
    fileData: GeminiBlob | None = None
    file_data: GeminiBlob | None = None
    thoughtSignature: str | None = None
    thought_signature: str | None = None
    videoMetadata: Any = None
    video_metadata: Any = None


class GeminiTurn(msgspec.Struct):
    """One turn of a conversation."""

    parts: list[GeminiPart] | GeminiPart | None = None
    role: str | None = None

    @property
    def part_list(self) -> Sequence[GeminiPart]:
        """The parts; Google accepts one part in place of a list."""
        parts = self.parts
        return parts if isinstance(parts, list) else (parts,) if parts else ()


class GeminiBody(msgspec.Struct):
    """A request body without its options."""

    contents: list[GeminiTurn] | GeminiTurn | None = None
    systemInstruction: GeminiTurn | None = None
    system_instruction: GeminiTurn | None = None
    tools: Raw = Raw(b"null")

    @property
    def turns(self) -> Sequence[GeminiTurn]:
        """The turns; Google accepts one turn in place of a list."""
        contents = self.contents
        return contents if isinstance(contents, list) else (contents,) if contents else ()


class GeminiFunction(msgspec.Struct):
    """An offered function."""

    name: str = ""
    description: str | None = None
    parameters: JSON | None = None
    parametersJsonSchema: JSON | None = None
    parameters_json_schema: JSON | None = None
    behavior: Any = None
    response: Any = None
    responseJsonSchema: Any = None
    response_json_schema: Any = None

    @property
    def more(self) -> JSON:
        """The fields without a neutral form."""
        schema = self.responseJsonSchema or self.response_json_schema
        fields = {
            "behavior": self.behavior,
            "response": self.response,
            "responseJsonSchema": schema,
        }
        return {name: value for name, value in fields.items() if value is not None}


class GeminiCandidate(msgspec.Struct):
    """A candidate of a response."""

    content: GeminiTurn | None = None
    finishReason: str | None = None


class GeminiUsage(msgspec.Struct):
    """Token counts."""

    promptTokenCount: int = 0
    candidatesTokenCount: int = 0
    thoughtsTokenCount: int = 0
    cachedContentTokenCount: int = 0


class GeminiResponse(msgspec.Struct):
    """A response, or a chunk of one."""

    candidates: list[GeminiCandidate] = []
    usageMetadata: GeminiUsage | None = None
    modelVersion: str = ""
    responseId: str = ""
    promptFeedback: JSON | None = None
    error: JSON | None = None


class GeminiEmbedding(msgspec.Struct):
    """A request for an embedding."""

    content: GeminiTurn = msgspec.field(default_factory=GeminiTurn)
    outputDimensionality: int | None = None
    output_dimensionality: int | None = None

    @property
    def vector(self) -> JSON:
        """The embedding."""
        text = "".join(part.text or "" for part in self.content.part_list)
        dimensions = self.outputDimensionality or self.output_dimensionality
        return {"values": embed(text, dimensions or EMBEDDING_DIMENSIONS)}


class GeminiEmbeddingBatch(msgspec.Struct):
    """A request for several embeddings."""

    requests: list[GeminiEmbedding] = []


body_decoder = RequestDecoder(GeminiBody, " ".join((*OPTIONS, *OPTIONS.values(), "labels")))
embedding_decoder = msgspec.json.Decoder(GeminiEmbedding)
embedding_batch_decoder = msgspec.json.Decoder(GeminiEmbeddingBatch)
decode_response = msgspec.json.Decoder(GeminiResponse).decode
decode_response_list = msgspec.json.Decoder(list[Raw]).decode
