"""Loops over the other wire formats and over streams, as their users write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import botocore.session  # pyright: ignore[reportMissingTypeStubs] - it has none
import httpx
import openai
from anthropic.lib.bedrock import AnthropicBedrock

from tests.lies.agent import JSON, SCHEMA, Call, Item, Model, Request, Result, User
from tests.lies.loops import (
    anthropic_client,
    anthropic_options,
    chat_messages,
    gemini_options,
    google_client,
    openai_client,
    read_anthropic,
    read_gemini,
    read_responses,
    responses_options,
)


@cache
def client() -> httpx.Client:
    return httpx.Client()


def post(url: str, body: JSON) -> Any:
    response = client().post(url, json=body)
    response.raise_for_status()
    return response.json()


def functions(request: Request) -> list[JSON]:
    return [
        {
            "type": "function",
            "function": {"name": name, "description": text, "parameters": SCHEMA},
        }
        for name, text in request.tools.items()
    ]


def plain_options(request: Request) -> JSON:
    """Return the fields that Mistral, Cohere and Ollama share with OpenAI."""
    return {
        "model": request.model,
        "messages": chat_messages(request),
        "tools": functions(request),
    }


# --- Mistral, Cohere and Ollama, without an SDK


def send_mistral(request: Request) -> Model:
    options = {**plain_options(request), "temperature": request.temperature}
    request.wire(options)
    body = post("https://api.mistral.ai/v1/chat/completions", options)
    return read_message(body["choices"][0]["message"])


def read_message(message: JSON) -> Model:
    calls = [
        Call(made["id"], made["function"]["name"], json.loads(made["function"]["arguments"]))
        for made in message["tool_calls"] or ()
    ]
    content = message["content"] or ""
    if isinstance(content, list):  # with thoughts
        content = "".join(part.get("text", "") for part in cast("list[JSON]", content))
    return Model(content, calls)


def send_cohere(request: Request) -> Model:
    options: JSON = {**plain_options(request), "temperature": request.temperature}
    for message in cast("list[JSON]", options["messages"]):
        if message["role"] == "assistant" and message.get("tool_calls"):
            message["tool_plan"] = message.pop("content") or ""
    request.wire(options)
    message = post("https://api.cohere.com/v2/chat", options)["message"]
    text = message.get("tool_plan") or "".join(
        part["text"] for part in message.get("content") or ()
    )
    return read_message({"content": text, "tool_calls": message.get("tool_calls")})


def ollama_messages(request: Request) -> list[JSON]:
    """Return the messages: calls and results have no ids, results the names of their tools."""
    messages: list[JSON] = [{"role": "system", "content": request.system}] if request.system else []
    for item in request.items:
        if isinstance(item, User):
            messages.append({"role": "user", "content": item.text})
        elif isinstance(item, Result):
            messages.append({"role": "tool", "tool_name": item.name, "content": item.text})
        else:
            calls = [
                {"function": {"name": made.name, "arguments": made.arguments}}
                for made in item.calls
            ]
            message: JSON = {"role": "assistant", "content": item.text}
            messages.append({**message, "tool_calls": calls} if calls else message)
    return messages


def send_ollama(request: Request) -> Model:
    options: JSON = {
        **plain_options(request),
        "messages": ollama_messages(request),
        "options": {"temperature": request.temperature},
        "stream": False,
    }
    request.wire(options)
    message = post("http://localhost:11434/api/chat", options)["message"]
    made = [entry["function"] for entry in message.get("tool_calls") or ()]
    # The ids are those of this agent: it needs them for its results.
    calls = [
        Call(f"{len(request.items)}-{index}", one["name"], one["arguments"])
        for index, one in enumerate(made)
    ]
    return Model(message["content"], calls)


# --- Bedrock, by Amazon's client and by Anthropic's


@cache
def amazon_client() -> Any:
    session: Any = botocore.session.Session()
    session.set_credentials("none", "none")
    return session.create_client("bedrock-runtime", region_name="eu-west-1")


def converse_messages(items: list[Item]) -> list[JSON]:
    messages: list[JSON] = []
    for item in items:
        if isinstance(item, User):
            messages.append({"role": "user", "content": [{"text": item.text}]})
        elif isinstance(item, Result):
            result = {
                "toolUseId": item.call_id,
                "content": [{"text": item.text}],
                "status": "error" if item.failed else "success",
            }
            if messages[-1]["role"] == "user" and "toolResult" in messages[-1]["content"][0]:
                messages[-1]["content"].append({"toolResult": result})
            else:
                messages.append({"role": "user", "content": [{"toolResult": result}]})
        else:
            content: list[JSON] = [{"text": item.text}] if item.text else []
            content += [
                {"toolUse": {"toolUseId": made.id, "name": made.name, "input": made.arguments}}
                for made in item.calls
            ]
            messages.append({"role": "assistant", "content": content})
    return messages


def send_converse(request: Request) -> Model:
    specs = [
        {"toolSpec": {"name": name, "description": text, "inputSchema": {"json": SCHEMA}}}
        for name, text in request.tools.items()
    ]
    options: JSON = {
        "modelId": request.model,
        "messages": converse_messages(request.items),
        "inferenceConfig": {"temperature": request.temperature},
    }
    if specs:
        options["toolConfig"] = {"tools": specs}
    if request.system:
        options["system"] = [{"text": request.system}]
    request.wire(options)
    model = Model("")
    for part in amazon_client().converse(**options)["output"]["message"]["content"]:
        if "text" in part:
            model.text += part["text"]
        else:
            use = part["toolUse"]
            model.calls.append(Call(use["toolUseId"], use["name"], use["input"]))
    return model


@cache
def invoke_client() -> Any:
    return AnthropicBedrock(api_key="none", aws_region="eu-west-1", max_retries=0)


def send_invoke(request: Request) -> Model:
    options = anthropic_options(request)
    return read_anthropic(invoke_client().messages.create(**options))


# --- Streams


def send_responses_stream(request: Request) -> Model:
    options = responses_options(request)
    with cast("Any", openai_client().responses).stream(**options) as stream:
        return read_responses(stream.get_final_response())


def send_anthropic_stream(request: Request) -> Model:
    options = anthropic_options(request)
    with cast("Any", anthropic_client().messages).stream(**options) as stream:
        return read_anthropic(stream.get_final_message())


def send_gemini_stream(request: Request) -> Model:
    chunks = google_client().models.generate_content_stream(**gemini_options(request))
    return read_gemini(part for chunk in chunks for part in parts_of(chunk))


def parts_of(chunk: Any) -> list[Any]:
    return chunk.candidates[0].content.parts or []


# --- OpenAI's Realtime API: the conversation is at the provider


def send_realtime(request: Request) -> Model:
    """Open a connection, replay the conversation as its items, and ask for a response."""
    session: JSON = {
        "type": "realtime",
        "output_modalities": ["text"],
        "instructions": request.system,
        "tools": [
            {"type": "function", "name": name, "description": text, "parameters": SCHEMA}
            for name, text in request.tools.items()
        ],
    }
    options: JSON = {"items": realtime_items(request.items), "session": session}
    request.wire(options)
    served: Any = openai.OpenAI(api_key="none")  # by the variables of this run
    with served.realtime.connect(model=request.model) as connection:
        connection.session.update(session=options["session"])
        for item in options["items"]:
            connection.conversation.item.create(item=item)
        connection.response.create()
        for event in connection:
            if event.type == "response.done":
                return read_realtime(event.response)
            if event.type == "error":
                raise openai.OpenAIError(event.error.message)
    raise openai.OpenAIError("the connection was closed")


def realtime_items(items: list[Item]) -> list[JSON]:
    sent: list[JSON] = []
    for item in items:
        if isinstance(item, Result):
            one = {"type": "function_call_output", "call_id": item.call_id, "output": item.text}
            sent.append(one)
            continue
        role, kind = (
            ("user", "input_text") if isinstance(item, User) else ("assistant", "output_text")
        )
        if item.text:
            content = [{"type": kind, "text": item.text}]
            sent.append({"type": "message", "role": role, "content": content})
        sent += [
            {
                "type": "function_call",
                "call_id": made.id,
                "name": made.name,
                "arguments": json.dumps(made.arguments),
            }
            for made in (item.calls if isinstance(item, Model) else ())
        ]
    return sent


def read_realtime(response: Any) -> Model:
    model = Model("")
    for item in response.output:
        if item.type == "function_call":
            model.calls.append(Call(item.call_id, item.name, json.loads(item.arguments)))
        else:
            model.text += "".join(part.text for part in item.content)
    return model


DIALECTS: dict[str, Callable[[Request], Model]] = {
    "mistral": send_mistral,
    "cohere": send_cohere,
    "ollama": send_ollama,
    "converse": send_converse,
    "invoke": send_invoke,
    "realtime": send_realtime,
    "responses stream": send_responses_stream,
    "anthropic stream": send_anthropic_stream,
    "gemini stream": send_gemini_stream,
}
