"""An assistant with a loop of its own, on the Anthropic SDK."""

import json

import anthropic

TOOLS = [
    {
        "name": "get_stock",
        "description": "How many pieces of a product are in stock.",
        "input_schema": {
            "type": "object",
            "properties": {"sku": {"type": "string", "description": "The product"}},
            "required": ["sku"],
        },
    },
    {
        "name": "email_supplier",
        "description": "Send an email to the supplier.",
        "input_schema": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
    },
]


class Inventory:
    def __init__(self):
        self.stock = {"KETTLE-1": 3, "CUP-7": 12}

    def count(self, sku):
        return self.stock[sku]


class Assistant:
    def __init__(self, inventory: Inventory, model: str = "claude-sonnet-4-5"):
        self.client = anthropic.Anthropic()
        self.inventory = inventory
        self.model = model

    def _run_tool(self, name, arguments):
        if name == "get_stock":
            return {"sku": arguments["sku"], "pieces": self.inventory.count(arguments["sku"])}
        raise ValueError(f"unknown tool: {name}")

    def chat(self, user_message: str) -> str:
        messages = [{"role": "user", "content": user_message}]
        while True:
            response = self.client.messages.create(
                model=self.model,
                max_tokens=1024,
                system="You manage a warehouse.",
                tools=TOOLS,
                messages=messages,
            )
            if response.stop_reason != "tool_use":
                return "".join(block.text for block in response.content if block.type == "text")
            messages.append({"role": "assistant", "content": response.content})
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": block.id,
                    "content": json.dumps(self._run_tool(block.name, block.input)),
                }
                for block in response.content
                if block.type == "tool_use"
            ]
            messages.append({"role": "user", "content": results})
