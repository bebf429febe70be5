"""OpenAI's endpoints of one value are scripted by `say`: moderations, images, speech."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import openai
import pytest

from offbook.errors import OffbookError, UsageError
from offbook.runs import drive
from offbook.sources.playbook import call, role, say, when

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
