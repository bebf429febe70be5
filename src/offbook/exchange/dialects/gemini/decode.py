"""What an agent sent, part by part, in no provider's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import msgspec

from offbook.errors import ModelError
from offbook.exchange.messages import JSON, AnyBlock, Content, Text, Thinking, ToolResult

if TYPE_CHECKING:
    from offbook.exchange.dialects.gemini import forms
    from offbook.exchange.foreign import Reader, Verbatim
from offbook.exchange.messages import to_json

Place = tuple[str | int, ...]

BESIDE = frozenset(
    {"thought", "thoughtSignature", "thought_signature", "videoMetadata", "video_metadata"}
)
"""What a part says beside what it is."""

SAID = frozenset({"content", "error", "output", "result", "return_value"})
"""Under one of these names a function response holds nothing but what the tool said."""

SKIP = frozenset(
    {
        "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",
        "skip_thought_signature_validator",
        "context_engineering_is_the_way_to_go",
    }
)
"""What clients put where the model gave no signature."""


def find_verb(path: str) -> str:
    """What the path asks for: the word behind its colon."""
    return path.rpartition(":")[2]


def find_model(path: str) -> str:
    """The model that the path names."""
    name = path.rpartition("/models/")[2] if "/models/" in path else path.rpartition("/")[2]
    return unquote(name.rpartition(":")[0])


def read_body(decoder: Reader[forms.T], body: bytes) -> forms.T:
    """The body; Google's refusal of what it cannot read."""
    try:
        return decoder.decode(body or b"{}")
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        place = path.rstrip("`").lstrip(".")
        what = f"Invalid value at '{place}': {text}" if place else text
        raise ModelError(what, status=400) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = f"Invalid JSON payload received. {error}"
        raise ModelError(what, status=400) from error


def read_part(part: forms.Part, seen: Verbatim, place: Place) -> AnyBlock:
    """The neutral block; what has none is kept as it stands."""
    if part.text is not None:
        return Thinking(part.text) if part.thought else Text(part.text)
    blob = part.inlineData or part.inline_data or part.fileData or part.file_data
    if blob is not None and not (part.videoMetadata or part.video_metadata):
        return blob.image
    kept = seen.keep("", *place)
    kind = next((name for name in kept.data if name not in BESIDE), "part")
    return msgspec.structs.replace(kept, kind=kind)


def sign_thought(blocks: list[AnyBlock], signature: str | None) -> None:
    """A signature stands at what came of a thought; it belongs to the thought before it."""
    if not signature or signature in SKIP:
        return
    at = len(blocks) - 1
    while at >= 0 and not isinstance(blocks[at], Thinking):
        at -= 1
    thought = blocks[at] if at >= 0 else None
    if isinstance(thought, Thinking) and not thought.signature:
        blocks[at] = msgspec.structs.replace(thought, signature=signature)
    else:
        blocks.insert(max(len(blocks) - 1, 0), Thinking("", signature))


def read_response(
    response: forms.Response, call_id: str, name: str, seen: Verbatim, place: Place
) -> ToolResult:
    """What a function answered: its text, or all of it where it is more than that."""
    given = response.response
    pictures = cast(
        "tuple[Content, ...]",
        tuple(
            read_part(part, seen, (*place, "parts", at))
            for at, part in enumerate(response.parts or ())
        ),
    )
    if not isinstance(given, dict):
        content: tuple[Content, ...] = () if given is None else (Text(_show(given)),)
        return ToolResult(call_id, content + pictures, name=name, details=given)
    fields = cast("JSON", given)
    failed = "error" in fields or fields.get("isError") is True
    if len(fields) == 1:
        ((key, value),) = fields.items()
        if key in SAID and isinstance(value, str):
            text = (Text(value),) if value else ()
            return ToolResult(call_id, text + pictures, failed, name)
    return ToolResult(call_id, (Text(_show(fields)), *pictures), failed, name, fields)


def _show(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value).decode()
