"""A subject gets the base URL of its model, and errors behind it fail the test."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import httpx
import openai
import pytest

from offbook.clis import Command
from offbook.errors import OffbookWarning, RunError, ScriptExhausted, ScriptUnfinished, UsageError
from offbook.exchange import ToolAlias, ToolAliases, ToolResult
from offbook.mcp import mcp_server
from offbook.runs import drive
from offbook.sources.live import Live
from offbook.sources.mocks import Mocks
from offbook.sources.playbook import call, say, when
from offbook.sources.server import Server
from offbook.subjects import ModelAccess, RunContext
from offbook.subjects.session import AgentSession
from offbook.trace import SeenTool, Verdict

LOOK: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


class Agent:
    """A small agent with the OpenAI SDK that blocks its thread."""

    name = "agent"
    model_access: ModelAccess = "endpoint"
    emits_tool_calls = False

    def __init__(self, prompt: Callable[[openai.OpenAI, str], object]) -> None:
        self._prompt = prompt
        self._client: openai.OpenAI | None = None
        self.endpoint = ""

    async def open(self, context: RunContext) -> None:
        self.endpoint = context.endpoint
        url = f"{context.endpoint}/v1" if context.endpoint else None
        self._client = openai.OpenAI(base_url=url, api_key="x")

    async def prompt(self, text: str) -> object:
        assert self._client is not None
        return self._prompt(self._client, text)

    async def close(self) -> None:
        assert self._client is not None
        self._client.close()

    def tools(self) -> None:
        return None

    def commands(self) -> tuple[str, ...]:
        return ()

    def verdicts(self) -> tuple[Verdict, ...]:
        return ()


def converse(client: openai.OpenAI, text: str) -> str | None:
    """Make requests until the model calls no tool; every tool returns "done"."""
    messages: list[Any] = [{"role": "user", "content": text}]
    while True:
        answer = client.chat.completions.create(model="m", messages=messages, tools=[LOOK])
        reply = answer.choices[0].message
        messages.append(reply.to_dict())
        if not reply.tool_calls:
            return reply.content
        messages += [
            {"role": "tool", "tool_call_id": made.id, "content": "done"}
            for made in reply.tool_calls
        ]


def ignore(client: openai.OpenAI, text: str) -> None:
    """Do nothing."""


def test_an_agent_that_blocks_the_event_loop_is_answered():
    threads: list[str] = []

    def note(result: ToolResult) -> None:
        threads.append(f"{result.text} in {threading.current_thread().name}")

    with drive(Agent(converse)) as rehearsal:
        run = rehearsal.run(
            when("go", [call("look").then(note), say("Seen.")]), when("again", [say("Yes.")])
        )
        assert run.tools == ["look"]
        assert run.results("look")[0].text == "done"
        assert run.output == "Yes."
    assert threads == ["done in offbook-server"]


async def test_an_agent_that_blocks_the_event_loop_is_answered_in_an_async_test():
    async with drive(Agent(converse)) as rehearsal:
        run = await rehearsal.run(when("go", [call("look"), say("Seen.")]))
        assert run.tools == ["look"]


KEYS = ["OPENAI_API_KEY", "GROQ_API_KEY", "GEMINI_API_KEY"]


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def ask_openai(prompt: str) -> object:
    return converse(openai.OpenAI(), prompt)


def ask_groq(prompt: str) -> object:
    client = openai.OpenAI(
        base_url="https://api.groq.com/openai/v1", api_key=os.environ["GROQ_API_KEY"]
    )
    messages: Any = [{"role": "user", "content": prompt}]
    reply = client.chat.completions.create(model="llama", messages=messages)
    return reply.choices[0].message.content


@pytest.mark.usefixtures("no_keys")
@pytest.mark.parametrize("ask", [ask_openai, ask_groq])
def test_an_agent_that_makes_its_client_in_the_run_needs_no_key(ask: Callable[[str], object]):
    with drive(ask) as rehearsal:
        assert rehearsal.run(when("Hello", [say("Hi.")])).output == "Hi."
    assert not {*KEYS} & {*os.environ}


@pytest.mark.usefixtures("no_keys")
def test_a_client_that_has_a_key_under_one_name_gets_none_under_another(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("GOOGLE_API_KEY", "mine")
    seen: dict[str, str] = {}

    def agent(prompt: str) -> object:
        seen.update(os.environ)
        return ask_groq(prompt)

    with drive(agent) as rehearsal:
        rehearsal.run(when("Hello", [say("Hi.")]))
    assert (seen["GOOGLE_API_KEY"], seen.get("GEMINI_API_KEY")) == ("mine", None)


@pytest.mark.usefixtures("no_keys")
def test_a_real_model_behind_the_agent_does_not_get_the_placeholder_of_a_key():
    with (
        drive(ask_openai, source=Live()) as rehearsal,
        pytest.raises(UsageError, match="missing API key"),
    ):
        rehearsal.run("Hello")


@pytest.mark.parametrize("agent", [Agent(converse), AgentSession(mock_tools={"look": "done"})])
def test_a_script_may_call_a_tool_by_its_alias(agent: Agent | AgentSession):
    with drive(agent, tool_aliases={"see": "look"}) as rehearsal:
        run = rehearsal.run(when("go", [call("see"), say("Seen.")]))
        assert run.results("see")[0].text == "done"


def test_parallel_rehearsals_have_different_base_urls():
    one, two = Agent(converse), Agent(converse)
    with drive(one) as first, drive(two) as second:
        second.run(when("b", [say("B")]))
        assert first.run(when("a", [say("A")])).output == "A"
        assert one.endpoint != two.endpoint
        assert one.endpoint.rpartition("/s/")[0] == two.endpoint.rpartition("/s/")[0]


def test_the_error_of_the_script_is_raised_not_that_of_the_sdk():
    with drive(Agent(converse)) as rehearsal, pytest.raises(ScriptExhausted) as caught:
        rehearsal.run(when("go", [call("look")]))
    assert isinstance(caught.value.__cause__, openai.BadRequestError)


def test_an_agent_that_swallows_the_error_fails():
    def careless(client: openai.OpenAI, text: str) -> None:
        for _ in range(2):
            with suppress(openai.APIError):
                converse(client, text)

    with drive(Agent(careless)) as rehearsal, pytest.raises(ScriptExhausted):
        rehearsal.run(when("go", [say("once")]))


def test_an_error_of_a_callback_is_raised_with_its_traceback():
    def check(result: ToolResult) -> None:
        assert result.text == "something else"

    with drive(Agent(converse)) as rehearsal, pytest.raises(AssertionError) as caught:
        rehearsal.run(when("go", [call("look").then(check), say("Seen.")]))
    assert caught.traceback[-1].name == "check"


def test_an_agent_that_stops_early_leaves_the_script_unfinished():
    with drive(Agent(ignore)) as rehearsal, pytest.raises(ScriptUnfinished):
        rehearsal.run(when("go", [say("never sent")]))


def test_the_trace_has_all_requests_and_tool_calls(tmp_path: Path):
    with drive(Agent(converse), trace=tmp_path / "trace.jsonl") as rehearsal:
        rehearsal.run(when("go", [call("look", {"at": "it"}), say("Seen.")]))
        names = [event.event for event in rehearsal.events.all]
    assert [name for name in names if name.startswith(("model.", "tool."))] == [
        "model.request",
        "model.reply",
        "tool.call",
        "tool.result",
        "model.request",
        "model.reply",
    ]


ORPHAN = [
    {"role": "user", "content": "Go"},
    {"role": "tool", "tool_call_id": "c1", "content": "21"},
]


def ask_with_an_orphan(_prompt: str) -> str | None:
    messages: Any = ORPHAN
    with openai.OpenAI(api_key="x", max_retries=0) as client:
        made = client.chat.completions.create(model="m", messages=messages)
    return made.choices[0].message.content


def test_a_rule_can_be_disabled_for_one_rehearsal():
    with drive(ask_with_an_orphan, lenient=["orphan_result"]) as rehearsal:
        assert rehearsal.run(when("Go", [say("Let through.")])).output == "Let through."


def test_the_refusal_of_the_provider_is_the_headline():
    with drive(ask_with_an_orphan) as rehearsal, pytest.raises(RunError) as caught:
        rehearsal.run(when("Go", [say("Never sent.")]))
    headline = str(caught.value).splitlines()[0]
    assert headline.startswith("the provider refused the request: ")
    assert "(400 invalid_request)" in headline
    assert "lenient=['orphan_result']" in caught.value.hint


def test_a_refusal_that_the_agent_swallows_fails_the_run():
    def careless(prompt: str) -> None:
        with suppress(openai.BadRequestError):
            ask_with_an_orphan(prompt)

    with drive(careless) as rehearsal, pytest.raises(RunError, match="the provider refused"):
        rehearsal.run(when("Go", [say("Never sent.")]))


def test_an_agent_may_continue_with_a_valid_request_after_a_refusal():
    def tries_again(prompt: str) -> str | None:
        with suppress(openai.BadRequestError):
            ask_with_an_orphan(prompt)
        with openai.OpenAI(api_key="x") as client:
            made = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": prompt}]
            )
        return made.choices[0].message.content

    with drive(tries_again) as rehearsal:
        assert rehearsal.run(when("Go", [say("Done.")])).output == "Done."


def test_an_unknown_rule_suggests_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'orphan_result'"):
        drive(ask_with_an_orphan, lenient=["orphan_results"])
    with pytest.raises(UsageError, match="a list of rules"):
        Server(lenient="orphan_result")


def test_lenient_is_rejected_for_a_session():
    with pytest.raises(UsageError, match="lenient has no effect on session"):
        drive(AgentSession(), lenient=["orphan_result"])


@pytest.mark.parametrize("whole", [False, True])
def test_a_server_can_be_lenient_for_all_runs_or_one(*, whole: bool):
    rules = ["orphan_result"]
    with Server(lenient=rules if whole else ()) as server:
        mocks = Mocks([{"match": "*", "text": "Let through."}])
        endpoint = server.mount(mocks, lenient=() if whole else rules)
        messages: Any = ORPHAN
        with openai.OpenAI(base_url=endpoint.openai, api_key="x", max_retries=0) as client:
            made = client.chat.completions.create(model="m", messages=messages)
        assert made.choices[0].message.content == "Let through."


@pytest.mark.parametrize("access", ["transport", "endpoint"])
def test_the_tools_that_the_subject_mocks_are_mocked_by_their_aliases_too(access: ModelAccess):
    class Mocking(Agent):
        model_access = access
        mocked = ("look",)

    agent = Mocking(converse)
    with drive(agent, tool_aliases={"see": "look"}) as rehearsal:
        run = rehearsal.run(when("go", [call("see"), call("look"), say("Seen.")]))
    assert [tool.result.mocked for tool in run.executed] == [True, True]


def test_the_aliases_of_the_subject_need_no_others():
    class Aliasing(Agent):
        tool_aliases: ClassVar[ToolAliases] = {"see": ToolAlias("look")}

    with drive(Aliasing(converse)) as rehearsal:
        run = rehearsal.run(when("go", [call("see"), say("Seen.")]))
    assert [tool.name for tool in run.executed] == ["see"]


def test_the_alias_of_a_tool_that_is_not_mocked_is_not_mocked_either():
    class Mocking(Agent):
        model_access = "transport"
        mocked = ("other",)

    with drive(Mocking(converse), tool_aliases={"see": "look"}) as rehearsal:
        run = rehearsal.run(when("go", [call("see"), say("Seen.")]))
    assert [tool.result.mocked for tool in run.executed] == [False]


@pytest.mark.parametrize("access", ["transport", "endpoint"])
def test_the_result_of_a_tool_has_what_the_subject_saw_of_it(access: ModelAccess):
    class Results(dict[str, SeenTool]):
        """What the subject saw, whatever the id of the call."""

        def get(self, _id: object, _default: object = None) -> SeenTool:  # pyright: ignore[reportIncompatibleMethodOverride] - for each id
            return SeenTool(details="seen", mocked=True)

    class Watching(Agent):
        model_access = access
        tool_watch = SimpleNamespace(failed={}, watched=(), errors=[], results=Results())

    with drive(Watching(converse)) as rehearsal:
        run = rehearsal.run(when("go", [call("look"), say("Seen.")]))
    assert run.results("look")[0].mocked


@pytest.mark.parametrize("watched, observed", [(("look",), True), (("other",), False)])
def test_a_call_by_an_alias_is_observed_if_its_tool_is(watched: tuple[str, ...], *, observed: bool):
    class Watching(Agent):
        tool_watch = SimpleNamespace(failed={}, watched=watched, errors=[], results={})

    with drive(Watching(converse), tool_aliases={"see": "look"}, auto_assert=False) as rehearsal:
        run = rehearsal.run(when("go", [call("see"), say("Seen.")]))
        [made] = [event for event in run.events.all if event.event == "tool.call"]
    assert made.data.get("observed", False) is observed


class ServerTools(Agent):
    """An agent that offers the tool of the server `eye` under a name of its own."""

    def server_tool_name(self, server: str, tool: str) -> str:
        return tool if server == "plain" else "look"


@pytest.mark.parametrize("server, called", [("eye", "see"), ("plain", "look")])
def test_a_script_calls_the_tool_of_a_server_by_its_own_name(server: str, called: str):
    tools = mcp_server(server, tools={called: lambda: "seen"})
    with drive(
        ServerTools(converse), mcp=[tools], auto_assert=False, allow_unused_mocks=True
    ) as rehearsal:
        run = rehearsal.run(when("go", [call(called), say("Seen.")]))
    assert run.output == "Seen."


def test_the_proxy_of_a_run_is_closed_when_the_next_run_needs_one():
    ports: list[int] = []

    def start_a_process(client: openai.OpenAI, text: str) -> str | None:
        code = "import os; print(os.environ['OFFBOOK_PROXY'])"
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        ports.append(int(printed.stdout.split(b",")[0]))
        return converse(client, text)

    class Local(Agent):
        model_access = "transport"

    with drive(Local(start_a_process)) as rehearsal:
        rehearsal.run(when("go", [say("1")]))
        rehearsal.run(when("go", [say("2")]))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", ports[0]))
        socket.create_connection(("127.0.0.1", ports[1])).close()


@pytest.mark.parametrize("access", ["transport", "endpoint"])
def test_a_subject_that_emits_its_tool_calls_has_none_read_from_its_requests(access: ModelAccess):
    class Emitting(Agent):
        model_access = access
        emits_tool_calls = True

    with drive(Emitting(converse)) as rehearsal:
        assert rehearsal.run(when("go", [call("look"), say("Seen.")])).tools == []


def base_url_of_a_client(_client: openai.OpenAI, prompt: str) -> str | None:
    with openai.OpenAI(api_key="x") as client:
        converse(client, prompt)
        return str(client.base_url)


class InProcess(Agent):
    """An agent whose clients are intercepted."""

    model_access: ModelAccess = "transport"


def test_a_client_is_intercepted_at_the_address_of_the_provider_or_served():
    agent = InProcess(base_url_of_a_client)
    with drive(agent) as rehearsal:
        answer = rehearsal.run(when("go", [say("Seen.")])).output
    assert (answer, agent.endpoint) == ("https://api.openai.com/v1/", "")
    with drive(agent, serve=True) as rehearsal:
        answer = rehearsal.run(when("go", [say("Seen.")])).output
    assert answer == f"{agent.endpoint}/v1/"


def test_serve_is_refused_for_a_subject_that_is_not_answered_in_this_process():
    for subject in (Agent(ignore), AgentSession()):
        with pytest.raises(UsageError, match="serve has no effect"):
            drive(subject, serve=True)


def test_the_endpoint_of_a_rehearsal_is_removed_at_its_end():
    agent = Agent(converse)
    with drive(agent) as rehearsal:
        rehearsal.run(when("go", [say("Seen.")]))
    body = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
    assert httpx.post(f"{agent.endpoint}/v1/chat/completions", json=body).status_code == 404


def test_a_refused_connection_is_an_event_with_its_line():
    def reach_out(_client: openai.OpenAI, _prompt: str) -> None:
        with suppress(OSError):
            socket.create_connection(("192.0.2.1", 443))

    with drive(InProcess(reach_out), auto_assert=False) as rehearsal:
        with pytest.warns(OffbookWarning):
            rehearsal.run(when("go", [say("never")]))
        [event] = rehearsal.events.named("isolation.refused")
    assert event.data["destination"] == "192.0.2.1:443"
    assert event.data["where"].endswith(" in reach_out")


# --- What an error says of the ways to the model

SET = (
    "  no request arrived at the model\n"
    "  set: OPENAI_BASE_URL, ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL,"
    r" AWS_ENDPOINT_URL_BEDROCK_RUNTIME and \d\d more\n"
    "  fix: let the agent read its base URL from one of them"
)


def do_nothing(_prompt: str) -> None:
    pass


@pytest.mark.parametrize(
    "subject, lines",
    [
        (Command(["true"]), rf"{SET}\n  tried: no other host"),
        (do_nothing, "  no request arrived at the model"),
    ],
    ids=["a command", "a function"],
)
def test_an_agent_that_never_asked_is_told_the_ways_that_it_had(subject: Any, lines: str):
    with pytest.raises(ScriptUnfinished, match=rf"stopped\n{lines}$"), drive(subject) as rehearsal:
        rehearsal.run(when("Go", [say("Hi.")]))


def test_a_served_function_is_told_its_variables():
    with (
        pytest.raises(ScriptUnfinished, match=rf"stopped\n{SET}$"),
        drive(do_nothing, serve=True) as rehearsal,
    ):
        rehearsal.run(when("Go", [say("Hi.")]))


def test_the_shared_server_is_closed_at_the_end_of_the_process():
    program = """
import atexit, threading
atexit.register(lambda: print([t.name for t in threading.enumerate() if "offbook" in t.name]))
import openai
from offbook import drive, say, when

def agent(prompt):
    client = openai.OpenAI(api_key="none")
    messages = [{"role": "user", "content": prompt}]
    return client.chat.completions.create(model="m", messages=messages).choices[0].message.content

with drive(agent, serve=True) as rehearsal:
    rehearsal.run(when("Hi", [say("Hello!")]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "[]\n"
