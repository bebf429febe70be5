"""Three agents: one decides which of the others replies."""

from agents import Agent, function_tool

ORDERS = {"A-100": "one kettle, shipped", "A-101": "two cups, packed"}


@function_tool
def find_order(order_id: str) -> str:
    """Look up an order.

    Args:
        order_id: The number of the order.
    """
    return ORDERS[order_id]


@function_tool
def shipping_costs(country: str) -> str:
    """Return the shipping costs to a country."""
    return f"Shipping to {country} costs 12 EUR."


order_agent = Agent(
    name="Order agent",
    instructions="You answer questions about orders.",
    tools=[find_order],
)
shipping_agent = Agent(
    name="Shipping agent",
    instructions="You answer questions about shipping.",
    tools=[shipping_costs],
)
triage_agent = Agent(
    name="Triage agent",
    instructions="Determine which agent should handle the question.",
    handoffs=[order_agent, shipping_agent],
)
