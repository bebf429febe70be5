"""A playbook answers requests step by step, and its errors name the step and the fix."""

import asyncio
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import offbook
from offbook import Playbook, call, fail, role, say, think, when
from offbook.errors import (
    ModelError,
    OffbookWarning,
    PlaybookError,
    ScriptExhausted,
    ScriptMismatch,
    UsageError,
)
from offbook.exchange import (
    History,
    Image,
    Message,
    Reply,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    to_json,
    user,
)
from offbook.sources.playbook import Action, Call, Role, Say, Turn, validate
from tests.counting import count_calls


def offer(playbook: Playbook) -> tuple[Tool, ...]:
    """Return the tools that a script calls."""
    return tuple(map(Tool, sorted(playbook.called_tools)))


class Agent:
    """A minimal agent: it requests a reply and answers each tool call with a text."""

    def __init__(self, playbook: Playbook, **head: Any) -> None:
        self._playbook = playbook
        self._head: dict[str, Any] = {"tools": offer(playbook), **head}
        self._history = History()

    def prompt(self, text: str) -> None:
        self._history = self._history.plus(user(text))

    async def ask(self, *answers: str, is_error: bool = False) -> Reply:
        """Answer the calls of the last reply, and return the next reply."""
        if self._history and self._history[-1].calls:
            calls = self._history[-1].calls
            for index, tool_call in enumerate(calls):
                text = answers[index] if index < len(answers) else "ok"
                result = ToolResult(tool_call.id, (Text(text),), is_error, tool_call.name)
                self._history = self._history.plus(Message("tool", (result,)))
        reply = await self._playbook.reply(Request(self._history, **self._head))
        self._history = self._history.plus(reply.message)
        return reply


def opened(*script: Turn | Role, strict: bool = True, **head: Any) -> tuple[Playbook, Agent]:
    """Return a playbook whose first turn is open, and an agent with its prompt."""
    playbook = Playbook(strict=strict)
    playbook.load(*script)
    agent = Agent(playbook, **head)
    turn = next(item for item in script if isinstance(item, Turn))
    playbook.open(turn)
    agent.prompt(turn.text)
    return playbook, agent


# ------------------------------------------------------------------ behaviours P1 to P9 of the seed


def test_p1_when_builds_a_turn_from_a_prompt_and_its_actions():
    turn = when("Hello", [say("Hi!")])
    assert turn.text == "Hello"
    assert turn.actions == (Say("Hi!"),)


def test_p2_call_keeps_the_tool_and_its_parameters():
    action = call("bash", {"command": "ls"})
    assert (action.tool, action.params) == ("bash", {"command": "ls"})


def test_p3_late_bound_parameters_see_later_changes():
    value = "before"
    action = call("get", lambda: {"id": value})
    value = "after"
    assert callable(action.params)
    assert action.params() == {"id": "after"}


def test_p4_then_keeps_the_callback_and_returns_the_call():
    received: list[str] = []

    def keep(result: ToolResult) -> None:
        received.append(result.text)

    action = call("bash", {"command": "ls"}).then(keep)
    assert isinstance(action, Call)
    assert action.callbacks == (keep,)
    twice = action.then(keep)
    assert twice.callbacks == (keep, keep)
    assert when("List files", [twice]).actions == (twice,)


def test_p5_a_turn_keeps_the_order_and_kinds_of_its_actions():
    turn = when("x", [call("a"), call("b"), say("c")])
    assert [type(action) for action in turn.actions] == [Call, Call, Say]


async def test_p6_steps_are_used_in_order_and_counted():
    playbook, agent = opened(when("x", [call("bash", {"command": "ls"}), say("Done.")]))
    first = await agent.ask()
    assert (first.stop, first.calls[0].name) == ("tool_use", "bash")
    assert (playbook.consumed, playbook.remaining) == (1, 1)
    second = await agent.ask()
    assert (second.stop, second.text) == ("stop", "Done.")
    assert (playbook.consumed, playbook.remaining) == (2, 0)


async def test_p7_an_exhausted_playbook_replies_with_a_marker_if_not_strict():
    _, agent = opened(when("x", [say("Done.")]), strict=False)
    await agent.ask()
    reply = await agent.ask()
    assert reply.stop == "stop"
    assert "PLAYBOOK EXHAUSTED" in reply.text


async def test_p7_an_exhausted_playbook_fails_if_strict():
    playbook, agent = opened(when("x", [say("Done.")]))
    await agent.ask()
    with pytest.raises(ScriptExhausted, match="after step 1") as caught:
        await agent.ask()
    assert playbook.failure is caught.value


async def test_p8_late_bound_parameters_are_resolved_when_their_step_is_reached():
    value = "built"
    _, agent = opened(when("x", [call("a"), call("get", lambda: {"id": value}), say("c")]))
    value = "loaded"
    await agent.ask()
    value = "dequeued"
    reply = await agent.ask()
    value = "later"
    assert reply.calls[0].arguments == {"id": "dequeued"}


async def test_p9_the_actions_of_all_turns_are_one_queue():
    first, second = when("one", [call("a"), say("b")]), when("two", [say("c")])
    playbook, agent = opened(first, second)
    assert playbook.remaining == 3
    await agent.ask()
    await agent.ask()
    playbook.open(second)
    agent.prompt("two")
    assert (await agent.ask()).step == 3
    assert (playbook.consumed, playbook.remaining) == (3, 0)


# ------------------------------------------------------------------------- messages and callbacks


async def test_several_calls_share_one_message_after_their_thoughts():
    script = when("x", [think("hm"), [call("a"), call("b")], say("c")])
    _, agent = opened(script)
    reply = await agent.ask()
    assert [type(block) for block in reply.blocks] == [Thinking, ToolCall, ToolCall]
    first, second = (tool_call.id for tool_call in reply.calls)
    assert first != second
    assert reply.step == 1


async def test_a_scripted_provider_error_does_not_fail_the_run():
    playbook, agent = opened(when("x", [fail("busy", status=503, retry_after=1), say("c")]))
    with pytest.raises(ModelError) as caught:
        await agent.ask()
    assert (caught.value.status, caught.value.category) == (503, "overloaded")
    assert caught.value.retry_after == 1
    assert playbook.failure is None
    assert (await agent.ask()).text == "c"


@pytest.mark.parametrize("write", [say, think])
def test_a_lone_surrogate_in_a_text_is_refused_where_it_is_written(write: Any):
    message = rf"^{write.__name__}\(\): the text has a lone surrogate, '\\ud83d'"
    with pytest.raises(PlaybookError, match=message):
        write("smile \ud83d")


