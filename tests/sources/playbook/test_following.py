"""A playbook that nobody opens turn by turn: the requests alone say where the agent is."""

import pytest

from offbook.errors import ModelError, ScriptExhausted, ScriptMismatch
from offbook.exchange.messages import History, Message, Text, ToolResult, user
from offbook.exchange.model import Reply, Request, Tool
from offbook.sources.playbook import Playbook, call, fail, role, say, when


def following(*script: object) -> Playbook:
    playbook = Playbook(following=True)
    playbook.load(*script)  # pyright: ignore[reportArgumentType] - turns and roles
    return playbook


class Talk:
    """A conversation that grows as an agent's does."""

    def __init__(self, playbook: Playbook, **about: str) -> None:
        self.playbook = playbook
        self.messages: list[Message] = []
        self.about = about

    async def ask(self) -> Reply:
        """What the model says to the conversation as it stands."""
        return await self.playbook.reply(Request(History(self.messages), **self.about))  # pyright: ignore[reportArgumentType] - the wrong or looser type is meant

    async def tell(self, text: str) -> Reply:
        """A new prompt, and what the model says."""
        self.messages.append(user(text))
        return self.add(await self.ask())

    async def result(self, text: str) -> Reply:
        """The result of the last call, and what the model says."""
        call_id = self.messages[-1].calls[0].id
        self.messages.append(Message("tool", (ToolResult(call_id, (Text(text),)),)))
        return self.add(await self.ask())

    def add(self, reply: Reply) -> Reply:
        self.messages.append(reply.message)
        return reply


async def test_each_prompt_opens_the_next_turn():
    talk = Talk(following(when("one", [say("1")]), when("two", [say("2")])))
    assert [(await talk.tell("one")).text, (await talk.tell("and two")).text] == ["1", "2"]
    assert talk.playbook.unfinished() is None


async def test_a_second_turn_with_the_same_prompt_is_the_second_turn():
    talk = Talk(following(when("again", [say("1")]), when("again", [say("2")])))
    assert [(await talk.tell("again")).text, (await talk.tell("again")).text] == ["1", "2"]


async def test_the_same_prompt_in_a_new_conversation_is_the_next_turn_too():
    playbook = following(when("hi", [say("1")]), when("hi", [say("2")]))
    assert [(await Talk(playbook).tell("hi")).text for _ in range(2)] == ["1", "2"]


async def test_a_prompt_may_be_wrapped_in_other_words():
    talk = Talk(following(when("Fix it", [say("ok")])))
    talk.messages.append(user("<reminder>today is Sunday</reminder>"))
    assert (await talk.tell("<task>Fix it</task>")).text == "ok"


async def test_a_result_told_as_a_user_message_goes_on_with_the_turn():
    talk = Talk(following(when("go", [call("look"), say("done")]), when("more", [say("more")])))
    await talk.tell("go")
    assert (await talk.tell("Observation:\nno more news")).text == "done"
    assert (await talk.tell("more")).text == "more"


async def test_conversations_side_by_side_each_get_their_own_steps():
    playbook = following(
        when("a", [call("tool_a"), say("A")]), when("b", [call("tool_b"), say("B")])
    )
    one, two = Talk(playbook), Talk(playbook)
    await one.tell("a")
    await two.tell("b")
    assert (await one.result("x")).text == "A"
    assert (await two.result("y")).text == "B"
    assert playbook.unfinished() is None


async def test_a_retry_after_an_error_goes_on_with_the_turn_even_if_the_next_would_fit():
    playbook = following(when("hi", [fail(status=500), say("1")]), when("hi", [say("2")]))
    talk = Talk(playbook)
    talk.messages.append(user("hi"))
    with pytest.raises(ModelError):
        await talk.ask()
    assert talk.add(await talk.ask()).text == "1"
    assert (await talk.tell("hi")).text == "2"


async def test_a_prompt_that_no_turn_expects_names_the_nearest():
    playbook = following(when("Refund order 7", [say("ok")]))
    with pytest.raises(ScriptMismatch, match=r"did you mean 'Refund order 7'") as caught:
        await Talk(playbook).tell("Refund order 8")
    assert playbook.failure is caught.value


async def test_a_turn_that_comes_later_is_named():
    with pytest.raises(ScriptMismatch, match=r"when\('two'\) comes later"):
        await Talk(following(when("one", [say("1")]), when("two", [say("2")]))).tell("two")


async def test_more_requests_than_were_scripted_exhaust_the_playbook():
    talk = Talk(following(when("one", [say("1")])))
    await talk.tell("one")
    with pytest.raises(ScriptExhausted, match="after step 1"):
        await talk.tell("one more")


async def test_roles_come_before_turns():
    playbook = following(
        role("titles", [say("A title")], system="title"), when("hi", [say("hello")])
    )
    assert (await Talk(playbook, system="write a title").tell("hi")).text == "A title"
    assert (await Talk(playbook).tell("hi")).text == "hello"


@pytest.mark.parametrize(
    "system, prompt, agent, answer",
    [
        ("You are a title generator. You output ONLY a thread title.", "hi", "", "A rehearsal"),
        ("\nYou are a specialized Task Routing AI. …", "hi", "GeminiCLI-tui/0.61.0", "complexity"),
        ("", "Please say 'hello, world'", "AsyncOpenAI/Python 3.49.0", "hello, world"),
        ("", "quota", "claude-cli/2.1.325 (external, cli)", "ok"),
    ],
)
async def test_an_auxiliary_call_of_a_known_client_eats_no_step(
    system: str, prompt: str, agent: str, answer: str
):
    playbook = following(when("hi", [say("hello")]))
    side_response = await playbook.reply(
        Request(History([user(prompt)]), system, metadata={"user-agent": agent})
    )
    assert answer in side_response.text
    assert side_response.role.startswith("auxiliary")
    assert (await Talk(playbook).tell("hi")).text == "hello"


async def test_a_role_comes_before_what_auxiliary_calls_are_told():
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
async def test_a_request_that_only_looks_like_an_auxiliary_call_is_the_agents(request_: Request):
    playbook = following(when("", [say("main")]))
    assert (await playbook.reply(request_)).text == "main"


async def test_a_prewarm_is_answered_with_nothing():
    playbook = following(when("hi", [say("hello")]))
    request = Request(History([user("hi")]), metadata={"generate": False})
    assert (await playbook.reply(request)).blocks == ()
    assert playbook.consumed == 0
