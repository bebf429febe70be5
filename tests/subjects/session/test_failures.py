"""Failures in a session: each one fails the run or is an error result, none is silent."""

import traceback
from typing import Any

import pytest

from offbook import call, say, session, when
from offbook.errors import (
    ExtensionError,
    PlaybookError,
    ScriptExhausted,
    ScriptMismatch,
    ToolFailed,
)
from offbook.exchange import ToolResult
from offbook.subjects.session import Api, Context, HookEvent

JSON = dict[str, Any]
A_NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def breaking(api: Api) -> None:
    @api.tool("break")
    def break_(params: JSON, ctx: Context) -> str:
        raise ZeroDivisionError("it broke")

    @api.tool("count", parameters=A_NUMBER)
    def count(params: JSON, ctx: Context) -> str:
        return str(params["n"])


def test_a_real_tool_that_raises_fails_the_run_with_the_step():
    with session(extensions=[breaking]) as t:
        with pytest.raises(ToolFailed) as caught:
            t.run(when("x", [call("count", {"n": 1}), call("break"), say("ok")]))
        message = str(caught.value)
        assert "Error during tool execution at playbook step 2 (call 'break')" in message
        assert "ZeroDivisionError: it broke" in message
        assert "propagate_errors=False" in message
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        (error,) = t.events.named("session.error")
        assert error.data["step"] == 2


def test_a_real_tool_that_raises_is_an_error_result_without_propagation():
    with session(extensions=[breaking], propagate_errors=False) as t:
        t.run(when("x", [call("break"), say("ok")]))
        (result,) = t.events.tool_results
        assert (result.text, result.is_error) == ("ZeroDivisionError: it broke", True)
        assert t.session.messages[2].results[0].is_error


def test_a_tool_that_exits_fails_the_run_and_not_the_process():
    def leaving(api: Api) -> None:
        @api.tool("leave")
        def leave(params: JSON, ctx: Context) -> str:
            raise SystemExit(3)

    with session(extensions=[leaving]) as t, pytest.raises(ToolFailed, match="SystemExit: 3"):
        t.run(when("x", [call("leave"), say("ok")]))


def test_an_exhausted_playbook_fails_the_run():
    with session(mock_tools={"bash": "ok"}) as t, pytest.raises(ScriptExhausted) as caught:
        t.run(when("x", [call("bash", {"command": "ls"})]), when("y", [say("not eaten")]))
    assert "after step 1" in str(caught.value)
    assert '2. say("not eaten")' in str(caught.value)


def test_an_unknown_tool_fails_with_the_nearest_name_before_anything_runs():
    with session() as t:
        with pytest.raises(PlaybookError, match="did you mean 'bash'"):
            t.run(when("x", [call("bsh"), say("ok")]))
        assert t.events.named("agent.start") == []


def test_an_inactive_tool_fails_with_the_offered_names():
    def chooser(api: Api) -> None:
        @api.on("agent_start")
        def choose(_: HookEvent, ctx: Context) -> None:
            api.set_active_tools(["read"])

    with session(extensions=[chooser]) as t, pytest.raises(ScriptMismatch) as caught:
        t.run(when("x", [call("write", {"path": "a", "content": "b"}), say("ok")]))
    assert "does not offer 'write'" in str(caught.value)
    assert "'read'" in str(caught.value)


@pytest.mark.parametrize(
    "reason", ["nope: dangerous", "", None, "Error", "tool not found", "Validation failed"]
)
def test_a_blocked_call_is_recognized_for_any_reason(reason: str | None):
    def guard(api: Api) -> None:
        @api.on("tool_call")
        def block(moment: HookEvent, ctx: Context) -> JSON:
            return {"block": True, "reason": reason}

    with session(extensions=[guard], mock_tools={"bash": "ok"}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        (blocked,) = t.events.blocked_calls()
        assert blocked.block_reason == (reason or "Tool execution was blocked")
        assert t.events.tool_results[0].is_error


def test_a_result_that_mentions_blocking_is_not_a_blocked_call():
    words = {"content": "Plan mode: blocked", "is_error": True}
    with session(mock_tools={"bash": words}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        assert t.events.blocked_calls() == []


def test_a_failed_assertion_in_then_fails_the_run_with_its_own_traceback():
    def check(result: ToolResult) -> None:
        assert result.text == "something else"

    with session(mock_tools={"bash": "ok"}) as t, pytest.raises(AssertionError) as caught:
        t.run(when("x", [call("bash", {"command": "ls"}).then(check), say("ok")]))
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "check"
    assert frames[-1].filename == __file__
    assert "in .then() of step 1." in caught.value.__notes__[0]


def test_an_exception_in_then_fails_the_run_as_itself():
    def look(result: ToolResult) -> None:
        raise LookupError(result.text)

    with session(mock_tools={"bash": "ok"}) as t, pytest.raises(LookupError, match="ok"):
        t.run(when("x", [call("bash", {"command": "ls"}).then(look), say("ok")]))


def test_then_receives_a_blocked_call_as_an_error_result():
    received: list[tuple[str, bool]] = []

    def guard(api: Api) -> None:
        @api.on("tool_call")
        def block(moment: HookEvent, ctx: Context) -> JSON:
            return {"block": True, "reason": "no"}

    def keep(result: ToolResult) -> None:
        received.append((result.text, result.is_error))

    with session(extensions=[guard], mock_tools={"bash": "ok"}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}).then(keep), say("ok")]))
    assert received == [("no", True)]