def test_a_then_whose_result_is_dropped_fails_before_the_run():
    action = call("a")
    turn = when("x", [action, say("ok")])
    action.then(print)
    with pytest.raises(
        PlaybookError, match=r"a \.then\(\) of call\('a', …\) is not part"
    ) as caught:
        Playbook().load(turn)
    assert "write action = action.then(…)" in str(caught.value)


def test_a_then_that_is_kept_but_not_in_the_script_fails_before_the_run():
    action = call("a")
    checked = action.then(print).then(print)
    with pytest.raises(PlaybookError, match="not part of the script"):
        Playbook().load(when("x", [action, say("ok")]))
    Playbook().load(when("x", [checked, say("ok")]))


def test_a_then_of_a_call_that_no_script_contains_is_a_warning_at_its_line():
    with pytest.warns(OffbookWarning, match=r"call\('a', …\)\.then\(\) never ran") as caught:
        call("a").then(print).then(print)
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]


def test_a_then_in_a_script_is_no_warning():  # noqa: OB101 - it must not raise
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Playbook().load(when("x", [call("a").then(print).then(print), say("ok")]))


def test_a_call_may_be_used_with_and_without_then():
    action = call("a")
    checked = action.then(print).then(print)
    Playbook().load(when("x", [action, checked, say("ok")]))
    assert call("a") == action


async def test_then_receives_the_result_of_its_own_call():
    received: list[str] = []

    def keep(name: str) -> Callable[[ToolResult], None]:
        return lambda result: received.append(f"{name}: {result.text}")

    both: list[Action] = [call("a").then(keep("a")), call("b").then(keep("b"))]
    _, agent = opened(when("x", [both, say("c")]))
    await agent.ask()
    await agent.ask("from a", "from b")
    assert received == ["a: from a", "b: from b"]


async def test_callbacks_run_in_the_order_of_the_calls_not_of_the_results():
    received: list[str] = []
    calls = [call("t").then(lambda r: received.append(r.text)) for _ in range(3)]
    playbook = Playbook()
    turn = when("Go", [calls, say("Done.")])
    playbook.load(turn)
    playbook.open(turn)
    history = History([user("Go")])
    reply = await playbook.reply(Request(history, tools=(Tool("t"),)))
    results = [ToolResult(c.id, (Text(str(n)),)) for n, c in enumerate(reply.calls)]
    late = [Message("tool", (result,)) for result in reversed(results)]
    await playbook.reply(Request(history.plus(reply.message, *late)))
    assert received == ["0", "1", "2"]


async def test_then_may_be_async_and_there_may_be_several():
    received: list[str] = []

    async def first(result: ToolResult) -> None:
        received.append(f"first {result.text}")

    def second(result: ToolResult) -> None:
        received.append(f"second {result.text}")

    _, agent = opened(when("x", [call("a").then(first).then(second), say("c")]))
    await agent.ask()
    await agent.ask("hi")
    assert received == ["first hi", "second hi"]


@pytest.mark.parametrize(
    "raised",
    [AssertionError("not so"), KeyError("x"), ModelError("as if"), pytest.fail.Exception()],
)
async def test_an_exception_in_a_callback_fails_the_run_and_names_the_step(raised: BaseException):
    def refuse(_: ToolResult) -> None:
        raise raised

    playbook, agent = opened(when("x", [call("a", {"n": 1}).then(refuse), say("c")]))
    await agent.ask()
    with pytest.raises(type(raised)):
        await agent.ask()
    assert playbook.failure is raised
    assert raised.__notes__ == ['in .then() of step 1. call("a", {"n":1})']


async def test_a_key_in_the_note_of_a_callback_is_masked_before_it_is_cut():
    def refuse(_: ToolResult) -> None:
        raise ValueError

    key = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ01" * 4
    playbook, agent = opened(when("x", [call("login", {"at": "here", "key": key}).then(refuse)]))
    await agent.ask()
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - of this test
        await agent.ask()
    assert caught.value is playbook.failure
    assert caught.value.__notes__ == [
        'in .then() of step 1. call("login", {"at":"here","key":"[API_KEY]"})'
    ]


async def test_late_bound_parameters_may_be_async():
    async def later() -> dict[str, Any]:
        return {"id": 7}

    _, agent = opened(when("x", [call("a", later), say("c")]))
    assert (await agent.ask()).calls[0].arguments == {"id": 7}


@pytest.mark.parametrize("params", [None, "text", [1], {1: 2}])
async def test_late_bound_parameters_must_be_a_dict_with_string_keys(params: Any):
    playbook, agent = opened(when("x", [call("a", lambda: params), say("c")]))
    with pytest.raises(PlaybookError) as caught:
        await agent.ask()
    assert caught.value.hint
    assert playbook.failure is caught.value


async def test_an_exception_in_late_bound_parameters_fails_the_run_and_names_the_step():
    def boom() -> dict[str, Any]:
        raise LookupError("no id yet")

    playbook, agent = opened(when("x", [call("get", boom), say("c")]))
    with pytest.raises(LookupError, match="no id yet") as caught:
        await agent.ask()
    assert 'step 1. call("get", <late-bound>)' in caught.value.__notes__[0]
    assert playbook.failure is caught.value


async def test_a_call_of_a_tool_that_is_not_offered_suggests_the_nearest_name():
    offered = (Tool("plan_propose"), Tool("bash"))
    _, agent = opened(when("x", [call("plan_propse"), say("c")]), tools=offered)
    with pytest.raises(ScriptMismatch, match="does not offer 'plan_propse'") as caught:
        await agent.ask()
    assert "did you mean 'plan_propose'?" in str(caught.value)
    assert "step 1." in str(caught.value)


async def test_a_call_of_a_tool_is_refused_if_the_request_offers_none():
    playbook, agent = opened(when("x", [call("no_such_tool"), say("c")]), tools=())
    with pytest.raises(ScriptMismatch, match="does not offer 'no_such_tool'") as caught:
        await agent.ask()
    assert "it offers no tools" in str(caught.value)
    assert 'got: a user message: "' in str(caught.value)
    assert playbook.failure is caught.value


@pytest.mark.parametrize("tools", [(), (Tool("bash"),)])
async def test_a_hallucinated_tool_can_be_scripted_on_purpose(tools: tuple[Tool, ...]):
    script = when("x", [call("imagined", {"n": 1}, unknown=True), say("c")])
    _, agent = opened(script, tools=tools)
    assert (await agent.ask()).calls[0].name == "imagined"
    validate([script], tools=["bash"])


