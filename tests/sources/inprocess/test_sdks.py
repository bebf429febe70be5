"""The SDKs of the providers, which use httpx2, are intercepted and cannot reach the network."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from offbook.determinism import block_network
from offbook.errors import ConnectionBlocked, ModelError, ScriptExhausted
from offbook.exchange import Reply, Request, Text, detect_dialect
from offbook.sources.inprocess import intercept
from offbook.sources.server import Endpoint
from tests.sources.inprocess.test_patching import causes

MESSAGES: list[Any] = [{"role": "user", "content": "Hi"}]
TEXT = "Hello, this is the model."


class Model:
    """Answers every request with the same text, or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.requests: list[Request] = []
        self._error = error

    async def reply(self, request: Request, /) -> Reply:
        self.requests.append(request)
        if self._error is not None:
            raise self._error
        return Reply((Text(TEXT),))


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none")


def chat() -> str:
    with openai.OpenAI() as client:
        answer = client.chat.completions.create(model="m", messages=MESSAGES)
        return answer.choices[0].message.content or ""


def chat_stream() -> str:
    with openai.OpenAI() as client:
        stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        return "".join(c.choices[0].delta.content or "" for c in stream if c.choices)


def responses() -> str:
    with openai.OpenAI() as client:
        return client.responses.create(model="m", input="Hi").output_text


def messages() -> str:
    with anthropic.Anthropic() as client:
        answer = client.messages.create(model="m", messages=MESSAGES, max_tokens=9)
        return "".join(block.text for block in answer.content if block.type == "text")


def messages_stream() -> str:
    with (
        anthropic.Anthropic() as client,
        client.messages.stream(model="m", messages=MESSAGES, max_tokens=9) as stream,
    ):
        return "".join(stream.text_stream)


async def chat_async() -> str:
    async with openai.AsyncOpenAI() as client:
        answer = await client.chat.completions.create(model="m", messages=MESSAGES)
        return answer.choices[0].message.content or ""


async def responses_stream_async() -> str:
    async with openai.AsyncOpenAI() as client:
        stream = await client.responses.create(model="m", input="Hi", stream=True)
        return "".join([e.delta async for e in stream if e.type == "response.output_text.delta"])


async def messages_async() -> str:
    async with anthropic.AsyncAnthropic() as client:
        answer = await client.messages.create(model="m", messages=MESSAGES, max_tokens=9)
        return "".join(block.text for block in answer.content if block.type == "text")


BLOCKING = [chat, chat_stream, responses, messages, messages_stream]
AWAITED = [chat_async, responses_stream_async, messages_async]


def serve(model: Model) -> Endpoint:
    return Endpoint(model, url="", detect_dialect=detect_dialect)


@pytest.mark.parametrize("ask", BLOCKING)
def test_a_blocking_sdk_is_intercepted(ask: Callable[[], str]):
    model = Model()
    with block_network(), intercept(serve(model).answer):
        assert ask() == TEXT
    assert [request.prompt for request in model.requests] == ["Hi"]


@pytest.mark.parametrize("ask", AWAITED)
async def test_an_async_sdk_is_intercepted(ask: Callable[[], Awaitable[str]]):
    model = Model()
    with block_network(), intercept(serve(model).answer):
        assert await ask() == TEXT
    assert [request.prompt for request in model.requests] == ["Hi"]


def test_the_sdks_use_httpx2():
    with openai.OpenAI() as first, anthropic.Anthropic() as second:
        assert isinstance(first._client, httpx2.Client)  # pyright: ignore[reportPrivateUsage] - not public
        assert isinstance(second._client, httpx2.Client)  # pyright: ignore[reportPrivateUsage] - not public


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the delays of the SDKs' retries, and do not wait."""
    delays: list[float] = []
    monkeypatch.setattr(time, "sleep", delays.append)
    return delays


@pytest.mark.parametrize("ask", [chat, messages])
def test_outside_of_a_block_the_network_guard_refuses_requests(
    ask: Callable[[], str], sleeps: list[float]
):
    with block_network() as guard, pytest.raises(Exception) as caught:  # noqa: PT011 - one of them wraps it
        ask()
    assert ConnectionBlocked in causes(caught.value)
    assert {error.where.rpartition(" ")[2] for error in guard.refused} == {ask.__name__}


@pytest.mark.parametrize(
    "ask,error", [(chat, openai.BadRequestError), (messages, anthropic.BadRequestError)]
)
def test_a_script_error_is_not_retried(
    ask: Callable[[], str], error: type[Exception], sleeps: list[float]
):
    model = Model(ScriptExhausted("the agent asked for more"))
    endpoint = serve(model)
    with (
        block_network(),
        intercept(endpoint.answer),
        pytest.raises(error, match="asked for more"),
    ):
        ask()
    assert isinstance(endpoint.failure, ScriptExhausted)
    assert len(model.requests) == 1
    assert not sleeps


def test_a_provider_error_is_retried(sleeps: list[float]):
    model = Model(ModelError("slow down", status=429, retry_after=2))
    endpoint = serve(model)
    with block_network(), intercept(endpoint.answer), pytest.raises(openai.RateLimitError):
        chat()
    assert endpoint.failure is None
    assert len(model.requests) == 3, "the SDK retries twice"
    assert sleeps == [0.001, 0.001], "a script never makes an SDK wait"
