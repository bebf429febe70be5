"""An agent that changes its conversation fails, with every SDK, source and kind of run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from google import genai

from offbook import Cassette, Mocks, Playbook, Recording, call, drive, say, when
from offbook.errors import ScriptMismatch, UsageError
from offbook.exchange import History, Message, Request, Text, user
from offbook.surfaces.cli import main
from offbook.trace import Events, Trace
from tests.forked import forked_command
from tests.runs import losing_agents
from tests.runs.echo_subject import HELLO, Echo

SCHEMA: Any = {"type": "object", "properties": {"number": {"type": "integer"}}}
SCRIPT = when("Refund order 7", [call("refund", {"number": 7}), say("Refunded.")])
EXPECTED = 'expected: refund({"number":7})'
GOT = 'got: refund({"number":99})'


def over_chat(prompt: str, number: int) -> object:
    client = openai.OpenAI(api_key="none", max_retries=0)
    tools: Any = [{"type": "function", "function": {"name": "refund", "parameters": SCHEMA}}]
    messages: Any = [{"role": "user", "content": prompt}]
    reply = client.chat.completions.create(model="m", messages=messages, tools=tools)
    message: Any = reply.choices[0].message.to_dict()
    message["tool_calls"][0]["function"]["arguments"] = json.dumps({"number": number})
    call_id = message["tool_calls"][0]["id"]
    messages += [message, {"role": "tool", "tool_call_id": call_id, "content": "done"}]
    reply = client.chat.completions.create(model="m", messages=messages, tools=tools)
    return reply.choices[0].message.content


def over_responses(prompt: str, number: int) -> object:
    client = openai.OpenAI(api_key="none", max_retries=0)
    tools: Any = [{"type": "function", "name": "refund", "parameters": SCHEMA, "strict": False}]
    items: Any = [{"role": "user", "content": prompt}]
    made: Any = client.responses.create(model="m", input=items, tools=tools).output[0].to_dict()
    made["arguments"] = json.dumps({"number": number})
    result = {"type": "function_call_output", "call_id": made["call_id"], "output": "done"}
    items += [made, result]
    return client.responses.create(model="m", input=items, tools=tools).output_text


def over_messages(prompt: str, number: int) -> object:
    client: Any = anthropic.Anthropic(api_key="none", max_retries=0)
    tools: Any = [{"name": "refund", "input_schema": SCHEMA}]
    messages: Any = [{"role": "user", "content": prompt}]
    options: Any = {"model": "m", "max_tokens": 100, "tools": tools}
    made: Any = client.messages.create(messages=messages, **options).content[0].to_dict()
    made["input"] = {"number": number}
    result = {"type": "tool_result", "tool_use_id": made["id"], "content": "done"}
    messages += [{"role": "assistant", "content": [made]}, {"role": "user", "content": [result]}]
    answer: Any = client.messages.create(messages=messages, **options).content[0]
    return answer.text


def over_gemini(prompt: str, number: int) -> object:
    client: Any = genai.Client(api_key="none")
    types: Any = genai.types
    declaration = {"name": "refund", "parameters": SCHEMA}
    config = {"tools": [{"function_declarations": [declaration]}]}
    contents: Any = [types.Content(role="user", parts=[types.Part(text=prompt)])]
    reply = client.models.generate_content(model="m", contents=contents, config=config)
    made = reply.candidates[0].content
    made.parts[0].function_call.args = {"number": number}
    result = types.Part.from_function_response(name="refund", response={"output": "done"})
    contents += [made, types.Content(role="user", parts=[result])]
    return client.models.generate_content(model="m", contents=contents, config=config).text


SDKS = [over_chat, over_responses, over_messages, over_gemini]
Sdk = Callable[[str, int], object]


@pytest.mark.parametrize("serve", [False, True])
@pytest.mark.parametrize("sdk", SDKS)
def test_changed_arguments_fail(sdk: Sdk, *, serve: bool):
    def agent(prompt: str) -> object:
        return sdk(prompt, 99)

    with drive(agent, serve=serve) as rehearsal, pytest.raises(ScriptMismatch) as caught:
        rehearsal.run(SCRIPT)
    assert str(caught.value).startswith("the agent changed the conversation: changed arguments")
    assert EXPECTED in str(caught.value)
    assert GOT in str(caught.value)


@pytest.mark.parametrize("sdk", SDKS)
def test_an_unchanged_conversation_passes(sdk: Sdk):
    def agent(prompt: str) -> object:
        return sdk(prompt, 7)

    with drive(agent) as rehearsal:
        assert rehearsal.run(SCRIPT).changes == []


def changes_the_arguments(prompt: str) -> object:
    return over_chat(prompt, 99)


def test_a_declared_change_passes_and_can_be_asserted():
    with drive(changes_the_arguments, lenient=["history"]) as rehearsal:
        [change] = rehearsal.run(SCRIPT).changes
    assert (change.what, change.expected, change.got, change.exchange) == (
        *("arguments", 'refund({"number":7})', 'refund({"number":99})'),
        "x2",
    )


def test_an_agent_cannot_catch_the_failure():
    def agent(prompt: str) -> object:
        try:
            return changes_the_arguments(prompt)
        except Exception:  # noqa: BLE001 - an agent that hides all errors
            return "Refunded."

    with drive(agent) as rehearsal, pytest.raises(ScriptMismatch, match="changed arguments"):
        rehearsal.run(SCRIPT)


def test_without_assertions_the_change_is_only_in_the_trace():
    with drive(changes_the_arguments, auto_assert=False) as rehearsal:
        run = rehearsal.run(SCRIPT)
        assert [change.what for change in run.changes] == ["arguments"]


def test_the_run_after_a_failed_one_starts_without_its_failure():
    numbers = [99, 7]

    def agent(prompt: str) -> object:
        return over_chat(prompt, numbers.pop(0))

    with drive(agent) as rehearsal:
        with pytest.raises(ScriptMismatch):
            rehearsal.run(SCRIPT)
        assert rehearsal.run(SCRIPT).output == "Refunded."


class Inventor(Echo):
    """A subject without a wire that lets the model say something, if it is asked for it."""

    async def ask(self, text: str) -> str:
        reply = await super().ask(text)
        if text == "Lie":
            said = Message("assistant", (Text("I never said this."),))
            request = Request(History([user(text), said, user("Go on")]))
            reply = (await self._context.source.reply(request)).text
        return reply


def test_the_next_run_of_a_subject_without_a_wire_starts_without_a_failure():
    lie = when("Lie", [say("Hi!"), say("Hi!")])
    with drive(Inventor()) as rehearsal:
        with pytest.raises(ScriptMismatch, match="words that the model never said"):
            rehearsal.run(lie)
        assert rehearsal.run(HELLO).output == "Hi!"


def test_mocks_fail_too():
    mocks = Mocks(
        [
            {"tool_calls": [{"name": "refund", "arguments": {"number": 7}}]},
            {"text": "Refunded."},
        ]
    )
    with (
        drive(changes_the_arguments, source=mocks) as rehearsal,
        pytest.raises(ScriptMismatch, match="changed arguments"),
    ):
        rehearsal.run("Refund order 7")


def test_a_replay_fails_too(tmp_path: Path):
    """The recording has the changed conversation, so that each request of the replay matches."""
    playbook = Playbook()
    playbook.load(SCRIPT)
    file = tmp_path / "shop.yaml"
    with (
        Recording(playbook, file) as recording,
        drive(
            changes_the_arguments, source=recording, lenient=["history"], auto_assert=False
        ) as rehearsal,
    ):
        rehearsal.run("Refund order 7")
    with (
        drive(changes_the_arguments, source=Cassette(file)) as rehearsal,
        pytest.raises(ScriptMismatch, match="the agent changed the conversation"),
    ):
        rehearsal.run("Refund order 7")


PLAYBOOK = """\
- when: Find order 7
  do:
    - {call: find_order, with: {number: 7}}
    - {say: It is a lamp.}
