import json

from openai import OpenAI

client = OpenAI()


def get_current_weather(location, unit="celsius"):
    """Get the current weather in a given location"""
    if "tokyo" in location.lower():
        return json.dumps({"location": "Tokyo", "temperature": "10", "unit": unit})
    return json.dumps({"location": location, "temperature": "22", "unit": unit})


def get_time(timezone):
    times = {"UTC": "12:00", "CET": "13:00"}
    return json.dumps({"time": times[timezone]})


tools = [
    {
        "type": "function",
        "function": {
            "name": "get_current_weather",
            "description": "Get the current weather in a given location",
            "parameters": {
                "type": "object",
                "properties": {
                    "location": {
                        "type": "string",
                        "description": "The city and state, e.g. San Francisco, CA",
                    },
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                },
                "required": ["location"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "get_time",
            "description": "The time in a timezone",
            "parameters": {
                "type": "object",
                "properties": {"timezone": {"type": "string"}},
                "required": ["timezone"],
            },
        },
    },
]
available_functions = {"get_current_weather": get_current_weather, "get_time": get_time}


def call_model(messages):
    return client.chat.completions.create(model="gpt-5", messages=messages, tools=tools)


def run_conversation(user_prompt, max_turns=8):
    messages = [
        {"role": "system", "content": "You are a weather assistant."},
        {"role": "user", "content": user_prompt},
    ]
    for _ in range(max_turns):
        message = call_model(messages).choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for tool_call in message.tool_calls:
            function = available_functions[tool_call.function.name]
            result = function(**json.loads(tool_call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": tool_call.id, "content": result})
    return None


if __name__ == "__main__":
    print(run_conversation("What's the weather like in Tokyo?"))
