"""Cases that run a subject now: with a playbook, mocks, a cassette, or no model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook import Mocks, Server
from offbook.determinism import live_listener, use_variable
from offbook.evals import (
    EvalOptions,
    JudgeOptions,
    RunOptions,
    evaluate_case,
    read_pack,
    read_results,
    read_stored_trace,
    run_pack,
)
from offbook.trace import RUN_END, RUN_START, Event
from tests.conftest import ROOT
from tests.evals.conftest import Files, RunPack
from tests.forked import forked_command

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


def test_a_client_that_is_made_on_import_needs_no_key(
    run_files: RunPack, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    on_import = AGENT.replace('    client = OpenAI(api_key="none")\n', "")
    agent = on_import.replace("import OpenAI\n", "import OpenAI\n\nclient = OpenAI()\n")
    files = {"agent.py": agent, "playbook.yaml": PLAYBOOK}
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


FUNCTIONS = """
number = 3

def fails(value):
    raise ValueError("broken")

def now(value):
    return value

async def later(value):
    return value
"""
# the subject -> the status of its case and its failure
CALLED: dict[str, tuple[str, str, str]] = {
    "no function": ("number", "error", "expected a function, got int"),
    "a function that raises": ("fails", "error", "the subject raised ValueError: broken"),
    "a function": ("now", "pass", ""),
    "a coroutine function": ("later", "pass", ""),
}


@pytest.mark.parametrize("name", CALLED)
def test_a_function_is_called_in_this_process(run_files: RunPack, name: str):
    subject, status, message = CALLED[name]
    item = case(subject=f"functions.py:{subject}", input="x")
    run = run_files(pack(item, {"kind": "output", "expected": "x"}), {"functions.py": FUNCTIONS})
    assert run.cases[0].status == status
    assert message in "; ".join(run.cases[0].failures)


def test_the_events_of_a_function_are_shown_while_it_runs(run_files: RunPack):
    seen: list[Event] = []
    item = case(subject="functions.py:later", input="x")
    with use_variable(live_listener, seen.append):
        run_files(pack(item, COMPLETED), {"functions.py": FUNCTIONS})
    assert [event.event for event in seen] == [RUN_START, RUN_END]
    assert seen[0].context == seen[1].context != {}


def test_a_subject_is_imported_once_for_all_cases(run_files: RunPack, tmp_path: Path):
    program = "with open('imports', 'a') as file:\n    file.write('x')\n\necho = str\n"
    items = [case(id=name, subject="once.py:echo", input=1) for name in ("a", "b")]
    content = {**pack(items[0], COMPLETED), "cases": items}
    assert run_files(content, {"once.py": program}).summary.passed == 2
    assert (tmp_path / "imports").read_text() == "x"


def test_subjects_of_two_packs_with_the_same_name_are_different(tmp_path: Path):
    for name in ("one", "two"):
        item = case(subject="where.py:name", input="x")
        (tmp_path / name).mkdir()
        (tmp_path / name / "where.py").write_text(f"def name(value):\n    return {name!r}\n")
        (tmp_path / name / "pack.json").write_text(
            json.dumps(pack(item, {"kind": "output", "expected": name}))
        )
    packs = [tmp_path / "one/pack.json", tmp_path / "two/pack.json"]
    run = run_pack(packs, RunOptions(output=str(tmp_path / "out")))
    assert [found.failures for found in run.cases] == [(), ()]


COMMAND = """
import os, sys
from openai import OpenAI

reply = OpenAI().chat.completions.create(
    model="m", messages=[{"role": "user", "content": sys.argv[1]}]
)
text = open("notes.txt").read()
open("notes.txt", "w").write(reply.choices[0].message.content)
print(text)
"""


def test_a_command_works_in_a_copy_of_the_workspace_that_is_removed(
    run_files: RunPack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    copies = tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(copies))
    files = {"agent.py": COMMAND, "playbook.yaml": PLAYBOOK, "work/notes.txt": "old"}
    command = forked_command(tmp_path / "agent.py", "{prompt}", imports=["openai"])
    check = {"type": "file_contains", "path": "notes.txt", "pattern": "Hello!"}
    item = case(subject=command, playbook="playbook.yaml", workspace="work")
    run = run_files(pack(item, COMPLETED, {"kind": "check", "check": check}), files)
    assert run.cases[0].failures == ()
    assert (tmp_path / "work" / "notes.txt").read_text() == "old"
    assert list(copies.iterdir()) == []


# the fields of a case with a model -> the status and the failure
MODELS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no prompt": ({"playbook": "mocks.jsonl"}, "error", "the case needs a prompt"),
    "no workspace": (
        {"playbook": "playbook.yaml", "workspace": "nope"},
        *("error", "no such workspace"),
    ),
    "an agent that raises": (
        {"subject": "broken.py:agent", "playbook": "playbook.yaml"},
        *("error", "the subject raised KeyError: 'x'"),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_case_with_a_model_that_cannot_run_is_an_error(run_files: RunPack, name: str):
    fields, status, message = MODELS[name]
    files = {"agent.py": AGENT, "playbook.yaml": PLAYBOOK, "mocks.jsonl": MOCKS}
    files["broken.py"] = "def agent(prompt):\n    raise KeyError('x')\n"
    run = run_files(pack(case(**fields), COMPLETED), files)
    assert run.cases[0].status == status
    assert message in run.cases[0].failures[0]


def test_a_cassette_with_unused_replies_fails_its_case(run_files: RunPack):
    folder = ROOT / "examples" / "evals"
    agent = (folder / "shop.py").read_text() + "\n\ndef idle(prompt):\n    return 'Done'\n"
    files = {"shop.py": agent, "refund.yaml": (folder / "refund.cassette.yaml").read_text()}
    item = case(subject="shop.py:idle", cassette="refund.yaml", prompt="Refund order 7")
    run = run_files(pack(item, COMPLETED), files)
    assert run.cases[0].status == "fail"
    assert "Refund order 7" in run.cases[0].failures[0]


def test_a_live_case_asks_the_provider(
    write: Callable[[Files], Path], monkeypatch: pytest.MonkeyPatch
):
    item = case(live=True, prompt="Greet me")
    folder = write({"agent.py": AGENT, "pack.json": pack(item, COMPLETED, HELLO)})
    monkeypatch.chdir(folder)
    loaded = read_pack(folder / "pack.json")
    options = EvalOptions(JudgeOptions(live=True), str(folder / "traces"))
    with Server() as server:
        endpoint = server.mount(Mocks([json.loads(MOCKS)]), run="")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{endpoint.url}/v1")
        result = evaluate_case(loaded, loaded.pack.cases[0], options)
    assert (result.status, result.problems) == ("pass", [])