"""


def run_command(folder: Path, *options: str) -> object:
    file = folder / "playbook.yaml"
    file.write_text(PLAYBOOK)
    agent = losing_agents.uses_one_id_for_all_calls_and_rewrites_the_arguments
    program = forked_command(losing_agents.__file__, agent.__name__)
    trace = ["--trace", str(folder / "t.jsonl")]
    with pytest.raises(SystemExit) as ended:
        main(["run", "--script", str(file), *trace, *options, "--", *program])
    return ended.value.code


def test_a_command_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run_command(tmp_path) == 1
    assert "the agent changed the conversation: changed arguments" in capsys.readouterr().err
    [change] = Events(Trace(tmp_path / "t.jsonl")).changes
    assert (change.what, change.level) == ("arguments", "fails")
    with pytest.raises(SystemExit):
        main(["show", str(tmp_path / "t.jsonl")])
    assert "changed: changed arguments of a call expected" in capsys.readouterr().out


def test_a_command_may_declare_the_change(tmp_path: Path):
    assert run_command(tmp_path, "--lenient", "history") == 0


def test_another_rule_has_no_effect_on_a_subject_without_a_wire():
    with drive(Echo(), lenient=["history"]) as rehearsal:
        rehearsal.run(HELLO)
    with pytest.raises(UsageError, match="lenient has no effect"):
        drive(Echo(), lenient=["history", "duplicate_id"])


def sends_pairs(prompt: str) -> object:
    """Send parallel calls as a message each, followed by its result."""
    client = openai.OpenAI(api_key="none", max_retries=0)
    tools: Any = [{"type": "function", "function": {"name": "refund", "parameters": SCHEMA}}]
    messages: Any = [{"role": "user", "content": prompt}]
    while True:
        reply = client.chat.completions.create(model="m", messages=messages, tools=tools)
        calls = reply.choices[0].message.tool_calls
        if not calls:
            return reply.choices[0].message.content
        for made in calls:
            result = {"role": "tool", "tool_call_id": made.id, "content": f"done {made.id}"}
            messages += [{"role": "assistant", "tool_calls": [made.to_dict()]}, result]


def test_parallel_calls_may_come_back_as_pairs():
    both = [call("refund", {"number": 7}), call("refund", {"number": 8})]
    with drive(sends_pairs) as rehearsal:
        run = rehearsal.run(when("Refund both", [both, both, say("Refunded.")]))
        assert [tool.input["number"] for tool in run.executed] == [7, 8, 7, 8]
        assert run.changes == []