async def test_a_tool_that_the_agent_offers_is_not_unknown():
    _, agent = opened(when("x", [call("bash", unknown=True), say("c")]), tools=(Tool("bash"),))
    with pytest.raises(ScriptMismatch, match="offers 'bash', which is scripted as unknown"):
        await agent.ask()


async def test_the_exhausted_error_shows_step_expected_got_remaining_and_fix():
    actions = [when(f"turn {n}", [say(f"text {n}")]) for n in range(7)]
    _, agent = opened(when("first", [call("bash", {"command": "ls"})]), *actions)
    await agent.ask()
    with pytest.raises(ScriptExhausted) as caught:
        await agent.ask("a.txt")
    assert str(caught.value).splitlines() == [
        (
            "when('first'): playbook exhausted: the agent sent another request "
            'after step 1. call("bash", {"command":"ls"})'
        ),
        "  expected: nothing more in when('first')",
        '  got: a result of bash: "a.txt", after the prompt "first"',
        "  remaining:",
        *(f'    {n + 2}. say("text {n}")' for n in range(5)),
        "    ... +2 more",
        "  fix: end the turn with say(…), or script what the model does next",
    ]


async def test_the_unfinished_error_shows_step_expected_got_remaining_and_fix():
    playbook, agent = opened(when("x", [call("a"), call("b"), say("c")]))
    await agent.ask()
    unfinished = playbook.unfinished()
    assert unfinished is not None
    assert str(unfinished).splitlines() == [
        "when('x'): playbook not fully consumed: 2 actions remaining",
        "  consumed: 1 of 3",
        '  expected: a request for step 2. call("b", {})',
        '  got: the agent stopped after step 1. call("a", {}), and sent no result of a',
        "  remaining:",
        '    2. call("b", {})',
        '    3. say("c")',
        "  fix: remove the steps that are never reached, or find out why the agent stopped",
    ]


async def test_a_missing_result_is_an_error_if_a_callback_waits_for_it():
    def ignore(_: ToolResult) -> None: ...

    playbook, agent = opened(when("x", [call("a").then(ignore)]))
    await agent.ask()
    assert playbook.pending
    unfinished = playbook.unfinished()
    assert unfinished is not None
    assert "its .then() did not run" in str(unfinished)


@pytest.mark.parametrize(
    "action, rendered",
    [
        (call("a", {"text": "x" * 90}), 'call("a", {"text":"' + "x" * 70 + "…)"),
        (say("x" * 61), 'say("' + "x" * 59 + '…")'),
        (think("hm"), 'think("hm")'),
        (fail("no", status=500), 'fail("no", status=500)'),
        (call("a", dict), 'call("a", <late-bound>)'),
    ],
)
def test_actions_are_rendered_as_written_and_cut_to_a_line(action: Action, rendered: str):
    from offbook.sources.playbook import describe

    assert describe(action) == rendered


@given(st.lists(st.lists(st.booleans(), max_size=4), min_size=1, max_size=4))
async def test_steps_are_numbered_through_all_turns_and_used_once(shape: list[list[bool]]):
    turns = [
        when(
            f"turn {number}",
            [*(call("a") if single else [call("b"), call("c")] for single in steps), say("z")],
        )
        for number, steps in enumerate(shape)
    ]
    playbook = Playbook()
    playbook.load(*turns)
    agent = Agent(playbook)
    total = playbook.remaining
    numbers: list[int] = []
    for turn in turns:
        playbook.open(turn)
        agent.prompt(turn.text)
        numbers += [(await agent.ask()).step for _ in turn.actions]
    assert numbers == list(range(1, total + 1))
    assert playbook.unfinished() is None


# ------------------------------------------------------------------------------------------- roles


RESEARCH = "You are a researcher."


@pytest.mark.parametrize(
    "conditions, request_",
    [
        ({"system": "researcher"}, Request(system=RESEARCH)),
        ({"system": re.compile("^You are a res")}, Request(system=RESEARCH)),
        ({"model": "haiku"}, Request(model="claude-haiku")),
        ({"tools": ["search"]}, Request(tools=(Tool("search"), Tool("fetch")))),
        ({"tools": ["search"]}, Request(tools=(Tool("search"),))),
        ({"first": "Find out"}, Request(History([user("Find out why"), user("go on")]))),
        ({"system": "researcher", "model": "m"}, Request(system=RESEARCH, model="m")),
    ],
    ids=["system", "pattern", "model", "tools", "same tools", "first", "two"],
)
async def test_a_role_matches_requests_by_its_conditions(conditions: Any, request_: Request):
    playbook, agent = opened(when("x", [say("main")]), role("sub", [say("role")], **conditions))
    reply = await playbook.reply(request_)
    assert (reply.text, reply.role) == ("role", "sub")
    reply = await agent.ask()
    assert (reply.text, reply.role) == ("main", "")


async def test_requests_in_parallel_get_the_steps_of_their_own_role():
    playbook, main = opened(
        when("x", [call("spawn"), say("all done")]),
        role("a", [call("look"), say("a done")], system="I am a"),
        role("b", [say("b done")], system="I am b"),
        system="main",
    )
    a, b = Agent(playbook, system="I am a"), Agent(playbook, system="I am b")
    a.prompt("go")
    b.prompt("go")
    replies = [await main.ask(), await a.ask(), await b.ask(), await a.ask(), await main.ask()]
    assert [reply.text for reply in replies] == ["", "", "b done", "a done", "all done"]
    assert [reply.step for reply in replies] == [1, 3, 5, 4, 2]


async def test_a_used_up_role_is_followed_by_the_next_role_that_matches():
    playbook, _ = opened(
        when("x", [say("main")]),
        role("sub", [say("first")], system="I am sub"),
        role("sub", [say("second")], system="I am sub"),
    )
    sub = Agent(playbook, system="I am sub")
    sub.prompt("go")
    assert [(await sub.ask()).text, (await sub.ask()).text] == ["first", "second"]
    with pytest.raises(ScriptExhausted, match="role\\('sub'\\)"):
        await sub.ask()


