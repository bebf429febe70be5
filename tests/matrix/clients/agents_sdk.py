"""The OpenAI Agents SDK, on chat completions and on responses."""

import asyncio
from typing import Any

from agents import (
    Agent,
    Computer,
    ComputerTool,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    WebSearchTool,
    function_tool,
)
from harness import MODEL, PROMPT, RETRIES, STREAM, VARIANT, get_weather, print_result
from openai import AsyncOpenAI


class Screen(Computer):
    """A computer whose screen never changes."""

    @property
    def environment(self) -> Any:
        return "browser"

    @property
    def dimensions(self) -> tuple[int, int]:
        return (100, 100)

    def screenshot(self) -> str:
        return "iVBORw0KGgo="

    def click(self, x: int, y: int, button: Any) -> None: ...
    def double_click(self, x: int, y: int) -> None: ...
    def scroll(self, x: int, y: int, scroll_x: int, scroll_y: int) -> None: ...
    def type(self, text: str) -> None: ...
    def wait(self) -> None: ...
    def move(self, x: int, y: int) -> None: ...
    def keypress(self, keys: list[str]) -> None: ...
    def drag(self, path: list[tuple[int, int]]) -> None: ...


TOOLS: dict[str, list[Any]] = {"computer": [ComputerTool(Screen())], "hosted": [WebSearchTool()]}
model = OpenAIChatCompletionsModel if VARIANT == "chat" else OpenAIResponsesModel
client = AsyncOpenAI(max_retries=RETRIES)
agent = Agent(
    name="weather",
    tools=TOOLS.get(VARIANT, [function_tool(get_weather)]),
    model=model(MODEL, openai_client=client),
)


async def main() -> str:
    if not STREAM:
        return (await Runner.run(agent, PROMPT)).final_output
    result = Runner.run_streamed(agent, PROMPT)
    async for _ in result.stream_events():
        pass
    return result.final_output


print_result(asyncio.run(main()), "openai-agents")
