"""The Gemini dialect with Google's client."""

import json
from typing import Any

import google.oauth2.credentials
import pytest
from google import genai
from google.genai import errors, types
from pydantic import BaseModel

from offbook.errors import ModelError
from offbook.exchange import Reply, StopReason, Text, Thinking, ToolCall, Usage
from offbook.exchange.dialects import ConversationStore, HttpRequest, parse_sse
from offbook.exchange.dialects.gemini.gemini_dialect import Gemini
from offbook.runs import drive
from offbook.sources.playbook import say, when
from tests.exchange.dialects.fake_provider import FakeProvider, ScriptedReply

ASKED = "Weather in Paris?"
DECLARED: Any = types.FunctionDeclaration(
    name="weather",
    description="The weather of a city.",
    parameters=types.Schema(
        type=types.Type.OBJECT, properties={"city": types.Schema(type=types.Type.STRING)}
    ),
)
TOOLS: Any = types.GenerateContentConfig(
    tools=[types.Tool(function_declarations=[DECLARED])], system_instruction="Be brief."
)
CALLS = Reply(
    (
        Thinking("Paris first, then Rome.", "c2VhbA=="),
        Text("I look it up."),
        ToolCall("call_1", "weather", {"city": "Paris"}),
        ToolCall("call_2", "weather", {"city": "Rome", "days": [1, 2]}),
    ),
    "tool_use",
    Usage(31, 17, cache_read=16, reasoning=5),
)
DONE = Reply((Text("It is fine, and 21 °C."),), usage=Usage(20, 8))


class Weather(BaseModel):
    city: str
    degrees: int


def weather(city: str, days: list[int] | None = None) -> str:
    """Return the weather of a city."""
    return f"21 in {city}"


def connect(*script: ScriptedReply) -> tuple[Any, FakeProvider]:
    """Return an untyped client: its types are only partially known."""
    provider = FakeProvider(*script)
    options = types.HttpOptions(base_url="http://127.0.0.1", httpx_client=provider.http_client)
    return genai.Client(api_key="none", http_options=options), provider


def is_whole(reply: Any) -> None:
    types.GenerateContentResponse.model_validate(reply.model_dump(mode="json"))
    calls = reply.function_calls
    assert [(call.id, call.name, call.args) for call in calls] == [
        ("call_1", "weather", {"city": "Paris"}),
        ("call_2", "weather", {"city": "Rome", "days": [1, 2]}),
    ]
    counted = reply.usage_metadata
    assert (counted.prompt_token_count, counted.cached_content_token_count) == (31, 16)
    assert (counted.candidates_token_count, counted.thoughts_token_count) == (12, 5)
    assert counted.total_token_count == 48


def answer(reply: Any) -> Any:
    parts = [
        types.Part(
            function_response=types.FunctionResponse(
                id=call.id, name=call.name, response={"result": "21"}
            )
        )
        for call in reply.function_calls
    ]
    return types.Content(role="user", parts=parts)


def test_thinking_and_parallel_calls_in_two_steps():
    client, provider = connect(CALLS, DONE)
    reply = client.models.generate_content(model="m", contents=ASKED, config=TOOLS)
    is_whole(reply)
    assert reply.candidates[0].finish_reason == types.FinishReason.STOP
    history = [types.UserContent(ASKED), reply.candidates[0].content, answer(reply)]
    final = client.models.generate_content(model="m", contents=history, config=TOOLS)
    assert final.text == "It is fine, and 21 °C."
    back = provider.requests[1]
    assert back.messages[1].blocks == CALLS.blocks
    assert [(r.call_id, r.name, r.text) for m in back.new_messages for r in m.results] == [
        ("call_1", "weather", "21"),
        ("call_2", "weather", "21"),
    ]
    assert back.system == "Be brief."
    assert back.tools[0].schema == {
        "type": "object",
        "properties": {"city": {"type": "string"}},
    }


def test_automatic_function_calling_works():
    client, provider = connect(CALLS, DONE)
    config = types.GenerateContentConfig(tools=[weather])
    final = client.models.generate_content(model="m", contents=ASKED, config=config)
    assert final.text == "It is fine, and 21 °C."
    results = [
        result.text for message in provider.requests[1].new_messages for result in message.results
    ]
    assert results == ["21 in Paris", "21 in Rome"]


