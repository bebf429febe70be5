"""An agent in another process, without a package: one model over HTTP, one MCP server over HTTP.

With the argument `invent` it makes the result of the tool up, and never calls the server.
"""

import json
import os
import sys
import urllib.request
from typing import Any

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def post(url: str, body: object) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), HEADERS)  # noqa: S310 - of this machine
    with OPENER.open(request) as response:
        if session := response.headers["mcp-session-id"]:
            HEADERS["mcp-session-id"] = session
        text = response.read().decode()
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return json.loads(lines[-1] if lines else text or "null")


def rpc(method: str, params: object, number: int = 1) -> Any:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return post(os.environ["OFFBOOK_MCP_SHOP"], message)["result"]


def ask(messages: object, tools: object) -> Any:
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    return post(url, {"model": "m", "messages": messages, "tools": tools})["choices"][0]["message"]


client = {"name": "agent", "version": "1"}
rpc("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
tools = [
    {"type": "function", "function": {"name": t["name"], "parameters": t["inputSchema"]}}
    for t in rpc("tools/list", {}, 2)["tools"]
]
messages: list[Any] = [{"role": "user", "content": sys.argv[1]}]
while (message := ask(messages, tools)).get("tool_calls"):
    messages.append(message)
    for made in message["tool_calls"]:
        given = json.loads(made["function"]["arguments"])
        text = "order 7: one lamp"
        if "invent" not in sys.argv:
            result = rpc("tools/call", {"name": made["function"]["name"], "arguments": given}, 3)
            text = "".join(block["text"] for block in result["content"])
        messages.append({"role": "tool", "tool_call_id": made["id"], "content": text})
sys.stdout.write(message["content"])
