"""The providers' own tools have their real types: OpenAI's items, Anthropic's server tools."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import anthropic
import openai
import pytest
from agents import (
    Agent,
    ApplyPatchTool,
    Computer,
    ComputerTool,
    LocalShellTool,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    ShellTool,
    WebSearchTool,
)

from offbook.errors import PlaybookError
from offbook.runs import drive
from offbook.sources.mocks import Mocks
from offbook.sources.playbook import call, say, when

# ------------------------------------------------------------------------- OpenAI runs the tool

MCP: Any = {"type": "mcp", "server_label": "shop", "server_url": "https://mcp.example"}
HOSTED: list[tuple[Any, str, dict[str, Any], dict[str, Any]]] = [
    (
        {"type": "web_search_preview"},
        "web_search",
        {"query": "lamps", "sources": ["https://a.example"]},
        {"type": "web_search_call", "action.query": "lamps"},
    ),
    (
        {"type": "file_search", "vector_store_ids": ["vs_1"]},
        "file_search",
        {"query": "lamps", "results": [{"file_id": "f", "filename": "a.md", "text": "A lamp."}]},
        {"type": "file_search_call", "queries": ["lamps"]},
    ),
    (
        {"type": "code_interpreter", "container": {"type": "auto"}},
        "code_interpreter",
        {"code": "print(6 * 7)", "logs": "42"},
        {"type": "code_interpreter_call", "code": "print(6 * 7)"},
    ),
    (
        {"type": "image_generation"},
        "image_generation",
        {"result": "AAAA"},
        {"type": "image_generation_call", "result": "AAAA"},
    ),
    (
        MCP,
        "mcp",
        {"name": "find", "arguments": {"id": 7}, "output": "One lamp."},
        {"type": "mcp_call", "arguments": '{"id":7}', "output": "One lamp."},
    ),
]


def respond(prompt: str, *, tool: Any, stream: bool, items: list[Any]) -> str:
    """Ask twice, with the whole conversation; `items` gets those of the first response."""
    client: Any = openai.OpenAI(api_key="none", max_retries=0)
    history: list[Any] = [{"role": "user", "content": prompt}]
    options: Any = {"model": "m", "tools": [tool]}
    if stream:
        with client.responses.stream(input=history, **options) as events:
            first = events.get_final_response()
    else:
        first = client.responses.create(input=history, **options)
    items += first.output
    history += [item.model_dump(exclude_none=True) for item in first.output]
    history.append({"role": "user", "content": "And now?"})
    client.responses.create(input=history, **options)
    return first.output_text


def field_of(item: Any, path: str) -> Any:
    for name in path.split("."):
        item = getattr(item, name)
    return item


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tool, name, arguments, fields", HOSTED, ids=[row[1] for row in HOSTED])
def test_a_tool_that_openai_runs_is_an_item_with_its_result(
    tool: Any, name: str, arguments: Any, fields: Any, *, stream: bool
):
    items: list[Any] = []
    with drive(partial(respond, tool=tool, stream=stream, items=items)) as rehearsal:
        answer = when("Find", [[call(name, arguments), say("One lamp.")]])
        run = rehearsal.run(answer, when("And now?", [say("Bye.")]))
        assert run.tools == []
    assert [type(item).__module__ for item in items[-2:]] != ["builtins", "builtins"]
    *_, item, message = items
    assert {path: field_of(item, path) for path in fields} == fields
    assert message.content[0].text == "One lamp."


def test_a_text_after_a_search_cites_its_sources():
    items: list[Any] = []
    tool = {"type": "web_search"}
    with drive(partial(respond, tool=tool, stream=False, items=items)) as rehearsal:
        search = call("web_search", {"query": "lamps", "sources": ["https://a.example"]})
        rehearsal.run(when("Find", [[search, say("One lamp.")]]), when("And now?", [say("Bye.")]))
    (citation,) = items[1].content[0].annotations
    assert (citation.type, citation.url) == ("url_citation", "https://a.example")


def test_a_mocked_call_has_the_type_of_the_tool_too():
    items: list[Any] = []
    calls = [{"name": "web_search", "args": {"query": "lamps"}}]
    source = Mocks([{"tool_calls": calls}, {"text": "Bye."}])
    agent = partial(respond, tool={"type": "web_search"}, stream=False, items=items)
    with drive(agent, source=source) as rehearsal:
        rehearsal.run("Find")
    assert [item.type for item in items] == ["web_search_call"]


# ------------------------------------------------------------------------- the agent runs the tool


class Screen(Computer):
    """A computer that notes what is done with it."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    @property
    def environment(self) -> Any:
        return "browser"

    @property
    def dimensions(self) -> tuple[int, int]:
        return (100, 100)

    def screenshot(self) -> str:
        return "iVBORw0KGgo="

    def click(self, x: int, y: int, button: Any) -> None:
        self.done.append(("click", x, y, button))

    def double_click(self, x: int, y: int) -> None: ...
    def scroll(self, x: int, y: int, scroll_x: int, scroll_y: int) -> None: ...
    def type(self, text: str) -> None: ...
    def wait(self) -> None: ...
    def move(self, x: int, y: int) -> None: ...
    def keypress(self, keys: list[str]) -> None: ...
    def drag(self, path: list[tuple[int, int]]) -> None: ...


