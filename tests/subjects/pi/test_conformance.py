"""One suite for the Python session and for real pi: the same script, events and assertions.

The ids are those of the original test harness: P (playbook), S (session), F (fixes), K (forks).
"""

from contextlib import nullcontext
from typing import Any

import pytest

from offbook.errors import RunError, ScriptExhausted, ScriptUnfinished, ToolFailed, UsageError
from offbook.exchange import ToolResult
from offbook.sources.playbook import call, fail, say, when
from offbook.subjects.clis.pi import Pi
from offbook.subjects.clis.pi.pi_process import parse_version
from tests.subjects.pi.worlds import JSON, WORLDS, World

pytestmark = pytest.mark.parametrize("world", WORLDS)


# --- P: the playbook


def test_p3_p8_late_bound_parameters_are_evaluated_when_the_model_replies(world: World):
    name = "early"
    with world.open() as t:
        name = "late"
        t.run(when("x", [call("greet", lambda: {"name": name}), say("ok")]))
        assert t.events.tool_calls[0].input == {"name": "late"}


def test_p4_s6_a_captured_result_is_the_parameter_of_a_later_call(world: World):
    kept: list[ToolResult] = []
    with world.open() as t:
        run = t.run(
            when("Create", [call("create").then(kept.append), say("ok")]),
            when("Open", [call("open", lambda: {"name": kept[0].details["id"]}), say("ok")]),
        )
        assert run.results("open")[0].text == "opened ITEM-1: True"
    assert (kept[0].text, kept[0].is_error) == ("created ITEM-1", False)


def test_p5_p6_actions_are_consumed_in_order(world: World):
    with world.open(mock_tools={"bash": "ok"}) as t:
        run = t.run(when("x", [call("create"), call("bash", {"command": "ls"}), say("end")]))
        assert t.events.tool_sequence() == ["create", "bash"]
        assert run.output == "end"
        assert (t.playbook.consumed, t.playbook.remaining) == (3, 0)


def test_p7_a_request_after_the_last_step_fails_the_run(world: World):
    with world.open() as t, pytest.raises(ScriptExhausted):
        t.run(when("x", [call("create")]))


def test_p7_without_assertions_the_model_answers_that_it_is_exhausted(world: World):
    with world.open(auto_assert=False) as t:
        run = t.run(when("x", [call("create")]))
        assert "PLAYBOOK EXHAUSTED" in run.output


def test_p9_s3_turns_are_one_queue_and_one_conversation(world: World):
    with world.open(mock_tools={"bash": "ok"}) as t:
        run = t.run(
            when("First", [call("bash", {"command": "ls"}), say("One.")]),
            when("Second", [say("Two.")]),
        )
        assert t.playbook.consumed == 3
        assert len(t.events.tool_calls_for("bash")) == 1
        prompts = [m.text for m in run.requests[-1].messages if m.role == "user"]
        assert prompts == ["First", "Second"]


# --- S: the session


def test_s1_a_turn_without_tools_is_consumed(world: World):
    with world.open() as t:
        assert t.run(when("Hello", [say("Hi!")])).output == "Hi!"
        assert (t.playbook.consumed, t.playbook.remaining) == (1, 0)


def test_s2_a_mock_is_a_function_of_the_parameters(world: World):
    received: list[JSON] = []

    def bash(params: JSON) -> str:
        received.append(params)
        return f"$ {params['command']}\noutput"

    with world.open(mock_tools={"bash": bash}) as t:
        t.run(when("List", [call("bash", {"command": "ls"}), say("Done.")]))
        (result,) = t.events.tool_results
        assert len(t.events.tool_calls) == 1
    assert received == [{"command": "ls"}]
    assert (result.text, result.mocked, result.is_error) == ("$ ls\noutput", True, False)


def test_s4_ui_calls_of_a_hook_are_recorded(world: World):
    with world.open() as t:
        t.run(when("Hello", [say("Hi!")]))
        assert t.events.ui_calls_for("notify")[0].args == ["agent started", "info"]


