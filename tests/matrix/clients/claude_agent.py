"""claude-agent-sdk, with the client that it brings: its shell, or a tool of this process."""

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
from told import MODEL, PROMPT, SCHEMA, STREAM, VARIANT, answer, tell


@tool("get_weather", "How the weather is.", SCHEMA)
async def weather(given: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": answer(given)}]}


async def permit(_name: str, _given: Any, _context: Any) -> Any:
    from claude_agent_sdk import PermissionResultAllow

    asked.append(_name)
    return PermissionResultAllow()


asked: list[str] = []
options = ClaudeAgentOptions(
    model=MODEL,
    setting_sources=[],
    mcp_servers={"wx": create_sdk_mcp_server("wx", tools=[weather])} if VARIANT == "mcp" else {},
    allowed_tools={"mcp": ["mcp__wx__get_weather"], "bash": ["Bash"]}.get(VARIANT, []),
    can_use_tool=permit if VARIANT == "permission" else None,
    include_partial_messages=STREAM,
    env={"ENABLE_TOOL_SEARCH": "false"},
)


async def main() -> str:
    if VARIANT != "permission":
        return [last(message) async for message in query(prompt=PROMPT, options=options)][-1]
    async with ClaudeSDKClient(options=options) as client:
        await client.query(PROMPT)
        said = [last(message) async for message in client.receive_response()][-1]
    assert asked == ["Bash"]
    return said


def last(message: Any) -> str:
    if isinstance(message, AssistantMessage) and message.error:
        raise RuntimeError(message.error)
    return message.result or "" if isinstance(message, ResultMessage) else ""


tell(asyncio.run(main()), "claude-agent-sdk")
