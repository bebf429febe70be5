"""Functions as subjects, and their isolation from the network."""

import asyncio
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

import anthropic
import httpx
import openai
import pytest
import requests
import requests.adapters
import urllib3

from offbook import Command, call, drive, fail, say, when
from offbook.errors import (
    IsolationError,
    OffbookWarning,
    ScriptMismatch,
    ScriptUnfinished,
    UsageError,
)
from offbook.sources.mocks import Mocks
from offbook.subjects.frameworks import FrameworkSubject

SCRIPT = when("Hi", [say("Hello.")])
TOOL: Any = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {}}},
}


def ask(prompt: str) -> str | None:
    client = openai.OpenAI(api_key="none")
    answer = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": prompt}]
    )
    return answer.choices[0].message.content


async def ask_async(prompt: str) -> str | None:
    client = openai.AsyncOpenAI(api_key="none")
    answer = await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": prompt}]
    )
    return answer.choices[0].message.content


def ask_in_new_loop(prompt: str) -> str | None:
    return asyncio.run(ask_async(prompt))


def return_coroutine(prompt: str) -> object:
    return ask_async(prompt)


class Agent:
    def __call__(self, prompt: str) -> str | None:
        return ask(prompt)


@pytest.mark.parametrize("function", [ask, ask_async, ask_in_new_loop, return_coroutine, Agent()])
def test_kinds_of_functions(function: object):
    with drive(function) as rehearsal:
        assert rehearsal.run(SCRIPT).output == "Hello."


@pytest.mark.parametrize("function", [ask, ask_async, ask_in_new_loop])
async def test_functions_in_a_running_event_loop(function: object):
    async with drive(function) as rehearsal:
        assert (await rehearsal.run(SCRIPT)).output == "Hello."


async def test_concurrent_runs_have_separate_models():
    async def run(word: str) -> str:
        async with drive(ask) as rehearsal:
            return (await rehearsal.run(when("Hi", [say(word)]))).output

    words = [f"word {number}" for number in range(8)]
    assert await asyncio.gather(*map(run, words)) == words


def test_tool_calls_of_a_hand_written_loop_are_in_the_trace():
    def loop(prompt: str) -> None:
        client = openai.OpenAI(api_key="none")
        messages: list[Any] = [{"role": "user", "content": prompt}]
        while True:
            answer = client.chat.completions.create(model="m", messages=messages, tools=[TOOL])
            message = answer.choices[0].message
            if not message.tool_calls:
                return
            messages.append(message.to_dict())
            messages.extend(
                {"role": "tool", "tool_call_id": made.id, "content": "3"}
                for made in message.tool_calls
            )

    with drive(loop) as rehearsal:
        run = rehearsal.run(when("1 + 2?", [call("add", {"a": 1, "b": 2}), say("3.")]))
        assert run.tools == ["add"]
        assert run.results("add")[0].text == "3"


class AgentDownError(Exception):
    """What an agent may raise in place of the provider's error."""


def with_a_bug(prompt: str) -> object:
    try:
        return ask(prompt)
    except openai.APIError:
        return cast("dict[str, str]", {})["bug"]


def with_an_error_of_its_own(prompt: str) -> object:
    try:
        return ask(prompt)
    except openai.APIError as error:
        raise AgentDownError("try later") from error


def with_the_error_of_a_framework(prompt: str) -> object:
    try:
        return ask(prompt)
    except openai.APIError as error:
        # The framework is not installed here; only the name of its module counts.
        kind = type("ServiceError", (Exception,), {"__module__": "semantic_kernel.exceptions"})
        raise kind(f"the service failed: {error}") from error


def with_a_framework_that_hides_the_cause(prompt: str) -> object:
    text = ""
    with suppress(openai.APIError):
        text = str(ask(prompt))
    kind = type("HiddenError", (Exception,), {"__module__": "semantic_kernel.exceptions"})
    return text or raise_error(kind("the service failed"))


def raise_error(error: Exception) -> None:
    raise error


def with_retries(_prompt: str) -> object:
    retry = urllib3.Retry(total=1, status_forcelist=[401], allowed_methods=None)
    with requests.Session() as session:
        session.mount("https://", requests.adapters.HTTPAdapter(max_retries=retry))
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        url = "https://api.openai.com/v1/chat/completions"
        return session.post(url, json=body, timeout=300).json()


def with_requests(_prompt: str) -> object:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    response = requests.post("https://api.openai.com/v1/chat/completions", json=body, timeout=300)
    response.raise_for_status()
    return response.json()