def test_s5_f1_f2_a_tool_of_an_extension_runs_for_real(world: World):
    with world.open() as t:
        run = t.run(when("x", [call("create"), say("ok")]))
        assert run.tools == ["create"]
        (result,) = t.events.tool_results_for("create")
        (called,) = t.events.tool_calls_for("create")
    assert (result.text, result.mocked, result.is_error) == ("created ITEM-1", False, False)
    assert result.details == {"id": "ITEM-1"}
    assert (called.step, result.step) == (1, 1)


def test_s7_a_mocked_answer_reaches_the_extension(world: World):
    with world.open(mock_ui={"confirm": False}) as t:
        t.run(when("Greet Bob", [call("greet", {"name": "Bob"}), say("ok")]))
        assert t.events.tool_results_for("greet")[0].text == "No greeting"
        (asked,) = t.events.ui_calls_for("confirm")
        assert (asked.args, asked.return_value) == (["Greet?", "Really greet Bob?"], False)


def test_s8_a_finished_playbook_passes_with_a_verdict(world: World):
    with world.open() as t:
        t.run(when("x", [call("create"), say("ok")]))
        (verdict,) = t.events.verdicts
        assert (verdict.check, verdict.status) == ("playbook consumed", "pass")


def test_s8_an_unfinished_playbook_fails(world: World):
    with world.open() as t, pytest.raises(ScriptUnfinished, match="remaining"):
        t.run(when("x", [say("ok"), say("never")]))


# --- F: fixes


def test_f3_f4_two_runs_accumulate_without_double_counting(world: World):
    with world.open() as t:
        t.run(when("x", [call("create"), say("ok")]))
        assert len(t.events.tool_results) == 1
        second = t.run(when("y", [call("create"), call("open", {"name": "ITEM-2"}), say("ok")]))
        assert [r.text for r in second.results("create")] == ["created ITEM-2"]
        assert t.events.tool_sequence() == ["create", "create", "open"]


def test_f11_a_blocked_mock_is_one_error_result_and_never_runs(world: World):
    ran: list[JSON] = []
    with world.open(mock_tools={"bash": ran.append}) as t:
        run = t.run(when("x", [call("bash", {"command": "rm -rf /"}), say("ok")]))
        (result,) = t.events.tool_results
        (blocked,) = t.events.blocked_calls()
        assert run.tools == []
    assert (result.is_error, result.text, result.mocked) == (True, "too dangerous", False)
    assert (blocked.tool_name, blocked.block_reason, blocked.step) == ("bash", "too dangerous", 1)
    assert ran == []


def test_a_failed_call_is_not_a_blocked_one(world: World):
    with world.open(mock_tools={"bash": "blocked by nobody"}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), call("greet", invalid=True), say("ok")]))
        assert t.events.blocked_calls() == []
        assert [r.is_error for r in t.events.tool_results] == [False, True]
        assert [tool.name for tool in t.events.executed] == ["bash"]


# --- K: forks


def test_k1_k2_the_hooks_of_a_mocked_tool_fire_exactly_once(world: World):
    with world.open(mock_tools={"bash": "ok"}) as t:
        run = t.run(when("x", [call("bash", {"command": "ls"}), call("seen"), say("ok")]))
        assert run.results("seen")[0].text == "call:ls result:ok"


def test_k3_the_result_that_a_hook_returns_is_what_events_and_model_see(world: World):
    with world.open(mock_tools={"bash": "original"}) as t:
        run = t.run(when("x", [call("bash", {"command": "ls"}), call("seen"), say("ok")]))
        assert run.results("bash")[0].text == "edited"
        assert run.requests[1].results[0].text == "edited"
        assert run.results("seen")[0].text == "call:ls result:original"


def test_k3_the_input_that_a_hook_rewrites_reaches_the_mock(world: World):
    received: list[JSON] = []

    def bash(params: JSON) -> str:
        received.append(params)
        return "ok"

    with world.open(mock_tools={"bash": bash}) as t:
        run = t.run(when("x", [call("bash", {"command": "old"}), say("ok")]))
        (called,) = t.events.tool_calls
        assert run.executed[0].input == {"command": "new"}
    assert (called.input, called.rewritten_input) == ({"command": "old"}, {"command": "new"})
    assert received == [{"command": "new"}]


def test_k4_a_mock_remains_after_a_change_of_active_tools(world: World):
    with world.open(mock_tools={"bash": "mocked"}) as t:
        t.run(
            when("/narrow", []),
            when("x", [call("bash", {"command": "a"}), call("bash", {"command": "b"}), say("ok")]),
        )
        assert [(r.text, r.mocked) for r in t.events.tool_results] == [("mocked", True)] * 2


