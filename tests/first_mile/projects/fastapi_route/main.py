import json

from fastapi import FastAPI
from openai import AsyncOpenAI
from pydantic import BaseModel

app = FastAPI()
MENU = {"margherita": 8.5, "funghi": 9.5}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_price",
            "description": "The price of a pizza",
            "parameters": {
                "type": "object",
                "properties": {"pizza": {"type": "string"}},
                "required": ["pizza"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    }
]


class ChatRequest(BaseModel):
    message: str
    session_id: str = "default"


class ChatResponse(BaseModel):
    reply: str


def get_price(pizza: str) -> float:
    return MENU[pizza]


@app.get("/health")
def health():
    return {"ok": True}


@app.post("/chat", response_model=ChatResponse)
async def chat(request: ChatRequest):
    client = AsyncOpenAI()
    messages = [
        {"role": "system", "content": "You take orders for a pizzeria."},
        {"role": "user", "content": request.message},
    ]
    while True:
        completion = await client.chat.completions.create(
            model="gpt-5", messages=messages, tools=TOOLS
        )
        message = completion.choices[0].message
        if not message.tool_calls:
            return ChatResponse(reply=message.content)
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            arguments = json.loads(call.function.arguments)
            price = get_price(**arguments)
            content = json.dumps({"price": price})
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
