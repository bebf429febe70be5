"""One scripted MCP server is used unchanged by pydantic-ai and LangGraph, over HTTP and stdio."""

import os

os.environ["OPENAI_API_KEY"] = "none"

from typing import Any

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset, StdioTransport

from offbook import call, drive, say, when
from offbook.mcp import mcp_server


def find_order(number: int) -> str:
    """Find an order."""
    return f"order {number}: one lamp"


def pydantic_agent(server: Any, *, stdio: bool) -> Any:
    program, *arguments = server.command
    transport = StdioTransport(program, arguments) if stdio else server.url
    return Agent("openai:gpt-4o", toolsets=[MCPToolset(transport)])


def langgraph_agent(server: Any, *, stdio: bool) -> Any:
    program, *arguments = server.command
    connection: Any = {"transport": "streamable_http", "url": server.url}
    if stdio:
        connection = {"transport": "stdio", "command": program, "args": arguments}

    async def run(prompt: str) -> str:
        tools = await MultiServerMCPClient({"shop": connection}).get_tools()
        agent: Any = create_agent("openai:gpt-4o", tools)
        state = await agent.ainvoke({"messages": [("user", prompt)]})
        return state["messages"][-1].text

    return run


for make in (pydantic_agent, langgraph_agent):
    for stdio in (False, True):
        shop = mcp_server("shop", tools={"find_order": find_order})
        with drive(make(shop, stdio=stdio), mcp=[shop]) as rehearsal:
            run = rehearsal.run(when("Go", [call("find_order", {"number": 7}), say("Done.")]))
            name = f"{make.__name__} {'stdio' if stdio else 'HTTP'}"
            assert run.output == "Done.", name
            assert len(run.events.executed) == 1, name
            assert "order 7: one lamp" in run.results("find_order")[0].text, name
            assert shop.calls == [("find_order", {"number": 7})], name
print("driven")