async def test_a_request_without_a_role_is_reported_with_the_nearest_role():
    playbook, main = opened(
        when("Do it", [call("spawn"), say("done")]),
        role("writer", [say("w")], system="You write prose"),
        role("researcher", [say("r")], system="You research facts"),
        system="You are the boss",
    )
    await main.ask()
    stranger = Agent(playbook, system="You reserch facts")
    stranger.prompt("Find the population")
    with pytest.raises(ScriptMismatch) as caught:
        await stranger.ask()
    message = str(caught.value)
    assert 'a user message: "Find the population"' in message
    assert "nearest role: 'researcher'" in message
    assert "its system 'You research facts' is not in 'You reserch facts'" in message


async def test_a_request_before_any_turn_is_an_error():
    with pytest.raises(ScriptMismatch, match="no turn or role matches"):
        await Playbook().reply(Request(History([user("hi")])))


async def test_the_main_conversation_may_lose_its_prompt_after_compaction():
    playbook, main = opened(
        when("Do it", [call("a"), say("done")]),
        role("sub", [say("s")], system="sub"),
        system="boss",
    )
    await main.ask()
    compacted = Request(History([user("summary")]), system="boss")
    assert (await playbook.reply(compacted)).text == "done"


async def test_the_steps_left_by_a_failed_run_can_be_discarded():
    playbook, agent = opened(when("x", [call("a"), say("b")]), when("y", [say("c")]))
    await agent.ask()
    playbook.discard()
    assert (playbook.remaining, playbook.unfinished()) == (0, None)
    playbook.load(again := when("again", [say("d")]))
    playbook.open(again)
    agent.prompt("again")
    assert (await agent.ask()).step == 4


# -------------------------------------------------------------------------------- invalid scripts


raw: Any = offbook  # untyped, to pass wrong arguments


async def nothing(_: int) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: raw.when(1, []), "when() takes the prompt first"),
        (lambda: raw.when("x", raw.say("a")), "takes a list of actions, not Say"),
        (lambda: raw.when("x", {}), "takes a list of actions, not dict"),
        (lambda: raw.when("x", "say"), "action 1 of when('x', …): expected an action, got str"),
        (
            lambda: raw.when("x", [raw.say("a"), 5]),
            "action 2 of when('x', …): expected an action, got int",
        ),
        (lambda: raw.when("x", [[]]), "action 1 of when('x', …) is an empty list"),
        (lambda: raw.when("x", [[raw.call("a"), raw.fail()]]), "fail() cannot be combined"),
        (
            lambda: raw.when("x", [[raw.call("a"), [raw.say("b")]]]),
            "action 1 of when('x', …): expected an action, got list",
        ),
        (lambda: raw.call(""), "call() takes the tool's name"),
        (lambda: raw.call(print), "call() takes the tool's name"),
        (lambda: raw.call("a", [1]), "takes a dict or a function, not list"),
        (lambda: raw.call("a", {1: 2}), "must be strings, got 1"),
        (lambda: raw.call("a", nothing), "must not take arguments"),
        (lambda: raw.call("a", {}, unknown="no"), "unknown='no'"),
        (lambda: raw.call("a", {}, unanswered=1), "unanswered=1"),
        (lambda: raw.when("", []), "when() has an empty prompt"),
        (lambda: raw.when(" ", []), "when() has an empty prompt"),
        (lambda: raw.call("a", raises="ValueError"), "a class of exceptions, not 'ValueError'"),
        (lambda: raw.call("a", raises=int), "a class of exceptions, not <class 'int'>"),
        (lambda: raw.call("a", raises=KeyboardInterrupt), "a class of exceptions"),
        (lambda: raw.call("a", raises=(ValueError, 5)), "a class of exceptions, not 5"),
        (lambda: raw.call("a").then(5), ".then() takes a function of the result"),
        (lambda: raw.call("a").then(lambda: None), ".then() takes a function of the result"),
        (lambda: raw.say(5), "say() takes a string"),
        (lambda: raw.say("a", stop="end"), "say(stop='end')"),
        (lambda: raw.think(None), "think() takes a string"),
        (lambda: raw.fail(5), "fail() takes a message"),
        (lambda: raw.fail("x", status="500"), "fail() takes a message and a status"),
        (lambda: raw.fail("x", status=200), "fail(status=200) is not an error status"),
        (lambda: raw.fail("x", status=399), "fail(status=399) is not an error status"),
        (lambda: raw.fail("x", status=600), "fail(status=600) is not an error status"),
        (lambda: raw.fail("x", status=True), "not str and True"),
        (lambda: raw.fail("x", category=5), "fail(category=5)"),
        (lambda: raw.fail("x", retry_after="soon"), "fail(retry_after='soon')"),
        (lambda: raw.fail("x", retry_after=-1), "fail(retry_after=-1)"),
        (lambda: raw.call("a", {"b": object()}), "are not JSON"),
        (lambda: raw.role("", [raw.say("a")], system="x"), "role() takes its name first"),
        (lambda: raw.role("a", [raw.say("a")]), "no condition to match requests by"),
        (lambda: raw.role("a", [], system="x"), "has no actions"),
        (
            lambda: raw.role("a", [raw.say("b")], system=5),
            "system must be a string or a pattern, got int",
        ),
        (
            lambda: raw.role("a", [raw.say("b")], tools="bash"),
            "tools must be a list of names, got str",
        ),
        (lambda: raw.role("a", [raw.say("b")], tools={"a": 1}), "list of names, got dict"),
        (lambda: raw.role("a", [raw.say("b")], tools=5), "list of names, got int"),
        (lambda: raw.role(5, [raw.say("b")], system="x"), "role() takes its name first"),
        (lambda: raw.role("a", [raw.say("b")], model=5), "model must be a string or a pattern"),
        (lambda: raw.role("a", [raw.say("b")], first=5), "first must be a string or a pattern"),
        (lambda: raw.role("a", raw.say("b"), system="x"), "takes a list of actions"),
        (lambda: raw.Playbook().load("x"), "turns and roles, not str"),
        (
            lambda: raw.Playbook().load(raw.when("x", [raw.say("a"), raw.think("b")])),
            "ends in a thought",
        ),
    ],
)
def test_an_invalid_action_is_rejected_where_it_is_written(
    build: Callable[[], object], message: str
):
    with pytest.raises(PlaybookError) as caught:
        build()
    assert message in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "build, message, hint",
    [
        (lambda: raw.fail(stats=500), "fail() has no option 'stats'", "did you mean 'status'?"),
        (lambda: raw.say("a", "b"), "say() takes 1 positional argument", "say() takes text, stop"),
        (lambda: raw.role("a"), "missing 1 required positional argument: 'actions'", "actions"),
        (raw.call, "missing 1 required positional argument: 'tool'", "tool, params"),
    ],
)
def test_an_unknown_argument_is_rejected_with_the_known_ones(
    build: Callable[[], object], message: str, hint: str
):
    with pytest.raises(UsageError) as caught:
        build()
    assert message in str(caught.value)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    "turn, message, hint",
    [
        (when("x", []), "a turn with no actions", "add say(…), or a role(…)"),
        (when("/palns", []), "a turn with no actions", "did you mean 'plans'?"),
        (when("x", [call("bsh"), say("a")]), "no tool 'bsh'", "did you mean 'bash'?"),
        (when("x", [[call("read"), call("bsh")], say("a")]), "no tool 'bsh'", "did you mean"),
    ],
)
def test_a_script_that_could_never_run_is_rejected(turn: Turn, message: str, hint: str):
    with pytest.raises(PlaybookError) as caught:
        validate([turn], tools=["bash", "read"], commands=["plans"])
    assert message in str(caught.value)
    assert hint in caught.value.hint
    assert turn.text in caught.value.where


