"""A front desk that uses other agents as tools."""

import asyncio
from dataclasses import dataclass

from agents import Agent, RunContextWrapper, Runner, function_tool


@dataclass
class Shop:
    stock: dict[str, int]


@function_tool
async def stock_of(ctx: RunContextWrapper[Shop], item: str) -> int:
    """How many of an item are left."""
    return ctx.context.stock[item]


stock_agent = Agent[Shop](name="stock", instructions="You know the stock.", tools=[stock_of])
french_agent = Agent[Shop](name="french", instructions="You translate to French.")
front_desk = Agent[Shop](
    name="front desk",
    instructions="You are the front desk of a shop. Use the tools.",
    tools=[
        stock_agent.as_tool("ask_stock", "Ask about the stock"),
        french_agent.as_tool("translate", "Translate a text to French"),
    ],
)


async def main() -> None:
    result = await Runner.run(front_desk, input("Hi! "), context=Shop({"lamp": 4}))
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
