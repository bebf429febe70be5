"""The behaviour of the original test harness: its test groups S, F and K, in Python."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from offbook import ToolBlocked, call, say, session, when
from offbook.errors import OffbookError
from offbook.exchange import ToolResult
from offbook.subjects.session import Api, Context, HookEvent

JSON = dict[str, Any]


def greeter(api: Api) -> None:
    """An extension with one tool that asks for confirmation."""

    @api.tool("greet", "Greet a user.")
    async def greet(params: JSON, ctx: Context) -> str:
        sure = await ctx.ui.confirm("Greet?", f"Really greet {params['name']}?")
        return f"Hello {params['name']}" if sure else "No greeting"


# ----------------------------------------------------------------------------------------- session


def test_s1_a_turn_without_tools_is_consumed():
    with session() as t:
        t.run(when("Hello", [say("Hi!")]))
        assert (t.playbook.consumed, t.playbook.remaining) == (1, 0)


def test_s2_a_mock_receives_the_parameters_of_the_call():
    received: list[JSON] = []

    def bash(params: JSON) -> str:
        received.append(params)
        return f"$ {params['command']}\noutput"

    with session(mock_tools={"bash": bash}) as t:
        t.run(when("List", [call("bash", {"command": "ls"}), say("Done.")]))
        assert received == [{"command": "ls"}]
        assert len(t.events.tool_calls) == 1
        (result,) = t.events.tool_results
        assert "output" in result.text
        assert result.mocked


def test_s3_several_turns_are_one_conversation():
    with session(mock_tools={"bash": "ok"}) as t:
        t.run(
            when("First", [call("bash", {"command": "ls"}), say("One.")]),
            when("Second", [say("Two.")]),
        )
        assert t.playbook.consumed == 3
        assert len(t.events.tool_calls_for("bash")) == 1
        assert [m.text for m in t.session.messages if m.role == "user"] == ["First", "Second"]


def test_s4_ui_calls_of_an_extension_are_captured():
    def extension(api: Api) -> None:
        @api.on("agent_start")
        def show(_: HookEvent, ctx: Context) -> None:
            ctx.ui.notify("agent started")

    with session(extensions=[extension]) as t:
        t.run(when("Hello", [say("Hi!")]))
        assert t.events.ui_calls_for("notify")[0].args[0] == "agent started"


def test_s5_a_tool_of_an_extension_runs_for_real():
    ran: list[JSON] = []

    def extension(api: Api) -> None:
        @api.tool("add")
        def add(params: JSON, ctx: Context) -> str:
            ran.append(params)
            return f"sum: {params['a'] + params['b']}"

    with session(extension_factories=[extension]) as t:
        t.run(when("Add", [call("add", {"a": 2, "b": 3}), say("5")]))
        (result,) = t.events.tool_results_for("add")
    assert ran == [{"a": 2, "b": 3}]
    assert (result.text, result.mocked, result.is_error) == ("sum: 5", False, False)


def test_s6_a_result_is_used_in_the_next_call():
    opened: list[str] = []

    def extension(api: Api) -> None:
        @api.tool("create")
        def create(params: JSON, ctx: Context) -> str:
            return "created ITEM-42"

        @api.tool("open")
        def open_(params: JSON, ctx: Context) -> str:
            opened.append(params["id"])
            return "opened"

    kept = ""

    def keep(result: ToolResult) -> None:
        nonlocal kept
        kept = result.text.split()[-1]

    with session(extensions=[extension]) as t:
        t.run(
            when("Create", [call("create").then(keep), say("ok")]),
            when("Open", [call("open", lambda: {"id": kept}), say("ok")]),
        )
    assert opened == ["ITEM-42"]


def test_s7_mocked_answers_reach_the_extension():
    with session(extensions=[greeter], mock_ui={"confirm": False}) as t:
        t.run(when("Greet Bob", [call("greet", {"name": "Bob"}), say("ok")]))
        assert t.events.tool_results_for("greet")[0].text == "No greeting"
        (asked,) = t.events.ui_calls_for("confirm")
        assert asked.return_value is False


def test_s8_a_finished_playbook_passes():
    with session(mock_tools={"bash": "ok"}) as t:
        t.run(when("Hello", [call("bash", {"command": "x"}), say("Hi!")]))
        (verdict,) = t.events.verdicts
        assert (verdict.check, verdict.status) == ("playbook consumed", "pass")


def test_s8_an_unfinished_playbook_fails_with_a_verdict():
    from offbook import fail
    from offbook.errors import ScriptUnfinished

    with session() as t:
        with pytest.raises(ScriptUnfinished, match="1 action remaining"):
            t.run(when("Hello", [fail("no", status=400), say("never")]))
        (verdict,) = t.events.verdicts
        assert (verdict.check, verdict.status) == ("playbook consumed", "fail")


# ------------------------------------------------------------------------------------------- fixes


def counter(ran: list[str]) -> Any:
    def extension(api: Api) -> None:
        for name in ("one", "two"):

            def tool(params: JSON, ctx: Context, name: str = name) -> str:
                ran.append(name)
                return name

            api.register_tool(name, tool)

    return extension


def test_f1_results_are_collected_without_mocks():
    with session(extensions=[counter([])]) as t:
        t.run(when("x", [call("one"), say("ok")]))
        (result,) = t.events.tool_results_for("one")
        assert not result.mocked


def test_f2_calls_are_collected_without_mocks():
    with session(extensions=[counter([])]) as t:
        t.run(when("x", [call("one"), say("ok")]))
        assert len(t.events.tool_calls_for("one")) == 1
        assert "one" in t.events.tool_sequence()


def test_f3_two_runs_accumulate_without_double_counting():
    ran: list[str] = []
    with session(extensions=[counter(ran)]) as t:
        first = t.run(when("x", [call("one"), say("ok")]))
        assert len(t.events.tool_results) == 1
        second = t.run(when("y", [call("one"), say("ok")]))
        assert len(t.events.tool_results) == 2
        assert (len(first.results("one")), len(second.results("one"))) == (1, 1)
        assert (t.playbook.consumed, t.playbook.remaining) == (4, 0)
    assert ran == ["one", "one"]


def test_f4_the_tool_sequence_spans_all_runs():
    with session(extensions=[counter([])]) as t:
        t.run(when("x", [call("one"), call("two"), say("ok")]))
        t.run(when("y", [call("two"), say("ok")]))
        assert t.events.tool_sequence() == ["one", "two", "two"]


def test_f5_tool_blocked_is_an_exception():
    assert isinstance(ToolBlocked("no"), Exception)


def test_f6_tool_blocked_is_an_offbook_error():
    assert isinstance(ToolBlocked("no"), OffbookError)


def test_f7_tool_blocked_has_a_marker_attribute():
    assert ToolBlocked("no").tool_blocked is True


def test_f8_tool_blocked_has_its_name():
    assert type(ToolBlocked("no")).__name__ == "ToolBlocked"


def test_f9_the_message_of_tool_blocked_is_its_reason():
    assert (
        str(ToolBlocked("too dangerous")) == "too dangerous" == ToolBlocked("too dangerous").reason
    )


def test_f10_other_errors_have_no_marker():
    assert not isinstance(RuntimeError("no"), ToolBlocked)
    assert not hasattr(RuntimeError("no"), "tool_blocked")


def test_f11_a_blocked_mock_is_one_error_result_and_never_runs():
    ran: list[JSON] = []

    def guard(api: Api) -> None:
        @api.on("tool_call")
        def block(event: HookEvent, ctx: Context) -> JSON:
            return {"block": True, "reason": "too dangerous"}

    with session(extensions=[guard], mock_tools={"bash": ran.append}) as t:
        t.run(when("x", [call("bash", {"command": "rm -rf /"}), say("ok")]))
        (result,) = t.events.tool_results
    assert result.is_error
    assert "too dangerous" in result.text
    assert ran == []


def test_f12_a_hook_can_raise_tool_blocked():
    def guard(api: Api) -> None:
        @api.on("tool_call")
        async def block(event: HookEvent, ctx: Context) -> None:
            raise ToolBlocked("not today")

    with session(extensions=[guard], mock_tools={"bash": "ran"}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        (blocked,) = t.events.blocked_calls()
    assert (blocked.tool_name, blocked.block_reason) == ("bash", "not today")


# ------------------------------------------------------------------------------------------- forks


class Watch:
    """Records the events of a hook, and returns an answer."""

    def __init__(self, event: str, answer: Any = None) -> None:
        self.events_seen: list[HookEvent] = []
        self.texts: list[str] = []
        self._moment = event
        self._answer = answer

    def __call__(self, api: Api) -> None:
        def hook(event: HookEvent, ctx: Context) -> Any:
            self.events_seen.append(event)
            self.texts.append(event.result.text)
            return self._answer

        api.on(self._moment)(hook)


def test_k1_the_tool_call_hook_of_a_mocked_tool_fires_exactly_once():
    watch = Watch("tool_call")
    with session(extensions=[watch], mock_tools={"bash": "ok"}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
    assert [(m.tool, m.input) for m in watch.events_seen] == [("bash", {"command": "ls"})]


def test_k2_the_tool_result_hook_of_a_mocked_tool_fires_exactly_once():
    watch = Watch("tool_result")
    with session(extensions=[watch], mock_tools={"bash": "ok"}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
    assert watch.texts == ["ok"]


def test_k3_the_result_that_a_hook_returns_is_used_everywhere():
    watch = Watch("tool_result", {"content": "edited"})
    with session(extensions=[watch], mock_tools={"bash": "original"}) as t:
        t.run(when("x", [call("bash", {"command": "ls"}), say("ok")]))
        assert t.events.tool_results[0].text == "edited"
        assert t.session.messages[2].results[0].text == "edited"
    assert watch.texts == ["original"]


def test_k4_a_mock_remains_after_a_change_of_active_tools():
    def chooser(api: Api) -> None:
        @api.on("turn_start")
        def choose(_: HookEvent, ctx: Context) -> None:
            api.set_active_tools(["bash"])

    with session(extensions=[chooser], mock_tools={"bash": "mocked"}) as t:
        calls = [call("bash", {"command": "a"}), call("bash", {"command": "b"})]
        t.run(when("x", [*calls, say("ok")]))
        assert [(r.text, r.mocked) for r in t.events.tool_results] == [("mocked", True)] * 2


def test_k5_no_credentials_no_network_and_no_files_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home = tmp_path / "home"
    home.mkdir()
    for key in list(os.environ):
        if key.endswith(("_API_KEY", "_TOKEN")):
            monkeypatch.delenv(key)
    monkeypatch.setenv("HOME", str(home))

    def refuse(*_: object) -> None:
        raise AssertionError("a session opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with session(extensions=[greeter]) as t:
        t.run(when("x", [call("greet", {"name": "Ann"}), say("ok")]))
    assert list(home.iterdir()) == []


def test_k6_an_async_extension_is_loaded(tmp_path: Path):
    file = tmp_path / "slow.py"
    file.write_text(
        "import asyncio\n"
        "async def extension(api):\n"
        "    await asyncio.sleep(0)\n"
        "    @api.tool('late')\n"
        "    async def late(params, ctx):\n"
        "        return 'loaded late'\n"
    )
    with session(extensions=[str(file)]) as t:
        t.run(when("x", [call("late"), say("ok")]))
        assert t.events.tool_results[0].text == "loaded late"