# --- what the harness promised and did not do


def test_a_mock_may_be_an_error_result(world: World):
    outcome = {"content": "no shell", "details": {"code": 7}, "isError": True}
    with world.open(mock_tools={"bash": outcome}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        (result,) = t.events.tool_results
        # Hooks of pi before 0.67 cannot make a result an error.
        is_error = not (isinstance(t.subject, Pi) and parse_version(t.subject.version) < (0, 67))
    assert (result.text, result.is_error, result.mocked) == ("no shell", is_error, True)
    assert result.details == {"code": 7}


def test_an_exception_of_a_mock_function_fails_the_run(world: World):
    def bash(params: JSON) -> str:
        raise LookupError("no such fixture")

    with world.open(mock_tools={"bash": bash}) as t, pytest.raises(LookupError, match="fixture"):
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))


def test_a_tool_that_throws_fails_the_run(world: World):
    with world.open() as t, pytest.raises(ToolFailed, match="kaput"):
        t.run(when("x", [call("boom"), say("ok")]))


def test_a_tool_that_throws_is_an_error_result_if_errors_are_not_propagated(world: World):
    with world.open(propagate_errors=False) as t:
        run = t.run(when("x", [call("boom"), say("ok")]))
        assert "kaput" in run.results("boom")[0].text
        assert run.results("boom")[0].is_error


def test_an_assertion_in_then_fails_the_run(world: World):
    def check(result: ToolResult) -> None:
        assert result.text == "something else"

    with world.open() as t, pytest.raises(AssertionError):
        t.run(when("x", [call("create").then(check), say("ok")]))


