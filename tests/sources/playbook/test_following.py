"""A playbook that follows prompts: the requests alone select the turn."""

from typing import Any

import pytest

from offbook.errors import ModelError, ScriptExhausted, ScriptMismatch
from offbook.exchange import History, Message, Reply, Request, Text, Tool, ToolResult, user
from offbook.sources.playbook import Playbook, call, fail, role, say, when


def following(*script: object) -> Playbook:
    playbook = Playbook()
    playbook.load(*script)  # pyright: ignore[reportArgumentType] - turns and roles
    return playbook


class Conversation:
    """A conversation that grows as an agent's does."""

    def __init__(self, playbook: Playbook, **options: str) -> None:
        self.playbook = playbook
        self.messages: list[Message] = []
        self.options: dict[str, Any] = {
            "tools": tuple(map(Tool, sorted(playbook.called_tools))),
            **options,
        }

    async def ask(self) -> Reply:
        """Return the reply to the conversation so far."""
        return await self.playbook.reply(Request(History(self.messages), **self.options))

    async def prompt(self, text: str) -> Reply:
        """Add a prompt, and return the reply."""
        self.messages.append(user(text))
        return self.add(await self.ask())

    async def result(self, text: str) -> Reply:
        """Add the result of the last call, and return the reply."""
        call_id = self.messages[-1].calls[0].id
        self.messages.append(Message("tool", (ToolResult(call_id, (Text(text),)),)))
        return self.add(await self.ask())

    def add(self, reply: Reply) -> Reply:
        self.messages.append(reply.message)
        return reply


async def test_each_prompt_opens_the_next_turn():
    conversation = Conversation(following(when("one", [say("1")]), when("two", [say("2")])))
    assert [
        (await conversation.prompt("one")).text,
        (await conversation.prompt("and two")).text,
    ] == ["1", "2"]
    assert conversation.playbook.unfinished() is None


async def test_a_second_turn_with_the_same_prompt_is_the_second_turn():
    conversation = Conversation(following(when("again", [say("1")]), when("again", [say("2")])))
    assert [
        (await conversation.prompt("again")).text,
        (await conversation.prompt("again")).text,
    ] == ["1", "2"]


async def test_the_same_prompt_in_a_new_conversation_is_the_next_turn_too():
    playbook = following(when("hi", [say("1")]), when("hi", [say("2")]))
    assert [(await Conversation(playbook).prompt("hi")).text for _ in range(2)] == ["1", "2"]


async def test_a_prompt_may_be_wrapped_in_other_text():
    conversation = Conversation(following(when("Fix it", [say("ok")])))
    conversation.messages.append(user("<reminder>today is Sunday</reminder>"))
    assert (await conversation.prompt("<task>Fix it</task>")).text == "ok"


async def test_a_tool_result_in_a_user_message_continues_the_turn():
    conversation = Conversation(
        following(when("go", [call("look"), say("done")]), when("more", [say("more")]))
    )
    await conversation.prompt("go")
    assert (await conversation.prompt("Observation:\nno more news")).text == "done"
    assert (await conversation.prompt("more")).text == "more"


async def test_conversations_in_parallel_get_their_own_steps():
    playbook = following(
        when("a", [call("tool_a"), say("A")]), when("b", [call("tool_b"), say("B")])
    )
    first, second = Conversation(playbook), Conversation(playbook)
    await first.prompt("a")
    await second.prompt("b")
    assert (await first.result("x")).text == "A"
    assert (await second.result("y")).text == "B"
    assert playbook.unfinished() is None


async def test_a_retry_after_an_error_continues_the_turn_even_if_the_next_would_match():
    playbook = following(when("hi", [fail(status=500), say("1")]), when("hi", [say("2")]))
    conversation = Conversation(playbook)
    conversation.messages.append(user("hi"))
    with pytest.raises(ModelError):
        await conversation.ask()
    assert conversation.add(await conversation.ask()).text == "1"
    assert (await conversation.prompt("hi")).text == "2"


async def test_an_unexpected_prompt_suggests_the_nearest_turn():
    playbook = following(when("Refund order 7", [say("ok")]))
    with pytest.raises(ScriptMismatch, match=r"did you mean 'Refund order 7'") as caught:
        await Conversation(playbook).prompt("Refund order 8")
    assert playbook.failure is caught.value