class Editor:
    """An editor that notes its operations."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def create_file(self, operation: Any) -> str:
        self.done.append((operation.type, operation.path))
        return "created"

    update_file = delete_file = create_file


async def run_agent(prompt: str, *, tool: Any, stream: bool, model: str = "gpt-5") -> str:
    client = openai.AsyncOpenAI(api_key="none", max_retries=0)
    agent = Agent(name="a", tools=[tool], model=OpenAIResponsesModel(model, openai_client=client))
    config = RunConfig(tracing_disabled=True)
    if not stream:
        return (await Runner.run(agent, prompt, run_config=config)).final_output
    result = Runner.run_streamed(agent, prompt, run_config=config)
    async for _ in result.stream_events():
        pass
    return result.final_output


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", ["computer-use-preview", "gpt-5.4"])
def test_the_agents_sdk_uses_the_computer(model: str, *, stream: bool):
    screen = Screen()
    agent = partial(run_agent, tool=ComputerTool(screen), stream=stream, model=model)
    click = {"type": "click", "x": 3, "y": 4, "button": "left"}
    with drive(agent) as rehearsal:
        run = rehearsal.run(when("Click", [call("computer", click), say("Clicked.")]))
        assert run.output == "Clicked."
        assert run.results("computer")
    assert screen.done == [("click", 3, 4, "left")]


@pytest.mark.parametrize("stream", [False, True])
def test_the_agents_sdk_runs_a_local_shell(*, stream: bool):
    tool = LocalShellTool(executor=lambda request: " ".join(request.data.action.command))
    with drive(partial(run_agent, tool=tool, stream=stream)) as rehearsal:
        action: Any = {"type": "exec", "command": ["echo", "hi"], "env": {}}
        run = rehearsal.run(when("Go", [call("local_shell", action), say("Done.")]))
        assert run.results("local_shell")[0].text == "echo hi"


@pytest.mark.parametrize("stream", [False, True])
def test_the_agents_sdk_runs_a_shell(*, stream: bool):
    tool = ShellTool(executor=lambda request: f"ran {request.data.action.commands[0]}")
    with drive(partial(run_agent, tool=tool, stream=stream)) as rehearsal:
        run = rehearsal.run(when("Go", [call("shell", {"commands": ["ls"]}), say("Done.")]))
        assert "ran ls" in run.results("shell")[0].text


def test_the_agents_sdk_applies_a_patch():
    editor = Editor()
    tool = ApplyPatchTool(editor=editor)
    operation = {"type": "create_file", "path": "a.txt", "diff": "+hi"}
    with drive(partial(run_agent, tool=tool, stream=False)) as rehearsal:
        run = rehearsal.run(when("Go", [call("apply_patch", operation), say("Done.")]))
        assert run.results("apply_patch")[0].text == "created"
    assert editor.done == [("create_file", "a.txt")]


def test_the_agents_sdk_continues_after_a_hosted_search():
    with drive(partial(run_agent, tool=WebSearchTool(), stream=False)) as rehearsal:
        run = rehearsal.run(when("Go", [[call("web_search", {"query": "lamps"}), say("Done.")]]))
        assert run.output == "Done."


def test_a_response_in_the_background_is_queued_and_then_complete():
    def agent(prompt: str) -> str:
        client = openai.OpenAI(api_key="none", max_retries=0)
        queued = client.responses.create(model="m", input=prompt, background=True)
        assert (queued.status, queued.output) == ("queued", [])
        done = client.responses.retrieve(queued.id)
        assert done.status == "completed"
        return done.output_text

    with drive(agent) as rehearsal:
        assert rehearsal.run(when("Go", [say("Done.")])).output == "Done."


# ----------------------------------------------------------------------- Anthropic runs the tool

SERVER: list[tuple[Any, str, dict[str, Any], list[str]]] = [
    (
        {"type": "web_search_20250305", "name": "web_search"},
        "web_search",
        {"query": "lamps", "results": [{"title": "A", "url": "https://a.example", "text": "Hm."}]},
        ["server_tool_use", "web_search_tool_result", "text"],
    ),
    (
        {"type": "web_fetch_20250910", "name": "web_fetch"},
        "web_fetch",
        {"url": "https://a.example", "text": "A lamp."},
        ["server_tool_use", "web_fetch_tool_result", "text"],
    ),
    (
        {"type": "code_execution_20250522", "name": "code_execution"},
        "code_execution",
        {"code": "print(42)", "stdout": "42"},
        ["server_tool_use", "code_execution_tool_result", "text"],
    ),
    (
        {"type": "mcp_toolset", "mcp_server_name": "shop"},
        "mcp_toolset",
        {"name": "find", "input": {"id": 7}, "output": "One lamp."},
        ["mcp_tool_use", "mcp_tool_result", "text"],
    ),
]


def ask_claude(prompt: str, *, tool: Any, stream: bool, blocks: list[Any]) -> str:
    """Ask twice, with the whole conversation; `blocks` gets those of the first message."""
    client: Any = anthropic.Anthropic(api_key="none", max_retries=0)
    options: Any = {"model": "claude-opus-4-6", "max_tokens": 99, "tools": [tool]}
    history: list[Any] = [{"role": "user", "content": prompt}]
    if stream:
        with client.beta.messages.stream(messages=history, **options) as events:
            message = events.get_final_message()
    else:
        message = client.beta.messages.create(messages=history, **options)
    blocks += message.content
    assert message.stop_reason == "end_turn"
    content = [block.model_dump(exclude_none=True) for block in message.content]
    history += [{"role": "assistant", "content": content}, {"role": "user", "content": "And now?"}]
    client.beta.messages.create(messages=history, **options)
    return message.content[-1].text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tool, name, arguments, kinds", SERVER, ids=[row[1] for row in SERVER])
def test_a_server_tool_of_anthropic_has_its_call_and_its_result(
    tool: Any, name: str, arguments: Any, kinds: list[str], *, stream: bool
):
    blocks: list[Any] = []
    with drive(partial(ask_claude, tool=tool, stream=stream, blocks=blocks)) as rehearsal:
        answer = when("Find", [[call(name, arguments), say("One lamp.")]])
        run = rehearsal.run(answer, when("And now?", [say("Bye.")]))
        assert run.tools == []
    assert [block.type for block in blocks] == kinds
    assert blocks[0].input == {"id": 7} if "mcp" in name else blocks[0].input
    assert blocks[1].tool_use_id == blocks[0].id
    cited = [citation.url for citation in blocks[2].citations or ()]
    assert cited == (["https://a.example"] if name == "web_search" else [])


# -------------------------------------------------------------------- what cannot be scripted

REFUSED: list[tuple[Any, Any, Any, str]] = [
    (respond, {"type": "web_search"}, call("web_search", {"qury": "a"}), "unknown field 'qury'"),
    (respond, {"type": "tool_search"}, call("tool_search", {}), "Offbook does not support this"),
    (
        respond,
        {"type": "web_search"},
        call("web_search", {"query": "a"}).then(lambda _result: None),
        "the provider runs web_search",
    ),
    (
        ask_claude,
        {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"},
        call("tool_search_tool_regex", {}),
        "Offbook does not support this tool of Anthropic",
    ),
]


@pytest.mark.parametrize("agent, tool, action, message", REFUSED, ids=[row[3] for row in REFUSED])
def test_what_is_not_supported_is_refused_where_it_is_scripted(
    agent: Any, tool: Any, action: Any, message: str
):
    seen = {"blocks" if agent is ask_claude else "items": list[Any]()}
    driven = drive(partial(agent, tool=tool, stream=False, **seen))
    with driven as rehearsal, pytest.raises(PlaybookError, match=re.escape(message)) as caught:
        rehearsal.run(when("Find", [action, say("Done.")]))
    assert caught.value.where == "when('Find')"
