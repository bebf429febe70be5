import sqlite3
from dataclasses import dataclass

from pydantic_ai import Agent, RunContext


@dataclass
class Deps:
    connection: sqlite3.Connection


agent = Agent("openai:gpt-5", deps_type=Deps, instructions="You know the customers.")


@agent.tool
def count_customers(ctx: RunContext[Deps]) -> int:
    """How many customers there are."""
    return ctx.deps.connection.execute("select count(*) from customers").fetchone()[0]
