"""The agent under test: it refunds an order only after it has looked it up."""

import os

from pydantic_ai import Agent

os.environ.setdefault("OPENAI_API_KEY", "none")  # the client wants a key, also without a model

agent = Agent("openai-chat:gpt-4.1-mini", instructions="You refund orders.")
found = set()


@agent.tool_plain
def find_order(order: int) -> str:
    """Look an order up."""
    found.add(order)
    return f"order {order}: a kettle, 30 USD"


@agent.tool_plain
def refund(order: int) -> str:
    """Refund an order."""
    return "refunded" if order in found else "refused: look the order up first"
