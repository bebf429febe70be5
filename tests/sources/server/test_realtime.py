"""OpenAI's Realtime API: scripted conversations in text and audio, with OpenAI's client."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from offbook.exchange import Request
from offbook.sources.playbook import Playbook, call, say, when
from offbook.sources.server import Server

TOOL = {"type": "function", "name": "find", "parameters": {"type": "object"}}
TURN = when("Find 7", [call("find", {"number": 7}), say("One lamp.")])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


class Talk:
    """A connection to a scripted model, and the requests that reach the script."""

    def __init__(self, server: Server, *modalities: str) -> None:
        self.playbook = Playbook()
        self.playbook.load(TURN)
        self.requests: list[Request] = []
        reply = self.playbook.reply

        async def note(request: Request, /) -> Any:
            self.requests.append(request)
            return await reply(request)

        self.playbook.reply = note
        self.endpoint = server.mount(self.playbook)
        client: Any = openai.OpenAI(base_url=self.endpoint.openai, api_key="none")
        self.manager = client.realtime.connect(model="gpt-realtime")
        self.connection: Any = self.manager.__enter__()
        assert self.connection.recv().type == "session.created"
        session = {"type": "realtime", "output_modalities": list(modalities), "tools": [TOOL]}
        self.connection.session.update(session=session)
        assert self.connection.recv().type == "session.updated"

    def respond(self) -> list[Any]:
        """Return the events of a response."""
        self.connection.response.create()
        events: list[Any] = []
        for event in self.connection:
            events.append(event)
            if event.type == "response.done":
                return events
        raise AssertionError("the connection was closed")

    def add(self, item: Any) -> None:
        self.connection.conversation.item.create(item=item)

    def close(self) -> None:
        self.manager.__exit__(None, None, None)
        self.endpoint.close()


def prompt(talk: Talk) -> None:
    content = [{"type": "input_text", "text": "Find 7"}]
    talk.add({"type": "message", "role": "user", "content": content})


def finish(talk: Talk) -> list[Any]:
    """Answer the call of the first response, and return the events of the second."""
    item = talk.respond()[-1].response.output[0]
    assert (item.type, item.name, item.arguments) == ("function_call", "find", '{"number":7}')
    talk.add({"type": "function_call_output", "call_id": item.call_id, "output": "order 7"})
    events = talk.respond()
    talk.close()
    (result,) = talk.requests[-1].results
    assert (result.name, result.text) == ("find", "order 7")
    return events


def joined(events: list[Any], kind: str) -> str:
    return "".join(event.delta for event in events if event.type == kind)


def test_a_conversation_in_text_completes_a_tool_call(server: Server):
    talk = Talk(server, "text")
    prompt(talk)
    events = finish(talk)
    assert joined(events, "response.output_text.delta") == "One lamp."
    assert events[-1].response.output[0].content[0].text == "One lamp."
    assert talk.requests[0].tool_names == ("find",)


def test_a_conversation_in_audio_has_frames_and_a_transcript(server: Server):
    talk = Talk(server, "audio")
    for frame in (b"Find", b" 7"):
        talk.connection.input_audio_buffer.append(audio=base64.b64encode(frame).decode())
    talk.connection.input_audio_buffer.commit()
    events = finish(talk)
    assert joined(events, "response.output_audio_transcript.delta") == "One lamp."
    frames = [event.delta for event in events if event.type == "response.output_audio.delta"]
    assert b"".join(base64.b64decode(frame) for frame in frames) == b"One lamp."
    assert talk.requests[0].prompt == "Find 7"


def test_an_event_that_is_not_supported_says_so(server: Server):
    talk = Talk(server, "text")
    talk.connection.conversation.item.delete(item_id="item_1")
    event = talk.connection.recv()
    talk.close()
    assert event.type == "error"
    assert "Offbook does not support the event conversation.item.delete" in event.error.message


@pytest.mark.parametrize(
    "message",
    [
        {"type": "session.update", "session": 1},
        {"type": "conversation.item.create", "item": "Hi"},
        {"type": "input_audio_buffer.append", "audio": 1},
        {"type": "response.create", "response": {"output_modalities": True}},
        {"type": "response.create", "response": {"input": ["Hi"]}},
    ],
    ids=str,
)
def test_an_event_with_a_value_of_another_type_is_an_error(server: Server, message: Any):
    talk = Talk(server, "text")
    talk.connection.send(message)
    event = talk.connection.recv()
    talk.close()
    assert (event.type, event.error.type) == ("error", "invalid_request_error")
    assert event.error.message.startswith(f"invalid event {message['type']}: ")
