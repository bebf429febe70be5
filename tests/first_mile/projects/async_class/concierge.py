"""A hotel concierge: a class with its own loop, asynchronous."""

import asyncio
import inspect
import json
from typing import Any, Callable

from openai import AsyncOpenAI


class Concierge:
    """Answers guests, with tools that are registered by a decorator."""

    def __init__(self, client: AsyncOpenAI | None = None, model: str = "gpt-5-mini") -> None:
        self.client = client or AsyncOpenAI()
        self.model = model
        self.tools: dict[str, Callable[..., Any]] = {}
        self.rooms = {"101": "free", "102": "taken"}
        self.register(self.room_status)
        self.register(self.breakfast_hours)

    def register(self, function: Callable[..., Any]) -> None:
        self.tools[function.__name__] = function

    def schemas(self) -> list[dict[str, Any]]:
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": function.__doc__,
                    "parameters": {
                        "type": "object",
                        "properties": {
                            parameter: {"type": "string"}
                            for parameter in inspect.signature(function).parameters
                        },
                        "required": [*inspect.signature(function).parameters],
                    },
                },
            }
            for name, function in self.tools.items()
        ]

    async def room_status(self, room: str) -> str:
        """Whether a room is free."""
        return self.rooms[room]

    async def breakfast_hours(self) -> str:
        """When breakfast is served."""
        return "7 to 10"

    async def run(self, prompt: str, max_turns: int = 8) -> str:
        messages: list[Any] = [
            {"role": "system", "content": "You are the concierge of a hotel."},
            {"role": "user", "content": prompt},
        ]
        for _ in range(max_turns):
            completion = await self.client.chat.completions.create(
                model=self.model, messages=messages, tools=self.schemas()
            )
            message = completion.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages.append(message)
            results = await asyncio.gather(
                *(
                    self.tools[call.function.name](**json.loads(call.function.arguments))
                    for call in message.tool_calls
                )
            )
            for call, result in zip(message.tool_calls, results, strict=True):
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        raise RuntimeError("too many turns")


if __name__ == "__main__":
    print(asyncio.run(Concierge().run("Is room 101 free?")))
