"""Agents that lose the result of a tool call or change its id, each in its own way."""

import json
import sys
from types import SimpleNamespace
from typing import Any

if __name__ == "__main__":
    import plain_openai as openai  # pyright: ignore[reportMissingImports] - next to this script
else:
    import openai

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}},
        },
    }
    for name in ("find_order", "find_customer")
]


def ask(messages: list[Any]) -> Any:
    client = openai.OpenAI(api_key="none")
    answer = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    return answer.choices[0].message


def with_result(call: Any, *, name: str = "", call_id: str = "", arguments: str = "") -> list[Any]:
    """Return the message of a call and the message of its result."""
    function = {
        "name": name or call.function.name,
        "arguments": arguments or call.function.arguments,
    }
    id_ = call_id or call.id
    return [
        {
            "role": "assistant",
            "tool_calls": [{"id": id_, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": id_, "content": f"order {function['arguments']}"},
    ]


def repeats_the_first_request(prompt: str) -> object:
    user = {"role": "user", "content": prompt}
    while (answer := ask([user])).tool_calls:
        pass
    return answer.content


def drops_the_history(prompt: str) -> object:
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while (answer := ask(messages)).tool_calls:
        messages = [{"role": "user", "content": f"{prompt} The tool said: order 7"}]
    return answer.content


def renames_the_call(prompt: str) -> object:
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while (answer := ask(messages)).tool_calls:
        messages += with_result(answer.tool_calls[0], name="find_customer")
    return answer.content


def renames_the_call_and_changes_its_id(prompt: str) -> object:
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while (answer := ask(messages)).tool_calls:
        messages += with_result(answer.tool_calls[0], name="find_customer", call_id="call_mine")
    return answer.content


def sends_an_old_example_only(prompt: str) -> object:
    """Its first request already has a call of the same tool, with the same arguments."""
    function = SimpleNamespace(name="find_order", arguments=json.dumps({"number": 7}))
    example = with_result(SimpleNamespace(id="call_example", function=function))
    messages = [*example, {"role": "user", "content": prompt}]
    while (answer := ask(messages)).tool_calls:
        pass
    return answer.content


def stops_after_the_call(prompt: str) -> object:
    return ask([{"role": "user", "content": prompt}]).tool_calls[0].function.name


LOSING = [
    repeats_the_first_request,
    drops_the_history,
    sends_an_old_example_only,
]


def changes_the_id(prompt: str) -> object:
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while (answer := ask(messages)).tool_calls:
        messages += with_result(answer.tool_calls[0], call_id=f"mine-{len(messages)}")
    return answer.content


def uses_one_id_for_all_calls_and_rewrites_the_arguments(prompt: str) -> object:
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while (answer := ask(messages)).tool_calls:
        call = answer.tool_calls[0]
        arguments = json.dumps({**json.loads(call.function.arguments), "verbose": True})
        messages += with_result(call, call_id="toolu_same", arguments=arguments)
    return answer.content


RENAMING = [renames_the_call, renames_the_call_and_changes_its_id]
CHANGING = [changes_the_id, uses_one_id_for_all_calls_and_rewrites_the_arguments]

if __name__ == "__main__":
    sys.stdout.write(str(globals()[sys.argv[1]]("Find order 7")))
