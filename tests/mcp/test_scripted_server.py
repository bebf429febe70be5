"""A scripted MCP server, with the client of the official SDK on the other side."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, types
from mcp.client.stdio import StdioServerParameters, stdio_client

from offbook.errors import FormatError, UsageError
from offbook.mcp import ScriptedServer, ToolContext, mcp_server
from offbook.types import Image, Tool, ToolOutcome


def find_order(number: int, detail: str = "short") -> str:
    """Find an order."""
    return f"order {number}, {detail}"


def over_http(server: ScriptedServer, **options: Any) -> Client:
    return Client(server.url, **options)


def over_stdio(server: ScriptedServer, **options: Any) -> Client:
    program, *arguments = server.command
    parameters = StdioServerParameters(command=program, args=arguments)
    return Client(stdio_client(parameters), **options)


@pytest.mark.parametrize("connect", [over_http, over_stdio])
async def test_a_client_of_the_sdk_calls_a_function(connect: Callable[[ScriptedServer], Client]):
    shop = mcp_server("shop", tools=[find_order], instructions="Be kind.")
    async with connect(shop) as client:
        assert client.server_info is not None
        assert client.server_info.name == "shop"
        assert client.instructions == "Be kind."
        result = await client.call_tool("find_order", {"number": 7})
    assert result.content == [types.TextContent(text="order 7, short")]
    assert shop.calls == [("find_order", {"number": 7})]


async def test_a_schema_is_that_of_the_signature():
    async with over_http(mcp_server("shop", tools={"find": find_order})) as client:
        (tool,) = (await client.list_tools()).tools
    assert (tool.name, tool.description) == ("find", "Find an order.")
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "number": {"type": "integer"},
            "detail": {"type": "string", "default": "short"},
        },
        "required": ["number"],
    }


async def test_a_schema_can_be_given():
    schema = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 9}}}
    tool = Tool("refund", "Refund.", schema, more={"annotations": {"readOnlyHint": False}})
    async with over_http(mcp_server("shop", tools=[(tool, "ok")])) as client:
        (listed,) = (await client.list_tools()).tools
        refused = await client.call_tool("refund", {"id": 10})
    assert listed.input_schema == schema
    assert listed.annotations == types.ToolAnnotations(read_only_hint=False)
    assert refused.is_error
    assert refused.content == [
        types.TextContent(
            text="invalid arguments of refund: id 10 is greater than the maximum of 9"
        )
    ]


async def later() -> str:
    await asyncio.sleep(0)
    return "later"


RESULTS: dict[str, tuple[Any, list[Any], Any, bool]] = {
    "text": ("ok", [types.TextContent(text="ok")], None, False),
    "nothing": (None, [], None, False),
    "object": ({"id": 7}, [types.TextContent(text='{"id":7}')], {"id": 7}, False),
    "list": ([1, 2], [types.TextContent(text="[1,2]")], None, False),
    "coroutine": (later, [types.TextContent(text="later")], None, False),
    "exception": (TimeoutError("slow"), [types.TextContent(text="TimeoutError: slow")], None, True),
    "image": (
        ToolOutcome((Image("AA==", "image/png"),)),
        [types.ImageContent(data="AA==", mime_type="image/png")],
        None,
        False,
    ),
}


@pytest.mark.parametrize("name", RESULTS)
async def test_a_result_has_the_content_of_its_value(name: str):
    value, content, structured, failed = RESULTS[name]
    async with over_http(mcp_server("shop", tools={"get": value})) as client:
        result = await client.call_tool("get")
    assert (result.content, result.structured_content) == (content, structured)
    assert bool(result.is_error) is failed


async def test_an_unknown_tool_is_an_error_of_the_protocol():
    async with over_http(mcp_server("shop", tools={"refund": "ok"})) as client:
        with pytest.raises(MCPError, match="unknown tool 'refnd': did you mean 'refund'"):
            await client.call_tool("refnd")


async def test_lists_have_pages():
    tools = {f"tool_{number}": "ok" for number in range(5)}
    async with over_http(mcp_server("shop", tools=tools, page_size=2)) as client:
        names: list[list[str]] = []
        cursor = None
        while not names or cursor:
            page = await client.list_tools(cursor=cursor)
            names.append([tool.name for tool in page.tools])
            cursor = page.next_cursor
    assert names == [["tool_0", "tool_1"], ["tool_2", "tool_3"], ["tool_4"]]


def greet(name: str) -> str:
    return f"Greet {name}."


async def test_resources_and_prompts_are_served():
    server = mcp_server(
        "shop",
        resources={"shop://terms": "Be kind.", "shop://logo": b"\x00"},
        prompts={"greet": greet},
    )
    async with over_http(server) as client:
        listed = [resource.uri for resource in (await client.list_resources()).resources]
        terms = await client.read_resource("shop://terms")
        logo = await client.read_resource("shop://logo")
        (prompt,) = (await client.list_prompts()).prompts
        greeting = await client.get_prompt("greet", {"name": "Ada"})
        with pytest.raises(MCPError, match="unknown resource"):
            await client.read_resource("shop://none")
        with pytest.raises(MCPError, match="missing 1 required"):
            await client.get_prompt("greet")
    assert [str(uri) for uri in listed] == ["shop://terms", "shop://logo"]
    assert terms.contents[0].model_dump()["text"] == "Be kind."
    assert logo.contents[0].model_dump()["blob"] == "AA=="
    assert [argument.name for argument in prompt.arguments or ()] == ["name"]
    assert greeting.messages[0].content == types.TextContent(text="Greet Ada.")


async def test_a_tool_reports_progress_and_logs():
    async def work(ctx: ToolContext) -> str:
        await ctx.progress(1, 2, "half")
        await ctx.log("working")
        return "done"

    seen: list[object] = []
    logs: list[object] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async def note_log(params: types.LoggingMessageNotificationParams) -> None:
        logs.append(params.data)

    server = mcp_server("shop", tools=[work])
    async with over_http(server, logging_callback=note_log) as client:
        await client.call_tool("work", progress_callback=note)
    assert seen == [(1, 2, "half")]
    assert logs == ["working"]


async def test_a_tool_asks_the_person_and_the_model_of_its_client():
    async def refund(ctx: ToolContext) -> str:
        answer = await ctx.elicit("Which account?", {"account": {"type": "string"}})
        summary = await ctx.sample("Summarize.", system="Short.")
        return f"{answer['content']['account']}: {summary}"

    async def answer(_context: Any, params: Any) -> types.ElicitResult:
        assert params.message == "Which account?"
        return types.ElicitResult(action="accept", content={"account": "7"})

    async def sample(_context: Any, params: Any) -> types.CreateMessageResult:
        assert params.system_prompt == "Short."
        content = types.TextContent(text="refunded")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    server = mcp_server("shop", tools=[refund])
    options = {"elicitation_callback": answer, "sampling_callback": sample}
    async with over_http(server, **options) as client:
        result = await client.call_tool("refund")
    assert result.content == [types.TextContent(text="7: refunded")]


async def test_a_client_that_cannot_ask_a_person_is_named():
    async def refund(ctx: ToolContext) -> str:
        return str(await ctx.elicit("Sure?", {}))

    async with over_http(mcp_server("shop", tools=[refund])) as client:
        result = await client.call_tool("refund")
    assert result.is_error
    assert "does not support elicitation" in str(result.content)


async def test_a_cancelled_call_is_ended():
    started, ended = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def wait() -> str:
        loop.call_soon_threadsafe(started.set)
        try:
            await asyncio.Event().wait()
        finally:
            loop.call_soon_threadsafe(ended.set)
        return "never"

    async with over_http(mcp_server("shop", tools=[wait])) as client:
        call = asyncio.ensure_future(client.call_tool("wait"))
        await started.wait()
        call.cancel()
        await asyncio.wait_for(ended.wait(), 300)


@pytest.mark.filterwarnings("ignore:resources/subscribe is removed")
async def test_clients_are_notified_of_changes():
    changes: asyncio.Queue[str] = asyncio.Queue()

    async def note(message: Any) -> None:
        changes.put_nowait(getattr(message, "method", ""))

    server = mcp_server("shop", tools={"a": "ok"}, resources={"shop://terms": "old"})
    async with over_http(server, message_handler=note) as client:
        await client.subscribe_resource("shop://terms")  # pyright: ignore[reportDeprecated] - of older clients
        server.add_tool("b", "ok")
        assert await asyncio.wait_for(changes.get(), 300) == "notifications/tools/list_changed"
        server.set_resource("shop://terms", "new")
        assert await asyncio.wait_for(changes.get(), 300) == "notifications/resources/updated"
        server.remove_tool("a")
        assert await asyncio.wait_for(changes.get(), 300) == "notifications/tools/list_changed"
        listed = await client.list_tools(cache_mode="bypass")
    assert [tool.name for tool in listed.tools] == ["b"]


FILE = """\
mcp_server: shop
instructions: Be kind.
tools:
  find_order:
    description: Find an order.
    parameters: {number: {type: integer}}
    result: {id: 7}
  refund:
    error: no money
resources: {"shop://terms": Be kind.}
prompts: {greet: Greet the customer.}
"""


async def test_a_file_defines_a_server(tmp_path: Path):
    (tmp_path / "shop.yaml").write_text(FILE)
    async with over_http(mcp_server(tmp_path / "shop.yaml")) as client:
        found = await client.call_tool("find_order", {"number": 7})
        refused = await client.call_tool("find_order", {})
        failed = await client.call_tool("refund")
        greeting = await client.get_prompt("greet")
    assert found.structured_content == {"id": 7}
    assert refused.is_error
    assert failed.is_error
    assert failed.content == [types.TextContent(text="no money")]
    assert greeting.messages[0].content == types.TextContent(text="Greet the customer.")


def test_a_mistake_in_a_file_is_reported_with_its_line(tmp_path: Path):
    (tmp_path / "shop.yaml").write_text(FILE.replace("error:", "eror:"))
    with pytest.raises(FormatError, match=r"(?s)shop\.yaml:9.*did you mean 'error'"):
        mcp_server(tmp_path / "shop.yaml")


def test_a_function_without_a_name_is_refused():
    with pytest.raises(UsageError, match="a tool without a name"):
        mcp_server("shop", tools=[lambda: "ok"])
