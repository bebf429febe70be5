"""OpenAI's endpoints of one value are scripted by `say`: moderations, images, speech."""

from __future__ import annotations

import io
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import openai
import pytest

from offbook.errors import OffbookError, UsageError
from offbook.exchange import History, RawBlock, Request, user
from offbook.exchange.dialects.chat import chat_client
from offbook.runs import drive
from offbook.sources.playbook import call, role, say, when
from offbook.trace import rebuild_requests

SIDE_MODELS = re.compile("moderation|image|whisper|transcribe|tts")
WAV = ("speech.wav", io.BytesIO(b"RIFF"))


def moderate(client: Any) -> Any:
    result = client.moderations.create(input="I hit you").results[0]
    return result.flagged, result.categories.violence


def moderate_all(client: Any) -> Any:
    return len(client.moderations.create(input=["a", "b"]).results)


def draw(client: Any) -> Any:
    return client.images.generate(model="gpt-image-1", prompt="A lamp").data[0].b64_json


def transcribe(client: Any) -> Any:
    return client.audio.transcriptions.create(model="whisper-1", file=WAV).text


def transcribe_text(client: Any) -> Any:
    return client.audio.transcriptions.create(
        model="whisper-1", file=WAV, response_format="text"
    ).strip()


def transcribe_stream(client: Any) -> Any:
    stream = client.audio.transcriptions.create(model="gpt-4o-transcribe", file=WAV, stream=True)
    return "".join(event.delta for event in stream if event.type == "transcript.text.delta")


def speak(client: Any) -> Any:
    return client.audio.speech.create(model="tts-1", voice="alloy", input="Hi").read()


VALUES: list[tuple[Callable[[Any], Any], str, Any]] = [
    (moderate, "violence", (True, True)),
    (moderate, "ok", (False, False)),
    (moderate_all, "ok", 2),
    (draw, "iVBORw0KGgo=", "iVBORw0KGgo="),
    (transcribe, "Hello there.", "Hello there."),
    (transcribe_text, "Hello there.", "Hello there."),
    (transcribe_stream, "Hello there.", "Hello there."),
    (speak, "Hello.", b"Hello."),
]


@pytest.mark.parametrize("send, value, expected", VALUES, ids=[f"{v[0].__name__}" for v in VALUES])
def test_an_endpoint_returns_the_value_of_the_script(
    send: Callable[[Any], Any], value: str, expected: Any
):
    def agent(prompt: str) -> str:
        client: Any = openai.OpenAI(api_key="none", max_retries=0)
        assert send(client) == expected
        messages: Any = [{"role": "user", "content": prompt}]
        reply = client.chat.completions.create(model="gpt-5", messages=messages)
        return reply.choices[0].message.content

    with drive(agent) as rehearsal:
        side = role("side", [say(value)], model=SIDE_MODELS)
        assert rehearsal.run(when("Go", [say("Done.")]), side).output == "Done."


AUDIO: Any = {
    "model": "gpt-4o-audio-preview",
    "modalities": ["text", "audio"],
    "audio": {"voice": "alloy", "format": "pcm16"},
}


def test_a_conversation_is_spoken_in_both_directions():
    def agent(prompt: str) -> str:
        client: Any = openai.OpenAI(api_key="none", max_retries=0)
        sent = {"data": b64encode(prompt.encode()).decode(), "format": "wav"}
        messages: Any = [
            {"role": "user", "content": [{"type": "input_audio", "input_audio": sent}]}
        ]
        first = client.chat.completions.create(**AUDIO, messages=messages).choices[0].message
        # The agent sends the id of the audio back, not its words.
        messages.append({"role": "assistant", "audio": {"id": first.audio.id}})
        messages.append({"role": "user", "content": "More"})
        with client.chat.completions.stream(**AUDIO, messages=messages) as stream:
            second = stream.get_final_completion().choices[0].message
        assert [message.content for message in (first, second)] == [None, None]
        assert second.audio.transcript == b64decode(second.audio.data).decode()
        return " ".join(b64decode(m.audio.data).decode() for m in (first, second))

    with drive(agent) as rehearsal:
        turns = [when("Hi", [say("Hello there.")]), when("More", [say("Grüße to all of you.")])]
        assert rehearsal.run(*turns).output == "Hello there. Grüße to all of you."


def test_a_recording_of_a_person_is_kept_as_it_is():
    data = b64encode(b"RIFF\0\xff").decode()
    content: Any = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    seen: list[Any] = []

    def agent(prompt: str) -> None:
        client: Any = openai.OpenAI(api_key="none", max_retries=0)
        parts = [{"type": "text", "text": prompt}, content]
        client.chat.completions.create(**AUDIO, messages=[{"role": "user", "content": parts}])

    with drive(agent) as rehearsal:
        rehearsal.run(when("Go", [say("Done.")]))
        seen += rebuild_requests(rehearsal.events.all)
    assert seen[0].messages[0].blocks[1] == RawBlock("input_audio", content, "openai-chat")


REJECTED = {
    "no options of the audio": ({"audio": None}, "Missing required parameter: 'audio'."),
    "a format that is not streamed": (
        {"audio": {"voice": "alloy", "format": "wav"}, "stream": True},
        "'audio.format' does not support 'wav' when stream=true",
    ),
}


@pytest.mark.parametrize("options, message", REJECTED.values(), ids=REJECTED)
def test_audio_that_openai_rejects_is_rejected(options: Any, message: str):
    def agent(prompt: str) -> None:
        client: Any = openai.OpenAI(api_key="none", max_retries=0)
        messages = [{"role": "user", "content": prompt}]
        with pytest.raises(openai.BadRequestError, match=message):
            client.chat.completions.create(**{**AUDIO, **options}, messages=messages)
        client.chat.completions.create(**AUDIO, messages=messages)

    with drive(agent) as rehearsal:
        rehearsal.run(when("Go", [say("Done.")]))


def test_the_parts_of_streamed_audio_are_recorded_as_one():
    halves = [b64encode(half).decode() for half in (b"Hell", b"o.")]
    deltas: list[Any] = [
        {"audio": {"id": "audio_1", "transcript": "Hell", "data": halves[0]}},
        {"audio": {"transcript": "o.", "data": halves[1]}},
        {"audio": {"expires_at": 7}},
    ]
    choices: list[Any] = [{"delta": delta} for delta in deltas]
    choices.append({"delta": {}, "finish_reason": "stop"})
    events = [f"data: {json.dumps({'choices': [choice]})}\n\n" for choice in choices]
    request = Request(History([user("Hi")]), model="m")
    reply = chat_client.parse_stream("".join(events).encode(), request)
    whole = {"id": "audio_1", "transcript": "Hello.", "expires_at": 7, "data": "SGVsbG8u"}
    assert reply.blocks == (RawBlock("beside", {"audio": whole}, "openai-chat"),)


@pytest.mark.parametrize(
    "action, message",
    [
        (say("rude"), "unknown category 'rude' of a moderation"),
        (call("find", {}, unanswered=True, unknown=True), "it has no tools"),
    ],
)
def test_a_value_that_the_endpoint_does_not_have_fails_the_run(action: Any, message: str):
    def agent(_prompt: str) -> None:
        moderate(openai.OpenAI(api_key="none", max_retries=0))

    with drive(agent) as rehearsal, pytest.raises((UsageError, OffbookError), match=message):
        rehearsal.run(when("I hit you", [action]))
