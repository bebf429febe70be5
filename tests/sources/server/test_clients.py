"""Real clients of the providers, against a served playbook."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from offbook.exchange.messages import ToolResult
from offbook.sources.playbook import Playbook, call, fail, say, when
from offbook.sources.server.endpoint import Endpoint
from offbook.sources.server.server import Server
from offbook.trace.events import Event
from offbook.trace.hub import Hub

WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}


class Run:
    """A served playbook and all that its endpoint told."""

    def __init__(self, server: Server, *script: Any) -> None:
        self.playbook = Playbook(following=True)
        self.playbook.load(*script)
        self.events: list[Event] = []
        hub = Hub()
        hub.subscribe(self.events.append)
        self.endpoint: Endpoint = server.mount(self.playbook, hub=hub)

    def count(self, name: str) -> int:
        return sum(event.event == name for event in self.events)


@pytest.fixture(scope="module")
def speaking() -> Iterator[Server]:
    """A server that speaks every dialect."""
    with Server() as server:
        yield server


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    """One client, pointed at each run by `with_options`."""
    with openai.OpenAI(base_url="http://127.0.0.1:1/v1", api_key="x") as made:
        yield made


def test_two_steps_of_the_openai_sdk(speaking: Server, client: openai.OpenAI):
    seen: list[ToolResult] = []
    run = Run(
        speaking,
        when("weather?", [call("weather", {"city": "Oslo"}).then(seen.append), say("It is 21.")]),
    )
    chat = client.with_options(base_url=run.endpoint.openai).chat.completions
    messages: Any = [{"role": "user", "content": "weather?"}]
    first = chat.create(model="m", messages=messages, tools=[WEATHER]).choices[0].message
    assert first.tool_calls
    messages += [
        first.to_dict(),
        {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "21"},
    ]
    last = chat.create(model="m", messages=messages, tools=[WEATHER])
    assert last.choices[0].message.content == "It is 21."
    assert [result.text for result in seen] == ["21"]
    assert run.playbook.unfinished() is None


def test_two_steps_of_the_openai_sdk_streamed(speaking: Server, client: openai.OpenAI):
    run = Run(speaking, when("weather?", [call("weather", {"city": "Oslo"}), say("It is 21.")]))
    chat = client.with_options(base_url=run.endpoint.openai).chat.completions
    messages: Any = [{"role": "user", "content": "weather?"}]
    with chat.stream(model="m", messages=messages, tools=[WEATHER]) as stream:
        first = stream.get_final_completion().choices[0].message
    assert first.tool_calls
    assert json.loads(first.tool_calls[0].function.arguments) == {"city": "Oslo"}
    messages += [
        first.to_dict(),
        {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "21"},
    ]
    pieces = [
        chunk.choices[0].delta.content or ""
        for chunk in chat.create(model="m", messages=messages, tools=[WEATHER], stream=True)
        if chunk.choices
    ]
    assert "".join(pieces) == "It is 21."
    assert len(pieces) > 2


def test_an_unmatched_request_fails_the_run_within_one_request(
    speaking: Server, client: openai.OpenAI
):
    run = Run(speaking, when("Refund order 7", [say("ok")]))
    chat = client.with_options(base_url=run.endpoint.openai).chat.completions
    with pytest.raises(openai.BadRequestError, match="did you mean 'Refund order 7'"):
        chat.create(model="m", messages=[{"role": "user", "content": "Refund order 8"}])
    assert run.playbook.failure is run.endpoint.failure is not None
    assert run.count("model.request") == 1


def test_a_scripted_error_is_retried_by_the_sdk_and_the_script_goes_on(
    speaking: Server, client: openai.OpenAI
):
    run = Run(
        speaking, when("hi", [fail("busy", status=503, retry_after=0.001), say("there you are")])
    )
    chat = client.with_options(base_url=run.endpoint.openai).chat.completions
    said = chat.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert said.choices[0].message.content == "there you are"
    assert run.count("model.request") == 2
    assert run.playbook.unfinished() is None


def test_models_and_embeddings_need_no_script(speaking: Server, client: openai.OpenAI):
    run = Run(speaking)
    to = client.with_options(base_url=run.endpoint.openai)
    assert len(list(to.models.list())) > 0
    assert len(to.embeddings.create(model="e", input="hi").data[0].embedding) > 100
    assert run.count("model.aside") == 2