def test_a_script_that_could_run_is_accepted():
    turns = [
        when("/plans all", []),
        when("x", [[say("I look"), call("bash")], call("read"), say("b")]),
        when("y", [fail(), say("c")]),
        when("several answers", [say("a"), call("bash"), say("b"), say("c")]),
    ]
    validate(turns, tools=["bash", "read"], commands=["plans"])
    validate([when("z", [call("whatever"), say("d")])])
    validate([role("all", [say("a")], system="x"), when("roles answer", [])])


@pytest.mark.parametrize(
    "stop", ["stop", "tool_use", "length", "stop_sequence", "refusal", "error", "cut"]
)
def test_each_stop_reason_can_be_scripted(stop: Any):
    assert say("x", stop=stop).stop == stop


def test_the_first_and_the_last_error_status_are_accepted():
    assert [fail("x", status=status).status for status in (400, 599)] == [400, 599]
    assert fail("x", retry_after=0).retry_after == 0
    assert (fail().status, fail().category, fail().retry_after) == (529, "", None)


def test_a_call_keeps_its_options():
    plain = call("a")
    assert (plain.unanswered, plain.unknown, plain.raises) == (False, False, None)
    assert call("a", unanswered=True).unanswered
    assert call("a", unknown=True).unknown
    assert call("a", raises=ValueError).raises is ValueError
    assert call("a", raises=(ValueError, KeyError)).raises == (ValueError, KeyError)


def test_a_single_message_may_be_a_list_with_an_error():
    assert when("x", [[fail()]]).actions == ((fail(),),)


async def test_the_result_of_an_unknown_call_does_not_hide_a_later_result():
    received: list[str] = []
    playbook, _ = opened(when("x", [call("a").then(lambda r: received.append(r.text)), say("b")]))
    head: dict[str, Any] = {"tools": (Tool("a"),)}
    history = History().plus(user("x"))
    reply = await playbook.reply(Request(history, **head))
    [made] = reply.message.calls
    stray = ToolResult("another", (Text("stray"),), False, "a")
    wanted = ToolResult(made.id, (Text("wanted"),), False, "a")
    history = history.plus(reply.message).plus(Message("tool", (stray, wanted)))
    await playbook.reply(Request(history, **head))
    assert received == ["wanted"]
    assert playbook.unfinished() is None


async def test_an_exhausted_turn_and_an_exhausted_role_are_named():
    playbook, agent = opened(when("x", [say("a")]))
    await agent.ask()
    with pytest.raises(ScriptExhausted, match="playbook exhausted: the turn ended with step 1"):
        await agent.ask()
    playbook, agent = opened(
        when("x", [say("a")]), role("helper", [say("b")], system="Help"), system="Main"
    )
    await agent.ask()
    other = Agent(playbook, system="Help")
    other.prompt("y")
    await other.ask()
    with pytest.raises(ScriptExhausted) as failure:
        await other.ask()
    assert failure.value.where == "role('helper')"


async def test_a_role_may_be_called_main():
    playbook, agent = opened(
        when("x", [say("a")]), role("main", [say("b")], system="Help"), system="Main"
    )
    assert (await agent.ask()).role == ""
    other = Agent(playbook, system="Help")
    other.prompt("y")
    assert (await other.ask()).role == "main"


async def test_a_request_after_a_discarded_script_names_the_turn():
    playbook, agent = opened(when("x", [say("a"), say("b")]))
    playbook.discard()
    with pytest.raises(ScriptExhausted) as failure:
        await agent.ask()
    assert failure.value.where == "when('x')"


async def test_a_system_message_opens_no_turn():
    playbook = Playbook()
    playbook.load(when("first", [say("a")]), when("second", [say("b")]))
    history = History([user("first")])
    history = history.plus((await playbook.reply(Request(history))).message)
    reminder = Message("system", (Text("second"),))
    with pytest.raises(ScriptExhausted):
        await playbook.reply(Request(history.plus(reminder)))


async def test_a_turn_without_actions_is_named_if_a_request_belongs_to_it():
    helper = role("helper", [say("b")], system="Help")
    _, agent = opened(when("roles answer", []), helper, system="Main")
    with pytest.raises(ScriptExhausted, match="before any step") as failure:
        await agent.ask()
    assert failure.value.where == "when('roles answer')"


@given(st.lists(st.text(max_size=9), min_size=1, max_size=6), st.booleans())
async def test_the_tokens_of_a_growing_conversation_are_those_of_a_whole_one(
    texts: list[str],
    offers: bool,  # noqa: FBT001 - drawn
):
    script = when("Go", [say("a") for _ in texts])
    tools = (Tool("find", "Find an order."),) if offers else ()
    growing, whole = Playbook(), Playbook()
    for playbook in (growing, whole):
        playbook.load(script)
        playbook.open(script)
    history = History()
    for text in texts:
        history = history.plus(user(text))
        grown = await growing.reply(Request(history, tools=tools))
    fresh = await whole.reply(Request(History([*history]), tools=tools))
    assert grown.usage == fresh.usage  # pyright: ignore[reportPossiblyUnboundVariable] - one at least
    assert fresh.usage.input == sum(len(text) // 4 + 1 for text in texts) + (
        len(to_json(tools).decode()) // 4 + 1 if tools else 0
    )


def test_turns_are_opened_in_order():
    playbook = Playbook()
    one, two = when("one", [say("a")]), when("two", [say("b")])
    playbook.load(one, two)
    with pytest.raises(PlaybookError, match="is not the next turn"):
        playbook.open(two)


