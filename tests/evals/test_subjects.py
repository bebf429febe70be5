"""Cases that run a subject now: with a playbook, mocks, a cassette, or no model."""

import json
from typing import Any

import pytest

from offbook.evals.imported_runs import read_stored_trace
from offbook.evals.run_directory import read_results
from tests.conftest import ROOT
from tests.evals.conftest import RunPack

AGENT = """
from openai import OpenAI

def ask(prompt):
    client = OpenAI(api_key="none")
    reply = client.chat.completions.create(
        model="gpt-4.1-mini", messages=[{"role": "user", "content": prompt}]
    )
    return reply.choices[0].message.content

async def slow_echo(value):
    return {"value": value}

def record_folder(value):
    return "ok"
"""
PLAYBOOK = "- when: Greet me\n  do:\n    - say: Hello!\n"
MOCKS = '{"text": "Hello from mocks"}\n'


def case(**fields: Any) -> dict[str, Any]:
    return {"id": "one", "subject": "agent.py:ask", "rubrics": ["r"], **fields}


def pack(item: dict[str, Any], *assertions: dict[str, Any]) -> dict[str, Any]:
    return {"rubrics": [{"id": "r", "assertions": list(assertions)}], "cases": [item]}


COMPLETED = {"kind": "run-status", "expected": "completed"}
HELLO = {"kind": "output", "contains": "Hello"}


def test_a_playbook_replaces_the_model(run_files: RunPack):
    files = {"agent.py": AGENT, "playbook.yaml": PLAYBOOK}
    run = run_files(pack(case(playbook="playbook.yaml"), COMPLETED, HELLO), files)
    assert run.cases[0].failures == ()


def test_mocks_replace_the_model(run_files: RunPack):
    files = {"agent.py": AGENT, "mocks.jsonl": MOCKS}
    item = case(playbook="mocks.jsonl", prompt="Greet me")
    assert run_files(pack(item, COMPLETED, HELLO), files).cases[0].failures == ()


def test_an_agent_that_leaves_the_script_fails_its_case(run_files: RunPack):
    files = {"agent.py": AGENT, "playbook.yaml": PLAYBOOK + "    - say: And again!\n"}
    run = run_files(pack(case(playbook="playbook.yaml"), HELLO), files)
    assert run.cases[0].status == "fail"


def test_a_check_of_offbook_reads_the_trace_of_the_subject(run_files: RunPack):
    check = {"kind": "check", "check": {"type": "tool_called", "tool": "bash"}}
    files = {"agent.py": AGENT, "playbook.yaml": PLAYBOOK}
    run = run_files(pack(case(playbook="playbook.yaml"), check), files)
    assert run.cases[0].status == "no_data"
    assert "no tool was called" in run.cases[0].failures[0]


def test_a_function_without_a_model_is_called_with_the_input(run_files: RunPack):
    item = case(subject="agent.py:slow_echo", input=[1, 2])
    run = run_files(
        pack(item, {"path": "/output/value/1", "expected": 2}), {"agent.py": AGENT}, jobs=1
    )
    assert run.cases[0].failures == ()
    (result,) = read_results(run.folder)
    assert result.metrics.latency_ms is not None


def test_a_real_model_needs_the_option_live(run_files: RunPack):
    run = run_files(pack(case(live=True, prompt="x"), COMPLETED), {"agent.py": AGENT})
    assert run.cases[0].status == "error"
    assert "allow it with --live" in run.cases[0].failures[0]


WRONG = {
    "a missing file": ("nope.py:ask", "no such subject"),
    "a missing name": ("agent.py:aks", "did you mean 'ask'"),
    "no name": ("agent.py", "invalid subject"),
    "a missing module": ("nope.nope:ask", "ModuleNotFoundError"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_subject_that_does_not_exist_is_an_error_of_its_case(run_files: RunPack, name: str):
    subject, message = WRONG[name]
    run = run_files(pack(case(subject=subject, input=1), COMPLETED), {"agent.py": AGENT})
    assert run.cases[0].status == "error"
    assert message in run.cases[0].failures[0]


def test_a_stored_trace_is_evaluated_without_its_run(run_files: RunPack):
    files = {"agent.py": AGENT, "playbook.yaml": PLAYBOOK}
    item = {**case(playbook="playbook.yaml"), "id": "first"}
    run_files(pack(item, COMPLETED), files)
    stored = {"id": "two", "trace": "traces/first-1.jsonl", "rubrics": ["r"]}
    run = run_files(pack(stored, COMPLETED, HELLO))
    assert run.cases[0].failures == ()


def test_a_case_with_faults_passes_if_the_agent_retries(run_files: RunPack):
    files = {"agent.py": AGENT, "playbook.yaml": PLAYBOOK}
    item = case(playbook="playbook.yaml", faults=["status@1"])
    assert run_files(pack(item, COMPLETED, HELLO), files).cases[0].failures == ()


SWALLOWING = """
import anthropic

def hush(prompt):
    text = ""
    client = anthropic.Anthropic(api_key="none")
    try:
        with client.messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": prompt}]
        ) as stream:
            for piece in stream.text_stream:
                text += piece
    except Exception:
        pass
    return text
"""


def test_a_case_with_faults_fails_if_the_agent_swallows_one(run_files: RunPack):
    files = {"agent.py": SWALLOWING, "playbook.yaml": PLAYBOOK.replace("!", " you, my friend")}
    item = case(subject="agent.py:hush", playbook="playbook.yaml", faults=["reset@1"])
    run = run_files(pack(item, HELLO), files)
    assert run.cases[0].status == "fail"
    assert "swallowed, the answer is the beginning of the reply: 'Hello" in run.cases[0].failures[0]


def test_the_tokens_of_claude_code_are_those_of_its_last_line():
    path = ROOT / "examples" / "evals" / "runs" / "fix_typo.jsonl"
    last = json.loads(path.read_text().splitlines()[-1])["usage"]
    usage = read_stored_trace(path).record.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (
        last["input_tokens"],
        last["output_tokens"],
    )
    assert last["output_tokens"] > 3  # each of its three messages says one
