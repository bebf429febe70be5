"""A script and an agent can have different names for the same tool."""

import pytest

from offbook.errors import ScriptMismatch, UsageError
from offbook.exchange import (
    AliasedSource,
    History,
    Message,
    Reply,
    Request,
    Text,
    Tool,
    ToolAlias,
    ToolAliases,
    ToolCall,
    ToolResult,
    parse_tool_aliases,
    user,
)
from offbook.runs import drive, session
from offbook.sources.mocks import Mocks
from offbook.sources.playbook import call, say, when
from offbook.subjects.session import AgentSession, Api

SHELL = ToolAlias("exec", {"command": "cmd"})


class Asked:
    """Calls the shell once and records its requests."""

    def __init__(self, *blocks: ToolCall) -> None:
        self.requests: list[Request] = []
        self._blocks = blocks

    async def reply(self, request: Request, /) -> Reply:
        self.requests.append(request)
        return Reply(self._blocks)


def translated(source: Asked, *called: str, value: ToolAliases | None = None) -> AliasedSource:
    words = AliasedSource(source, given=value or {}, known={"shell": SHELL})
    words.activate(called)
    return words


CALL = ToolCall("1", "shell", {"command": "ls", "timeout": 3})
OWN = ToolCall("1", "exec", {"cmd": "ls", "timeout": 3})


async def test_the_agent_and_the_source_each_get_their_own_names():
    source = Asked(CALL)
    words = translated(source, "shell")
    reply = await words.reply(Request(tools=(Tool("exec"), Tool("read"))))
    assert reply.calls == (OWN,)
    assert source.requests[0].tool_names == ("shell", "read")
    assert words.original_call(OWN) == CALL


async def test_calls_and_results_get_the_names_of_the_script():
    source = Asked(CALL)
    words = translated(source, "shell")
    first = Request(History((user("Go"),)), tools=(Tool("exec"),))
    await words.reply(first)
    result = Message("tool", (ToolResult("1", (Text("a.txt"),), name="exec"),))
    await words.reply(Request(first.messages.plus(Message("assistant", (OWN,)), result)))
    _, called, answered = source.requests[1].messages
    assert called.calls == (CALL,)
    assert answered.results[0].name == "shell"
    assert answered.results[0].text == "a.txt"


@pytest.mark.parametrize(
    "offered, called, received",
    [
        (("exec",), (), ("exec",)),
        (("exec",), ("exec",), ("exec",)),
        (("exec",), ("shell", "exec"), ("exec", "shell")),
        (("exec", "shell"), ("shell",), ("exec", "shell")),
        (("other",), ("shell",), ("other",)),
    ],
)
async def test_unused_aliases_are_not_applied(
    offered: tuple[str, ...], called: tuple[str, ...], received: tuple[str, ...]
):
    source = Asked()
    await translated(source, *called).reply(Request(tools=tuple(map(Tool, offered))))
    assert source.requests[0].tool_names == received


async def test_a_name_offered_by_the_agent_is_not_translated():
    reply = await translated(Asked(CALL), "shell").reply(Request(tools=(Tool("shell"),)))
    assert reply.calls == (CALL,)


@pytest.mark.parametrize("sent, given", [("exec", "shell"), ("", ""), ("read", "read")])
async def test_only_the_own_name_of_a_result_is_translated(sent: str, given: str):
    source = Asked(CALL)
    words = translated(source, "shell")
    tools = (Tool("exec"), Tool("read"))
    await words.reply(Request(tools=tools))
    result = Message("tool", (ToolResult("1", (Text("a.txt"),), name=sent),))
    history = History([user("List."), Message("assistant", (OWN,)), result])
    await words.reply(Request(history, tools=tools))
    assert [found.name for found in source.requests[1].results] == [given]


def test_an_alias_can_name_a_known_alias():
    assert parse_tool_aliases({"run": "shell", "look": "read"}, {"shell": SHELL}) == {
        "run": SHELL,
        "look": ToolAlias("read"),
    }


def test_an_invalid_alias_is_rejected():
    with pytest.raises(UsageError, match="expected a tool name or a ToolAlias, got 7"):
        drive(AgentSession(), tool_aliases={"shell": 7})  # pyright: ignore[reportArgumentType] - the wrong or looser type is meant


def test_a_session_reports_the_names_of_the_script():
    with drive(AgentSession(), tool_aliases={"run": "bash"}) as rehearsal:
        run = rehearsal.run(
            when(
                "Go",
                [
                    call("run", {"command": "echo one"}),
                    call("shell", {"command": "echo two"}),
                    call("bash", {"command": "echo three"}),
                    say("Done."),
                ],
            )
        )
        assert run.tools == ["run", "shell", "bash"]
        assert [run.results(name)[0].text for name in run.tools] == ["one\n", "two\n", "three\n"]


def test_a_blocked_call_is_reported_with_the_name_of_the_script():
    def extension(api: Api) -> None:
        @api.on("tool_call")
        def refuse(_moment: object, _ctx: object) -> object:  # pyright: ignore[reportUnusedFunction] - registered by its decorator
            return {"block": True, "reason": "no"}

    with session(extensions=[extension]) as rehearsal:
        run = rehearsal.run(when("Go", [call("shell", {"command": "ls"}), say("Well.")]))
        assert [e.data["tool"] for e in run.events.named("tool.blocked")] == ["shell"]


def test_an_alias_for_a_missing_tool_fails_the_run():
    with (
        drive(AgentSession(), tool_aliases={"run": "nothing"}) as rehearsal,
        pytest.raises(ScriptMismatch, match="does not offer 'run'"),
    ):
        rehearsal.run(when("Go", [call("run", {}), say("Done.")]))


def test_aliases_apply_to_mocks():
    line = {"tool_calls": [{"name": "run", "arguments": {"line": "echo one"}}]}
    mocks = Mocks([line, {"text": "Done."}])
    names = {"run": ToolAlias("bash", {"line": "command"})}
    with drive(AgentSession(), source=mocks, tool_aliases=names) as rehearsal:
        run = rehearsal.run("Go")
        assert run.executed[0].input == {"line": "echo one"}
        assert run.results("run")[0].text == "one\n"
