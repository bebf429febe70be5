from langchain.agents import create_agent
from langchain.tools import tool

USERS = {"u1": {"name": "Ada", "plan": "pro"}, "u2": {"name": "Bob", "plan": "free"}}


@tool
def find_user(user_id: str) -> dict:
    """Find a user by id."""
    return USERS[user_id]


@tool("price_of_plan")
def get_price(plan: str) -> str:
    """The price of a plan.

    Args:
        plan: The plan, for example pro.
    """
    return f"{plan} costs {len(plan) * 3} EUR"


agent = create_agent(
    model="openai:gpt-5",
    tools=[find_user, get_price],
    system_prompt="You are the assistant of a software company.",
)
