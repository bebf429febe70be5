"""Tools that are bound to a chat model, with a loop of one's own."""

from langchain.chat_models import init_chat_model
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from pydantic import BaseModel, Field

PRICES = {"ACME": 12.5, "INIT": 80.0}


class PriceInput(BaseModel):
    symbol: str = Field(description="The symbol of a share, for example ACME")


@tool("get_price", args_schema=PriceInput)
def price_tool(symbol: str) -> float:
    """Return the price of a share."""
    return PRICES[symbol]


def run(question: str) -> str:
    model = init_chat_model("gpt-5-mini", model_provider="openai").bind_tools([price_tool])
    messages = [SystemMessage("You know the stock market."), HumanMessage(question)]
    while True:
        answer = model.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            return answer.text
        for call in answer.tool_calls:
            messages.append(price_tool.invoke(call))


if __name__ == "__main__":
    print(run("What is the price of ACME?"))
