"""The hosts of planted bugs: a tool is written once, and every kind of agent can have it.

A loop takes a `flaw` of its own; without one it is careful. `host_*` make an agent of tools.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import anthropic
import openai
from agents import Agent as OpenAIAgent
from agents import function_tool
from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType] - it has no types
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent
from pydantic_ai.tools import Tool as PydanticTool

from offbook import Command, drive, session

TYPES = {int: "integer", str: "string", float: "number", bool: "boolean"}
Tool = Callable[..., Any]


class Bug(NamedTuple):
    """The tools of an agent with their bug, the prompt, and what must always hold."""

    tools: list[Tool]
    prompt: str
    holds: Callable[[], object] | None = None


def read_schema(tool: Tool) -> dict[str, Any]:
    """Return the JSON schema of a tool."""
    parameters = inspect.signature(tool, eval_str=True).parameters.values()
    return {
        "type": "object",
        "properties": {p.name: {"type": TYPES[p.annotation]} for p in parameters},
        "required": [p.name for p in parameters if p.default is p.empty],
    }


def run_tool(tools: list[Tool], name: str, arguments: Any) -> str:
    """Run a tool as a careful loop does: wrong names and arguments are results for the model."""
    tool = next((tool for tool in tools if tool.__name__ == name), None)
    if tool is None:
        return f"there is no tool {name}"
    schema = read_schema(tool)
    kinds = {"integer": int, "string": str, "number": (int, float), "boolean": bool}
    if not isinstance(arguments, dict) or {*schema["required"]} - {*arguments}:
        return "wrong arguments"
    for key, value in cast("dict[str, Any]", arguments).items():
        kind = schema["properties"].get(key)
        if kind is None or not isinstance(value, kinds[kind["type"]]):
            return f"wrong argument {key}"
        if isinstance(value, bool) and kind["type"] != "boolean":
            return f"wrong argument {key}"
    result = tool(**arguments)
    return asyncio.run(result) if asyncio.iscoroutine(result) else str(result)


def host_session(bug: Bug) -> Any:
    """Host the tools in a session."""

    def extension(api: Any) -> None:
        for tool in bug.tools:

            def call(params: Any, _: Any, tool: Tool = tool) -> Any:
                known = read_schema(tool)["properties"]
                return tool(**{name: value for name, value in params.items() if name in known})

            api.tool(tool.__name__, tool.__doc__, read_schema(tool))(call)

    mocks: dict[str, str] = dict.fromkeys(("bash", "edit", "read", "write"), "ok")
    return session(extensions=[extension], mock_tools=mocks)


def host_pydantic(bug: Bug) -> Any:
    """Host the tools in an agent of pydantic-ai."""
    return drive(Agent("openai-chat:gpt-4o", tools=[PydanticTool(tool) for tool in bug.tools]))


def host_agents(bug: Bug) -> Any:
    """Host the tools in an agent of OpenAI Agents."""
    return drive(OpenAIAgent(name="shop", tools=[function_tool(tool) for tool in bug.tools]))


def host_langgraph(bug: Bug) -> Any:
    """Host the tools in a graph."""
    tools = [langchain_tool(tool) for tool in bug.tools]
    return drive(cast("Any", create_agent)(ChatOpenAI(model="gpt-4o"), tools))


def host_openai(bug: Bug) -> Any:
    """Host the tools in a plain loop."""
    return drive(openai_loop(bug.tools))


def host_anthropic(bug: Bug) -> Any:
    """Host the tools in a plain loop over the SDK of Anthropic."""
    return drive(anthropic_loop(bug.tools))


# --- Bugs of loops


def find(name: str) -> str:
    """Find something."""
    return f"found {name[:40]}".encode("ascii", "replace").decode()


def openai_loop(tools: list[Tool], flaw: str = "") -> Callable[[str], str]:  # noqa: C901 - one loop with many flaws
    """Return a careful loop over the SDK of OpenAI, with one flaw."""
    offered: Any = [
        {
            "type": "function",
            "function": {
                "name": t.__name__,
                "description": t.__doc__,
                "parameters": read_schema(t),
            },
        }
        for t in tools
    ]
    shared: list[Any] = []

    def agent(prompt: str) -> str:  # noqa: C901 - as above
        client = openai.OpenAI(max_retries=2)
        messages: Any = shared if flaw == "shared history" else []
        messages.append({"role": "user", "content": prompt})
        for _ in range(200 if flaw == "no end" else 12):
            reply = client.chat.completions.create(model="m", messages=messages, tools=offered)
            choice = reply.choices[0]
            message: Any = choice.message.model_dump(exclude_none=True)
            calls: Any = choice.message.tool_calls or []
            if flaw == "drops calls" and choice.finish_reason == "length":
                message.pop("tool_calls", None)
                message["content"] = "…"
                calls = []
            if flaw == "rewrites arguments":
                for made in message.get("tool_calls", ()):
                    made["function"]["arguments"] = made["function"]["arguments"].replace("a", "A")
            messages.append(message)
            if flaw == "repeats history" and calls:
                messages += messages[-2:-1]
            if not calls:
                text = choice.message.content
                if flaw == "needs a text":
                    return cast("Any", text).strip()
                if flaw == "no end" and any("wrong" in str(m.get("content")) for m in messages):
                    messages.append({"role": "user", "content": "Try again."})
                    continue
                return text or ""
            if flaw == "length" and choice.finish_reason == "length":
                messages.append({"role": "user", "content": "Continue."})
                continue
            for made in calls[:1] if flaw == "first call only" else calls:
                given = made.function.arguments
                try:
                    arguments = json.loads(given)
                except ValueError:
                    if flaw == "trusts JSON":
                        raise
                    arguments = None
                if flaw == "trusts keys":
                    result = f"found {cast('Any', arguments)['name']}"
                elif flaw == "trusts names":
                    known = {tool.__name__: tool for tool in tools}
                    result = run_tool([known[made.function.name]], made.function.name, arguments)
                else:
                    result = run_tool(tools, made.function.name, arguments)
                messages.append({"role": "tool", "tool_call_id": made.id, "content": result})
            if flaw == "swaps results" and len(calls) > 1:
                one, other = messages[-2:]
                one["tool_call_id"], other["tool_call_id"] = (
                    other["tool_call_id"],
                    one["tool_call_id"],
                )
            if flaw == "forgets" and len(messages) > 4:
                del messages[1:2]
        return "too many steps"

    return agent


def anthropic_loop(tools: list[Tool], flaw: str = "") -> Callable[[str], str]:
    """Return a careful loop over the SDK of Anthropic, with one flaw."""
    offered: Any = [
        {"name": t.__name__, "description": t.__doc__, "input_schema": read_schema(t)}
        for t in tools
    ]
    shared: list[Any] = []

    def agent(prompt: str) -> str:
        client = anthropic.Anthropic(api_key="x")
        messages: Any = shared if flaw == "shared history" else []
        messages.append({"role": "user", "content": prompt})
        for _ in range(200 if flaw == "no end" else 12):
            reply = client.messages.create(
                model="claude", max_tokens=100, messages=messages, tools=offered
            )
            if flaw == "needs a block":
                _ = reply.content[0].type
            calls: Any = [block for block in reply.content if block.type == "tool_use"]
            if reply.content:
                content = [block.model_dump() for block in reply.content]
                messages.append({"role": "assistant", "content": content})
            if not calls:
                texts = [block.text for block in reply.content if block.type == "text"]
                if flaw == "no end" and any("wrong" in str(m["content"]) for m in messages):
                    messages.append({"role": "user", "content": "Try again."})
                    continue
                return " ".join(texts)
            messages.append(
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": block.id,
                            "content": run_tool(tools, block.name, block.input),
                        }
                        for block in (calls[:1] if flaw == "first call only" else calls)
                    ],
                }
            )
        return "too many steps"

    return agent


# --- Commands

COMMAND = """
import json, os, sys, urllib.error, urllib.request

