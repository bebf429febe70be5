"""An agent that speaks ACP, without a package. `sys.argv[1]` names what it does otherwise.

With a prompt as a second argument it is a command-line agent: it prints its answer and exits.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

KIND = sys.argv[1] if len(sys.argv) > 1 else ""
KEPT = Path(os.environ["HOME"]) / "history.json"
SESSION = "session-1"
NAMES = ("shell", "read", "write", "terminal", "plan")
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in NAMES
]
OPTIONS = [
    {"optionId": "1", "name": "Yes", "kind": "allow_once"},
    {"optionId": "2", "name": "Always", "kind": "allow_always"},
    {"optionId": "3", "name": "No", "kind": "reject_once"},
]
history: list[dict[str, Any]] = []


def send(**message: Any) -> None:
    if len(sys.argv) > 2:
        return
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ask(method: str, **params: Any) -> Any:
    send(id="q1", method=method, params={"sessionId": SESSION, **params})
    answer = json.loads(sys.stdin.readline())
    return answer["error"]["message"] if "error" in answer else answer["result"]


def update(kind: str, **fields: Any) -> None:
    changed = {"sessionUpdate": kind, **fields}
    send(method="session/update", params={"sessionId": SESSION, "update": changed})


def say(kind: str, text: str) -> None:
    for part in (text[:3], text[3:]):
        update(f"{kind}_chunk", content={"type": "text", "text": part})


def permitted(call_id: str, title: str) -> bool:
    call = {"toolCallId": call_id, "title": title}
    offered = [] if KIND == "no options" else OPTIONS
    outcome = ask("session/request_permission", toolCall=call, options=offered)
    chosen = outcome["outcome"]
    (Path.cwd() / "chosen").write_text(chosen.get("optionId", "cancelled"))
    return chosen.get("optionId") in {"1", "2"}


def run_tool(call_id: str, name: str, given: dict[str, Any]) -> str:
    path = str(Path.cwd() / given.get("path", ""))
    if KIND == "an unknown method":
        ask("session/dance")
    if name == "plan":
        update("plan", entries=given["entries"])
        return "planned"
    if name == "read":
        answer = ask("fs/read_text_file", path=path, **given.get("lines", {}))
        return answer if isinstance(answer, str) else answer["content"]
    if name == "write":
        answer = ask("fs/write_text_file", path=path, content=given["content"])
        diff = {"type": "diff", "path": path, "oldText": None, "newText": given["content"]}
        update("tool_call_update", toolCallId=call_id, content=[diff])
        return answer or "written"
    if name == "terminal":
        limit = given.get("limit", 1000)
        made = ask("terminal/create", command=given["command"], outputByteLimit=limit)
        if isinstance(made, str):
            return made
        terminal = made["terminalId"]
        update(
            "tool_call_update",
            toolCallId=call_id,
            content=[{"type": "terminal", "terminalId": terminal}],
        )
        if "kill" in given:
            ask("terminal/kill", terminalId=terminal)
        ended = ask("terminal/wait_for_exit", terminalId=terminal)
        printed = ask("terminal/output", terminalId=terminal)
        if KIND != "a terminal left":
            ask("terminal/release", terminalId=terminal)
        return json.dumps([ended, printed["output"], printed["truncated"]])
    if KIND in {"asks", "no options"} and not permitted(call_id, given["command"]):
        return "The person refused."
    words = ["bash", "-c", given["command"]]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def work(prompt: str) -> str:
    history.append({"role": "user", "content": prompt})
    if KIND == "silence":
        time.sleep(60)
    if KIND == "an exit":
        sys.exit("out of ideas")
    if KIND == "a print":
        sys.stdout.write("thinking\n")
    while True:
        request = urllib.request.Request(  # noqa: S310 - the address is loopback
            os.environ["OPENAI_BASE_URL"] + "/chat/completions",
            json.dumps({"model": "m", "messages": history, "tools": TOOLS}).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request) as response:  # noqa: S310 - as above
            answer = json.load(response)["choices"][0]["message"]
        history.append(answer)
        if not answer.get("tool_calls"):
            break
        for made in answer["tool_calls"]:
            name, given = made["function"]["name"], json.loads(made["function"]["arguments"])
            call_id = made["id"]
            if KIND != "an unknown call":
                update("tool_call", toolCallId=call_id, title=name, status="pending")
            output = run_tool(call_id, name, given)
            update("tool_call_update", toolCallId=call_id, status="completed")
            history.append({"role": "tool", "tool_call_id": call_id, "content": output})
    if len(sys.argv) > 2:
        sys.stdout.write(answer["content"])
    say("agent_message", answer["content"])
    KEPT.write_text(json.dumps(history))
    return "end_turn"


def load() -> None:
    history[:] = json.loads(KEPT.read_text())
    for message in history if KIND != "an empty load" else ():
        if message["role"] in {"user", "assistant"} and message.get("content"):
            kind = "user_message" if message["role"] == "user" else "agent_message"
            say(kind, message["content"])


if len(sys.argv) > 2:
    if KEPT.exists():
        history[:] = json.loads(KEPT.read_text())
    work(sys.argv[2])
    sys.exit()

for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if number is None:
        continue
    result: Any = None
    if method == "initialize":
        version = 9 if KIND == "a version" else 1
        able = {"loadSession": KIND != "no load"}
        result = {"protocolVersion": version, "agentCapabilities": able, "authMethods": []}
        if KIND == "a sign-in":
            result["authMethods"] = [{"id": "browser", "name": "Browser"}]
    elif method == "session/new":
        if KIND == "a sign-in":
            send(id=number, error={"code": -32000, "message": "Authentication required"})
            continue
        servers = [server["name"] for server in message["params"]["mcpServers"]]
        (Path.cwd() / "servers").write_text(json.dumps(servers))
        result = {"sessionId": SESSION}
    elif method == "session/load":
        load()
    elif method == "session/prompt":
        if KIND == "an unknown update":
            update("a_dance")
        try:
            reason = work(message["params"]["prompt"][0]["text"])
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            send(id=number, error={"code": -32603, "message": "refused", "data": text})
            continue
        result = {"stopReason": "tired" if KIND == "a reason" else reason}
    send(id=number, result=result)
    if method == "session/prompt" and KIND == "a crash after it":
        os._exit(3)
    if method == "session/prompt" and KIND == "a kill after it":
        os.kill(os.getpid(), signal.SIGUSR1)
if KIND == "an error at the end":
    raise RuntimeError("cannot save the session")