def broken_assertion(params: JSON) -> str:
    assert params["command"] == "pwd"
    return "ok"


def broken_code(_params: JSON) -> str:
    raise LookupError("a bug in the test")


async def broken_later(_params: JSON) -> str:
    raise LookupError("a bug in the test")


def failing_outright(_params: JSON) -> str:
    pytest.fail("must not be called")


@pytest.mark.parametrize(
    "mock, error",
    [
        (broken_assertion, AssertionError),
        (broken_code, LookupError),
        (broken_later, LookupError),
        (failing_outright, pytest.fail.Exception),
    ],
)
@pytest.mark.parametrize("propagate", [True, False])
@pytest.mark.parametrize("parallel", [True, False])
def test_a_mock_that_raises_breaks_the_test_with_its_own_error(
    mock: Any, error: type[BaseException], *, propagate: bool, parallel: bool
):
    one = call("bash", {"command": "ls"})
    with (
        session(mock_tools={"bash": mock}, propagate_errors=propagate) as t,
        pytest.raises(error) as caught,
    ):
        t.run(when("x", [[one, one] if parallel else one, say("ok")]))
    assert type(caught.value) is error
    assert "in mock_tools['bash']" in caught.value.__notes__
    assert any(f.filename == __file__ for f in traceback.extract_tb(caught.value.__traceback__)[1:])


@pytest.mark.parametrize("mock", [TimeoutError("no shell"), lambda: TimeoutError("no shell")])
def test_an_exception_as_a_mocked_result_is_a_tool_that_fails(mock: Any):
    with session(mock_tools={"bash": mock}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        (result,) = t.events.tool_results
        assert (result.text, result.is_error, result.mocked) == (
            "TimeoutError: no shell",
            True,
            True,
        )


def test_a_mocked_error_is_an_error_everywhere():
    with session(mock_tools={"bash": {"content": "no", "isError": True}}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        assert t.events.tool_results[0].is_error
        assert t.session.messages[2].results[0].is_error


def test_a_late_bound_function_that_raises_fails_at_once():
    def boom() -> JSON:
        raise KeyError("plan_id")

    with session(mock_tools={"bash": "ok"}) as t, pytest.raises(KeyError) as caught:
        t.run(when("x", [call("bash", boom), say("ok")]))
    assert "in the late-bound parameters of step 1." in caught.value.__notes__[0]


def test_a_missing_extension_is_an_error():
    with pytest.raises(ExtensionError, match="file not found"):
        session(extensions=["./nope.py"])


@pytest.mark.parametrize(
    "params, expected", [({}, '"n" is a required property'), ({"n": "x"}, "n: ")]
)
def test_invalid_parameters_are_an_error_result(params: JSON, expected: str):
    with session(extensions=[breaking]) as t:
        t.run(when("x", [call("count", params, invalid=True), say("ok")]))
        (result,) = t.events.tool_results
        assert result.is_error
        assert "Validation failed for tool 'count'" in result.text
        assert expected in result.text


def test_invalid_parameters_for_a_mocked_tool_do_not_call_the_mock():
    ran: list[JSON] = []
    with session(mock_tools={"read": ran.append}) as t:
        t.run(when("x", [call("read", {"file": "a"}, invalid=True), say("ok")]))
        assert t.events.tool_results[0].is_error
    assert ran == []


def test_step_numbers_agree_in_all_events():
    with session(extensions=[breaking], mock_tools={"bash": "ok"}) as t:
        t.run(
            when(
                "x",
                [
                    call("count", {"n": 1}),
                    [call("bash", {"command": "a"}), call("count", {"n": 2})],
                    say("ok"),
                ],
            ),
            when("y", [call("bash", {"command": "b"}), say("ok")]),
        )
        t.run(when("z", [call("count", {"n": 3}), say("ok")]))
        assert [c.step for c in t.events.tool_calls] == [1, 2, 2, 4, 6]
        assert [r.step for r in t.events.tool_results] == [1, 2, 2, 4, 6]
        assert [e.data["step"] for e in t.events.named("model.reply")] == [1, 2, 3, 4, 5, 6, 7]
        with pytest.raises(ToolFailed, match="at playbook step 8 "):
            t.run(when("w", [call("break"), say("ok")]))


def test_a_run_after_a_failed_run_starts_clean():
    with session(extensions=[breaking]) as t:
        with pytest.raises(ToolFailed):
            t.run(when("x", [call("break"), say("never")]), when("y", [say("never")]))
        assert t.playbook.remaining == 2
        run = t.run(when("z", [call("count", {"n": 1}), say("ok")]))
        assert run.tools == ["count"]
        assert run.output == "ok"
        assert t.playbook.remaining == 0


def test_auto_assert_off_lets_an_exhausted_and_an_unfinished_playbook_pass():
    from offbook import fail

    with session(mock_tools={"bash": "ok"}, auto_assert=False) as t:
        run = t.run(when("x", [call("bash", {"command": "ls"})]))
        assert "PLAYBOOK EXHAUSTED" in run.output
        t.run(when("y", [fail("no", status=400), say("never")]))
        assert t.playbook.remaining == 1
        assert [v.status for v in t.events.verdicts] == ["pass"]