def test_a_playbook_lists_the_tools_of_its_turns_and_roles():
    playbook = Playbook()
    playbook.load(
        when("Go", [call("read", {}), [call("edit", {}), call("bash", {})], say("Done.")]),
        role("helper", [call("search", {}), say("Found.")], system="helper"),
    )
    assert playbook.called_tools == {"read", "edit", "bash", "search"}


@pytest.mark.parametrize(
    "message",
    [[say("Let me", stop="length"), call("bash", {})], [call("bash", {}), say("", stop="length")]],
)
async def test_a_message_with_calls_can_be_cut_short(message: list[Any]):
    playbook = Playbook()
    playbook.load(turn := when("Go", [message]))
    playbook.open(turn)
    reply = await playbook.reply(Request(tools=(Tool("bash"),)))
    assert (reply.stop, [made.name for made in reply.calls]) == ("length", ["bash"])


async def test_a_repeated_first_request_does_not_open_a_second_turn_of_the_same_text():
    playbook = Playbook()
    playbook.load(when("Go on", [say("a"), say("b")]), when("Go on", [say("c")]))
    request = Request(History([user("Go on")]))
    assert [(await playbook.reply(request)).text for _ in range(3)] == ["a", "b", "c"]


async def test_the_same_prompt_in_another_conversation_opens_the_second_turn_of_the_same_text():
    playbook = Playbook()
    playbook.load(when("Go on", [say("a"), say("b")]), when("Go on", [say("c")]))
    await playbook.reply(Request(History([user("Go on")])))
    later = History([user("hello"), Message("assistant", (Text("hi"),)), user("Go on")])
    assert (await playbook.reply(Request(later))).text == "c"


async def test_an_extra_result_of_a_finished_turn_takes_no_step_of_the_open_one():
    playbook = Playbook()
    playbook.load(when("first", [call("a")]), when("second", [call("a"), say("b")]))
    one, two = Agent(playbook), Agent(playbook)
    one.prompt("first")
    await one.ask()
    two.prompt("second")
    await two.ask()
    with pytest.raises(ScriptExhausted):
        await one.ask()
    assert (await two.ask()).text == "b"


@pytest.mark.parametrize(
    "call_id, tool, error, expected",
    [
        ("the id", "refund", ValueError(), True),
        ("the id", "refund", UnicodeError(), True),  # a subclass
        ("the id", "refund", KeyError(), False),
        ("another", "refund", ValueError(), False),
        ("", "refund", ValueError(), True),
        ("", "find", ValueError(), False),
    ],
)
async def test_an_exception_is_expected_of_its_call_and_of_its_type(
    call_id: str,
    tool: str,
    error: Exception,
    expected: bool,  # noqa: FBT001 - a column
):
    script = when("Refund", [[call("refund", raises=ValueError), call("find")], say("Done.")])
    playbook, agent = opened(script)
    calls = (await agent.ask()).calls
    call_id = call_id.replace("the id", calls[0].id)
    assert playbook.expects_error(call_id, tool, error) is expected


async def test_an_expected_exception_comes_once():
    playbook, agent = opened(when("Refund", [call("refund", raises=ValueError), say("Done.")]))
    await agent.ask()
    assert playbook.expects_error("", "refund", ValueError())
    assert not playbook.expects_error("", "refund", ValueError())


async def test_the_exception_of_a_call_without_raises_is_not_expected():
    playbook, agent = opened(when("Refund", [call("refund"), say("Done.")]))
    await agent.ask()
    assert not playbook.expects_error("", "refund", ValueError())


@pytest.mark.parametrize(
    "conditions, shown",
    [
        ({"tools": ["search"]}, "its tools ('search',) is not in ('find',)"),
        ({"model": "small"}, "its model 'small' is not in 'big'"),
        ({"first": "Find"}, "its first 'Find' is not in 'Do it'"),
    ],
)
async def test_the_condition_that_a_request_misses_is_named(conditions: dict[str, Any], shown: str):
    playbook = Playbook()
    playbook.load(role("sub", [say("s")], **conditions))
    request = Request(History([user("Do it")]), tools=(Tool("find"),), model="big")
    with pytest.raises(ScriptMismatch) as caught:
        await playbook.reply(request)
    assert shown in str(caught.value)


@pytest.mark.parametrize(
    "action, tokens",
    [
        (say(""), 1),
        (say("1234"), 2),
        (call("find"), 2),  # find{}
        (call("find", {"id": 7}), 4),  # find{"id":7}
        (call("finds", {"id": "seven"}), 5),
    ],
)
async def test_the_tokens_of_a_reply_are_a_quarter_of_its_characters(action: Action, tokens: int):
    _, agent = opened(when("x", [action]))
    assert (await agent.ask()).usage.output == tokens


async def test_an_image_has_no_tokens():
    playbook = Playbook()
    playbook.load(when("x", [say("a")]))
    history = History([Message("user", (Text("x"), Image("aGk=", "image/png")))])
    assert (await playbook.reply(Request(history))).usage.input == 1


async def test_the_tokens_of_another_conversation_of_the_same_length_are_its_own():
    playbook = Playbook()
    playbook.load(when("a", [say("x")]), when("b", [say("y")]))
    await playbook.reply(Request(History([user("a" * 400)])))
    assert (await playbook.reply(Request(History([user("b")])))).usage.input == 1


def test_a_call_is_of_a_known_tool_and_awaits_its_result_unless_told_otherwise():
    assert (Call("find", {}).unanswered, Call("find", {}).unknown) == (False, False)


async def test_a_cut_stream_is_an_error_for_an_agent_without_a_wire():
    _, agent = opened(when("x", [say("half", stop="cut")]))
    with pytest.raises(ModelError, match="the stream was cut") as raised:
        await agent.ask()
    assert (raised.value.status, raised.value.category) == (502, "connection")


async def test_a_cut_stream_on_a_wire_is_a_reply_with_a_fault():
    _, agent = opened(when("x", [say("half", stop="cut")]), metadata={"dialect": "chat"})
    reply = await agent.ask()
    assert (reply.text, reply.fault and reply.fault.kind) == ("half", "cut")


async def test_a_late_result_of_a_discarded_call_takes_no_step_of_its_turn():
    playbook, agent = opened(when("one", [call("a"), say("of the failed run")]))
    await agent.ask()
    playbook.discard()
    following = when("two", [say("of the next run")])
    playbook.load(following)
    playbook.open(following)
    assert (await agent.ask()).text == "of the next run"


