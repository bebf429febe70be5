"""A support agent of a shop, in pydantic-ai: it refunds an order only after it has looked it up."""

from dataclasses import dataclass, field

from pydantic_ai import Agent, ModelRetry, RunContext


@dataclass
class Shop:
    """The orders of a shop, and what was done with them."""

    orders: dict = field(default_factory=lambda: {7: "a kettle, 30 EUR", 8: "a lamp, 45 EUR"})
    seen: set = field(default_factory=set)
    refunded: list = field(default_factory=list)


def make_agent(model="openai-chat:gpt-4.1-mini"):
    """Return the agent; the model is that of the caller, so that nothing is read at import."""
    agent = Agent(model, deps_type=Shop, instructions="You answer the customers of a shop.")

    @agent.tool
    def find_order(ctx: RunContext[Shop], order: int) -> str:
        """Look up an order."""
        if order not in ctx.deps.orders:
            raise ModelRetry(f"there is no order {order}: ask for the number")
        ctx.deps.seen.add(order)
        return f"order {order}: {ctx.deps.orders[order]}"

    @agent.tool
    def refund(ctx: RunContext[Shop], order: int) -> str:
        """Refund an order."""
        if order not in ctx.deps.seen:
            raise ModelRetry("look up the order first")
        if order in ctx.deps.refunded:
            return f"order {order} was refunded already"
        ctx.deps.refunded.append(order)
        return f"refunded order {order}"

    return agent