FIXED = sys.argv[1] == "fixed"
TOOL = {"type": "function", "function": {"name": "NAME", "parameters": {
    "type": "object", "properties": {PROPERTIES}}}}

def run(arguments):
RUN

messages = [{"role": "user", "content": sys.argv[2]}]
for _ in range(12):
    body = json.dumps({"model": "m", "messages": messages, "tools": [TOOL]}).encode()
    headers = {"content-type": "application/json", "authorization": "Bearer x"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    try:
        reply = json.load(urllib.request.urlopen(urllib.request.Request(url, body, headers)))
    except (urllib.error.URLError, ValueError, OSError):
        break
    message = reply["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        try:
            arguments = json.loads(call["function"]["arguments"])
        except ValueError:
            arguments = {}
        result = run(arguments if isinstance(arguments, dict) else {})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
print("done")
"""
COMMANDS = {
    "division": (
        "divide",
        '"by": {"type": "integer"}',
        (
            '    by = arguments.get("by")\n    by = by if type(by) is int else 1\n'
            '    return "no" if FIXED and not by else str(100 / by)'
        ),
    ),
    "countdown": (
        "count",
        '"start": {"type": "integer"}',
        (
            '    n = arguments.get("start")\n    n = min(n, 99) if type(n) is int else 1\n'
            "    n = max(n, 0) if FIXED else n\n    while n:\n        n -= 1\n"
            '    return "done"'
        ),
    ),
    "missing key": (
        "find",
        '"name": {"type": "string"}',
        '    return "found" if FIXED else "found " + arguments["name"]',
    ),
    "exit code": (
        "stop",
        '"code": {"type": "integer"}',
        (
            '    code = arguments.get("code")\n'
            "    if not FIXED and type(code) is int and code > 1:\n        sys.exit(code)\n"
            '    return "stopped"'
        ),
    ),
}


def command_world(name: str, *, fixed: bool) -> Any:
    """Return a program in a process of its own."""
    tool, properties, run = COMMANDS[name]
    text = COMMAND.replace("PROPERTIES", properties).replace("NAME", tool).replace("RUN", run)
    words = [sys.executable, "-S", "-c", text, "fixed" if fixed else "broken", "{prompt}"]
    return drive(Command(words))
