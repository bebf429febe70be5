"""Rare forms of a completion: several choices, the probabilities of its words, and audio.

The audio of a text is its bytes in UTF-8, in both directions: a test needs no codec. An agent
sends the id of a spoken reply in place of its words, so the words are in the id.
"""

from __future__ import annotations

from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.determinism.run_context import EPOCH
from offbook.errors import ModelError
from offbook.exchange.dialects import openai
from offbook.exchange.dialects.wire import certain_words, encode_sse
from offbook.exchange.messages import JSON, RawBlock, Text, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_CHOICES = 128
AUDIO_EXPIRY = EPOCH + 3600
AUDIO_ID = "audio_offbook_"
STREAMED_FORMAT = "pcm16"


def wants_audio(options: JSON) -> bool:
    """Return whether a request asks for a spoken reply."""
    return "audio" in (options.get("modalities") or ())


def check_audio(options: JSON, *, stream: bool, rules: frozenset[str]) -> None:
    """Raise OpenAI's error for audio without its options, or in a format that is not streamed."""
    if not wants_audio(options):
        return
    audio: Any = options.get("audio")
    if not isinstance(audio, dict):
        if "missing_field" in rules:
            raise openai.missing_parameter("audio")
        return
    given = cast("JSON", audio).get("format")
    if stream and given != STREAMED_FORMAT:
        raise ModelError(
            f"Unsupported value: 'audio.format' does not support '{given}' when stream=true."
            f" Supported values are: '{STREAMED_FORMAT}'.",
            status=400,
            details={"param": "audio.format", "code": "unsupported_value"},
        )


def make_audio_id(text: str) -> str:
    """Return the id of the audio of a text."""
    return AUDIO_ID + urlsafe_b64encode(text.encode("utf-8", "replace")).decode()


def find_transcript(audio: Any) -> str:
    """Return the text of a spoken reply that Offbook sent; empty for any other."""
    id_ = str(cast("JSON", audio).get("id", "")) if isinstance(audio, dict) else ""
    if not id_.startswith(AUDIO_ID):
        return ""
    return urlsafe_b64decode(id_.removeprefix(AUDIO_ID)).decode("utf-8", "replace")


def read_audio(block: RawBlock) -> RawBlock | Text:
    """Return the text whose bytes are this audio; a real recording as it is."""
    try:
        text = b64decode(block.data["input_audio"]["data"]).decode()
    except (Base64Error, UnicodeDecodeError, KeyError, TypeError):
        return block
    return Text(text) if text and "\0" not in text else block


_decode_json = msgspec.json.Decoder(JSON).decode


def join_audio(parts: Iterable[JSON]) -> JSON:
    """Return the parts of streamed audio as one."""
    audio: JSON = {"transcript": ""}
    sound = b""
    for part in parts:
        for name, value in part.items():
            if name == "data":
                sound += b64decode(value)  # each part may end in padding
            else:
                audio[name] = audio["transcript"] + value if name == "transcript" else value
    return {**audio, "data": b64encode(sound).decode()}


def count_choices(parameters: JSON) -> int:
    """Return the number of choices that a request asks for; they all have the same reply."""
    count = parameters.get("n")
    return count if isinstance(count, int) and 1 < count <= MAX_CHOICES else 1


class ChoiceOptions(msgspec.Struct, frozen=True):
    """Several choices, the probabilities of their words, audio: rare, so encoded a second time."""

    count: int = 1
    log_probabilities: bool = False
    top: int = 0  # words at each place
    spoken: bool = False

    @classmethod
    def read(cls, parameters: JSON) -> ChoiceOptions | None:
        """Return the options of a request; None for one written choice without probabilities."""
        count, top = count_choices(parameters), parameters.get("top_logprobs")
        wanted, spoken = parameters.get("logprobs") is True, wants_audio(parameters)
        if count == 1 and not wanted and not spoken:
            return None
        return cls(count, wanted, top if isinstance(top, int) else 0, spoken)

    def change(self, completion: bytes) -> bytes:
        """Return a completion with its choices."""
        decoded = _decode_json(completion)
        (choice,) = decoded["choices"]
        text = choice["message"]["content"]
        if self.spoken and text:
            audio = {"id": make_audio_id(text), "expires_at": AUDIO_EXPIRY}
            audio |= {"data": b64encode(text.encode()).decode(), "transcript": text}
            choice["message"] |= {"content": None, "audio": audio}
        return to_json({**decoded, "choices": self._repeat(choice)})

    def change_chunks(self, chunks: Iterable[bytes], text: str) -> Iterator[bytes]:
        """Yield the chunks of a stream with the choices; `text` is the whole text."""
        transcript, sound = "", b""
        for chunk in chunks:
            data = chunk.removeprefix(b"data: ")
            decoded = _decode_json(data) if data.startswith(b"{") else {}
            # The usage and `[DONE]` belong to all choices.
            if not decoded.get("choices"):
                yield chunk
                continue
            (choice,) = decoded["choices"]
            part: str | None = choice["delta"].get("content")
            if self.spoken and part == "":
                choice["delta"]["content"] = None
            elif self.spoken and part:
                audio: JSON = {} if transcript else {"id": make_audio_id(text)}
                transcript, sound = transcript + part, sound + part.encode()
                # Whole groups of base64: clients join the strings.
                size = len(sound) if transcript == text else len(sound) // 3 * 3
                audio |= {"transcript": part, "data": b64encode(sound[:size]).decode()}
                sound = sound[size:]
                if transcript == text:
                    audio["expires_at"] = AUDIO_EXPIRY
                choice["delta"] = {"audio": audio}
            for repeated in self._repeat(choice):
                yield encode_sse(to_json({**decoded, "choices": [repeated]}))

    def _repeat(self, choice: JSON) -> list[JSON]:
        part: JSON = choice.get("message") or choice["delta"]
        text: str | None = part.get("content")
        if self.log_probabilities and text:
            words = certain_words(text)
            content = [{**word, "top_logprobs": [word] if self.top else []} for word in words]
            choice = {**choice, "logprobs": {"content": content, "refusal": None}}
        return [{**choice, "index": index} for index in range(self.count)]
