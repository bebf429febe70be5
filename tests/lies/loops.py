"""Loops over the SDKs of four wire formats: what most people write first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import cache
from typing import Any, cast

import anthropic
import openai
from google import genai
from google.genai import types

from tests.lies.agent import (
    JSON,
    SCHEMA,
    Agent,
    Call,
    Item,
    Model,
    Request,
    Result,
    User,
    run_steps,
)

Send = Callable[[Request], Model]


def make_loop(agent: Agent, send: Send) -> Callable[[str], object]:
    """Return the agent as a function of the prompt."""
    agent.send = send

    def loop(prompt: str) -> object:
        items = agent.begin(prompt)
        number = 0

        def run_tool(made: Call) -> str:
            return agent.inside(agent.shop.run, made)

        while True:
            number += 1
            request = Request(deepcopy(items))
            agent.edit(request, number)
            reply = send(request)
            items.append(reply)
            if not agent.goes_on(reply):
                return agent.answer(reply.text)
            results = [
                Result(made.id, made.name, run_steps(agent.around(deepcopy(made)), run_tool))
                for made in reply.calls
            ]
            items += agent.results(results)

    def run(prompt: str) -> object:
        return agent.whole(loop, prompt)

    return run


# --- OpenAI's chat completions


@cache
def openai_client() -> openai.OpenAI:
    return openai.OpenAI(api_key="none", max_retries=2)


def chat_messages(request: Request) -> list[JSON]:
    messages: list[JSON] = [{"role": "system", "content": request.system}] if request.system else []
    for item in request.items:
        if isinstance(item, User):
            messages.append({"role": "user", "content": item.text})
        elif isinstance(item, Result):
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": item.text})
        else:
            message: JSON = {"role": "assistant", "content": item.text or None}
            if item.calls:
                message["tool_calls"] = [
                    {
                        "id": made.id,
                        "type": "function",
                        "function": {"name": made.name, "arguments": json.dumps(made.arguments)},
                    }
                    for made in item.calls
                ]
            messages.append(message)
    return messages


def chat_options(request: Request) -> JSON:
    functions = [
        {"name": name, "description": text, "parameters": SCHEMA}
        for name, text in request.tools.items()
    ]
    options: JSON = {
        "model": request.model,
        "temperature": request.temperature,
        "messages": chat_messages(request),
        "tools": [{"type": "function", "function": one} for one in functions] or openai.omit,
    }
    request.wire(options)
    return options


def read_chat(message: Any) -> Model:
    calls = [
        Call(made.id, made.function.name, json.loads(made.function.arguments))
        for made in message.tool_calls or ()
    ]
    return Model(message.content or "", calls)


def send_chat(request: Request) -> Model:
    reply = cast("Any", openai_client().chat.completions).create(**chat_options(request))
    return read_chat(reply.choices[0].message)


def send_chat_stream(request: Request) -> Model:
    with openai_client().chat.completions.stream(**chat_options(request)) as stream:
        return read_chat(stream.get_final_completion().choices[0].message)


# --- OpenAI's responses


def response_items(items: list[Item]) -> list[JSON]:
    sent: list[JSON] = []
    for item in items:
        if isinstance(item, User):
            sent.append({"role": "user", "content": item.text})
        elif isinstance(item, Result):
            one = {"type": "function_call_output", "call_id": item.call_id, "output": item.text}
            sent.append(one)
        else:
            sent += item.items
            if item.text:
                sent.append({"role": "assistant", "content": item.text})
            sent += [
                {
                    "type": "function_call",
                    "call_id": made.id,
                    "name": made.name,
                    "arguments": json.dumps(made.arguments),
                }
                for made in item.calls
            ]
    return sent


def responses_options(request: Request) -> JSON:
    options: JSON = {
        "model": request.model,
        "instructions": request.system or openai.omit,
        "temperature": request.temperature,
        "input": response_items(request.items),
        "tools": [
            {"type": "function", "name": name, "description": text, "parameters": SCHEMA}
            for name, text in request.tools.items()
        ],
    }
    request.wire(options)
    return options


def send_responses(request: Request) -> Model:
    options = responses_options(request)
    return read_responses(cast("Any", openai_client().responses).create(**options))


def read_responses(reply: Any) -> Model:
    calls = [
        Call(item.call_id, item.name, json.loads(item.arguments))
        for item in reply.output
        if item.type == "function_call"
    ]
    others = [item for item in reply.output if item.type not in {"message", "function_call"}]
    items = [item.to_dict(exclude_none=True) for item in others]
    return Model(reply.output_text, calls, origin=reply, items=items)


# --- Anthropic


@cache
def anthropic_client() -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="none", max_retries=2)


def anthropic_messages(items: list[Item]) -> list[JSON]:
    messages: list[JSON] = []
    for item in items:
        if isinstance(item, User):
            messages.append({"role": "user", "content": item.text})
        elif isinstance(item, Result):
            block: JSON = {"type": "tool_result", "tool_use_id": item.call_id, "content": item.text}
            if item.failed:
                block["is_error"] = True
            last: Any = messages[-1]["content"]
            if messages[-1]["role"] == "user" and not isinstance(last, str):
                last.append(block)
            else:
                messages.append({"role": "user", "content": [block]})
        else:
            content: list[JSON] = []
            if item.thinking:
                signature = item.origin or "signed"
                thought = {"type": "thinking", "thinking": item.thinking, "signature": signature}
                content.append(thought)
            content += item.items
            if item.text:
                content.append({"type": "text", "text": item.text})
            content += [
                {"type": "tool_use", "id": made.id, "name": made.name, "input": made.arguments}
                for made in item.calls
            ]
            messages.append({"role": "assistant", "content": content})
    return messages


def anthropic_options(request: Request) -> JSON:
    options: JSON = {
        "model": request.model,
        "max_tokens": 2048,
        "extra_body": {"temperature": request.temperature},
        "system": request.system or anthropic.omit,
        "messages": anthropic_messages(request.items),
        "tools": [
            {"name": name, "description": text, "input_schema": SCHEMA}
            for name, text in request.tools.items()
        ],
    }
    request.wire(options)
    return options


def send_anthropic(request: Request) -> Model:
    options = anthropic_options(request)
    return read_anthropic(cast("Any", anthropic_client().messages).create(**options))


def read_anthropic(reply: Any) -> Model:
    model = Model("")
    for block in reply.content:
        if block.type == "text":
            model.text += block.text
        elif block.type == "thinking":
            model.thinking, model.origin = block.thinking, block.signature
        elif block.type == "tool_use":
            model.calls.append(Call(block.id, block.name, dict(block.input)))
        else:
            model.items.append(block.to_dict())
    return model


# --- Gemini


@cache
def google_client() -> genai.Client:
    return genai.Client(api_key="none")


def gemini_contents(items: list[Item]) -> list[JSON]:
    contents: list[JSON] = []
    for item in items:
        if isinstance(item, User):
            contents.append({"role": "user", "parts": [{"text": item.text}]})
        elif isinstance(item, Result):
            answer = {"error": item.text} if item.failed else {"result": item.text}
            part = {
                "function_response": {"id": item.call_id, "name": item.name, "response": answer}
            }
            if contents[-1]["role"] == "user" and "function_response" in contents[-1]["parts"][0]:
                contents[-1]["parts"].append(part)
            else:
                contents.append({"role": "user", "parts": [part]})
        else:
            parts: list[JSON] = [{"text": item.text}] if item.text else []
            parts += [
                {"function_call": {"id": made.id, "name": made.name, "args": made.arguments}}
                for made in item.calls
            ]
            contents.append({"role": "model", "parts": parts})
    return contents


def gemini_options(request: Request) -> JSON:
    functions = [
        types.FunctionDeclaration(name=name, description=text, parameters_json_schema=SCHEMA)
        for name, text in request.tools.items()
    ]
    options: JSON = {
        "model": request.model,
        "contents": gemini_contents(request.items),
        "config": types.GenerateContentConfig(
            system_instruction=request.system or None,
            temperature=request.temperature,
            tools=[types.Tool(function_declarations=functions)] if functions else None,
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        ),
    }
    request.wire(options)
    return options


def send_gemini(request: Request) -> Model:
    reply: Any = google_client().models.generate_content(**gemini_options(request))
    return read_gemini(reply.candidates[0].content.parts or ())


def read_gemini(parts: Iterable[Any]) -> Model:
    model = Model("")
    for part in parts:
        if part.function_call:
            made = part.function_call
            model.calls.append(Call(made.id or "", made.name, dict(made.args)))
        elif part.text and not part.thought:
            model.text += part.text
    return model


LOOPS: dict[str, Send] = {
    "chat": send_chat,
    "chat stream": send_chat_stream,
    "responses": send_responses,
    "anthropic": send_anthropic,
    "gemini": send_gemini,
}
