"""A scripted model under the patterns of a harness."""

# pyright: basic, reportAttributeAccessIssue=false
# Patterns take and return any value.

# ruff: noqa: PT012, SIM117 - the end of a harness raises, so its block is inside pytest.raises

import socket
from pathlib import Path
from typing import Any

import openai
import pytest

from offbook import Mocks, Trace, drive, say, when
from offbook.errors import IsolationError, ScriptMismatch, ScriptUnfinished, UsageError
from offbook.patterns import Cell, computed, create_harness, default, handler, pattern


async def complete(text: str) -> str:
    client = openai.AsyncOpenAI(api_key="none", max_retries=0)
    reply = await client.chat.completions.create(
        model="gpt-4o-mini", messages=[{"role": "user", "content": text}]
    )
    return reply.choices[0].message.content or ""


@handler
async def ask(event: Any, answer: Any) -> None:
    answer.set(await complete(event))


@handler
def ask_plainly(event: Any, answer: Any) -> None:
    client = openai.OpenAI(api_key="none", max_retries=0)
    reply = client.chat.completions.create(
        model="gpt-4o-mini", messages=[{"role": "user", "content": event}]
    )
    answer.set(reply.choices[0].message.content)


@pattern
def chat(answer: Cell[str] = default(""), topic: Cell[str] = default("")) -> dict[str, Any]:
    async def title() -> str:
        return await complete(f"Title: {topic.get()}") if topic.get() else ""

    return {
        "answer": answer,
        "title": computed(title),
        "ask": ask(answer=answer),
        "ask_plainly": ask_plainly(answer=answer),
    }


SCRIPT = [when("Hello", [say("Hi!")])]


@pytest.mark.parametrize("stream", ["ask", "ask_plainly"])
def test_a_handler_is_answered_by_the_script(stream: str):
    with create_harness(playbook=SCRIPT) as h:
        loaded = h.load(chat)
        loaded.result[stream].send("Hello")
        h.settled()
        assert loaded.result.answer == "Hi!"


async def test_in_an_async_def_too():
    async with create_harness(playbook=SCRIPT) as h:
        loaded = h.load(chat)
        loaded.result.ask.send("Hello")
        await h.settled()
        assert loaded.result.answer == "Hi!"


def test_an_asynchronous_computed_value_is_answered():
    """Also if the test itself is its first reader."""
    with create_harness(playbook=[when("Title: tea", [say("About tea")])]) as h:
        loaded = h.load(chat, {"topic": "tea"})
        assert loaded.result.title is None
        h.settled()
        assert loaded.result.title == "About tea"


def test_cells_handlers_and_model_calls_are_in_one_trace(tmp_path: Path):
    with create_harness(playbook=SCRIPT, trace=tmp_path / "trace.jsonl") as h:
        h.load(chat).result.ask.send("Hello")
        h.settled()
    names = [event.event for event in Trace(tmp_path / "trace.jsonl")]
    wanted = ("cell.send", "cell.handle", "model.request", "model.reply", "cell.write")
    assert [name for name in names if name in wanted] == [*wanted]


@pytest.mark.parametrize(
    "script, event, error",
    [
        ([when("Hello", [say("Hi!")]), when("Bye", [say("Bye!")])], "Hello", ScriptUnfinished),
        (SCRIPT, "Something else", ScriptMismatch),
    ],
)
def test_a_script_that_does_not_fit_fails_the_test(script: Any, event: str, error: type[Exception]):
    with pytest.raises(error):
        with create_harness(playbook=script, expect_errors=error is ScriptMismatch) as h:
            h.load(chat).result.ask.send(event)
            h.settled()


def test_a_failed_assertion_is_not_hidden_by_the_script():
    with pytest.raises(ZeroDivisionError):
        with create_harness(playbook=SCRIPT) as h:
            h.load(chat)
            _ = 1 / 0


def test_a_file_and_another_source_are_models_too(tmp_path: Path):
    (tmp_path / "script.yaml").write_text("- when: Hello\n  do:\n    - say: Hi!\n")
    for model in (tmp_path / "script.yaml", Mocks([{"text": "Hi!"}])):
        with create_harness(playbook=model) as h:
            loaded = h.load(chat)
            loaded.result.ask.send("Hello")
            h.settled()
            assert loaded.result.answer == "Hi!"


def test_a_plain_computed_value_that_the_test_reads_is_answered():
    @pattern
    def titled(topic: Cell[str] = default("tea")) -> dict[str, Any]:
        def title() -> str:
            client = openai.OpenAI(api_key="none", max_retries=0)
            messages: Any = [{"role": "user", "content": topic.get()}]
            reply = client.chat.completions.create(model="gpt-4o-mini", messages=messages)
            return reply.choices[0].message.content or ""

        return {"title": computed(title)}

    script = [when("tea", [say("About tea")]), when("tea", [say("About tea")])]
    with create_harness(playbook=script) as h:  # a computed value is read twice, to compare
        assert h.load(titled).result.title == "About tea"


def test_another_connection_is_refused():
    @handler
    def connect(_event: Any) -> None:
        socket.create_connection(("192.0.2.1", 80), timeout=1)

    @pattern
    def caller() -> dict[str, Any]:
        return {"connect": connect()}

    with pytest.raises(IsolationError, match="a connection was refused"):
        with create_harness(playbook=Mocks([{"text": "Hi!"}]), expect_errors=1) as h:
            h.load(caller).result.connect.send()
            h.load(chat).result.ask.send("Hello")
            h.settled()
            assert "192.0.2.1" in str(h.errors[0])


def test_a_playbook_needs_a_with_block():
    h = create_harness(playbook=SCRIPT)
    with pytest.raises(UsageError, match="the model of the harness is not started"):
        h.load(chat)
    h.dispose(check=False)


# --- A pattern as an agent


def agent(prompt: str) -> str:
    with create_harness() as h:
        loaded = h.load(chat)
        loaded.result.ask.send(prompt)
        h.settled()
        return loaded.result.answer


async def async_agent(prompt: str) -> str:
    async with create_harness() as h:
        loaded = h.load(chat)
        loaded.result.ask.send(prompt)
        await h.settled()
        return loaded.result.answer


@pytest.mark.parametrize("subject", [agent, async_agent])
def test_the_cells_of_a_driven_agent_are_in_its_trace(subject: Any):
    with drive(subject) as rehearsal:
        run = rehearsal.run(*SCRIPT)
    assert run.output == "Hi!"
    written = [event.data for event in run.events.all if event.event == "cell.write"]
    assert written == [{"cell": "chat.answer", "value": "Hi!", "by": "handler chat.ask"}]
