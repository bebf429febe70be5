"""A request that nothing in the script answers reaches the test at once: no client tries again."""

from collections.abc import Callable, Iterator

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors

from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.sources.mocks.mocks import Mocks
from offbook.sources.server.endpoint import Endpoint
from offbook.sources.server.server import Server

Miss = Callable[[Endpoint], str]


@pytest.fixture(scope="module")
def speaking() -> Iterator[Server]:
    """A server that speaks every dialect."""
    with Server() as server:
        yield server


def ask_chat(endpoint: Endpoint) -> str:
    with openai.OpenAI(base_url=endpoint.openai, api_key="x") as client:
        try:
            client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Who are you?"}]
            )
        except openai.BadRequestError as error:
            return error.message
    return ""


def ask_responses(endpoint: Endpoint) -> str:
    with openai.OpenAI(base_url=endpoint.openai, api_key="x") as client:
        try:
            client.responses.create(model="m", input="Who are you?")
        except openai.BadRequestError as error:
            return error.message
    return ""


def ask_messages(endpoint: Endpoint) -> str:
    with anthropic.Anthropic(base_url=endpoint.anthropic, api_key="x") as client:
        try:
            client.messages.create(
                model="m",
                max_tokens=99,
                messages=[{"role": "user", "content": "Who are you?"}],
            )
        except anthropic.BadRequestError as error:
            return error.message
    return ""


def ask_gemini(endpoint: Endpoint) -> str:
    client = genai.Client(api_key="x", http_options={"base_url": endpoint.gemini})
    try:
        client.models.generate_content(model="m", contents="Who are you?")  # pyright: ignore[reportUnknownMemberType] - its own
    except errors.ClientError as error:
        return str(error)
    finally:
        client.close()
    return ""


@pytest.mark.parametrize("ask", [ask_chat, ask_responses, ask_messages, ask_gemini])
def test_a_miss_is_asked_for_once_and_says_what_came_nearest(
    speaking: Server, ask: Miss, monkeypatch: pytest.MonkeyPatch
):
    endpoint = speaking.mount(Mocks([{"match": "*What is the time?*", "text": "Late."}]))
    asked: list[HttpRequest] = []
    answer = endpoint.answer

    async def count(wire: HttpRequest) -> HttpResponse:
        asked.append(wire)
        return await answer(wire)

    monkeypatch.setattr(endpoint, "answer", count)
    said = ask(endpoint)
    endpoint.close()
    assert 'no mock matched prompt: "Who are you?' in said
    assert "nearest" in said
    assert [wire.method for wire in asked] == ["POST"], "with retries there are more"