def test_a_stream_has_the_same_content_as_a_response():
    client, provider = connect(CALLS, DONE)
    pieces = list(client.models.generate_content_stream(model="m", contents=ASKED, config=TOOLS))
    is_whole(pieces[-1])
    assert "".join(piece.text or "" for piece in pieces) == "I look it up."
    finishes = [piece.candidates[0].finish_reason for piece in pieces]
    assert finishes == [None] * (len(pieces) - 1) + [types.FinishReason.STOP]
    for chunk in provider.responses[0].chunks:
        (event,) = parse_sse(chunk)
        assert chunk.endswith(b"\r\n\r\n")
        types.GenerateContentResponse.model_validate(json.loads(event.data))
    more = list(client.models.generate_content_stream(model="m", contents=ASKED))
    assert len(more) > 2
    assert "".join(piece.text for piece in more) == "It is fine, and 21 °C."


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_sends_its_history(*, stream: bool):
    client, provider = connect(Reply((Text("Hello you."),)), DONE)
    chat = client.chats.create(model="m")
    for text in ("Hi", "And?"):
        if stream:
            list(chat.send_message_stream(text))
        else:
            chat.send_message(text)
    reply = [(message.role, message.text) for message in provider.requests[1].messages]
    joined = "".join(text.replace("\n", "") for role, text in reply if role == "assistant")
    assert joined == "Hello you."
    assert [text for role, text in reply if role == "user"] == ["Hi", "And?"]


def test_structured_output_is_parsed():
    client, provider = connect(Reply((Text('{"city": "Paris", "degrees": 21}'),)))
    config = types.GenerateContentConfig(
        response_mime_type="application/json", response_schema=Weather
    )
    reply = client.models.generate_content(model="m", contents=ASKED, config=config)
    assert reply.parsed == Weather(city="Paris", degrees=21)
    wanted = provider.requests[0].parameters["generationConfig"]
    assert wanted["responseMimeType"] == "application/json"


def test_embeddings_are_the_same_for_the_same_text():
    client, _ = connect()
    config = types.EmbedContentConfig(output_dimensionality=16)
    first, second, third = client.models.embed_content(
        model="e", contents=["hello", "hello", "other"], config=config
    ).embeddings
    assert len(first.values) == 16
    assert first.values == second.values != third.values
    (complete,) = client.models.embed_content(model="e", contents="hello").embeddings
    assert len(complete.values) == 768


def test_vertex_embeds_texts_by_a_prediction():
    def agent(_prompt: str) -> None:
        credentials: Any = google.oauth2.credentials.Credentials("none")  # pyright: ignore[reportUnknownMemberType] - its own
        client: Any = genai.Client(
            vertexai=True, credentials=credentials, project="p", location="europe-west1"
        )
        config = types.EmbedContentConfig(output_dimensionality=16)
        model = "text-embedding-005"
        one, two = client.models.embed_content(
            model=model, contents=["hello", "other"], config=config
        ).embeddings
        assert len(one.values) == 16
        assert one.values != two.values
        assert client.models.generate_content(model="m", contents=ASKED).text == "Done."

    with drive(agent) as rehearsal:
        rehearsal.run(when(ASKED, [say("Done.")]))


def test_another_prediction_of_vertex_is_not_supported():
    body = json.dumps({"instances": [{"prompt": "A lamp"}]}).encode()
    http_request = HttpRequest("POST", "/v1/projects/p/models/imagen-4:predict", {}, body)
    response = Gemini().side_response(http_request, ConversationStore())
    assert response is not None
    assert "Offbook does not support predictions" in json.loads(response.body)["error"]["message"]


def test_tokens_are_counted_and_models_listed():
    client, _ = connect()
    assert client.models.count_tokens(model="m", contents=ASKED).total_tokens > 0
    listed = list(client.models.list())
    assert "generateContent" in listed[0].supported_actions
    assert client.models.get(model="gemini-fake").name == "models/gemini-fake"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "stop, expected", [("length", "MAX_TOKENS"), ("refusal", "SAFETY"), ("error", "OTHER")]
)
def test_stop_reasons_reach_the_client(stop: StopReason, expected: str, *, stream: bool):
    client, _ = connect(Reply((Text("so"),), stop))
    if stream:
        *_, reply = client.models.generate_content_stream(model="m", contents=ASKED)
    else:
        reply = client.models.generate_content(model="m", contents=ASKED)
    assert reply.candidates[0].finish_reason == types.FinishReason(expected)


@pytest.mark.parametrize(
    "status, kind, name",
    [
        (400, errors.ClientError, "INVALID_ARGUMENT"),
        (429, errors.ClientError, "RESOURCE_EXHAUSTED"),
        (503, errors.ServerError, "UNAVAILABLE"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_raised_as_the_clients_exceptions(
    status: int, kind: type[errors.APIError], name: str, *, stream: bool
):
    client, _ = connect(ModelError("no luck", status=status, retry_after=2))
    ask = client.models.generate_content_stream if stream else client.models.generate_content
    with pytest.raises(kind) as caught:
        list(ask(model="m", contents=ASKED))
    assert (caught.value.code, caught.value.status) == (status, name)
    assert caught.value.message == "no luck"
