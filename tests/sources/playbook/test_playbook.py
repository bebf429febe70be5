"""A playbook plays the model, step by step, and says best what went wrong."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import offbook
from offbook import Playbook, call, fail, role, say, think, when
from offbook.errors import (
    ModelError,
    PlaybookError,
    ScriptExhausted,
    ScriptMismatch,
    UsageError,
)
from offbook.exchange.messages import History, Message, Text, Thinking, ToolCall, ToolResult, user
from offbook.exchange.model import Reply, Request, Tool
from offbook.sources.playbook import Action, Call, Role, Say, Turn, validate


class Agent:
    """The least agent there is: it asks, and answers each call with a text."""

    def __init__(self, playbook: Playbook, **head: Any) -> None:
        self._playbook = playbook
        self._head = head
        self._history = History()

    def prompt(self, text: str) -> None:
        self._history = self._history.plus(user(text))

    async def ask(self, *answers: str, is_error: bool = False) -> Reply:
        """The next reply; first the calls of the last one are answered."""
        if self._history and self._history[-1].calls:
            calls = self._history[-1].calls
            for at, made in enumerate(calls):
                text = answers[at] if at < len(answers) else "ok"
                result = ToolResult(made.id, (Text(text),), is_error, made.name)
                self._history = self._history.plus(Message("tool", (result,)))
        reply = await self._playbook.reply(Request(self._history, **self._head))
        self._history = self._history.plus(reply.message)
        return reply


def opened(*script: Turn | Role, strict: bool = True, **head: Any) -> tuple[Playbook, Agent]:
    """A playbook whose first turn is open, and an agent that was given its prompt."""
    playbook = Playbook(strict=strict)
    playbook.load(*script)
    agent = Agent(playbook, **head)
    turn = next(item for item in script if isinstance(item, Turn))
    playbook.open(turn)
    agent.prompt(turn.text)
    return playbook, agent


# ---------------------------------------------------------------- the upstream behaviours P1 to P9


def test_p1_when_makes_a_turn_of_a_prompt_and_its_actions():
    turn = when("Hello", [say("Hi!")])
    assert turn.text == "Hello"
    assert turn.actions == (Say("Hi!"),)


def test_p2_call_keeps_the_tool_and_its_parameters():
    action = call("bash", {"command": "ls"})
    assert (action.tool, action.params) == ("bash", {"command": "ls"})


def test_p3_late_bound_parameters_stay_a_function_that_sees_what_changed():
    value = "before"
    action = call("get", lambda: {"id": value})
    value = "after"
    assert callable(action.params)
    assert action.params() == {"id": "after"}


def test_p4_then_keeps_the_callback_and_gives_the_call_back():
    heard: list[str] = []

    def keep(result: ToolResult) -> None:
        heard.append(result.text)

    action = call("bash", {"command": "ls"}).then(keep)
    assert isinstance(action, Call)
    assert action.callbacks == (keep,)
    assert action.then(keep).callbacks == (keep, keep)


def test_p5_a_turn_keeps_the_order_and_kinds_of_its_actions():
    turn = when("x", [call("a"), call("b"), say("c")])
    assert [type(action) for action in turn.actions] == [Call, Call, Say]


async def test_p6_steps_are_given_in_order_and_counted():
    playbook, agent = opened(when("x", [call("bash", {"command": "ls"}), say("Done.")]))
    first = await agent.ask()
    assert (first.stop, first.calls[0].name) == ("tool_use", "bash")
    assert (playbook.consumed, playbook.remaining) == (1, 1)
    second = await agent.ask()
    assert (second.stop, second.text) == ("stop", "Done.")
    assert (playbook.consumed, playbook.remaining) == (2, 0)


async def test_p7_an_exhausted_playbook_says_so_where_it_is_not_strict():
    _, agent = opened(when("x", [say("Done.")]), strict=False)
    await agent.ask()
    reply = await agent.ask()
    assert reply.stop == "stop"
    assert "PLAYBOOK EXHAUSTED" in reply.text


async def test_p7_an_exhausted_playbook_fails_where_it_is_strict():
    playbook, agent = opened(when("x", [say("Done.")]))
    await agent.ask()
    with pytest.raises(ScriptExhausted, match="after step 1") as caught:
        await agent.ask()
    assert playbook.failure is caught.value


async def test_p8_late_bound_parameters_are_resolved_when_their_turn_comes():
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


# ------------------------------------------------------------------------------------ beyond them


async def test_several_calls_stand_in_one_message_and_their_thoughts_before_them():
    script = when("x", [think("hm"), [call("a"), call("b")], say("c")])
    _, agent = opened(script)
    reply = await agent.ask()
    assert [type(block) for block in reply.blocks] == [Thinking, ToolCall, ToolCall]
    assert [made.id for made in reply.calls] == ["playbook-tc-1", "playbook-tc-2"]
    assert reply.step == 1


async def test_a_scripted_failure_is_a_providers_error_and_no_failure_of_the_run():
    playbook, agent = opened(when("x", [fail("busy", status=503, retry_after=1), say("c")]))
    with pytest.raises(ModelError) as caught:
        await agent.ask()
    assert (caught.value.status, caught.value.category) == (503, "overloaded")
    assert caught.value.retry_after == 1
    assert playbook.failure is None
    assert (await agent.ask()).text == "c"


async def test_then_hears_the_result_of_its_own_call():
    heard: list[str] = []

    def keep(name: str) -> Callable[[ToolResult], None]:
        return lambda result: heard.append(f"{name}: {result.text}")

    both: list[Action] = [call("a").then(keep("a")), call("b").then(keep("b"))]
    _, agent = opened(when("x", [both, say("c")]))
    await agent.ask()
    await agent.ask("from a", "from b")
    assert heard == ["a: from a", "b: from b"]


async def test_callbacks_hear_results_in_the_order_of_the_calls_whichever_came_first():
    heard: list[str] = []
    calls = [call("t").then(lambda r: heard.append(r.text)) for _ in range(3)]
    playbook = Playbook()
    turn = when("Go", [calls, say("Done.")])
    playbook.load(turn)
    playbook.open(turn)
    history = History([user("Go")])
    made = await playbook.reply(Request(history))
    results = [ToolResult(one.id, (Text(str(n)),)) for n, one in enumerate(made.calls)]
    late = [Message("tool", (result,)) for result in reversed(results)]
    await playbook.reply(Request(history.plus(made.message, *late)))
    assert heard == ["0", "1", "2"]


async def test_then_may_be_async_and_there_may_be_several():
    heard: list[str] = []

    async def first(result: ToolResult) -> None:
        heard.append(f"first {result.text}")

    def second(result: ToolResult) -> None:
        heard.append(f"second {result.text}")

    _, agent = opened(when("x", [call("a").then(first).then(second), say("c")]))
    await agent.ask()
    await agent.ask("hi")
    assert heard == ["first hi", "second hi"]


@pytest.mark.parametrize(
    "raised",
    [AssertionError("not so"), KeyError("x"), ModelError("as if"), pytest.fail.Exception()],
)
async def test_what_a_callback_raises_fails_the_run_with_the_step(raised: BaseException):
    def refuse(_: ToolResult) -> None:
        raise raised

    playbook, agent = opened(when("x", [call("a", {"n": 1}).then(refuse), say("c")]))
    await agent.ask()
    with pytest.raises(type(raised)):
        await agent.ask()
    assert playbook.failure is raised
    assert raised.__notes__ == ['in .then() of step 1. call("a", {"n":1})']


async def test_late_bound_parameters_may_be_async():
    async def later() -> dict[str, Any]:
        return {"id": 7}

    _, agent = opened(when("x", [call("a", later), say("c")]))
    assert (await agent.ask()).calls[0].arguments == {"id": 7}


@pytest.mark.parametrize("given_", [None, "text", [1], {1: 2}])
async def test_late_bound_parameters_that_are_no_parameters_fail_with_the_place(given_: Any):
    playbook, agent = opened(when("x", [call("a", lambda: given_), say("c")]))
    with pytest.raises(PlaybookError) as caught:
        await agent.ask()
    assert caught.value.hint
    assert playbook.failure is caught.value


async def test_late_bound_parameters_that_raise_fail_at_once_with_the_step():
    def boom() -> dict[str, Any]:
        raise LookupError("no id yet")

    playbook, agent = opened(when("x", [call("get", boom), say("c")]))
    with pytest.raises(LookupError, match="no id yet") as caught:
        await agent.ask()
    assert 'step 1. call("get", <late-bound>)' in caught.value.__notes__[0]
    assert playbook.failure is caught.value


async def test_a_tool_that_is_not_offered_fails_with_the_nearest_name():
    offered = (Tool("plan_propose"), Tool("bash"))
    _, agent = opened(when("x", [call("plan_propse"), say("c")]), tools=offered)
    with pytest.raises(ScriptMismatch, match="does not offer: 'plan_propse'") as caught:
        await agent.ask()
    assert "did you mean 'plan_propose'?" in str(caught.value)
    assert "step 1." in str(caught.value)


async def test_an_exhausted_playbook_tells_step_expected_came_remaining_and_what_to_do():
    actions = [when(f"turn {n}", [say(f"text {n}")]) for n in range(7)]
    _, agent = opened(when("first", [call("bash", {"command": "ls"})]), *actions)
    await agent.ask()
    with pytest.raises(ScriptExhausted) as caught:
        await agent.ask("a.txt")
    assert str(caught.value).splitlines() == [
        (
            "when('first'): playbook exhausted: the agent asked the model again "
            'after step 1. call("bash", {"command":"ls"})'
        ),
        "  expected: nothing more in when('first')",
        '  got: a result of bash: "a.txt"',
        "  remaining:",
        *(f'    {n + 2}. say("text {n}")' for n in range(5)),
        "    ... +2 more",
        "  fix: end the turn with say(…), or script what the model does next",
    ]


async def test_an_unfinished_playbook_tells_step_expected_came_remaining_and_what_to_do():
    playbook, agent = opened(when("x", [call("a"), call("b"), say("c")]))
    await agent.ask()
    unfinished = playbook.unfinished()
    assert unfinished is not None
    assert str(unfinished).splitlines() == [
        "when('x'): playbook not fully consumed: 2 actions remaining",
        "  consumed: 1 of 3",
        '  expected: the agent to ask for step 2. call("b", {})',
        '  got: it stopped after step 1. call("a", {})',
        "  remaining:",
        '    2. call("b", {})',
        '    3. say("c")',
        "  fix: remove what is never reached, or find out why the agent stopped",
    ]


async def test_a_result_that_never_came_back_is_told_when_somebody_waited_for_it():
    def ignore(_: ToolResult) -> None: ...

    playbook, agent = opened(when("x", [call("a").then(ignore)]))
    await agent.ask()
    assert playbook.pending
    unfinished = playbook.unfinished()
    assert unfinished is not None
    assert "its .then() did not run" in str(unfinished)


@pytest.mark.parametrize(
    "action, shown",
    [
        (call("a", {"text": "x" * 90}), 'call("a", {"text":"' + "x" * 70 + "…)"),
        (say("x" * 61), 'say("' + "x" * 59 + '…")'),
        (think("hm"), 'think("hm")'),
        (fail("no", status=500), 'fail("no", status=500)'),
        (call("a", dict), 'call("a", <late-bound>)'),
    ],
)
def test_steps_are_shown_as_written_and_cut_to_a_line(action: Action, shown: str):
    from offbook.sources.playbook import describe

    assert describe(action) == shown


@given(st.lists(st.lists(st.booleans(), max_size=4), min_size=1, max_size=4))
async def test_steps_are_numbered_through_all_turns_and_given_each_once(shape: list[list[bool]]):
    turns = [
        when(
            f"turn {at}",
            [*(call("a") if one else [call("b"), call("c")] for one in steps), say("z")],
        )
        for at, steps in enumerate(shape)
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


# ------------------------------------------------------------------------------------------ a cast


RESEARCH = "You are a researcher."


@pytest.mark.parametrize(
    "by, request_",
    [
        ({"system": "researcher"}, Request(system=RESEARCH)),
        ({"system": re.compile("^You are a res")}, Request(system=RESEARCH)),
        ({"model": "haiku"}, Request(model="claude-haiku")),
        ({"tools": ["search"]}, Request(tools=(Tool("search"), Tool("fetch")))),
        ({"first": "Find out"}, Request(History([user("Find out why"), user("go on")]))),
        ({"system": "researcher", "model": "m"}, Request(system=RESEARCH, model="m")),
    ],
    ids=["system", "pattern", "model", "tools", "first", "two"],
)
async def test_a_role_is_known_by_its_request(by: Any, request_: Request):
    playbook, agent = opened(when("x", [say("main")]), role("sub", [say("role")], **by))
    reply = await playbook.reply(request_)
    assert (reply.text, reply.role) == ("role", "sub")
    reply = await agent.ask()
    assert (reply.text, reply.role) == ("main", "")


async def test_requests_at_the_same_time_get_their_own_parts():
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


async def test_a_role_that_is_played_out_leaves_the_floor_to_the_next_of_its_kind():
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


async def test_a_request_that_nobody_plays_is_diagnosed_with_the_nearest_role():
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
    told = str(caught.value)
    assert 'a user message: "Find the population"' in told
    assert "nearest role: 'researcher'" in told
    assert "its system 'You research facts' is not in 'You reserch facts'" in told


async def test_a_request_before_any_turn_is_diagnosed():
    with pytest.raises(ScriptMismatch, match="nobody in the playbook answers"):
        await Playbook().reply(Request(History([user("hi")])))


async def test_the_main_part_may_lose_its_prompt_or_change_its_system_prompt():
    playbook, main = opened(
        when("Do it", [call("a"), say("done")]),
        role("sub", [say("s")], system="sub"),
        system="boss",
    )
    await main.ask()
    compacted = Request(History([user("summary")]), system="boss")
    assert (await playbook.reply(compacted)).text == "done"


async def test_what_a_failed_run_left_can_be_dropped():
    playbook, agent = opened(when("x", [call("a"), say("b")]), when("y", [say("c")]))
    await agent.ask()
    playbook.drop()
    assert (playbook.remaining, playbook.unfinished()) == (0, None)
    playbook.load(again := when("again", [say("d")]))
    playbook.open(again)
    agent.prompt("again")
    assert (await agent.ask()).step == 4


# --------------------------------------------------------------------------------- what is refused


raw: Any = offbook  # as if nobody had checked the types


async def nothing(_: int) -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    "build, says",
    [
        (lambda: raw.when(1, []), "when() takes the prompt first"),
        (lambda: raw.when("x", raw.say("a")), "takes a list of actions, not Say"),
        (lambda: raw.when("x", {}), "takes a list of actions, not dict"),
        (lambda: raw.when("x", "say"), "action 1 of when('x', …) is a str"),
        (lambda: raw.when("x", [raw.say("a"), 5]), "action 2 of when('x', …) is a int"),
        (lambda: raw.when("x", [[]]), "action 1 of when('x', …) is an empty list"),
        (lambda: raw.when("x", [[raw.call("a"), raw.fail()]]), "fails and says something"),
        (
            lambda: raw.when("x", [[raw.call("a"), [raw.say("b")]]]),
            "action 1 of when('x', …) is a list",
        ),
        (lambda: raw.call(""), "call() takes the tool's name"),
        (lambda: raw.call(print), "call() takes the tool's name"),
        (lambda: raw.call("a", [1]), "takes a dict or a function, not list"),
        (lambda: raw.call("a", {1: 2}), "is named 1, a int"),
        (lambda: raw.call("a", nothing), "takes arguments, but is given none"),
        (lambda: raw.call("a").then(5), ".then() takes a function of the result"),
        (lambda: raw.call("a").then(lambda: None), ".then() takes a function of the result"),
        (lambda: raw.say(5), "say() takes a string"),
        (lambda: raw.say("a", stop="end"), "say(stop='end')"),
        (lambda: raw.think(None), "think() takes a string"),
        (lambda: raw.fail(5), "fail() takes a message"),
        (lambda: raw.fail("x", status="500"), "fail() takes a message and a status"),
        (lambda: raw.fail("x", status=200), "fail(status=200) is no error"),
        (lambda: raw.fail("x", category=5), "fail(category=5)"),
        (lambda: raw.fail("x", retry_after="soon"), "fail(retry_after='soon')"),
        (lambda: raw.fail("x", retry_after=-1), "fail(retry_after=-1)"),
        (lambda: raw.call("a", {"b": object()}), "not what a model can write"),
        (lambda: raw.role("", [raw.say("a")], system="x"), "role() takes its name first"),
        (lambda: raw.role("a", [raw.say("a")]), "nothing to be known by"),
        (lambda: raw.role("a", [], system="x"), "has no actions"),
        (lambda: raw.role("a", [raw.say("b")], system=5), "system is a int"),
        (lambda: raw.role("a", [raw.say("b")], tools="bash"), "tools is a str"),
        (lambda: raw.role("a", raw.say("b"), system="x"), "takes a list of actions"),
        (lambda: raw.Playbook().load("x"), "turns and roles, not str"),
        (
            lambda: raw.Playbook().load(raw.when("x", [raw.say("a"), raw.think("b")])),
            "ends in a thought",
        ),
    ],
)
def test_what_is_no_playbook_is_refused_where_it_is_written(build: Callable[[], object], says: str):
    with pytest.raises(PlaybookError) as caught:
        build()
    assert says in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "build, says, hint",
    [
        (lambda: raw.fail(stats=500), "fail() has no option 'stats'", "did you mean 'status'?"),
        (lambda: raw.say("a", "b"), "say() takes 1 positional argument", "say() takes text, stop"),
        (lambda: raw.role("a"), "missing 1 required positional argument: 'actions'", "actions"),
        (raw.call, "missing 1 required positional argument: 'tool'", "tool, params"),
    ],
)
def test_what_a_word_does_not_take_is_told_with_what_it_does(
    build: Callable[[], object], says: str, hint: str
):
    with pytest.raises(UsageError) as caught:
        build()
    assert says in str(caught.value)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    "turn, says, hint",
    [
        (when("x", []), "a turn with no actions", "end it with say(…)"),
        (when("/palns", []), "a turn with no actions", "did you mean 'plans'?"),
        (when("x", [say("a"), call("bash")]), 'call("bash", {}) comes after say("a")', "before"),
        (when("x", [[say("a")], [say("b")]]), 'say("b") comes after say("a")', "before"),
        (when("x", [call("bsh"), say("a")]), "no tool 'bsh'", "did you mean 'bash'?"),
        (when("x", [[call("read"), call("bsh")], say("a")]), "no tool 'bsh'", "did you mean"),
    ],
)
def test_a_playbook_that_could_never_run_is_refused_before_it_does(
    turn: Turn, says: str, hint: str
):
    with pytest.raises(PlaybookError) as caught:
        validate([turn], tools=["bash", "read"], commands=["plans"])
    assert says in str(caught.value)
    assert hint in caught.value.hint
    assert turn.text in caught.value.where


def test_a_playbook_that_could_run_is_not_refused():
    turns = [
        when("/plans all", []),
        when("x", [[say("I look"), call("bash")], call("read"), say("b")]),
        when("y", [fail(), say("c")]),
    ]
    validate(turns, tools=["bash", "read"], commands=["plans"])
    validate([when("z", [call("whatever"), say("d")])])


def test_turns_are_opened_in_their_order():
    playbook = Playbook()
    one, two = when("one", [say("a")]), when("two", [say("b")])
    playbook.load(one, two)
    with pytest.raises(PlaybookError, match="is not the next turn"):
        playbook.open(two)
