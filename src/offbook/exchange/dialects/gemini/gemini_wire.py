"""What stands on the wire of Gemini, as it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, Raw

from offbook.exchange.dialects.decoding import LenientDecoder
from offbook.exchange.messages import JSON, Image

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "gemini"


T = TypeVar("T")

CALLS = frozenset({"generateContent", "streamGenerateContent"})


class GeminiCall(msgspec.Struct):
    """A function call."""

    name: str = ""
    args: JSON | None = None
    id: str | None = None


class GeminiFunctionResponse(msgspec.Struct):
    """What a function answered."""

    name: str = ""
    response: Any = None
    id: str | None = None
    parts: list[GeminiPart] | None = None


class _Blob(msgspec.Struct):
    data: str = ""
    mimeType: str = ""  # noqa: N815 - the provider's name
    mime_type: str = ""
    fileUri: str = ""  # noqa: N815 - as above
    file_uri: str = ""

    @property
    def image(self) -> Image:
        return Image(self.data, self.mimeType or self.mime_type, self.fileUri or self.file_uri)


class GeminiPart(msgspec.Struct):
    """A part of any kind; each kind uses some of the fields."""

    text: str | None = None
    thought: bool | None = None
    functionCall: GeminiCall | None = None  # noqa: N815 - the provider's name
    function_call: GeminiCall | None = None
    functionResponse: GeminiFunctionResponse | None = None  # noqa: N815 - as above
    function_response: GeminiFunctionResponse | None = None
    inlineData: _Blob | None = None  # noqa: N815 - as above
    inline_data: _Blob | None = None
    fileData: _Blob | None = None  # noqa: N815 - as above
    file_data: _Blob | None = None
    thoughtSignature: str | None = None  # noqa: N815 - as above
    thought_signature: str | None = None
    videoMetadata: Any = None  # noqa: N815 - as above
    video_metadata: Any = None


class GeminiTurn(msgspec.Struct):
    """One turn of a conversation."""

    parts: list[GeminiPart] | GeminiPart | None = None
    role: str | None = None

    @property
    def listed(self) -> Sequence[GeminiPart]:
        parts = self.parts
        return parts if isinstance(parts, list) else (parts,) if parts else ()


class _Body(msgspec.Struct):
    contents: list[GeminiTurn] | GeminiTurn | None = None
    systemInstruction: GeminiTurn | None = None  # noqa: N815 - the provider's name
    system_instruction: GeminiTurn | None = None
    tools: Raw = Raw(b"null")
    toolConfig: Any = UNSET  # noqa: N815 - as above
    tool_config: Any = UNSET
    generationConfig: Any = UNSET  # noqa: N815 - as above
    generation_config: Any = UNSET
    safetySettings: Any = UNSET  # noqa: N815 - as above
    safety_settings: Any = UNSET
    cachedContent: Any = UNSET  # noqa: N815 - as above
    cached_content: Any = UNSET
    labels: Any = UNSET

    @property
    def turns(self) -> Sequence[GeminiTurn]:
        contents = self.contents
        return contents if isinstance(contents, list) else (contents,) if contents else ()

    @property
    def options(self) -> JSON:
        found: JSON = {}
        for name, other in _OPTIONS:
            value = getattr(self, name)
            if value is UNSET:
                value = getattr(self, other)
            if value is not UNSET:
                found[name] = value
        return found


_OPTIONS = (
    ("generationConfig", "generation_config"),
    ("toolConfig", "tool_config"),
    ("safetySettings", "safety_settings"),
    ("cachedContent", "cached_content"),
    ("labels", "labels"),
)


class _Candidate(msgspec.Struct):
    content: GeminiTurn | None = None
    finishReason: str | None = None  # noqa: N815 - as above


class GeminiUsage(msgspec.Struct):
    """Tokens."""

    promptTokenCount: int = 0  # noqa: N815 - as above
    candidatesTokenCount: int = 0  # noqa: N815 - as above
    thoughtsTokenCount: int = 0  # noqa: N815 - as above
    cachedContentTokenCount: int = 0  # noqa: N815 - as above


class GeminiResponse(msgspec.Struct):
    """A response, or a piece of one."""

    candidates: list[_Candidate] = []
    usageMetadata: GeminiUsage | None = None  # noqa: N815 - as above
    modelVersion: str = ""  # noqa: N815 - as above
    responseId: str = ""  # noqa: N815 - as above
    promptFeedback: JSON | None = None  # noqa: N815 - as above
    error: JSON | None = None


body = LenientDecoder(_Body)


result = msgspec.json.Decoder(GeminiResponse).decode


results = msgspec.json.Decoder(list[Raw]).decode


class GeminiFunction(msgspec.Struct):
    """A function that is offered."""

    name: str = ""
    description: str | None = None
    parameters: JSON | None = None
    parametersJsonSchema: JSON | None = None  # noqa: N815 - the provider's name
    parameters_json_schema: JSON | None = None
    behavior: Any = None
    response: Any = None
    responseJsonSchema: Any = None  # noqa: N815 - as above
    response_json_schema: Any = None

    @property
    def more(self) -> JSON:
        """What is said of what it answers, and when."""
        schema = self.responseJsonSchema or self.response_json_schema
        given = {
            "behavior": self.behavior,
            "response": self.response,
            "responseJsonSchema": schema,
        }
        return {name: value for name, value in given.items() if value is not None}