async def test_the_steps_of_a_turn_that_a_later_prompt_ended_are_reported_as_remaining():
    playbook = Playbook()
    playbook.load(when("one", [say("a"), say("never")]), when("two", [say("b")]))
    agent = Agent(playbook)
    agent.prompt("one")
    await agent.ask()
    agent.prompt("two")
    assert (await agent.ask()).text == "b"
    assert [str(step) for step in playbook.remaining_steps] == ['2. say("never")']


async def test_the_result_of_an_aborted_turn_comes_with_the_next_prompt():
    playbook = Playbook()
    playbook.load(when("one", [call("a")]), when("two", [say("b")]))
    agent = Agent(playbook)
    agent.prompt("one")
    made = (await agent.ask()).message
    result = Message("tool", (ToolResult(made.calls[0].id, (Text("aborted"),)),))
    history = History([user("one"), made, result, user("two")])
    assert (await playbook.reply(Request(history))).text == "b"


async def test_the_tokens_of_a_request_include_its_results_and_its_system_prompt():
    _, agent = opened(when("1234", [call("a"), say("b")]), system="12345678", tools=(Tool("a"),))
    first = (await agent.ask()).usage.input
    made, result = 1, 3  # a{} and 12345678
    assert (await agent.ask("12345678")).usage.input == first + made + result
    _, bare = opened(when("1234", [call("a", unanswered=True)]), tools=(Tool("a"),))
    assert first == (await bare.ask()).usage.input + 2


async def test_an_unanswered_call_whose_result_comes_back_is_a_mismatch():
    turn = when("Go", [call("find", unanswered=True), say("b")])
    playbook, agent = opened(turn, tools=(Tool("find"),))
    await agent.ask()
    with pytest.raises(ScriptMismatch, match="of find, which is scripted as unanswered: step 1"):
        await agent.ask("order 7")
    assert isinstance(playbook.failure, ScriptMismatch)


async def test_the_result_of_an_unanswered_call_may_come_with_the_next_prompt():
    one = when("one", [call("find", unanswered=True)])
    playbook = Playbook()
    playbook.load(one, when("two", [say("b")]))
    agent = Agent(playbook, tools=(Tool("find"),))
    agent.prompt("one")
    made = (await agent.ask()).message
    result = Message("tool", (ToolResult(made.calls[0].id, (Text("done"),)),))
    history = History([user("one"), made, result, user("two")])
    assert (await playbook.reply(Request(history))).text == "b"


async def test_a_conversation_with_the_prompt_belongs_to_its_turn_if_its_system_prompt_changes():
    playbook = Playbook()
    turn = when("Go", [say("a"), say("b")])
    playbook.load(turn, role("clerk", [say("c")], system="You are a clerk."))
    history = History([user("Go")])
    first = await playbook.reply(Request(history, system="It is Monday."))
    history = history.plus(first.message).plus(user("More"))
    assert (await playbook.reply(Request(history, system="It is Tuesday."))).text == "b"


async def test_roles_and_expected_errors_of_a_failed_run_are_discarded_too():
    playbook, agent = opened(
        when("x", [call("a", raises=ValueError)]), role("sub", [say("s")], system="sub")
    )
    await agent.ask()
    playbook.failure = RuntimeError("of the failed run")
    playbook.discard()
    assert (playbook.remaining, playbook.unfinished(), playbook.failure) == (0, None, None)
    assert not playbook.expects_error("", "a", ValueError())


async def test_a_prompt_in_two_messages_is_one_prompt_with_two_lines():
    playbook = Playbook()
    playbook.load(when("first\nsecond", [say("ok")]))
    request = Request(History([user("first"), user("second")]))
    assert (await playbook.reply(request)).text == "ok"


async def test_only_what_the_user_wrote_opens_a_turn():
    playbook = Playbook()
    playbook.load(when("one", [call("a"), say("b")]), when("two", [say("c")]))
    agent = Agent(playbook)
    agent.prompt("one")
    made = (await agent.ask()).message
    result = Message("tool", (ToolResult(made.calls[0].id, (Text("two"),)), Text("two")))
    request = Request(History([user("one"), made, result]))
    assert (await playbook.reply(request)).text == "b"


async def test_a_request_without_tools_has_no_tokens_of_tools():
    playbook = Playbook()
    playbook.load(when("a", [say("x")]), when("b", [say("y")]))
    await playbook.reply(Request(History([user("a")]), tools=(Tool("find"),)))
    assert (await playbook.reply(Request(History([user("b")])))).usage.input == 1


async def test_a_turn_is_that_of_any_message_with_its_prompt():
    playbook, agent = opened(
        when("Do it", [call("a"), say("done")]), role("sub", [say("s")], system="sub"), system="x"
    )
    made = (await agent.ask()).message
    result = Message("tool", (ToolResult(made.calls[0].id, (Text("ok"),)),))
    history = History([user("Do it"), made, result, user("Go on.")])
    assert (await playbook.reply(Request(history, system="another"))).text == "done"


async def test_a_prompt_that_no_turn_expects_is_reported_after_one_that_the_client_sent():
    playbook, agent = opened(
        when("one", [say("a")]), when("two", [say("b")]), when("three", [say("c")])
    )
    await agent.ask()
    agent.prompt("two")
    await agent.ask()
    agent.prompt("something else")
    with pytest.raises(ScriptMismatch, match="the prompt does not match the next turn"):
        await agent.ask()
    assert playbook.next_turn is not None


async def test_a_request_with_another_system_prompt_lacks_a_role_after_a_turn_of_the_client():
    playbook = Playbook()
    playbook.load(when("one", [say("a"), say("never")]), role("sub", [say("s")], system="sub"))
    await playbook.reply(Request(History([user("one")]), system="boss"))
    with pytest.raises(ScriptMismatch, match="no turn or role matches"):
        await playbook.reply(Request(History([user("title?")]), system="other"))


async def test_a_conversation_in_which_the_model_quotes_the_prompt_is_not_that_of_the_turn():
    playbook, agent = opened(
        when("one", [say("a"), say("never")]), role("sub", [say("s")], system="sub"), system="x"
    )
    await agent.ask()
    history = History([user("hi"), Message("assistant", (Text("one"),)), user("title?")])
    with pytest.raises(ScriptMismatch, match="no turn or role matches"):
        await playbook.reply(Request(history, system="other"))


