"""The SDKs of the providers against a served playbook."""

import json
from collections.abc import Iterator
from typing import Any, cast

import anthropic
import openai
import pytest
from google import genai
from google.genai import types

from offbook.exchange import ToolResult
from offbook.sources.playbook import Playbook, call, fail, say, when
from offbook.sources.server import Endpoint, Server
from offbook.trace import Event, Hub

WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}


class Run:
    """A served playbook, and the events of its endpoint."""

    def __init__(self, server: Server, *script: Any) -> None:
        self.playbook = Playbook()
        self.playbook.load(*script)
        self.events: list[Event] = []
        hub = Hub()
        hub.subscribe(self.events.append)
        self.endpoint: Endpoint = server.mount(self.playbook, hub=hub)

    def count(self, name: str) -> int:
        return sum(event.event == name for event in self.events)


@pytest.fixture(scope="module")
def all_dialects() -> Iterator[Server]:
    """A server with every dialect."""
    with Server() as server:
        yield server


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    """One client, directed to each run by `with_options`."""
    with openai.OpenAI(base_url="http://127.0.0.1:1/v1", api_key="x") as made:
        yield made


def test_two_steps_of_the_openai_sdk(all_dialects: Server, client: openai.OpenAI):
    seen: list[ToolResult] = []
    run = Run(
        all_dialects,
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


def test_two_steps_of_the_openai_sdk_streamed(all_dialects: Server, client: openai.OpenAI):
    run = Run(all_dialects, when("weather?", [call("weather", {"city": "Oslo"}), say("It is 21.")]))
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


def test_an_unexpected_prompt_fails_the_run_without_a_retry(
    all_dialects: Server, client: openai.OpenAI
):
    run = Run(all_dialects, when("Refund order 7", [say("ok")]))
    chat = client.with_options(base_url=run.endpoint.openai).chat.completions
    with pytest.raises(openai.BadRequestError, match="did you mean 'Refund order 7'"):
        chat.create(model="m", messages=[{"role": "user", "content": "Refund order 8"}])
    assert run.playbook.failure is run.endpoint.failure is not None
    assert run.count("model.request") == 1


def test_the_sdk_retries_a_scripted_error_and_the_script_continues(
    all_dialects: Server, client: openai.OpenAI
):
    run = Run(
        all_dialects,
        when("hi", [fail("busy", status=503, retry_after=0.001), say("there you are")]),
    )
    chat = client.with_options(base_url=run.endpoint.openai).chat.completions
    completion = chat.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert completion.choices[0].message.content == "there you are"
    assert run.count("model.request") == 2
    assert run.playbook.unfinished() is None


def test_models_and_embeddings_need_no_script(all_dialects: Server, client: openai.OpenAI):
    run = Run(all_dialects)
    api = client.with_options(base_url=run.endpoint.openai)
    assert len(list(api.models.list())) > 0
    assert len(api.embeddings.create(model="e", input="hi").data[0].embedding) > 100
    assert run.count("model.aside") == 2


def test_two_steps_of_the_responses_api(all_dialects: Server, client: openai.OpenAI):
    run = Run(all_dialects, when("weather?", [call("weather", {"city": "Oslo"}), say("It is 21.")]))
    responses = client.with_options(base_url=run.endpoint.openai).responses
    tools: Any = [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]
    first = responses.create(model="m", input="weather?", tools=tools)
    tool_call = first.output[0]
    assert tool_call.type == "function_call"
    results: Any = [{"type": "function_call_output", "call_id": tool_call.call_id, "output": "21"}]
    with responses.stream(
        model="m", input=results, previous_response_id=first.id, tools=tools
    ) as stream:
        assert stream.get_final_response().output_text == "It is 21."
    assert run.playbook.unfinished() is None


def test_the_responses_api_over_one_websocket(all_dialects: Server, client: openai.OpenAI):
    run = Run(
        all_dialects,
        when("weather?", [call("weather", {"city": "Oslo"}), say("It is 21.")]),
        when("bye", [say("Bye.")]),
    )
    tools: Any = [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]
    with client.with_options(base_url=run.endpoint.openai).responses.connect() as connection:

        def ask(**body: Any) -> Any:
            connection.response.create(model="m", tools=tools, **body)
            for event in connection:
                assert event.type != "error", event
                if event.type == "response.completed":
                    return event.response
            return pytest.fail("the server closed the connection")

        warm = ask(input=[], generate=False)
        assert warm.output == []
        first = ask(input="weather?", previous_response_id=warm.id)
        call_id = first.output[0].call_id
        result: Any = {"type": "function_call_output", "call_id": call_id, "output": "21"}
        second = ask(input=[result], previous_response_id=first.id)
        assert second.output_text == "It is 21."
        assert ask(input="bye", previous_response_id=second.id).output_text == "Bye."
    assert run.playbook.unfinished() is None


@pytest.mark.parametrize("streamed", [False, True])
def test_two_steps_of_the_anthropic_sdk(all_dialects: Server, *, streamed: bool):
    run = Run(all_dialects, when("weather?", [call("weather", {"city": "Oslo"}), say("It is 21.")]))
    tools: Any = [{"name": "weather", "input_schema": {"type": "object"}}]
    messages: Any = [{"role": "user", "content": "weather?"}]
    with anthropic.Anthropic(base_url=run.endpoint.anthropic, api_key="x") as client:

        def ask() -> anthropic.types.Message:
            options: Any = {"model": "m", "max_tokens": 100, "tools": tools, "messages": messages}
            if not streamed:
                return cast("anthropic.types.Message", client.messages.create(**options))
            with client.messages.stream(**options) as stream:
                return stream.get_final_message()

        first = ask()
        tool_use = first.content[0]
        assert tool_use.type == "tool_use"
        assert tool_use.input == {"city": "Oslo"}
        result = {"type": "tool_result", "tool_use_id": tool_use.id, "content": "21"}
        messages += [
            {"role": "assistant", "content": [block.to_dict() for block in first.content]},
            {"role": "user", "content": [result]},
        ]
        answer = ask().content[0]
        assert answer.type == "text"
        assert answer.text == "It is 21."
    assert run.playbook.unfinished() is None


def test_the_anthropic_sdk_does_not_retry_an_unexpected_prompt(all_dialects: Server):
    run = Run(all_dialects, when("one", [say("1")]))
    with (
        anthropic.Anthropic(base_url=run.endpoint.anthropic, api_key="x") as client,
        pytest.raises(anthropic.BadRequestError, match="when"),
    ):
        client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "two"}]
        )
    assert run.count("model.request") == 1


