"""A request that the script did not expect is reported with a role to paste."""

import asyncio
from typing import Any

import openai
import pytest

from offbook import Playbook, call, drive, role, say, when
from offbook.errors import ScriptError, ScriptExhausted, ScriptMismatch
from offbook.exchange import History, Message, Request, Text, Tool, ToolResult, user
from offbook.sources.playbook import MAX_HEADS, Role, read_head, suggest_role

MAIN = Request(
    History([user("Fix the bug")]), "You are a coding agent.", (Tool("edit"),), "big-model"
)
SIDE_REQUESTS = {
    "system": Request(History([user("Fix the bug")]), "You write commit messages.", model="big"),
    "first": Request(History([user("Write a title for: Fix the bug")]), MAIN.system),
    "model": Request(MAIN.messages, MAIN.system, MAIN.tools, "small-model"),
    "tools": Request(MAIN.messages, MAIN.system, (Tool("edit"), Tool("remember")), MAIN.model),
    "a later line": Request(MAIN.messages, f"{MAIN.system}\nAnswer in JSON."),
}


def paste(line: str) -> Role:
    """Return the role that a line of a message creates."""
    pasted: Any = eval(line, {"role": role, "say": say})  # noqa: S307 - our own message
    return pasted


@pytest.mark.parametrize("kind", SIDE_REQUESTS)
def test_the_suggested_role_matches_the_request_and_no_earlier_one(kind: str):
    others = [request for name, request in SIDE_REQUESTS.items() if name != kind]
    pasted = paste(suggest_role(SIDE_REQUESTS[kind], map(read_head, [MAIN, *others])))
    assert pasted.matches(SIDE_REQUESTS[kind])
    assert not any(pasted.matches(request) for request in [MAIN, *others])


def test_no_role_is_suggested_for_a_request_that_differs_in_nothing():
    again = Request(MAIN.messages.plus(user("and more")), MAIN.system, MAIN.tools, MAIN.model)
    assert suggest_role(again, [read_head(MAIN)]) == ""


def commits(prompt: str) -> None:
    """Answer the prompt, then ask for a commit message, as aider does."""
    for system, text in (
        ("You are a coder.", prompt),
        ("You write commit messages.", "Describe the change"),
    ):
        openai.OpenAI(api_key="none").chat.completions.create(
            model="m",
            messages=[{"role": "system", "content": system}, {"role": "user", "content": text}],
        )


def test_an_extra_request_after_the_last_say_shows_the_role_to_paste():
    script = when("Fix it", [say("Fixed.")])
    with drive(commits) as rehearsal, pytest.raises(ScriptExhausted) as caught:
        rehearsal.run(script)
    lines = str(caught.value).splitlines()
    assert 'the turn ended with step 1. say("Fixed."), then the agent sent another' in lines[0]
    assert "end the turn with say" not in str(caught.value)
    (fix,) = [line for line in lines if line.startswith("  fix: add ")]
    with drive(commits) as rehearsal:
        rehearsal.run(script, paste(fix.removeprefix("  fix: add ")))


def test_an_extra_request_beside_other_roles_shows_the_role_to_paste():
    script = (
        when("Fix it", [say("Fixed.")]),
        role("reviewer", [say("Fine.")], system="You review."),
    )
    with drive(commits) as rehearsal, pytest.raises(ScriptMismatch) as caught:
        rehearsal.run(*script)
    assert """add role("side request", [say("…")], system='You write commit messages.')""" in str(
        caught.value
    )


def test_a_further_request_of_the_same_conversation_asks_for_a_further_answer():
    def insists(prompt: str) -> None:
        messages: list[Any] = [{"role": "user", "content": prompt}]
        for _ in range(2):
            client = openai.OpenAI(api_key="none")
            answer = client.chat.completions.create(model="m", messages=messages)
            messages += [answer.choices[0].message, {"role": "user", "content": "Sure?"}]

    with drive(insists) as rehearsal, pytest.raises(ScriptError) as caught:
        rehearsal.run(when("Fix it", [say("Fixed.")]))
    assert "fix: add say(…) after step 1" in str(caught.value)


async def test_a_playbook_remembers_a_bounded_number_of_conversations():
    playbook = Playbook()
    turns = [when(f"Fix bug {number}", [say("Fixed.")]) for number in range(2 * MAX_HEADS)]
    playbook.load(*turns)
    for turn in turns:
        playbook.open(turn)
        await playbook.reply(Request(History([user(turn.text)])))
    assert len(playbook._heads) == MAX_HEADS  # pyright: ignore[reportPrivateUsage] - memory has no public name


async def test_a_playbook_remembers_a_conversation_whose_system_prompt_changes():
    playbook = Playbook()
    turn = when("Fix it", [call("a"), say("Fixed.")])
    playbook.load(turn)
    playbook.open(turn)
    tools = (Tool("a"),)
    history = History([user("Fix it")])
    made = (await playbook.reply(Request(history, system="One.", tools=tools))).message
    result = Message("tool", (ToolResult(made.calls[0].id, (Text("ok"),)),))
    await playbook.reply(Request(history.plus(made, result), system="Two.", tools=tools))
    assert len(playbook._heads) == 2  # pyright: ignore[reportPrivateUsage] - memory has no public name


async def test_a_playbook_remembers_the_first_prompt_that_comes_after_another_message():
    playbook = Playbook()
    turn = when("Fix", [say("Hello."), say("Fixed.")])
    playbook.load(turn)
    playbook.open(turn)
    greeting = History([Message("assistant", (Text("How can I help?"),))])
    for history in (greeting, greeting.plus(user("Fix it"))):
        await playbook.reply(Request(history))
    assert [head.first for head in playbook._heads] == ["", "Fix it"]  # pyright: ignore[reportPrivateUsage] - memory has no public name


def test_a_side_request_before_the_first_call_shows_the_role_to_paste():
    playbook = Playbook()
    playbook.load(when("Fix the bug", [call("edit", {})]))
    title = Request(History([user("Write a title for: Fix the bug")]), "You write titles.")
    with pytest.raises(ScriptMismatch, match="does not offer 'edit'") as caught:
        asyncio.run(playbook.reply(title))
    [line] = [line for line in str(caught.value).splitlines() if line.startswith("    role(")]
    pasted = paste(line.strip())
    assert pasted.matches(title)
    assert not pasted.matches(MAIN)