def test_a_failing_late_bound_parameter_fails_the_run(world: World):
    with world.open() as t, pytest.raises(ZeroDivisionError):
        t.run(when("x", [call("open", lambda: {"name": str(1 // 0)}), say("ok")]))


def test_an_unknown_tool_is_refused_before_the_run(world: World):
    with world.open(auto_assert=False) as t, pytest.raises(UsageError, match="crate"):
        t.run(when("x", [call("crate"), say("ok")]))


def test_wrong_parameters_are_an_error_result(world: World):
    with world.open() as t:
        run = t.run(when("x", [call("greet", invalid=True), say("ok")]))
        assert "Validation failed" in run.results("greet")[0].text
        assert run.tools == []


# --- the user interface


def shout(title: str) -> str:
    return f"{title}!"


def echo(params: JSON) -> str:
    return params.get("command") or f"to {params['where']}"


ANSWERS: JSON = {"select": "casual", "input": shout, "editor": ["final"]}


def test_every_dialog_is_answered_and_recorded(world: World):
    with world.open(mock_ui=ANSWERS) as t:
        run = t.run(when("x", [call("ask"), say("ok")]))
        assert run.results("ask")[0].text == "casual Name! final"
        records = [
            (c.method, c.args, c.return_value) for c in t.events.ui if c.args[0] != "agent started"
        ]
    assert records == [
        ("select", ["Tone", ["formal", "casual"]], "casual"),
        ("input", ["Name", "your name"], "Name!"),
        ("editor", ["Text", "draft"], "final"),
        ("notify", ["asked", "warning"], None),
        ("set_status", ["key", "value"], None),
        ("set_widget", ["box", ["one", "two"]], None),
    ]


def test_an_answer_that_is_not_an_option_fails_the_run(world: World):
    with world.open(mock_ui={"select": "rude"}) as t, pytest.raises(UsageError, match="rude"):
        t.run(when("x", [call("ask"), say("ok")]))


def test_none_cancels_a_dialog(world: World):
    answers = {"select": lambda: None, "input": lambda: None, "editor": lambda: None}
    with world.open(mock_ui=answers) as t:
        assert t.run(when("x", [call("ask"), say("ok")])).results("ask")[0].text == "None None None"


def test_without_a_user_interface_every_dialog_is_declined(world: World):
    with world.open(has_ui=False) as t:
        run = t.run(
            when("x", [call("greet", {"name": "Bob"}), call("ask"), say("ok")]),
        )
        assert run.results("greet")[0].text == "No greeting"
        assert run.results("ask")[0].text == "None None None"
        assert t.events.ui_calls_for("confirm")[0].return_value is False


def test_a_command_runs_without_the_model(world: World):
    with world.open() as t:
        run = t.run(when("/hello you", []), when("x", [say("ok")]))
        assert t.events.ui_calls_for("notify")[0].args[0] == "hello you"
        assert len(run.requests) == 1


# --- automatic assertions


def test_an_unused_mock_fails_the_test(world: World):
    t = world.open(mock_tools={"bash": "ok"})
    t.run(when("x", [say("ok")]))
    with pytest.raises(AssertionError, match="never used: mock_tools bash"):
        t.dispose()


def test_a_mock_of_an_extension_tool_is_unused_because_the_tool_runs(world: World):
    t = world.open(mock_tools={"create": "mocked"})
    run = t.run(when("x", [call("create"), say("ok")]))
    assert run.results("create")[0].text == "created ITEM-1"
    with pytest.raises(AssertionError, match="mock_extension_tools=True mocks it"):
        t.dispose()


def test_a_mock_replaces_an_extension_tool_on_request(world: World):
    with world.open(mock_tools={"create": "mocked"}, mock_extension_tools=True) as t:
        run = t.run(when("x", [call("create"), say("ok")]))
        assert (run.results("create")[0].text, run.results("create")[0].mocked) == ("mocked", True)


def test_a_tool_that_only_a_mock_defines_can_be_called(world: World):
    with world.open(mock_tools={"deploy": echo}) as t:
        run = t.run(when("x", [call("deploy", {"where": "prod"}), say("ok")]))
        assert run.results("deploy")[0].text == "to prod"


def test_an_unused_answer_fails_the_test(world: World):
    t = world.open(mock_ui={"confirm": [True, False]})
    t.run(when("x", [call("greet", {"name": "Bob"}), say("ok")]))
    with pytest.raises(AssertionError, match="1 answer of mock_ui"):
        t.dispose()


def test_a_failed_run_does_not_prevent_the_next(world: World):
    answers: list[Any] = [LookupError("first"), "second"]

    def bash(params: JSON) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with world.open(mock_tools={"bash": bash}) as t:
        with pytest.raises(LookupError):
            t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        run = t.run(when("y", [call("bash", {"command": "ls"}), say("ok")]))
        assert run.results("bash")[-1].text == "second"


def test_calls_in_one_message_run_concurrently_and_keep_their_order(world: World):
    with world.open(mock_tools={"bash": echo}) as t:
        calls = [call("bash", {"command": "a"}), call("bash", {"command": "b"})]
        t.run(when("x", [calls, say("ok")]))
        assert [r.text for r in t.events.tool_results] == ["a", "b"]
        assert [c.tool_call_id for c in t.events.tool_calls] == [
            r.tool_call_id for r in t.events.tool_results
        ]


def test_a_scripted_provider_error_is_recorded(world: World):
    with world.open(auto_assert=False) as t:
        # pi reports the error as its own failure, the session goes on.
        expected = pytest.raises(RunError, match="the provider") if world.is_pi else nullcontext()
        with expected:
            t.run(when("x", [fail("never, says the provider", status=403)]))
        assert t.events.named("model.error")[0].data["status"] == 403


def test_the_trace_has_the_events_in_the_same_order(world: World):
    with world.open(mock_tools={"bash": "ok"}, mock_ui={"confirm": True}) as t:
        t.run(
            when(
                "x",
                [
                    call("greet", {"name": "Bob"}),
                    call("bash", {"command": "rm x"}),
                    call("bash", {"command": "old"}),
                    say("ok"),
                ],
            )
        )
        kinds = ("model.request", "model.reply", "tool", "ui.confirm", "hook.tool_call")
        names = [e.event for e in t.events.all if e.event.startswith(kinds)]
    exchange = ["model.request", "model.reply"]
    assert names == [
        *exchange,
        *["tool.call", "tool.start", "ui.confirm", "tool.end", "tool.result"],
        *exchange,
        *["tool.call", "tool.blocked", "tool.result"],
        *exchange,
        *["tool.call", "hook.tool_call", "tool.start", "tool.end", "tool.result"],
        *exchange,
    ]