def with_httpx(_prompt: str) -> object:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    response = httpx.post("https://api.openai.com/v1/chat/completions", json=body)
    return response.raise_for_status().json()


DOWN = when("Hi", [fail("down", status=401)])


@pytest.mark.parametrize(
    "function",
    [ask, ask_async, with_requests, with_retries, with_httpx, with_the_error_of_a_framework],
)
def test_an_error_of_a_provider_that_ends_the_agent_is_raised(function: object):
    with drive(function) as rehearsal:
        again = [fail("down", status=401)] * (function is with_retries)
        with pytest.raises(Exception, match="401") as caught:
            rehearsal.run(when("Hi", [fail("down", status=401), *again]))
        [event] = rehearsal.events.named("agent.error")
        run = rehearsal.latest_run
    assert "401" in event.data["error"]
    assert run is not None
    assert run.error is caught.value


def test_an_error_of_a_provider_that_ends_the_agent_is_kept_without_assertions():
    with drive(ask, auto_assert=False) as rehearsal:
        assert rehearsal.run(DOWN).output is None


@pytest.mark.parametrize(
    "function, error",
    [
        (with_a_bug, KeyError),
        (with_an_error_of_its_own, AgentDownError),
        (with_a_framework_that_hides_the_cause, Exception),
    ],
)
def test_another_exception_of_the_agent_fails_after_a_scripted_error(
    function: object, error: type[Exception]
):
    with drive(function) as rehearsal, pytest.raises(error) as caught:
        rehearsal.run(DOWN)
    assert isinstance(caught.value, error)
    assert f"pytest.raises({type(caught.value).__name__})" in caught.value.__notes__[0]


def test_mocks_as_source():
    with drive(ask, source=Mocks([{"match": "*Hi*", "text": "Hello."}])) as rehearsal:
        assert rehearsal.run("Hi").output == "Hello."


def connect(_: str) -> None:
    socket.getaddrinfo("offbook.invalid", 443)


def connect_and_ignore_errors(prompt: str) -> None:
    ask(prompt)
    with suppress(IsolationError):
        connect(prompt)


def test_a_network_connection_fails_the_run_with_its_location():
    with drive(connect) as rehearsal, pytest.raises(IsolationError) as refusal:
        rehearsal.run(SCRIPT)
    assert refusal.value.where.endswith("in connect")


def test_a_refused_connection_is_reported_without_the_frames_of_the_libraries():
    def framework(prompt: str) -> None:
        try:
            connect(prompt)
        except IsolationError as error:
            raise RuntimeError("the request failed") from error

    with drive(framework) as rehearsal, pytest.raises(IsolationError) as refusal:
        rehearsal.run(SCRIPT)
    assert refusal.value.__cause__ is None
    assert refusal.value.__suppress_context__
    assert not any(entry.name in {"framework", "connect"} for entry in refusal.traceback)


def test_the_refusal_that_ended_the_agent_is_reported_and_not_one_that_it_swallowed():
    def agent(prompt: str) -> None:
        connect_and_ignore_errors(prompt)
        httpx.get("http://fatal.invalid/")

    with drive(agent) as rehearsal, pytest.raises(IsolationError, match=r"fatal\.invalid"):
        rehearsal.run(SCRIPT)


def test_an_agent_that_fails_after_a_refusal_is_reported_with_its_own_error():
    def agent(prompt: str) -> None:
        connect_and_ignore_errors(prompt)
        raise ValueError("bug")

    with drive(agent) as rehearsal, pytest.raises(ValueError, match="bug") as failure:
        rehearsal.run(SCRIPT)
    assert "offbook.invalid" in failure.value.__notes__[0]


def ask_with_a_socket(prompt: str) -> str:
    """Ask a model as a client does that is written on sockets."""
    url = urlsplit(os.environ.get("OPENAI_BASE_URL", "http://api.openai.com/v1"))
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": prompt}]})
    head = f"POST {url.path}/chat/completions HTTP/1.1\r\nHost: {url.netloc}\r\n"
    head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((url.hostname or "", url.port or 80)) as connection:
        connection.sendall((head + body).encode())
        response = b"".join(iter(lambda: connection.recv(4096), b""))
    return json.loads(response.partition(b"\r\n\r\n")[2])["choices"][0]["message"]["content"]


