"""A bakery assistant with the tool runner of the Anthropic SDK."""

import json

from anthropic import Anthropic, beta_tool

client = Anthropic()

BREADS = {"rye": {"price": 4.5, "left": 3}, "spelt": {"price": 5.2, "left": 0}}


@beta_tool
def bread_in_stock(name: str) -> str:
    """Look up a bread.

    Args:
        name: The bread, for example rye
    Returns:
        The price and the number of loaves that are left.
    """
    return json.dumps(BREADS[name])


def answer(question: str) -> str:
    runner = client.beta.messages.tool_runner(
        model="claude-sonnet-4-5",
        max_tokens=1000,
        system="You sell bread.",
        tools=[bread_in_stock],
        messages=[{"role": "user", "content": question}],
    )
    message = runner.until_done()
    return "".join(block.text for block in message.content if block.type == "text")


if __name__ == "__main__":
    print(answer("Do you have rye bread?"))
