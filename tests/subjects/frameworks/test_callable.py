"""Anything that takes a prompt can be driven, and is kept inside."""

import asyncio
import socket
from contextlib import suppress
from typing import Any, cast

import openai
import pytest

from offbook import call, drive, say, when
from offbook.errors import IsolationError, UsageError
from offbook.sources.mocks.mocks import Mocks
from offbook.subjects.frameworks.framework import FrameworkSubject

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


def ask_in_a_loop_of_its_own(prompt: str) -> str | None:
    return asyncio.run(ask_async(prompt))


def return_what_is_to_be_awaited(prompt: str) -> object:
    return ask_async(prompt)


class Agent:
    def __call__(self, prompt: str) -> str | None:
        return ask(prompt)


@pytest.mark.parametrize(
    "function", [ask, ask_async, ask_in_a_loop_of_its_own, return_what_is_to_be_awaited, Agent()]
)
def test_every_kind_of_function_is_driven(function: object):
    with drive(function) as rehearsal:
        assert rehearsal.run(SCRIPT).text == "Hello."


@pytest.mark.parametrize("function", [ask, ask_async, ask_in_a_loop_of_its_own])
async def test_also_where_a_loop_runs_already(function: object):
    async with drive(function) as rehearsal:
        assert (await rehearsal.run(SCRIPT)).text == "Hello."


async def test_many_at_once_hear_their_own_model():
    async def one(word: str) -> str:
        async with drive(ask) as rehearsal:
            return (await rehearsal.run(when("Hi", [say(word)]))).text

    words = [f"word {number}" for number in range(8)]
    assert await asyncio.gather(*map(one, words)) == words


def test_a_loop_written_by_hand_has_its_tools_in_the_trace():
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


def test_mocks_play_the_model_as_well():
    with drive(ask, source=Mocks([{"match": "*Hi*", "text": "Hello."}])) as rehearsal:
        assert rehearsal.run("Hi").text == "Hello."


def escape(_: str) -> None:
    socket.getaddrinfo("offbook.invalid", 443)


def escape_quietly(prompt: str) -> None:
    ask(prompt)
    with suppress(IsolationError):
        escape(prompt)


def test_what_would_leave_the_machine_fails_the_run_with_its_line():
    with drive(escape) as rehearsal, pytest.raises(IsolationError) as refusal:
        rehearsal.run(SCRIPT)
    assert refusal.value.where.endswith("in escape")


def test_what_was_refused_and_swallowed_is_told():
    with drive(escape_quietly) as rehearsal:
        rehearsal.run(SCRIPT)
        [told] = rehearsal.events.named("isolation.refused")
        warned = [verdict for verdict in rehearsal.events.verdicts if verdict.status == "warn"]
    assert "offbook.invalid:443" in told.data["error"]
    assert [verdict.check for verdict in warned] == ["nothing leaves the machine"]


@pytest.mark.parametrize("thing", [None, 7, "agent", [], Agent])
def test_what_cannot_be_driven_is_refused(thing: object):
    with pytest.raises(UsageError, match="cannot drive"):
        drive(thing)


def test_a_function_has_no_tools_to_mock():
    with pytest.raises(UsageError, match="no tool 'add'"):
        drive(ask, mock_tools={"add": 3})


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