async def test_a_thought_beside_a_text_is_a_message():
    _, agent = opened(when("x", [[think("hm"), say("a")], say("b")]))
    reply = await agent.ask()
    assert (reply.text, reply.step) == ("a", 1)
    agent.prompt("go on")
    assert (await agent.ask()).text == "b"


async def test_a_text_after_one_that_was_cut_short_keeps_the_stop_reason():
    _, agent = opened(when("x", [[say("a", stop="length"), say("b")]]))
    assert (await agent.ask()).stop == "length"


async def test_the_prompt_of_the_next_turn_ends_a_turn_without_a_request():
    first, second = when("a", [say("A")]), when("b", [say("B")])
    playbook = Playbook()
    playbook.load(first, second)
    playbook.open(first)
    assert (await playbook.reply(Request(History([user("b")])))).text == "B"
    assert [step.location for step in playbook.remaining_steps] == ["when('a')"]


async def test_a_prompt_after_a_scripted_error_is_a_retry_and_opens_no_turn():
    playbook = Playbook()
    playbook.load(when("x", [fail("busy"), say("first")]), when("x", [say("second")]))
    with pytest.raises(ModelError, match="busy"):
        await playbook.reply(Request(History([user("x")])))
    retried = History([Message("system", (Text("Try again."),)), user("x")])
    assert (await playbook.reply(Request(retried))).text == "first"


async def test_a_discarded_script_has_no_steps_of_turns_that_were_left_early():
    first, second = when("a", [say("A")]), when("b", [say("B")])
    playbook = Playbook()
    playbook.load(first, second)
    playbook.open(first)
    playbook.open(second)
    assert playbook.remaining == 2
    playbook.discard()
    assert playbook.remaining == 0


async def test_a_result_that_never_came_is_reported_as_such():
    playbook, agent = opened(when("x", [call("find")]))
    await agent.ask()
    failure = playbook.unfinished()
    assert failure is not None
    assert "  got: no request has it\n" in str(failure)


async def test_only_the_tools_of_the_last_step_are_reported_as_unanswered():
    playbook, agent = opened(when("x", [call("find"), call("refund"), say("Done.")]))
    await agent.ask()
    unrelated = Agent(playbook, tools=(Tool("refund"),))
    unrelated.prompt("x")
    await unrelated.ask()
    assert "and sent no result of refund\n" in str(playbook.unfinished())


async def test_a_tool_that_was_expected_to_raise_and_did_not_is_reported():
    playbook, agent = opened(when("x", [call("find", raises=ValueError), say("Done.")]))
    await agent.ask()
    await agent.ask()
    assert "call find was expected to raise ValueError" in str(playbook.unfinished())


async def test_a_cancelled_callback_cancels_the_request_and_is_no_failure():
    started, never = asyncio.Event(), asyncio.Event()

    async def waits(_: ToolResult) -> None:
        started.set()
        await never.wait()

    playbook, agent = opened(when("x", [call("find").then(waits), say("Done.")]))
    await agent.ask()
    request = asyncio.create_task(agent.ask())
    await started.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert playbook.failure is None


async def test_a_request_costs_the_same_after_any_number_of_messages():
    playbook, history, counted = Playbook(), History(), list[int]()
    turn = when("Go", [say("a") for _ in range(300)])
    playbook.load(turn)
    playbook.open(turn)
    for _ in range(300):
        history = history.plus(user("and then?"))
        reply, calls = await count_calls(playbook.reply(Request(history)))
        history = history.plus(reply.message)
        counted.append(calls)
    assert counted[-1] <= counted[20] + counted[20] / 10


NUMBER = Tool(
    "find",
    schema={
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
    },
)
ARGUMENTS: dict[str, tuple[Tool, dict[str, Any], str]] = {
    "a misspelt name": (NUMBER, {"numbr": 7}, "it has no 'numbr'; did you mean 'number'"),
    "a name that is missing": (NUMBER, {}, '"number" is a required property'),
    "another type": (NUMBER, {"number": "7"}, 'number: "7" is not of type "integer"'),
    "a name of no parameter": (
        Tool("find", schema={"properties": {"number": {}}}),
        {"numbr": 7},
        "it has no 'numbr'",
    ),
}


@pytest.mark.parametrize("tool, arguments, problem", ARGUMENTS.values(), ids=ARGUMENTS)
async def test_arguments_that_the_schema_forbids_are_an_error_of_the_script(
    tool: Tool, arguments: dict[str, Any], problem: str
):
    _, agent = opened(when("Go", [call("find", arguments), say("b")]), tools=(tool,))
    with pytest.raises(ScriptMismatch) as caught:
        await agent.ask()
    assert problem in str(caught.value)
    assert "add invalid=True" in str(caught.value)


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_a_model_can_send_invalid_arguments_on_purpose(name: str):
    tool, arguments, _ = ARGUMENTS[name]
    turn = when("Go", [call("find", arguments, invalid=True), say("b")])
    _, agent = opened(turn, tools=(tool,))
    assert (await agent.ask()).calls[0].arguments == arguments


async def test_arguments_that_the_schema_allows_are_not_invalid():
    turn = when("Go", [call("find", {"number": 7}, invalid=True), say("b")])
    _, agent = opened(turn, tools=(NUMBER,))
    with pytest.raises(ScriptMismatch, match="allows the arguments of step 1"):
        await agent.ask()


ALLOWED_ARGUMENTS: dict[str, tuple[Tool, dict[str, Any]]] = {
    "no schema": (Tool("find"), {"any": 1}),
    "other names allowed": (
        Tool("find", schema={"properties": {"number": {}}, "additionalProperties": True}),
        {"any": 1},
    ),
    "names by a pattern": (
        Tool("find", schema={"properties": {"a": {}}, "patternProperties": {"^b": {}}}),
        {"b1": 1},
    ),
    "an invalid schema of the agent": (Tool("find", schema={"type": "nonsense"}), {"any": 1}),
    "arguments that are not JSON": (NUMBER, {"$raw": '{"number": '}),
    "a tool that is no function": (
        Tool("find", schema=NUMBER.schema, kind="custom"),
        {"input": "a"},
    ),
}


@pytest.mark.parametrize("tool, arguments", ALLOWED_ARGUMENTS.values(), ids=ALLOWED_ARGUMENTS)
async def test_other_arguments_are_sent(tool: Tool, arguments: dict[str, Any]):
    _, agent = opened(when("Go", [call("find", arguments), say("b")]), tools=(tool,))
    assert (await agent.ask()).calls[0].arguments == arguments
