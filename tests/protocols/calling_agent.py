"""An agent in another process that calls a remote agent: the model decides, by the tool `ask`.

With the argument `invent` it makes the answer up, and never calls the remote agent.
"""

import json
import os
import sys
import urllib.request
from typing import Any

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
HEADERS = {"content-type": "application/json", "a2a-version": "1.0"}
TOOL = {"name": "ask", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}


def post(url: str, body: object) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), HEADERS)  # noqa: S310 - of this machine
    with OPENER.open(request) as response:
        return json.load(response)


def ask(text: str) -> str:
    url = os.environ["OFFBOOK_AGENT_BILLING"]
    with OPENER.open(url + "/.well-known/agent-card.json") as response:
        endpoint = json.load(response)["supportedInterfaces"][0]["url"]
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": text}]}
    params = {"message": message}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    task = post(endpoint, body)["result"]["task"]
    return task["artifacts"][0]["parts"][0]["text"]


messages: list[Any] = [{"role": "user", "content": sys.argv[1]}]
tools = [{"type": "function", "function": TOOL}]
while True:
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    body = {"model": "m", "messages": messages, "tools": tools}
    message = post(url, body)["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for made in message["tool_calls"]:
        given = json.loads(made["function"]["arguments"])
        text = "refunded" if "invent" in sys.argv else ask(given["text"])
        messages.append({"role": "tool", "tool_call_id": made["id"], "content": text})
sys.stdout.write(message["content"])
