"""A travel agent with a toolset that several agents share, and a tool with dependencies."""

from dataclasses import dataclass, field

from pydantic_ai import Agent, FunctionToolset, RunContext

DISTANCES = {"Lisbon": 2300, "Vienna": 680}


def distance_to(city: str) -> int:
    """Return the distance to a city in kilometres."""
    return DISTANCES[city]


def time_zone(city: str) -> str:
    """Return the time zone of a city."""
    return {"Lisbon": "WET", "Vienna": "CET"}[city]


geo_toolset = FunctionToolset(tools=[distance_to, time_zone])


@dataclass
class Traveller:
    name: str
    miles: dict[str, int] = field(default_factory=lambda: {"Ada": 1200})


agent = Agent(
    "openai:gpt-5-mini",
    deps_type=Traveller,
    toolsets=[geo_toolset],
    instructions="You plan trips. Look up distances before you answer.",
)


@agent.instructions
def add_name(ctx: RunContext[Traveller]) -> str:
    return f"The traveller is called {ctx.deps.name}."


@agent.tool
async def miles_left(ctx: RunContext[Traveller]) -> int:
    """Return the bonus miles of the traveller."""
    return ctx.deps.miles.get(ctx.deps.name, 0)


if __name__ == "__main__":
    result = agent.run_sync("How far is Lisbon?", deps=Traveller(name="Ada"))
    print(result.output)
