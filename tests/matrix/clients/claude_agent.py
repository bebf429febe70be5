"""claude-agent-sdk, with the bundled client: its shell tool, or a tool of this process."""

import asyncio
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    create_sdk_mcp_server,
    query,
    tool,
)
from harness import MODEL, PROMPT, SCHEMA, STREAM, VARIANT, call_weather, print_result


@tool("get_weather", "Get the weather.", SCHEMA)
async def weather(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": call_weather(arguments)}]}


async def allow(name: str, _input: Any, _context: Any) -> Any:
    from claude_agent_sdk import PermissionResultAllow

    permitted.append(name)
    return PermissionResultAllow()


permitted: list[str] = []
options = ClaudeAgentOptions(
    model=MODEL,
    setting_sources=[],
    mcp_servers={"wx": create_sdk_mcp_server("wx", tools=[weather])} if VARIANT == "mcp" else {},
    allowed_tools={"mcp": ["mcp__wx__get_weather"], "bash": ["Bash"]}.get(VARIANT, []),
    can_use_tool=allow if VARIANT == "permission" else None,
    include_partial_messages=STREAM,
    env={"ENABLE_TOOL_SEARCH": "false"},
)


async def main() -> str:
    if VARIANT != "permission":
        return [read_result(message) async for message in query(prompt=PROMPT, options=options)][-1]
    async with ClaudeSDKClient(options=options) as client:
        await client.query(PROMPT)
        result = [read_result(message) async for message in client.receive_response()][-1]
    assert permitted == ["Bash"]
    return result


def read_result(message: Any) -> str:
    if isinstance(message, AssistantMessage) and message.error:
        raise RuntimeError(message.error)
    return message.result or "" if isinstance(message, ResultMessage) else ""


print_result(asyncio.run(main()), "claude-agent-sdk")
