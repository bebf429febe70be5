"""Scripted remote agents: what they answer, what is in the trace, and one that nobody calls."""

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from offbook import Command, Live, call, drive, say, when
from offbook.errors import CheckFailed, UsageError
from offbook.protocols import A2a, ScriptedAgent, remote_agent
from offbook.reports.styled_lines import render_line
from offbook.reports.terminal import TraceTree

AGENT = [sys.executable, str(Path(__file__).with_name("calling_agent.py")), "{prompt}"]
SCRIPT = when("Go", [call("ask", {"text": "Refund order 7"}), say("Done.")])


def billing(text: str) -> Generator[str, str, str]:
    account = yield "Which account?"
    return f"{text}: paid from {account}"


def broken(text: str) -> str:
    raise ValueError(f"cannot {text}")


async def later(text: str) -> dict[str, str]:
    return {"done": text}


class Caller:
    """A caller of a remote agent."""

    def __init__(self, agent: ScriptedAgent, version: str = "1.0") -> None:
        self.url = agent.url
        self.headers = {"a2a-version": version}

    def request(self, method: str, params: dict[str, Any]) -> list[Any]:
        """Return the results, or the error, of a request."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        response = httpx.post(self.url, json=body, headers=self.headers)
        lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
        answers = [json.loads(line) for line in lines or [response.text]]
        assert [answer["id"] for answer in answers] == [1] * len(answers)
        return [answer.get("result", answer.get("error")) for answer in answers]

    def send(self, text: str, task: str = "", method: str = "SendMessage") -> list[Any]:
        """Send a message."""
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": text}]}
        given = {**message, "taskId": task} if task else message
        return self.request(method, {"message": given})


def states(task: dict[str, Any]) -> tuple[str, Any]:
    status = task["status"]
    parts = task["artifacts"][0]["parts"] if "artifacts" in task else status["message"]["parts"]
    return status["state"].removeprefix("TASK_STATE_"), parts


ANSWERS: list[tuple[Any, tuple[str, Any]]] = [
    ("refunded", ("COMPLETED", [{"text": "refunded"}])),
    ({"order": 7}, ("COMPLETED", [{"data": {"order": 7}}])),
    (str.upper, ("COMPLETED", [{"text": "PAY"}])),
    (later, ("COMPLETED", [{"data": {"done": "Pay"}}])),
    (broken, ("FAILED", [{"text": "ValueError: cannot Pay"}])),
    (billing, ("INPUT_REQUIRED", [{"text": "Which account?"}])),
]


@pytest.mark.parametrize("answer, expected", ANSWERS)
def test_a_task_has_the_answer_of_the_test(answer: Any, expected: tuple[str, Any]):
    agent = remote_agent("billing", answer)
    (result,) = Caller(agent).send("Pay")
    assert states(result["task"]) == expected
    assert agent.tasks == ["Pay"]
    agent.close()


def test_a_generator_gets_the_input_that_it_asks_for():
    agent = remote_agent("billing", billing)
    caller = Caller(agent)
    (first,) = caller.send("Pay")
    (second,) = caller.send("7", first["task"]["id"])
    assert states(second["task"]) == ("COMPLETED", [{"text": "Pay: paid from 7"}])
    (stored,) = caller.request("GetTask", {"id": first["task"]["id"]})
    assert stored == second["task"]


def test_a_stream_has_the_task_its_artifact_and_its_end():
    agent = remote_agent("billing", "paid")
    results = Caller(agent).send("Pay", method="SendStreamingMessage")
    assert [next(iter(result)) for result in results] == ["task", "artifactUpdate", "statusUpdate"]


def test_the_stream_of_a_task_that_got_its_input_begins_as_working():
    caller = Caller(remote_agent("billing", billing))
    (first,) = caller.send("Pay")
    task, *_ = caller.send("7", first["task"]["id"], "SendStreamingMessage")
    assert task["task"]["status"] == {"state": "TASK_STATE_WORKING"}


def test_a_task_that_waits_can_be_canceled_once():
    caller = Caller(remote_agent("billing", billing))
    (first,) = caller.send("Pay")
    params = {"id": first["task"]["id"]}
    assert caller.request("CancelTask", params)[0]["status"]["state"] == "TASK_STATE_CANCELED"
    assert caller.request("CancelTask", params)[0]["code"] == -32002


ERRORS: list[tuple[str, dict[str, Any], int]] = [
    ("GetTask", {"id": "no such task"}, -32001),
    ("SendMessage", {"message": {"messageId": "1", "parts": [], "role": "ROLE_USER"}}, -32602),
    ("Dance", {}, -32601),
]


@pytest.mark.parametrize("method, params, code", ERRORS)
def test_a_wrong_request_is_an_error(method: str, params: dict[str, Any], code: int):
    (error,) = Caller(remote_agent("billing", "paid")).request(method, params)
    assert error["code"] == code


def test_a_caller_of_an_older_version_is_refused():
    (error,) = Caller(remote_agent("billing", "paid"), "0.3").send("Pay")
    assert error["code"] == -32009


# --- In a run


def test_what_a_command_sends_to_a_remote_agent_is_in_the_trace():
    agent = remote_agent("billing", "refunded")
    with drive(Command(AGENT), agents=[agent]) as rehearsal:
        run = rehearsal.run(SCRIPT)
        (task,) = run.events.named("remote.task")
        lines = [render_line(line) for line in TraceTree().render(rehearsal.read_events())]
    assert task.data == {
        "agent": "billing",
        "task": "billing-task-1",
        "message": "Refund order 7",
        "state": "completed",
        "answer": "refunded",
    }
    assert run.results("ask")[0].text == "refunded"
    assert any('remote billing "Refund order 7" → "refunded"' in line for line in lines), lines


def test_an_agent_that_makes_the_answer_up_fails():
    agent = remote_agent("billing", "refunded")
    with (
        pytest.raises(CheckFailed, match="never used: the remote agent billing"),
        drive(Command([*AGENT, "invent"]), agents=[agent]) as rehearsal,
    ):
        rehearsal.run(SCRIPT)


def test_a_remote_agent_is_part_of_one_run_at_a_time():
    agent = remote_agent("billing", "refunded")
    with drive(Command(AGENT), agents=[agent]) as rehearsal:
        rehearsal.run(SCRIPT)
        with pytest.raises(UsageError, match="'billing' is part of another run"):
            drive(Command(AGENT), agents=[agent])


def test_a_remote_agent_without_a_name_is_refused():
    with pytest.raises(UsageError, match="takes its name first"):
        remote_agent("", "paid")


@pytest.mark.parametrize("streaming", [True, False])
def test_an_agent_that_runs_already_is_driven_by_its_address(streaming: bool):  # noqa: FBT001 - a case
    agent = remote_agent("billing", {"paid": 7}, streaming=streaming)
    with drive(A2a(agent.url), source=Live()) as rehearsal:
        run = rehearsal.run("Pay")
    assert run.output == {"paid": 7}
    assert agent.tasks == ["Pay"]
