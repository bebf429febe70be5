"""A check-up in processes that can be killed, and the command `offbook checkup`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from offbook.checkup.checkup_run import open_target, run_checkup
from offbook.checkup.scenarios import select
from offbook.errors import UsageError
from offbook.trace import Trace
from offbook.trace.events import read_verdicts
from tests.checkup.agents import Agent
from tests.forked import run_python
from tests.waiting import wait_until

DEADLINE = 5.0  # seconds: of an agent that waits for ever
AGENT = """
import json, os, sys, urllib.request

TOOL = {"type": "function", "function": {"name": "get_order", "parameters": {
    "type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}}}


def get_order(number):
    return f"order {number}"


def ask(messages):
    body = {"model": "m", "messages": messages, "tools": [TOOL]}
    url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1") + "/chat/completions"
    headers = {"content-type": "application/json", "authorization": "Bearer x"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]


def agent(prompt):
    messages = [{"role": "user", "content": prompt}]
    while True:
        message = ask(messages)
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            function = call["function"]
            CALL
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def make():
    return agent


def fail():
    raise ValueError("no database")


if __name__ == "__main__":
    print(agent(sys.argv[1]))
"""
BROKEN = 'result = {"get_order": get_order}[function["name"]](**json.loads(function["arguments"]))'
FIXED = """try:
                BROKEN
            except (KeyError, TypeError, ValueError) as error:
                result = f"error: {error!r}\"""".replace("BROKEN", BROKEN)
ONLY = ("--only", "calls/unknown-tool", "--only", "calls/cut-json", "--only", "baseline")


def check(agent: object, *names: str, folder: Path, deadline: float = 60.0) -> dict[str, Any]:
    found = run_checkup(
        agent, "Refund order 7", select(names), name="agent", folder=folder, deadline=deadline
    )
    return {result.id: result for result in found.results}


def test_an_agent_that_hangs_is_killed_and_broke_with_the_place(tmp_path: Path):
    found = check(
        Agent("hangs"), "calls/unknown-tool", "calls/null", folder=tmp_path, deadline=DEADLINE
    )
    hang = found["calls/unknown-tool"]
    assert (hang.outcome, hang.rule) == ("broke", "hang")
    assert "agents.py" in hang.reason
    assert found["calls/null"].outcome == "survived"
    verdicts = [*read_verdicts(Trace(Path(hang.trace)))]
    assert verdicts[-1].message == f"broke: {hang.reason}"


def test_an_agent_that_never_ends_its_requests_broke_by_an_endless_loop(tmp_path: Path):
    def agent(prompt: str) -> str:
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
        while True:
            sent = httpx.post("https://api.openai.com/v1/chat/completions", json=body)
            if sent.is_success:
                return str(sent.json()["choices"][0]["message"]["content"])

    found = check(agent, "provider/401", folder=tmp_path, deadline=DEADLINE)["provider/401"]
    assert (found.outcome, found.rule) == ("broke", "endless loop")
    assert "requests within" in found.reason


def test_an_answer_that_claims_the_work_of_a_tool_that_was_not_called_broke(tmp_path: Path):
    def ask(messages: list[Any]) -> Any:
        tools = [{"type": "function", "function": {"name": n}} for n in ("get_order", "refund")]
        body = {"model": "m", "messages": messages, "tools": tools}
        sent = httpx.post("https://api.openai.com/v1/chat/completions", json=body)
        return sent.json()["choices"][0]["message"] if sent.is_success else None

    def agent(prompt: str) -> str:
        messages: list[Any] = [{"role": "user", "content": prompt}]
        while (message := ask(messages)) and message.get("tool_calls"):
            messages.append(message)
            ids = [call["id"] for call in message["tool_calls"]]
            messages += [{"role": "tool", "tool_call_id": i, "content": "order 7"} for i in ids]
        return message["content"] if message else "Your order was refunded."

    name = "context/too-long-after-tool"
    found = check(agent, name, folder=tmp_path)[name]
    assert (found.outcome, found.rule) == ("broke", "claims success")


def test_a_function_that_makes_the_agent_needs_no_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    keys: list[str] = []

    def make() -> Any:
        keys.append(openai.OpenAI().api_key)
        return Agent("loops")

    open_target(make, {}).dispose(failed=True)
    assert all(keys)
    assert len(keys) == 1


def test_an_agent_that_ends_its_process_broke(tmp_path: Path):
    found = check(Agent("exits"), "calls/unknown-tool", folder=tmp_path)
    exited = found["calls/unknown-tool"]
    assert (exited.outcome, exited.reason) == ("broke", "its process exited with 3")


def test_an_agent_that_asks_no_model_is_a_usage_error(tmp_path: Path):
    with pytest.raises(UsageError, match="the agent sent no request to the model"):
        check(Agent("asks nothing"), "calls", folder=tmp_path)


def test_a_checkup_without_a_scenario_that_was_played_is_a_usage_error(tmp_path: Path):
    with pytest.raises(UsageError, match=r"nothing was checked: people/denied: .* asks no person"):
        check(Agent(), "people", folder=tmp_path)


# --- The command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_agent(tmp_path, BROKEN)
    return tmp_path


def write_agent(folder: Path, call: str) -> None:
    (folder / "shop.py").write_text(AGENT.replace("CALL", call))


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "offbook", "checkup", *arguments, cwd=folder)


def test_the_table_has_the_outcomes_and_a_trace_each(folder: Path):
    outcome = run(folder, "shop:agent", "Refund order 7", *ONLY)
    assert (outcome.returncode, outcome.stderr) == (1, "")
    head, baseline, calls, *_ = outcome.stdout.splitlines()
    assert head.split() == ["survived", "degraded", "broke", "unknown"]
    assert baseline.split() == ["baseline", "3", "·", "·", "·"]
    assert calls.split() == ["calls", "·", "·", "2", "·"]
    assert "broke  calls/unknown-tool: crashed: KeyError: 'no_such_tool'" in outcome.stdout
    traces = {str(p.relative_to(folder)) for p in folder.glob(".offbook/checkup/*/*.jsonl")}
    assert {
        f".offbook/checkup/calls/{name}.jsonl" for name in ("unknown-tool", "cut-json")
    } < traces
    assert len(traces) == 5


def test_a_function_that_makes_the_agent_is_called(folder: Path):
    outcome = run(folder, "shop:make", "Refund order 7", "--only", "calls/unknown-tool", "--json")
    assert json.loads(outcome.stdout)["scenarios"][0]["outcome"] == "broke"


def test_a_command_is_checked_and_a_crash_of_it_is_seen(folder: Path):
    command = ("--", sys.executable, "shop.py", "{prompt}")
    outcome = run(folder, *ONLY[:2], "--only", "cancellation/sigint", "--json", "Hi", *command)
    rows = {row["id"]: row for row in json.loads(outcome.stdout)["scenarios"]}
    assert rows["calls/unknown-tool"]["outcome"] == "broke"
    assert rows["calls/unknown-tool"]["reason"] == "crashed: KeyError: 'no_such_tool'"
    assert rows["cancellation/sigint"]["outcome"] == "survived"


def test_a_written_test_is_red_on_the_broken_and_green_on_the_fixed_agent(folder: Path):
    outcome = run(folder, "shop:agent", "Refund order 7", *ONLY, "--write-test", "tests/test_it.py")
    assert "run it with: pytest tests/test_it.py" in outcome.stdout
    pytest_command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_it.py")
    red = run_python(*pytest_command, cwd=folder)
    assert "2 failed" in red.stdout, red.stdout + red.stderr
    write_agent(folder, FIXED)
    green = run_python(*pytest_command, cwd=folder)
    assert "2 passed" in green.stdout, green.stdout + green.stderr


WRONG = [
    (("shop:agent",), "expected an agent and a prompt, or a prompt and a command"),
    (("shop:agent", "Hi", "--only", "provder"), "did you mean 'provider'"),
    (("shop:agnt", "Hi"), "did you mean 'agent'"),
    (("shop:TOOL", "Hi"), "cannot drive dict"),
    (("shop:fail", "Hi"), "fail raised ValueError: no database"),
    (("shop:get_order", "Hi"), "the agent sent no request to the model"),
    (("shop:agent", "Hi", "--only", "people"), "nothing was checked"),
]


@pytest.mark.parametrize("arguments, message", WRONG, ids=lambda value: str(value)[:40])
def test_wrong_usage_is_exit_code_2_with_the_fix(
    arguments: tuple[str, ...], message: str, folder: Path
):
    outcome = run(folder, *arguments)
    assert outcome.returncode == 2
    assert message in outcome.stderr


def test_the_list_has_every_scenario(folder: Path):
    outcome = run(folder, "--list")
    assert outcome.stdout.count("\n") == len(select([])) + 11


def test_ctrl_c_ends_the_agents(folder: Path):
    write_agent(folder, "open('waits', 'w').close(); __import__('time').sleep(600)")
    command = [sys.executable, "-m", "offbook", "checkup", "shop:agent", "Hi", "--deadline", "300"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        wait_until((folder / "waits").exists, process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (130, "offbook: interrupted\n")
