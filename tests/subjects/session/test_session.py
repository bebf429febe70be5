"""The agent loop: order of hooks, concurrent tools, requests, commands, subagents."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from offbook import call, fail, role, say, session, think, when
from offbook.errors import ScriptMismatch, ToolFailed, UsageError
from offbook.exchange import History, Request, Text, Thinking, user
from offbook.runs import Rehearsal
from offbook.subjects.session import HOOK_EVENTS, Api, Context, HookEvent
from offbook.trace import rebuild_requests
from offbook.types import AgentSession, Skill, ToolOutcome

JSON = dict[str, Any]


def requests(rehearsal: Rehearsal) -> list[Request]:
    return list(rebuild_requests(rehearsal.events.all))


def test_hooks_are_called_for_every_event_in_order():
    seen: list[str] = []

    def watcher(api: Api) -> None:
        for name in HOOK_EVENTS:

            def hook(event: HookEvent, ctx: Context) -> None:
                seen.append(event.name)
                assert ctx.has_ui

            api.on(name)(hook)

    with session(extensions=[watcher], mock_tools={"bash": "ok"}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        t.run(when("y", [say("ok")]))
    turn = ["turn_start", "turn_end"]
    assert seen == [
        "session_start",
        "agent_start",
        "turn_start",
        "tool_call",
        "tool_result",
        "turn_end",
        *turn,
        "agent_end",
        "agent_start",
        *turn,
        "agent_end",
        "session_shutdown",
    ]


def test_hooks_of_several_extensions_are_called_in_the_order_of_the_extensions():
    seen: list[str] = []

    def extension(name: str) -> Any:
        def load(api: Api) -> None:
            @api.on("tool_call")
            async def rewrite(event: HookEvent, ctx: Context) -> JSON:
                seen.append(f"{name} saw {event.input['command']}")
                return {"input": {"command": f"{event.input['command']}+{name}"}}

        return load

    def bash(params: JSON) -> str:
        return params["command"]

    with session(extensions=[extension("a"), extension("b")], mock_tools={"bash": bash}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        assert t.events.tool_results[0].text == "ls+a+b"
        assert t.events.tool_calls[0].input == {"command": "ls"}
        (rewritten,) = t.events.named("hook.tool_call")
        assert rewritten.data["input"] == {"command": "ls+a+b"}
    assert seen == ["a saw ls", "b saw ls+a"]


def test_the_first_hook_that_blocks_is_the_last_one_called():
    called: list[str] = []

    def extension(name: str) -> Any:
        def load(api: Api) -> None:
            @api.on("tool_call")
            def block(event: HookEvent, ctx: Context) -> JSON:
                called.append(name)
                return {"block": True, "reason": name}

        return load

    with session(extensions=[extension("a"), extension("b")], mock_tools={"bash": "ok"}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        assert t.events.blocked_calls()[0].block_reason == "a"
    assert called == ["a"]


def test_a_hook_can_change_the_input_in_place_without_changing_the_reply():
    params = {"command": "ls", "nested": {"list": [1]}}

    def extension(api: Api) -> None:
        @api.tool("run")
        def run(params: JSON, ctx: Context) -> str:
            params["nested"]["list"].append(3)
            return str(params["nested"]["list"])

        @api.on("tool_call")
        def change(event: HookEvent, ctx: Context) -> None:
            event.input["nested"]["list"].append(2)

    with session(extensions=[extension]) as t:
        t.run(
            when("x", [call("run", params), say("ok")]), when("y", [call("run", params), say("ok")])
        )
        assert [r.text for r in t.events.tool_results] == ["[1, 2, 3]", "[1, 2, 3]"]
        assert t.events.tool_calls[0].input == params == {"command": "ls", "nested": {"list": [1]}}


def test_input_changed_by_a_hook_is_validated_again():
    def extension(api: Api) -> None:
        @api.on("tool_call")
        def spoil(event: HookEvent, ctx: Context) -> JSON:
            return {"input": {"path": 5}}

    with session(extensions=[extension], mock_tools={"read": "ok"}) as t:
        t.run(when("x", [call("read", {"path": "a"}), say("ok")]))
        assert "Validation failed for tool 'read'" in t.events.tool_results[0].text


@pytest.mark.parametrize(
    "answer, expected",
    [
        ({"blocked": True}, "did you mean 'block'?"),
        (True, "expected a dict or None, got bool"),
        ("no", "expected a dict or None, got str"),
        ({"input": [1]}, "expected a dict as 'input', got list"),
        ({"reason": "dangerous"}, "a 'reason' without 'block' does not block the call"),
    ],
)
def test_a_hook_with_an_invalid_answer_fails_the_run(answer: Any, expected: str):
    def extension(api: Api) -> None:
        @api.on("tool_call")
        def odd(event: HookEvent, ctx: Context) -> Any:
            return answer

    with session(extensions=[extension], mock_tools={"bash": "ok"}) as t:
        with pytest.raises(UsageError) as caught:
            t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        assert expected in str(caught.value)
        assert "tool_call hook for 'bash'" in str(caught.value)
        assert "at playbook step 1" in caught.value.__notes__[0]


def test_a_hook_with_an_invalid_answer_does_not_allow_the_call():
    ran: list[JSON] = []

    def extension(api: Api) -> None:
        @api.on("tool_call")
        def odd(event: HookEvent, ctx: Context) -> JSON:
            return {"blok": True}

    options: JSON = {"mock_tools": {"bash": ran.append}, "propagate_errors": False}
    with session(extensions=[extension], **options) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        assert t.events.tool_results[0].is_error
    assert ran == []


@pytest.mark.parametrize(
    "answer, text, is_error, details",
    [
        ({"content": "new"}, "new", False, {"k": 1}),
        ({"isError": True}, "old", True, {"k": 1}),
        ({"is_error": True}, "old", True, {"k": 1}),
        ({"details": 2}, "old", False, 2),
        ("whole", "whole", False, {}),
        (None, "old", False, {"k": 1}),
    ],
)
def test_a_result_hook_changes_only_the_fields_it_names(
    answer: Any, text: str, is_error: object, details: Any
):
    def extension(api: Api) -> None:
        @api.on("tool_result")
        def edit(event: HookEvent, ctx: Context) -> Any:
            return answer

    mock = {"content": "old", "details": {"k": 1}}
    with session(extensions=[extension], mock_tools={"bash": mock}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        (result,) = t.events.tool_results
        assert (result.text, result.is_error, result.details) == (text, is_error, details)


@pytest.mark.parametrize(
    "result",
    ["new", {"content": "new"}, ToolOutcome((Text("new"),))],
    ids=["text", "dict", "outcome"],
)
def test_a_result_hook_can_set_the_result(result: Any):
    def extension(api: Api) -> None:
        @api.on("tool_result")
        def replace(event: HookEvent, ctx: Context) -> None:
            event.result = result

        @api.on("tool_result")
        def read(event: HookEvent, ctx: Context) -> str:
            return f"{event.result.text}er"

    with session(extensions=[extension], mock_tools={"bash": "old"}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        assert t.events.tool_results[0].text == "newer"


def test_a_result_that_no_tool_can_return_is_refused_where_a_hook_sets_it():
    def extension(api: Api) -> None:
        @api.on("tool_result")
        def replace(event: HookEvent, ctx: Context) -> None:
            event.result = 5

    problem = "tool_result hook for 'bash': tool result: expected a mapping, got an integer"
    with (
        session(extensions=[extension], mock_tools={"bash": "old"}) as t,
        pytest.raises(UsageError, match=problem),
    ):
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))


@pytest.mark.parametrize("event", ["tool_call", "tool_result"])
def test_a_tool_hook_that_raises_fails_the_run_with_the_step(event: str):
    def extension(api: Api) -> None:
        def boom(event: HookEvent, ctx: Context) -> None:
            raise RuntimeError("boom")

        api.on(event)(boom)

    script = when("x", [call("bash", {"command": "ls"}), say("ok")])
    raised = f"{event} hook failed at playbook step 1"
    mocks = {"bash": "ok"}
    with (
        session(extensions=[extension], mock_tools=mocks) as t,
        pytest.raises(ToolFailed, match=raised),
    ):
        t.run(script)
    options: JSON = {"mock_tools": {"bash": "ok"}, "propagate_errors": False}
    with session(extensions=[extension], **options) as t:
        t.run(script)
        assert t.events.tool_results[0].is_error
        assert t.events.blocked_calls() == []


@pytest.mark.parametrize("event", ["agent_start", "turn_start", "turn_end", "agent_end"])
def test_a_notification_hook_that_raises_fails_the_run(event: str):
    def extension(api: Api) -> None:
        def boom(event: HookEvent, ctx: Context) -> None:
            raise RuntimeError("boom")

        api.on(event)(boom)

    raised = f"{event} hook failed: RuntimeError: boom"
    with session(extensions=[extension]) as t, pytest.raises(ToolFailed, match=raised):
        t.run(when("x", [say("ok")]))


def generator(*_: object) -> Iterator[None]:
    yield


async def async_generator(*_: object) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("function", [generator, async_generator])
@pytest.mark.parametrize("name", [*HOOK_EVENTS, "/command", "extension"])
def test_a_function_that_would_not_run_is_refused(name: str, function: Callable[..., Any]):
    def extension(api: Api) -> None:
        if name == "/command":
            api.command(name)(function)
        elif name != "extension":
            api.on(name)(function)

    def run() -> None:
        with session(extensions=[function if name == "extension" else extension]) as t:
            prompt = "/command" if name == "/command" else "x"
            t.run(when(prompt, [call("bash", {"command": "ls"}), say("ok")]))

    problem = rf"{function.__name__}: a function with a `yield` does not run"
    with pytest.raises(UsageError, match=problem):
        run()


# --------------------------------------------------------------------------- tools at the same time


class Pair:
    """Two tools, each of which waits for the other."""

    def __init__(self, *, fails: bool = False) -> None:
        self._fails = fails
        self.ended: list[str] = []

    def __call__(self, api: Api) -> None:
        left, right = asyncio.Event(), asyncio.Event()

        @api.tool("left")
        async def go_left(params: JSON, ctx: Context) -> str:
            left.set()
            await right.wait()
            self.ended.append("left")
            return "left"

        @api.tool("right")
        async def go_right(params: JSON, ctx: Context) -> str:
            await left.wait()
            self.ended.append("right")
            right.set()
            return "right"

        @api.tool("wait")
        async def wait(params: JSON, ctx: Context) -> str:
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.append("wait")
            return "never"

        @api.tool("break")
        async def break_(params: JSON, ctx: Context) -> str:
            raise ValueError(params["why"])


def test_calls_of_one_message_run_concurrently_and_results_keep_their_order():
    pair = Pair()
    with session(extensions=[pair]) as t:
        t.run(when("x", [[call("left"), call("right")], say("ok")]))
        assert [r.text for r in t.events.tool_results] == ["left", "right"]
        texts = [m.results[0].text for m in t.session.messages if m.results]
        assert texts == ["left", "right"]
    assert pair.ended == ["right", "left"]


def test_a_failing_call_cancels_the_other_calls():
    pair = Pair()
    with session(extensions=[pair]) as t, pytest.raises(ToolFailed, match="ValueError: at once"):
        t.run(when("x", [[call("wait"), call("break", {"why": "at once"})], say("ok")]))
    assert pair.ended == ["wait"]


def test_several_failing_calls_are_one_error_with_notes():
    both = [call("break", {"why": "one"}), call("break", {"why": "two"})]
    with session(extensions=[Pair()]) as t:
        with pytest.raises(ToolFailed, match="ValueError: one") as caught:
            t.run(when("x", [both, say("ok")]))
        assert "ValueError: two" in "".join(caught.value.__notes__)


async def test_a_cancelled_run_cancels_its_tools_and_leaves_a_readable_trace():
    pair = Pair()
    async with session(extensions=[pair]) as t:
        started = asyncio.Event()
        t.hub.subscribe(lambda _: started.set(), "tool.call")

        async def play() -> None:
            await t.run(when("x", [[call("wait"), call("wait")], say("ok")]))

        task = asyncio.ensure_future(play())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        end = t.events.all[-1]
        assert (end.event, end.data["ok"]) == ("_meta.run_end", False)
        assert "cancelled" in end.data["error"]
    assert pair.ended == ["wait", "wait"]


# ----------------------------------------------------------------------- requests to the model


def test_the_request_has_the_system_prompt_and_the_skills():
    skills = [Skill("cook", "How to cook.", "Crack eggs."), {"name": "eat"}]
    with session(system_prompt="Be brief.", skills=skills) as t:
        t.run(when("x", [say("ok")]))
        (request,) = requests(t)
        assert (
            request.system == "Be brief.\n\n# Skill cook\nHow to cook.\nCrack eggs.\n\n# Skill eat"
        )


def test_settings_are_in_the_request_and_in_the_context():
    seen: list[Any] = []

    def extension(api: Api) -> None:
        @api.on("session_start")
        def look(_: HookEvent, ctx: Context) -> None:
            seen.append(ctx.settings["theme"])

    settings = {"model": "m1", "parameters": {"temperature": 0}, "theme": "dark"}
    with session(extensions=[extension], settings=settings) as t:
        t.run(when("x", [say("ok")]))
        (request,) = requests(t)
        assert (request.model, request.parameters) == ("m1", {"temperature": 0})
    assert seen == ["dark"]


def test_requests_offer_only_active_tools():
    def extension(api: Api) -> None:
        @api.tool("only")
        def only(params: JSON, ctx: Context) -> str:
            api.set_active_tools(None)
            return "all again"

        api.set_active_tools(["only"])

    with session(extensions=[extension]) as t:
        t.run(when("x", [call("only"), say("ok")]))
        assert [request.tool_names for request in requests(t)] == [
            ("only",),
            ("bash", "edit", "only", "read", "write"),
        ]


def test_each_request_has_the_whole_conversation():
    with session(mock_tools={"bash": "out"}) as t:
        t.run(when("x", [think("hm"), call("bash", {"command": "ls"}), say("ok")]))
        first, second = requests(t)
        assert first.messages == History([user("x")])
        assert [message.role for message in second.messages] == ["user", "assistant", "tool"]
        assert isinstance(second.messages[1].blocks[0], Thinking)
        assert second.messages[2].results[0].text == "out"


def test_a_command_runs_without_the_model():
    ran: list[str] = []

    def extension(api: Api) -> None:
        @api.command("/plans")
        async def plans(args: str, ctx: Context) -> None:
            ran.append(args)
            ctx.ui.notify("no plans")

    with session(extensions=[extension]) as t:
        t.run(when("/plans all of them", []), when("x", [say("ok")]))
        assert t.events.ui_calls_for("notify")[0].args == ["no plans", "info"]
        assert t.events.named("session.command")[0].data == {
            "command": "plans",
            "args": "all of them",
        }
        assert len(requests(t)) == 1
    assert ran == ["all of them"]


def test_a_command_that_raises_fails_the_run():
    def extension(api: Api) -> None:
        @api.command("boom")
        def boom(args: str, ctx: Context) -> None:
            raise RuntimeError(args)

    raised = "command /boom failed: RuntimeError: now"
    with session(extensions=[extension]) as t, pytest.raises(ToolFailed, match=raised):
        t.run(when("/boom now", []))


def test_a_failed_request_is_retried_as_often_as_the_settings_say():
    with session(settings={"retries": 2}) as t:
        run = t.run(when("x", [fail("busy"), fail("busy", status=503), say("at last")]))
        assert run.output == "at last"
        assert [e.data["status"] for e in t.events.named("model.error")] == [529, 503]


def test_a_refused_request_is_not_retried():
    with session(settings={"retries": 2}) as t:
        t.run(when("x", [fail("no key", status=401)]))
        assert t.events.named("agent.error")[0].data["category"] == "auth"
        assert t.events.named("agent.end")[0].data == {"stop": "error"}


# ----------------------------------------------------------------------------------------- a cast


def delegate(api: Api) -> None:
    """An extension whose tool starts subagents: more requests to the same model."""

    @api.tool("delegate")
    async def delegate(params: JSON, ctx: Context) -> str:
        replies = await asyncio.gather(
            *(
                ctx.model.reply(Request(History([user(task)]), system=f"You are {who}."))
                for who, task in params["tasks"].items()
            )
        )
        return ", ".join(reply.text for reply in replies)


def test_concurrent_subagents_get_replies_of_their_roles():
    with session(extensions=[delegate]) as t:
        t.run(
            when("x", [call("delegate", {"tasks": {"Ann": "cook", "Bob": "eat"}}), say("done")]),
            role("ann", [say("cooked")], system="Ann"),
            role("bob", [say("eaten")], first="eat"),
        )
    assert t.events.tool_results[0].text == "cooked, eaten"
    roles = [e.data.get("role") for e in t.events.named("model.reply")]
    assert roles == [None, "ann", "bob", None]


def test_a_subagent_without_a_role_fails_the_run_with_the_nearest_role():
    with session(extensions=[delegate]) as t, pytest.raises(ScriptMismatch) as caught:
        t.run(
            when("x", [call("delegate", {"tasks": {"Carl": "sing"}}), say("done")]),
            role("karl", [say("sung")], system="You are Karl."),
        )
    assert "nearest role: 'karl'" in str(caught.value)


def test_a_mismatch_that_a_subagent_swallows_still_fails_the_run():
    def careless(api: Api) -> None:
        @api.tool("delegate")
        async def delegate(params: JSON, ctx: Context) -> str:
            try:
                await ctx.model.reply(Request(History([user("sing")]), system="You are Carl."))
            except Exception:  # noqa: BLE001 - as careless as code can be
                return "never mind"
            return "sung"

    with session(extensions=[careless]) as t, pytest.raises(ScriptMismatch):
        t.run(
            when("x", [call("delegate"), say("done")]),
            role("karl", [say("sung")], system="You are Karl."),
        )


def test_a_provider_error_of_a_subagent_is_an_error_of_its_tool():
    with session(extensions=[delegate]) as t, pytest.raises(ToolFailed, match="ModelError: burnt"):
        t.run(
            when("x", [call("delegate", {"tasks": {"Ann": "cook"}}), say("done")]),
            role("ann", [fail("burnt")], system="Ann"),
        )


@pytest.mark.parametrize("key", ["modle", "retry", "parameter"])
def test_a_misspelled_setting_is_refused(key: str):
    with pytest.raises(UsageError, match=f"unknown setting '{key}'"):
        AgentSession(settings={key: 1})


@pytest.mark.parametrize("key", ["greeting", "theme", "locale"])
def test_unknown_settings_are_allowed_for_extensions(key: str):  # noqa: OB101 - it must not raise
    AgentSession(settings={key: 1})


def endless(started: asyncio.Event) -> Any:
    async def hang(_params: JSON) -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    return hang


@pytest.mark.parametrize("parallel", [False, True])
async def test_abort_cancels_running_tools_and_the_next_prompt_has_their_results(*, parallel: bool):
    started = asyncio.Event()
    one = call("bash", {"command": "make"}, unanswered=True)
    async with session(mock_tools={"bash": endless(started)}) as t:
        task = asyncio.ensure_future(
            t.run(when("x", [[one, one] if parallel else one]), when("y", [say("ok")]))
        )
        await started.wait()
        t.session.abort()
        run = await task
    assert [e.data["stop"] for e in run.events.named("agent.end")] == ["aborted", "stop"]
    results = [result for message in t.session.messages for result in message.results]
    assert [r.text for r in results] == ["Operation aborted"] * (2 if parallel else 1)
    assert all(result.is_error for result in results)


def test_abort_by_a_tool_ends_the_prompt_after_it():
    def stop() -> None:
        t.session.abort()

    with session(mock_tools={"bash": stop}) as t:
        last = call("bash", {"command": "ls"}, unanswered=True)
        run = t.run(when("x", [last]), when("y", [say("ok")]))
    assert [e.data["stop"] for e in run.events.named("agent.end")] == ["aborted", "stop"]


def test_abort_without_a_running_prompt_is_refused():
    with session() as t:
        with pytest.raises(UsageError, match="no prompt is running"):
            t.session.abort()
        t.run(when("x", [say("ok")]))


def test_the_input_that_a_hook_rewrote_is_in_the_tool_calls():
    def rewriting(api: Api) -> None:
        @api.on("tool_call")
        def rewrite(event: HookEvent, _ctx: Context) -> None:
            event.input["command"] += " -l"

    with session(extensions=[rewriting], mock_tools={"bash": "ok"}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        (record,) = t.events.tool_calls
    assert record.input == {"command": "ls"}
    assert record.rewritten_input == {"command": "ls -l"}


def test_a_playbook_estimates_the_tokens_of_each_request_and_reply():
    with session(mock_tools={"bash": "x" * 4000}) as t:
        t.run(when("Go", [call("bash", {"command": "ls"}), say("y" * 400)]))
        first, second = [event.data["usage"] for event in t.events.named("model.reply")]
    assert first["input"] > 50  # the system prompt and the tools
    assert 1000 < second["input"] - first["input"] < 1050
    assert second["output"] == 101