LONG_MESSAGE = "\n".join(
    [
        *("-" * 70, "name: review", "-" * 70, "Read the code of the module first."),
        *("Report each fault with its file, and sort them by how much harm they do.", "Stop."),
    ]
)


@pytest.mark.parametrize(
    "expected, nearest",
    [
        (
            "Report each fault with its line",
            [
                'got: a user message: "… name: review',
                'expected line: "Report each fault with its line"',
                'nearest, line 5 of the message: "Report each fault with its file, and sort',
            ],
        ),
        (
            "Read the code of the module first.\nStopp.",
            ['expected line: "Stopp."', 'nearest, line 6 of the message: "Stop."'],
        ),
    ],
)
async def test_an_unexpected_prompt_shows_the_line_of_a_long_message_that_differs(
    expected: str, nearest: list[str]
):
    with pytest.raises(ScriptMismatch) as caught:
        await Conversation(following(when(expected, [say("1")]))).prompt(LONG_MESSAGE)
    assert [line for line in nearest if line not in str(caught.value)] == [], caught.value


async def test_an_unexpected_prompt_names_a_later_turn_that_matches():
    with pytest.raises(ScriptMismatch, match=r"when\('two'\) comes later"):
        await Conversation(following(when("one", [say("1")]), when("two", [say("2")]))).prompt(
            "two"
        )


async def test_a_request_after_the_last_step_exhausts_the_playbook():
    conversation = Conversation(following(when("one", [say("1")])))
    await conversation.prompt("one")
    with pytest.raises(ScriptExhausted, match="after step 1"):
        await conversation.prompt("one more")


async def test_roles_win_over_turns():
    playbook = following(
        role("titles", [say("A title")], system="title"), when("hi", [say("hello")])
    )
    assert (await Conversation(playbook, system="write a title").prompt("hi")).text == "A title"
    assert (await Conversation(playbook).prompt("hi")).text == "hello"


@pytest.mark.parametrize(
    "system, prompt, agent, answer",
    [
        ("You are a title generator. You output ONLY a thread title.", "hi", "", "A rehearsal"),
        ("\nYou are a specialized Task Routing AI. …", "hi", "GeminiCLI-tui/0.61.0", "complexity"),
        ("", "Please say 'hello, world'", "AsyncOpenAI/Python 3.49.0", "hello, world"),
        ("", "quota", "claude-cli/2.1.325 (external, cli)", "ok"),
    ],
)
async def test_a_side_request_of_a_known_client_takes_no_step(
    system: str, prompt: str, agent: str, answer: str
):
    playbook = following(when("hi", [say("hello")]))
    reply = await playbook.reply(
        Request(History([user(prompt)]), system, metadata={"user-agent": agent})
    )
    assert answer in reply.text
    assert reply.role.startswith("auxiliary")
    assert (await Conversation(playbook).prompt("hi")).text == "hello"


async def test_a_role_wins_over_a_side_request():
    marker = "You are a title generator. You output ONLY a thread title."
    playbook = following(role("titles", [say("Mine")], system="title generator"))
    request = Request(History([user("hi")]), marker, metadata={"user-agent": "x"})
    assert (await playbook.reply(request)).text == "Mine"


@pytest.mark.parametrize(
    "request_",
    [
        Request(
            History([user("Please say 'hello, world'")]), tools=(Tool("x"),), metadata={"a": 1}
        ),
        Request(History([user("Please say 'hello, world'")])),
        Request(History([user("quota")]), metadata={"user-agent": "curl"}),
    ],
)
async def test_a_request_that_only_resembles_a_side_request_takes_a_step(request_: Request):
    playbook = following(when("a", [say("main")]))
    assert (await playbook.reply(request_)).text == "main"


async def test_a_prewarm_gets_an_empty_reply():
    playbook = following(when("hi", [say("hello")]))
    request = Request(History([user("hi")]), metadata={"generate": False})
    assert (await playbook.reply(request)).blocks == ()
    assert playbook.consumed == 0
