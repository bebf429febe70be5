"""A request without a match, or to an unsupported endpoint, has a message and no retry."""

from collections.abc import Callable, Iterator

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors

from offbook.exchange.dialects import HttpRequest, HttpResponse
from offbook.sources.mocks import Mocks
from offbook.sources.server import Endpoint, Server

Miss = Callable[[Endpoint], str]


@pytest.fixture(scope="module")
def all_dialects() -> Iterator[Server]:
    """A server with every dialect."""
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
def test_a_miss_is_not_retried_and_shows_the_nearest_line(
    all_dialects: Server, ask: Miss, monkeypatch: pytest.MonkeyPatch
):
    endpoint = all_dialects.mount(Mocks([{"match": "*What is the time?*", "text": "Late."}]))
    requests: list[HttpRequest] = []
    answer = endpoint.answer

    async def count(request: HttpRequest) -> HttpResponse:
        requests.append(request)
        return await answer(request)

    monkeypatch.setattr(endpoint, "answer", count)
    message = ask(endpoint)
    endpoint.close()
    assert 'no mock matched prompt: "Who are you?' in message
    assert "nearest" in message
    assert [request.method for request in requests] == ["POST"], "the SDK retried"


def call_openai(endpoint: Endpoint, path: str) -> None:
    with openai.OpenAI(base_url=endpoint.openai, api_key="x") as client:
        match path:
            case "/evals":
                client.evals.list()
            case "/containers":
                client.containers.list()
            case _:
                client.skills.list()


def call_anthropic(endpoint: Endpoint, path: str) -> None:
    with anthropic.Anthropic(base_url=endpoint.anthropic, api_key="x") as client:
        if path == "/v1/skills":
            client.beta.skills.list()
        else:
            client.beta.sessions.list()


def call_gemini(endpoint: Endpoint, path: str) -> None:
    client = genai.Client(api_key="x", http_options={"base_url": endpoint.gemini})
    try:
        if "batch" in path:
            client.batches.create(model="m", src=[{"contents": [{"parts": [{"text": "Hi"}]}]}])
        else:
            list(client.files.list())
    finally:
        client.close()


UNSUPPORTED: list[tuple[Callable[[Endpoint, str], None], str, type[Exception]]] = [
    *((call_openai, path, openai.NotFoundError) for path in ("/evals", "/containers", "/skills")),
    (call_anthropic, "/v1/skills", anthropic.NotFoundError),
    (call_anthropic, "/sessions", anthropic.NotFoundError),
    (call_gemini, ":batchGenerateContent", errors.ClientError),
    (call_gemini, "/v1beta/files", errors.ClientError),
]


@pytest.mark.parametrize("send, path, error", UNSUPPORTED, ids=[row[1] for row in UNSUPPORTED])
def test_an_unsupported_endpoint_says_so_in_the_providers_form(
    all_dialects: Server,
    send: Callable[[Endpoint, str], None],
    path: str,
    error: type[Exception],
):
    endpoint = all_dialects.mount(Mocks([{"text": "Hi."}]))
    with pytest.raises(error, match="Offbook does not support"):
        send(endpoint, path)
    endpoint.close()
