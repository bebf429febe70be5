"""A subject that wants a base URL gets one, and the test hears what went wrong behind it."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import openai
import pytest

from offbook.errors import ScriptExhausted, ScriptUnfinished, UsageError
from offbook.exchange.messages import ToolResult
from offbook.runs.api import drive
from offbook.sources.mocks.mocks import Mocks
from offbook.sources.playbook import call, say, when
from offbook.sources.server.server import Server
from offbook.subjects.session.session import AgentSession
from offbook.subjects.subject import ModelAccess, RunContext
from offbook.trace.events import Verdict


class Agent:
    """A small agent over the OpenAI SDK: it blocks its thread, and knows nothing of Offbook."""

    name = "agent"
    model_access: ModelAccess = "endpoint"
    emits_tool_calls = False

    def __init__(self, prompt: Callable[[openai.OpenAI, str], object]) -> None:
        self._prompt = prompt
        self._client: openai.OpenAI | None = None
        self.endpoint = ""

    async def open(self, stage: RunContext) -> None:
        self.endpoint = stage.endpoint
        self._client = openai.OpenAI(base_url=f"{stage.endpoint}/v1", api_key="x")

    async def prompt(self, text: str) -> None:
        assert self._client is not None
        self._prompt(self._client, text)

    async def close(self) -> None:
        assert self._client is not None
        self._client.close()

    def tools(self) -> None:
        return None

    def commands(self) -> tuple[str, ...]:
        return ()

    def verdicts(self) -> tuple[Verdict, ...]:
        return ()


def converse(client: openai.OpenAI, text: str) -> None:
    """Ask until the model calls no more tools; every tool says that it is done."""
    messages: list[Any] = [{"role": "user", "content": text}]
    while True:
        said = client.chat.completions.create(model="m", messages=messages).choices[0].message
        messages.append(said.to_dict())
        if not said.tool_calls:
            return
        messages += [
            {"role": "tool", "tool_call_id": made.id, "content": "done"} for made in said.tool_calls
        ]


def ignore(client: openai.OpenAI, text: str) -> None:
    """Do nothing at all."""


def test_an_agent_that_blocks_the_loop_is_served_all_the_same():
    threads: list[str] = []

    def note(result: ToolResult) -> None:
        threads.append(f"{result.text} in {threading.current_thread().name}")

    with drive(Agent(converse)) as rehearsal:
        run = rehearsal.run(
            when("go", [call("look").then(note), say("Seen.")]), when("again", [say("Yes.")])
        )
        assert run.tools == ["look"]
        assert run.results("look")[0].text == "done"
        assert run.text == "Yes."
    assert threads == ["done in offbook-server"]


async def test_the_same_in_an_async_test():
    async with drive(Agent(converse)) as rehearsal:
        run = await rehearsal.run(when("go", [call("look"), say("Seen.")]))
        assert run.tools == ["look"]


def test_rehearsals_side_by_side_have_base_urls_of_their_own():
    one, two = Agent(converse), Agent(converse)
    with drive(one) as first, drive(two) as second:
        second.run(when("b", [say("B")]))
        assert first.run(when("a", [say("A")])).text == "A"
        assert one.endpoint != two.endpoint
        assert one.endpoint.rpartition("/s/")[0] == two.endpoint.rpartition("/s/")[0]


def test_what_the_script_lacks_is_raised_not_what_the_sdk_made_of_it():
    with drive(Agent(converse)) as rehearsal, pytest.raises(ScriptExhausted) as caught:
        rehearsal.run(when("go", [call("look")]))
    assert isinstance(caught.value.__cause__, openai.BadRequestError)


def test_an_agent_that_swallows_the_refusal_fails_too():
    def careless(client: openai.OpenAI, text: str) -> None:
        for _ in range(2):
            with suppress(openai.APIError):
                converse(client, text)

    with drive(Agent(careless)) as rehearsal, pytest.raises(ScriptExhausted):
        rehearsal.run(when("go", [say("once")]))


def test_a_callback_that_raises_reaches_the_test_with_its_own_traceback():
    def check(result: ToolResult) -> None:
        assert result.text == "something else"

    with drive(Agent(converse)) as rehearsal, pytest.raises(AssertionError) as caught:
        rehearsal.run(when("go", [call("look").then(check), say("Seen.")]))
    assert caught.traceback[-1].name == "check"


def test_an_agent_that_stops_too_early_leaves_the_script_unfinished():
    with drive(Agent(ignore)) as rehearsal, pytest.raises(ScriptUnfinished):
        rehearsal.run(when("go", [say("never heard")]))


def test_the_trace_holds_the_whole_exchange(tmp_path: Path):
    with drive(Agent(converse), trace=tmp_path / "trace.jsonl") as rehearsal:
        rehearsal.run(when("go", [call("look", {"at": "it"}), say("Seen.")]))
        names = [event.event for event in rehearsal.events.all]
    assert [name for name in names if name.startswith(("model.", "tool."))] == [
        "model.request",
        "model.reply",
        "tool.call",
        "tool.result",
        "model.request",
        "model.reply",
    ]


ORPHAN = [
    {"role": "user", "content": "Go"},
    {"role": "tool", "tool_call_id": "c1", "content": "21"},
]


def ask_with_an_orphan(_prompt: str) -> str | None:
    messages: Any = ORPHAN
    with openai.OpenAI(api_key="x", max_retries=0) as client:
        made = client.chat.completions.create(model="m", messages=messages)
    return made.choices[0].message.content


def test_a_rule_can_be_switched_off_for_one_rehearsal():
    with drive(ask_with_an_orphan, lenient=["orphan_result"]) as rehearsal:
        assert rehearsal.run(when("Go", [say("Let through.")])).text == "Let through."
    with drive(ask_with_an_orphan) as rehearsal, pytest.raises(ScriptUnfinished):
        rehearsal.run(when("Go", [say("Never heard.")]))


def test_a_rule_that_is_not_there_is_told_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'orphan_result'"):
        drive(ask_with_an_orphan, lenient=["orphan_results"])
    with pytest.raises(UsageError, match="a list of rules"):
        Server(lenient="orphan_result")


def test_a_session_has_no_provider_to_be_lenient():
    with pytest.raises(UsageError, match="has no provider"):
        drive(AgentSession(), lenient=["orphan_result"])


@pytest.mark.parametrize("whole", [False, True])
def test_a_server_can_be_lenient_as_a_whole_or_for_one_run(*, whole: bool):
    rules = ["orphan_result"]
    with Server(lenient=rules if whole else ()) as server:
        mocks = Mocks([{"match": "*", "text": "Let through."}])
        endpoint = server.mount(mocks, lenient=() if whole else rules)
        messages: Any = ORPHAN
        with openai.OpenAI(base_url=endpoint.openai, api_key="x", max_retries=0) as client:
            made = client.chat.completions.create(model="m", messages=messages)
        assert made.choices[0].message.content == "Let through."
