"""The providers' own SDKs, which send with httpx2, are answered and cannot escape."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from offbook.determinism.network_guard import block_network
from offbook.errors import IsolationError, ModelError, ScriptExhausted
from offbook.exchange.messages import Text
from offbook.exchange.model import Reply, Request
from offbook.exchange.providers import detect_dialect
from offbook.sources.inprocess.patching import intercept
from offbook.sources.server.endpoint import Endpoint

ASKED: list[Any] = [{"role": "user", "content": "Hi"}]
WORDS = "Hello, this is the model."


class Model:
    """Says the same to everybody, or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[Request] = []
        self._error = error

    async def reply(self, request: Request, /) -> Reply:
        self.asked.append(request)
        if self._error is not None:
            raise self._error
        return Reply((Text(WORDS),))


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none")


def chat() -> str:
    with openai.OpenAI() as client:
        answer = client.chat.completions.create(model="m", messages=ASKED)
        return answer.choices[0].message.content or ""


def chat_stream() -> str:
    with openai.OpenAI() as client:
        stream = client.chat.completions.create(model="m", messages=ASKED, stream=True)
        return "".join(c.choices[0].delta.content or "" for c in stream if c.choices)


def responses() -> str:
    with openai.OpenAI() as client:
        return client.responses.create(model="m", input="Hi").output_text


def messages() -> str:
    with anthropic.Anthropic() as client:
        answer = client.messages.create(model="m", messages=ASKED, max_tokens=9)
        return "".join(block.text for block in answer.content if block.type == "text")


def messages_stream() -> str:
    with (
        anthropic.Anthropic() as client,
        client.messages.stream(model="m", messages=ASKED, max_tokens=9) as stream,
    ):
        return "".join(stream.text_stream)


async def chat_async() -> str:
    async with openai.AsyncOpenAI() as client:
        answer = await client.chat.completions.create(model="m", messages=ASKED)
        return answer.choices[0].message.content or ""


async def responses_stream_async() -> str:
    async with openai.AsyncOpenAI() as client:
        stream = await client.responses.create(model="m", input="Hi", stream=True)
        return "".join([e.delta async for e in stream if e.type == "response.output_text.delta"])


async def messages_async() -> str:
    async with anthropic.AsyncAnthropic() as client:
        answer = await client.messages.create(model="m", messages=ASKED, max_tokens=9)
        return "".join(block.text for block in answer.content if block.type == "text")


BLOCKING = [chat, chat_stream, responses, messages, messages_stream]
AWAITED = [chat_async, responses_stream_async, messages_async]


def serve(model: Model) -> Endpoint:
    return Endpoint(model, url="", detect_dialect=detect_dialect)


@pytest.mark.parametrize("ask", BLOCKING)
def test_a_blocking_sdk_is_answered(ask: Callable[[], str]):
    model = Model()
    with block_network(), intercept(serve(model).answer):
        assert ask() == WORDS
    assert [request.prompt for request in model.asked] == ["Hi"]


@pytest.mark.parametrize("ask", AWAITED)
async def test_an_awaited_sdk_is_answered(ask: Callable[[], Awaitable[str]]):
    model = Model()
    with block_network(), intercept(serve(model).answer):
        assert await ask() == WORDS
    assert [request.prompt for request in model.asked] == ["Hi"]


def test_they_do_send_with_httpx2():
    with openai.OpenAI() as one, anthropic.Anthropic() as other:
        assert isinstance(one._client, httpx2.Client)  # pyright: ignore[reportPrivateUsage] - there is no public way
        assert isinstance(other._client, httpx2.Client)  # pyright: ignore[reportPrivateUsage] - there is no public way


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the SDKs would have slept between their tries."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    return slept


@pytest.mark.parametrize("ask", [chat, messages])
def test_without_interception_the_border_catches_them(ask: Callable[[], str], patient: list[float]):
    with block_network() as border, pytest.raises(Exception) as caught:  # noqa: PT011 - one of them wraps it
        ask()
    assert IsolationError in {type(caught.value), type(caught.value.__cause__)}
    assert {error.where.rpartition(" ")[2] for error in border.refused} == {ask.__name__}


@pytest.mark.parametrize(
    "ask,refused", [(chat, openai.BadRequestError), (messages, anthropic.BadRequestError)]
)
def test_a_script_that_does_not_fit_reaches_the_test_at_once(
    ask: Callable[[], str], refused: type[Exception], patient: list[float]
):
    model = Model(ScriptExhausted("the agent asked for more"))
    endpoint = serve(model)
    with (
        block_network(),
        intercept(endpoint.answer),
        pytest.raises(refused, match="asked for more"),
    ):
        ask()
    assert isinstance(endpoint.failure, ScriptExhausted)
    assert len(model.asked) == 1
    assert not patient


def test_an_error_of_the_provider_looks_like_one(patient: list[float]):
    model = Model(ModelError("slow down", status=429, retry_after=2))
    endpoint = serve(model)
    with block_network(), intercept(endpoint.answer), pytest.raises(openai.RateLimitError):
        chat()
    assert endpoint.failure is None
    assert len(model.asked) == 3, "the SDK tries again, as it would"
    assert patient == [2, 2]
