"""An MCP server over stdio, without a package. `sys.argv[1]` names a fault that it has."""

import json
import os
import signal
import sys
import time
from typing import Any

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
INTEGER = {"type": "integer"}
FIND: dict[str, Any] = {
    "name": "find_order",
    "description": "Find an order.",
    "inputSchema": {"type": "object", "properties": {"number": INTEGER}, "required": ["number"]},
}
TOOLS: list[dict[str, Any]] = [FIND]
if FAULT == "two tools":
    TOOLS.append(FIND)
if FAULT == "a name":
    FIND["name"] = "find order"
if FAULT == "a schema":
    FIND["inputSchema"] = {"type": "string"}
if FAULT == "an invalid schema":
    FIND["inputSchema"] = {"type": "object", "properties": {"number": {"type": "objekt"}}}
if FAULT == "a description":
    FIND["description"] = {"en": "Find an order."}
if FAULT == "an output":
    FIND["outputSchema"] = {"type": "object", "required": ["id"]}


def send(**message: Any) -> None:
    version = {} if FAULT == "no version" else {"jsonrpc": "2.0"}
    sys.stdout.write(json.dumps({**version, **message}) + "\n")
    sys.stdout.flush()


def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
    send(id="q1", method=method, params=params)
    return json.loads(sys.stdin.readline())


def find_order(number: object) -> dict[str, Any]:
    if FAULT == "a print":
        sys.stdout.write("looking for an order\n")
    if FAULT == "an exit":
        sys.exit("out of orders")
    if FAULT == "a crash at 13" and number == 13:
        sys.exit("unlucky")
    if FAULT == "silence":
        time.sleep(60)
    if not isinstance(number, int):
        return {"content": [{"type": "text", "text": "number must be an integer"}], "isError": True}
    if FAULT == "sampling":
        message = {"role": "user", "content": {"type": "text", "text": "Describe a lamp."}}
        answer = ask("sampling/createMessage", {"messages": [message], "maxTokens": 9})
        return {"content": [answer["result"]["content"]]}
    if FAULT == "elicitation":
        schema = {"type": "object", "properties": {"account": {"type": "string"}}}
        answer = ask("elicitation/create", {"message": "Which account?", "requestedSchema": schema})
        return {"content": [{"type": "text", "text": json.dumps(answer["result"])}]}
    if FAULT == "content":
        return {"content": [{"type": "txt", "text": "a lamp"}]}
    if FAULT.startswith("sk-"):
        return {"content": [{"type": "text", "text": f"order {number}, paid with {FAULT}"}]}
    if FAULT.startswith("{"):
        return json.loads(FAULT)
    if FAULT == "no content":
        return {}
    return {"content": [{"type": "text", "text": f"order {number}"}]}


for line in sys.stdin:
    request = json.loads(line)
    method, number, params = request.get("method"), request.get("id"), request.get("params", {})
    if method == "initialize":
        info = {"name": "plain", "version": "1"}
        version = "1999-01-01" if FAULT == "a version" else params["protocolVersion"]
        capabilities: dict[str, Any] = {"tools": {}}
        offer = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
        send(id=number, result=offer)
    elif method == "ping":
        send(id=number, result={})
    elif method == "tools/list":
        cursor = {"nextCursor": "1"} if FAULT == "a cursor" else {}
        send(id=number, result={"tools": TOOLS, **cursor})
    elif method == "tools/call" and FAULT == "an internal error":
        send(id=number, error={"code": -32603, "message": "KeyError: 7"})
    elif method == "tools/call" and params["name"] != FIND["name"]:
        send(id=number, error={"code": -32602, "message": f"unknown tool {params['name']}"})
    elif method == "tools/call" and FAULT == "both":
        send(id=number, result={"content": []}, error={"code": 1, "message": "no"})
    elif method == "tools/call":
        send(id=number, result=find_order(params["arguments"].get("number")))
        if FAULT == "two responses":
            send(id=number, result={"content": []})
        if FAULT == "a crash after it":
            sys.stderr.write("out of orders\n")
            sys.stderr.flush()
            os._exit(3)
if FAULT == "an error at the end":
    raise RuntimeError("cannot save the orders")
if FAULT.startswith("SIG"):
    os.kill(os.getpid(), getattr(signal, FAULT))
if FAULT.isdecimal():
    sys.exit(int(FAULT))