def test_serve_answers_a_client_that_opens_its_own_sockets(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gateway.example/v1")
    with drive(ask_with_a_socket, serve=True) as rehearsal:
        assert rehearsal.run(when("Hi", [say("Hello.")])).output == "Hello."
    assert os.environ["OPENAI_BASE_URL"] == "http://gateway.example/v1"


def test_a_client_that_opens_its_own_sockets_is_refused_with_a_hint_to_serve():
    with drive(ask_with_a_socket) as rehearsal, pytest.raises(IsolationError, match="serve=True"):
        rehearsal.run(when("Hi", [say("Hello.")]))


def test_serve_is_refused_for_an_agent_that_is_not_answered_in_process():
    with pytest.raises(UsageError, match="serve has no effect on sh"):
        drive(Command("sh agent.sh"), serve=True)


def test_a_refused_connection_that_is_ignored_fails_the_run():
    rehearsal = drive(connect_and_ignore_errors)
    with rehearsal, pytest.raises(IsolationError, match=r"offbook\.invalid:443"):
        rehearsal.run(SCRIPT)


def test_a_refused_connection_is_a_python_warning_without_automatic_assertions():
    with drive(connect_and_ignore_errors, auto_assert=False) as rehearsal:
        with pytest.warns(OffbookWarning, match=r"offbook\.invalid:443"):
            rehearsal.run(SCRIPT)
        [event] = rehearsal.events.named("isolation.refused")
        warned = [verdict for verdict in rehearsal.events.verdicts if verdict.status == "warn"]
    assert "offbook.invalid:443" in event.data["error"]
    assert [verdict.check for verdict in warned] == ["nothing leaves the machine"]


@pytest.mark.parametrize("value", [None, 7, "agent", [], Agent])
def test_other_objects_cannot_be_driven(value: object):
    with pytest.raises(UsageError, match="cannot drive"):
        drive(value)


def test_tools_of_a_function_cannot_be_mocked():
    with pytest.raises(UsageError, match="cannot replace the tool 'add' inside ask") as caught:
        drive(ask, mock_tools={"add": 3})
    assert "monkeypatch.setattr(your_module, 'add', …)" in caught.value.hint


class AssistantAgent:
    """An agent of a framework that Offbook does not know."""

    async def run(self, *, task: str, token: object = None) -> str | None:  # noqa: ARG002 - as there
        return await ask_async(task)


class Workflow:
    """An agent whose plain `run` starts a task, so it needs a running event loop."""

    def run(self, user_msg: str) -> asyncio.Task[str | None]:
        work = ask_async(user_msg)  # without a loop, it is never awaited
        return asyncio.get_running_loop().create_task(work)


class ChatAgent:
    """An agent whose first method is not the one to drive, as its class tells."""

    __module__, __qualname__ = "ag2.agent", "Agent"

    def run(self, prompt: str) -> None: ...

    async def ask(self, *messages: str) -> str | None:
        return await ask_async(messages[0])


@pytest.mark.parametrize(
    "agent, line",
    [
        (ChatAgent(), "drive(agent.ask)"),
        (AssistantAgent(), "drive(lambda p: agent.run(task=p))"),
        (Workflow(), "drive(lambda p: agent.run(p))"),
    ],
)
def test_an_agent_of_an_unknown_framework_is_refused_with_the_line_to_write(
    agent: object, line: str
):
    with pytest.raises(UsageError, match="cannot drive") as caught:
        drive(agent)
    assert caught.value.hint == f"write {line}"
    with eval(line, {"drive": drive, "agent": agent}) as rehearsal:  # noqa: S307 - our own message
        assert rehearsal.run(SCRIPT).output == "Hello."


@pytest.mark.parametrize("agent", [AssistantAgent(), Workflow()])
def test_the_run_method_of_an_agent_can_be_driven(agent: Any):
    with drive(agent.run) as rehearsal:
        assert rehearsal.run(SCRIPT).output == "Hello."


@pytest.mark.parametrize("agent", [AssistantAgent(), Workflow()])
async def test_the_run_method_of_an_agent_can_be_driven_in_an_event_loop(agent: Any):
    async with drive(agent.run) as rehearsal:
        assert (await rehearsal.run(SCRIPT)).output == "Hello."


def stream_words(prompt: str) -> Iterator[str]:
    yield from (ask(prompt) or "").split()


async def stream_words_async(prompt: str) -> AsyncIterator[str]:
    yield await ask_async(prompt) or ""


@pytest.mark.parametrize("function", [stream_words, stream_words_async])
def test_a_generator_that_nothing_consumes_is_refused(function: object):
    with (
        drive(function) as rehearsal,
        pytest.raises(UsageError, match=r"stream_words.* returned a generator"),
    ):
        rehearsal.run(SCRIPT)


def greet(prompt: str, *, language: str = "en") -> str:
    return f"{ask(prompt)} ({language})"


def test_options_are_arguments_of_the_function():
    with drive(greet, language="de") as rehearsal:
        rehearsal.run(SCRIPT)
        assert cast("FrameworkSubject", rehearsal.subject).result == "Hello. (de)"


@pytest.mark.parametrize("option, nearest", [("langauge", "language"), ("lenint", "lenient")])
def test_an_unknown_option_is_refused_at_once_with_the_nearest(option: str, nearest: str):
    with pytest.raises(UsageError, match=f"unknown option '{option}' for greet") as caught:
        cast("Any", drive)(greet, **{option: "x"})
    assert f"did you mean '{nearest}'" in str(caught.value)


def test_an_agent_keeps_its_lock_and_its_client_between_runs():
    """Both belong to the event loop in which they are used first."""
    lock = asyncio.Lock()
    client = openai.AsyncOpenAI(api_key="none")
    loops: set[int] = set()

    async def agent(prompt: str) -> object:
        async def ask_alone() -> str | None:
            async with lock:
                messages: Any = [{"role": "user", "content": prompt}]
                answer = await client.chat.completions.create(model="m", messages=messages)
                return answer.choices[0].message.content

        loops.add(id(asyncio.get_running_loop()))
        return list(
            await asyncio.gather(ask_alone(), ask_alone())
        )  # one of them waits for the lock

    with drive(agent) as rehearsal:
        for _ in range(3):
            run = rehearsal.run(when("Hi", [say("Hello."), say("Hello again.")]))
            assert run.output == ["Hello.", "Hello again."]
    assert len(loops) == 1


def test_an_agent_keeps_its_client_between_rehearsals():
    client = openai.AsyncOpenAI(api_key="none")

    async def agent(prompt: str) -> str | None:
        messages: Any = [{"role": "user", "content": prompt}]
        answer = await client.chat.completions.create(model="m", messages=messages)
        return answer.choices[0].message.content

    for _ in range(2):
        with drive(agent) as rehearsal:
            assert rehearsal.run(SCRIPT).output == "Hello."


def test_rehearsals_one_after_another_run_in_one_loop():
    loops: set[object] = set()

    async def agent(_: str) -> None:
        loops.add(asyncio.get_running_loop())

    for _ in range(2):
        with drive(agent, auto_assert=False) as rehearsal:
            rehearsal.run(SCRIPT)
    assert len(loops) == 1


def ask_anthropic(prompt: str) -> object:
    client = anthropic.Anthropic(api_key="none")
    answer: Any = client.messages.create(
        model="m", max_tokens=9, messages=[{"role": "user", "content": prompt}]
    )
    return answer.content[0].text


@pytest.mark.parametrize("agent", [ask, ask_anthropic])
@pytest.mark.parametrize("status", [429, 500, 529])
@pytest.mark.parametrize("retry_after", [None, 5])
def test_an_sdk_retries_a_scripted_error_without_waiting(
    monkeypatch: pytest.MonkeyPatch, agent: Any, status: int, retry_after: float | None
):
    delays: list[float] = []
    monkeypatch.setattr(time, "sleep", delays.append)
    script = when("Hi", [fail("busy", status=status, retry_after=retry_after), say("Hello.")])
    with drive(agent) as rehearsal:
        assert rehearsal.run(script).output == "Hello."
    assert delays == [0.001]


def test_an_agent_that_reads_the_header_gets_the_scripted_delay():
    headers: list[Any] = []

    def agent(prompt: str) -> None:
        with pytest.raises(openai.RateLimitError) as caught:
            openai.OpenAI(api_key="none", max_retries=0).responses.create(model="m", input=prompt)
        headers.append(caught.value.response.headers)

    with drive(agent) as rehearsal:
        rehearsal.run(when("Hi", [fail("busy", status=429, retry_after=5)]))
    assert headers[0]["retry-after"] == "5"


def test_an_error_of_the_script_has_no_other_error_as_its_context():
    with drive(ask) as rehearsal, pytest.raises(ScriptMismatch) as caught:
        rehearsal.run(when("Hi", [call("add", {})]))
    contexts: list[BaseException] = []
    error: BaseException | None = caught.value
    while error is not None:
        contexts.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert not [error for error in contexts if "no running event loop" in str(error)]


def test_an_unfinished_script_names_the_error_that_ended_the_agent():
    with drive(ask) as rehearsal, pytest.raises(ScriptUnfinished) as caught:
        rehearsal.run(when("Hi", [fail("no such model", status=404), say("Hello.")]))
    assert "the agent ended with NotFoundError: " in caught.value.__notes__[0]
    assert "no such model" in caught.value.__notes__[0]