@pytest.mark.parametrize("streamed", [False, True])
def test_two_steps_of_the_gemini_sdk(all_dialects: Server, *, streamed: bool):
    run = Run(all_dialects, when("weather?", [call("weather", {"city": "Oslo"}), say("It is 21.")]))
    declared = types.FunctionDeclaration(name="weather", description="the weather")
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declared])])
    options = types.HttpOptions(base_url=run.endpoint.gemini)
    contents: Any = [types.UserContent("weather?")]
    with genai.Client(api_key="x", http_options=options) as client:

        def ask() -> list[types.Part]:
            models: Any = client.models
            if streamed:
                chunks = models.generate_content_stream(model="m", contents=contents, config=config)
                return [part for chunk in chunks for part in chunk.candidates[0].content.parts]
            whole = models.generate_content(model="m", contents=contents, config=config)
            return whole.candidates[0].content.parts

        first = ask()
        function_call = first[0].function_call
        assert function_call is not None
        assert function_call.args == {"city": "Oslo"}
        result = types.Part.from_function_response(name="weather", response={"result": "21"})
        contents += [types.ModelContent(first), types.UserContent(result)]  # pyright: ignore[reportArgumentType] - a list of parts is accepted
        assert "".join(part.text or "" for part in ask()) == "It is 21."
    assert run.playbook.unfinished() is None
