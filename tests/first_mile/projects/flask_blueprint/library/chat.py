"""The chat of the library: a blueprint."""

import json

from flask import Blueprint, current_app, jsonify, request
from openai import OpenAI

chat = Blueprint("chat", __name__)

SHELVES = {"Dune": "SF-3", "Emma": "CL-1"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find_shelf",
            "description": "Find the shelf of a book.",
            "parameters": {
                "type": "object",
                "properties": {"title": {"type": "string"}},
                "required": ["title"],
            },
        },
    }
]


def find_shelf(title: str) -> str:
    return SHELVES.get(title, "unknown title")


@chat.post("/chat")
def post_message():
    payload = request.get_json()
    messages = [
        {"role": "system", "content": "You are a librarian."},
        {"role": "user", "content": payload["message"]},
    ]
    client = OpenAI()
    while True:
        completion = client.chat.completions.create(
            model=current_app.config["MODEL"], messages=messages, tools=TOOLS
        )
        reply = completion.choices[0].message
        if not reply.tool_calls:
            return jsonify({"answer": reply.content})
        messages.append(reply)
        for call in reply.tool_calls:
            shelf = find_shelf(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": shelf})
