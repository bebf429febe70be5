"""A router with a dependency and a model of the response."""

import json
from typing import Annotated

from anthropic import AsyncAnthropic
from fastapi import APIRouter, Depends
from pydantic import BaseModel

router = APIRouter(tags=["support"])

PARCELS = {"P7": "in Hamburg", "P9": "delivered"}
TOOLS = [
    {
        "name": "track_parcel",
        "description": "Where a parcel is.",
        "input_schema": {
            "type": "object",
            "properties": {"parcel": {"type": "string", "description": "The number of the parcel"}},
            "required": ["parcel"],
        },
    }
]


class Question(BaseModel):
    text: str
    language: str = "en"


class Answer(BaseModel):
    text: str


def get_client() -> AsyncAnthropic:
    return AsyncAnthropic()


def track_parcel(parcel: str) -> dict:
    return {"parcel": parcel, "state": PARCELS[parcel]}


@router.post("/support", response_model=Answer)
async def support(question: Question, client: Annotated[AsyncAnthropic, Depends(get_client)]):
    messages = [{"role": "user", "content": question.text}]
    while True:
        response = await client.messages.create(
            model="claude-sonnet-4-5",
            max_tokens=1000,
            system=f"You are the support of a shop. Answer in {question.language}.",
            tools=TOOLS,
            messages=messages,
        )
        if response.stop_reason != "tool_use":
            return Answer(text="".join(b.text for b in response.content if b.type == "text"))
        messages.append({"role": "assistant", "content": response.content})
        results = [
            {
                "type": "tool_result",
                "tool_use_id": block.id,
                "content": json.dumps(track_parcel(**block.input)),
            }
            for block in response.content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})
