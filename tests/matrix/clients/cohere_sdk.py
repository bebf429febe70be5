"""Cohere's SDK: chats with tools, embeddings and the ranking of documents."""

from typing import Any

import cohere
from harness import MODEL, PROMPT, SCHEMA, STREAM, VARIANT, call_weather, print_result

client = cohere.ClientV2()
TOOL: Any = {"name": "get_weather", "description": "Get the weather.", "parameters": SCHEMA}
TOOLS: Any = [{"type": "function", "function": TOOL}]


def chat() -> str:
    history: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        calls, text = (ask_stream if STREAM else ask)(history)
        if not calls:
            return text
        history.append({"role": "assistant", "tool_calls": calls, "tool_plan": text})
        for call in calls:
            result = call_weather(call["function"]["arguments"])
            document = {"type": "document", "document": {"data": result}}
            content = [document] if VARIANT == "documents" else result
            history.append({"role": "tool", "tool_call_id": call["id"], "content": content})


def ask(history: list[Any]) -> tuple[list[Any], str]:
    response = client.chat(model=MODEL, messages=history, tools=TOOLS)
    message = response.message
    assert response.finish_reason == ("TOOL_CALL" if message.tool_calls else "COMPLETE")
    text = message.tool_plan or "".join(part.text for part in message.content or ())
    return [call.model_dump() for call in message.tool_calls or ()], text


def ask_stream(history: list[Any]) -> tuple[list[Any], str]:
    calls, text = list[Any](), ""
    for event in client.chat_stream(model=MODEL, messages=history, tools=TOOLS):
        message = getattr(getattr(event, "delta", None), "message", None)
        if event.type == "content-delta":
            text += message.content.text
        elif event.type == "tool-plan-delta":
            text += message.tool_plan
        elif event.type == "tool-call-start":
            calls.append(message.tool_calls.model_dump())
        elif event.type == "tool-call-delta":
            calls[event.index]["function"]["arguments"] += message.tool_calls.function.arguments
        elif event.type == "message-end":
            assert event.delta.usage.tokens.input_tokens is not None
    return calls, text


def other_endpoints() -> str:
    embedded = client.embed(
        model=MODEL, input_type="search_query", texts=["a", "b"], embedding_types=["float", "int8"]
    )
    one, two = embedded.embeddings.float_
    assert one != two
    assert len(embedded.embeddings.int8[0]) == len(one)
    documents = ["The sea is deep.", "The weather in Paris is fine.", "A lamp."]
    ranked = client.rerank(model=MODEL, query=PROMPT, documents=documents, top_n=2)
    assert ranked.results[0].index == 1
    return ask([{"role": "user", "content": PROMPT}])[1]


print_result((other_endpoints if VARIANT == "misc" else chat)(), "cohere")
