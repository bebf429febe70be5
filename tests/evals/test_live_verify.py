"""Cases of the kind live-verify: an executor does a task, a command verifies the result."""

import json
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.evals import CommandSpec, run_command
from tests.evals.conftest import Files, RunPack

Write = Callable[[Files], Path]
OK = ["true"]


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def case(**fields: Any) -> dict[str, Any]:
    base = {"id": "one", "kind": "live-verify", "task": "write it", "workspace": "work"}
    return {**base, "executor": OK, "verify_command": OK, **fields}


WORK: Files = {"work/notes.txt": "old text"}
WRITE = python("open('out.txt', 'w').write('new text')")
CALLS = {"status": "completed", "tool_recordings": [{"tool_name": "read"}, {"tool_name": "read"}]}
PRINT_CALLS = python(f"print({json.dumps(CALLS)!r})")
PRINT_NO_CALLS = python(f"print({json.dumps({**CALLS, 'tool_recordings': []})!r})")
UNREPORTED = "no data: the executor did not report its tools, and read has a budget"

# the fields of a case -> its failures
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "two commands that succeed": ({}, ()),
    "a command for the shell": ({"executor": "test -f notes.txt", "verify_command": "true"}, ()),
    "an executor that fails": (
        {"executor": "echo no model >&2; exit 3", "verify_command": "false"},
        ("/bin/sh exited with 3: no model",),
    ),
    "a verification that fails": (
        {"verify_command": "echo not done; exit 1"},
        ("/bin/sh exited with 1: not done",),
    ),
    "a program that does not exist": (
        {"executor": ["/nope/agent"]},
        ("command not found: '/nope/agent'",),
    ),
    "an executor that is too slow": (
        {"executor": {"argv": ["sleep", "60"], "timeout_seconds": 0.2}},
        ("sleep did not end within 0.2 s",),
    ),
    "a file that was produced": ({"executor": WRITE, "expected_output_paths": ["out.txt"]}, ()),
    "a file that was not produced": (
        {"expected_output_paths": ["out.txt"]},
        ("expected output out.txt was not produced",),
    ),
    "a file that was there before": (
        {"expected_output_paths": ["notes.txt"]},
        ("expected output notes.txt was not produced",),
    ),
    "a file that was changed": (
        {"executor": "echo more >> notes.txt", "expected_output_paths": ["./notes.txt"]},
        (),
    ),
    "a file in a folder": (
        {"executor": "mkdir -p a/b; echo x > a/b/c", "expected_output_paths": ["a", "a/b/c"]},
        (),
    ),
    "a file behind a link": (
        {"executor": "mkdir a; ln -s a b; echo x > a/c", "expected_output_paths": ["b/c"]},
        (),
    ),
    "a text in a new file": ({"executor": WRITE, "required_output_snippets": ["new text"]}, ()),
    "a text in a changed file": (
        {"executor": "echo more >> notes.txt", "required_output_snippets": ["more"]},
        (),
    ),
    "a text that was there before": (
        {"executor": WRITE, "required_output_snippets": ["old text"]},
        ("no produced file contains 'old text'",),
    ),
    "calls within the budget": ({"executor": PRINT_CALLS, "tool_budgets": {"read": 2}}, ()),
    "calls beyond the budget": (
        {"executor": PRINT_CALLS, "tool_budgets": {"read": 1, "write": 0}},
        ("read was called 2 times, budget 1",),
    ),
    "a budget without a record": ({"tool_budgets": {"read": 0}}, (UNREPORTED,)),
    "a budget without the tools of the record": (
        {"executor": python('print(\'{"status": "completed"}\')'), "tool_budgets": {"read": 0}},
        (UNREPORTED,),
    ),
    "a budget of a record without calls": (
        {"executor": PRINT_NO_CALLS, "tool_budgets": {"read": 0}},
        (),
    ),
}


@pytest.mark.parametrize("fields, failures", CASES.values(), ids=CASES)
def test_a_live_verify_case_fails_with_its_reasons(
    run_files: RunPack, fields: dict[str, Any], failures: tuple[str, ...]
):
    assert run_files({"cases": [case(**fields)]}, WORK).cases[0].failures == failures


def test_a_case_without_an_executor_uses_that_of_the_pack(run_files: RunPack):
    item = case(executor=None, expected_output_paths=["out.txt"])
    assert run_files({"executor": WRITE, "cases": [item]}, WORK).summary.passed_gate


def test_a_missing_workspace_is_an_error_of_its_case(run_files: RunPack):
    run = run_files({"cases": [case(workspace="nope")]})
    assert run.cases[0].status == "error"
    assert "no such workspace" in run.cases[0].failures[0]


def test_the_executor_works_in_a_copy_without_results_and_history(
    run_files: RunPack, tmp_path: Path
):
    files = {**WORK, "work/.git/HEAD": "x", "work/.offbook/run.json": "x"}
    alone = "import os; open('out', 'w'); assert sorted(os.listdir()) == ['notes.txt', 'out']"
    assert run_files({"cases": [case(executor=python(alone))]}, files).cases[0].failures == ()
    assert not (tmp_path / "work" / "out").exists()


ECHO = "import json, sys; request = json.load(sys.stdin); request['status'] = 'completed'; "
# the output of the executor -> a field of the run record
OUTPUTS: dict[str, tuple[str, str, Any]] = {
    "the request": (f"{ECHO}print(json.dumps(request))", "/task", "write it"),
    "an object": ("print('{\"answer\": 42}')", "/output/answer", 42),
    "a last line": ('print(\'{"answer": 1}\\n{"answer": 42}\')', "/output/answer", 42),
    "a line with a separator of lines in a text": (
        "print('start'); print('{\"answer\": \"a\\u2028b\"}')",
        "/output/answer",
        "a\u2028b",
    ),
    "a record": ('print(\'{"run_record": {"status": "paused"}}\')', "/status", "paused"),
    "no JSON": ("print('done')", "/output", None),
    "a list": ("print('[1]')", "/output", None),
    "a crash": ("raise SystemExit(1)", "/status", "failed"),
}


@pytest.mark.parametrize("program, path, value", OUTPUTS.values(), ids=OUTPUTS)
def test_the_run_record_is_what_the_executor_printed(
    run_files: RunPack, program: str, path: str, value: Any
):
    rubric = {"id": "r", "assertions": [{"path": path, "expected": value}]}
    item = case(executor=python(program), rubrics=["r"])
    failures = run_files({"rubrics": [rubric], "cases": [item]}, WORK).cases[0].failures
    assert not [text for text in failures if path in text]


@pytest.mark.parametrize("reference", [None, CommandSpec()])
def test_an_empty_command_is_refused(tmp_path: Path, reference: CommandSpec | None):
    with pytest.raises(UsageError, match="the command is empty"):
        run_command(reference, tmp_path, "", 1)


def test_a_command_has_its_own_folder_and_environment(write: Write):
    folder = write({"sub/here.txt": "x"})
    spec = CommandSpec(command="ls; echo $COLOR", cwd="sub", env={"COLOR": "blue"})
    assert run_command(spec, folder, "", 10).stdout == "here.txt\nblue\n"


def test_a_process_that_a_command_left_behind_ends(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    ours = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    end = run_command("exec 3> pipe; sleep 60 > /dev/null 2>&1 &", tmp_path, "", 10)
    assert end.problem == ""
    ready, _, _ = select.select([ours], [], [], 10)  # the pipe ends with its last writer
    assert (ready, os.read(ours, 1)) == ([ours], b"")
    os.close(ours)
