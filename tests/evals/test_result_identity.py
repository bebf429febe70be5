"""A result of an earlier run counts only if all that it depends on is as it was."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.evals import (
    FinishedRun,
    RunOptions,
    read_results,
    render_counts,
    render_table,
    run_pack,
)

Write = Callable[[dict[str, Any]], Path]
GREET = """import os
import helper

def greet(value):
    return helper.text()

def tries(value):
    try:
        import extra
    except ImportError:
        pass
    return "hello"

def lists(value):
    os.listdir()
    return "hello"
"""
HELPER = "def text():\n    return open('words.txt').read()\n"
RUBRICS = [{"id": "r", "assertions": [{"path": "/output", "expected": "hello"}]}]
FILES = {"greeter.py": GREET, "helper.py": HELPER, "words.txt": "hello", "other.txt": "1"}


def pack(subject: str | list[str], **fields: Any) -> dict[str, Any]:
    case = {"id": "c", "subject": subject, "rubrics": ["r"], **fields}
    return {"rubrics": RUBRICS, "cases": [case]}


@pytest.fixture
def run(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> Callable[[dict[str, Any], dict[str, Any]], FinishedRun]:
    """Return a function that writes files, and runs a pack in its folder with the cache."""

    def run_with_cache(content: dict[str, Any], files: dict[str, Any]) -> FinishedRun:
        folder = write({"pack.json": content, **files})
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", [*sys.path])
        return run_pack([Path("pack.json")], RunOptions(cache=True))

    return run_with_cache


def is_cached(run: FinishedRun) -> bool:
    (result,) = read_results(run.folder)
    return result.cached


# the subject, the file that changes and its new content -> whether the old result still counts
CHANGES: dict[str, tuple[str, str, str, bool]] = {
    "nothing": ("greeter:greet", "other.txt", "2", True),
    "the file of a module": ("greeter:greet", "greeter.py", f"{GREET}\n", False),
    "the module that a file imports": ("greeter.py:greet", "helper.py", f"{HELPER}\n", False),
    "a file that it reads": ("greeter.py:greet", "words.txt", "bye", False),
    "a new file beside it": ("greeter.py:greet", "notes.txt", "1", True),
    "a new folder beside it": ("greeter.py:greet", "out/notes.txt", "1", True),
    "a module that it can import now": ("greeter.py:tries", "extra.py", "", False),
    "a package that it can import now": ("greeter.py:tries", "extra/part.py", "", False),
    "a folder that it lists": ("greeter.py:lists", "new.txt", "1", False),
    "a module that is found first": ("greeter.py:greet", "helper/__init__.py", HELPER, False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_cached_result_counts_after_a_change_of(
    run: Callable[..., FinishedRun], name: str
) -> None:
    subject, changed, content, cached = CHANGES[name]
    first = run(pack(subject), FILES)
    assert (first.cases[0].failures, is_cached(first)) == ((), False)
    second = run(pack(subject), {**FILES, changed: content})
    assert is_cached(second) is cached
    assert second.summary.passed_gate is (content != "bye")


def test_a_cached_result_is_marked(run: Callable[..., FinishedRun]) -> None:
    run(pack("greeter:greet"), FILES)
    lines = [*render_table(run(pack("greeter:greet"), FILES))]
    assert lines[0].split() == ["PASS", "c", "cached"]
    assert "1 cached" in lines[-1]


# Python code -> why its result is never taken from a cache
UNKNOWN = {
    "import subprocess\ndef f(v): return subprocess.run(['true']).returncode": "another program",
    "import sqlite3\ndef f(v): sqlite3.connect(':memory:'); return 0": "a database",
    "import os\nos.system('true')\ndef f(v): return 0": "another program",
}


@pytest.mark.parametrize("code", UNKNOWN)
def test_what_cannot_be_followed_is_not_cached(run: Callable[..., FinishedRun], code: str) -> None:
    content = {"cases": [{"id": "c", "subject": "code.py:f", "input": 1}]}
    for _ in range(2):
        end = run(content, {"code.py": code})
        (result,) = read_results(end.folder)
        assert (result.status, result.cached) == ("pass", False)
        assert UNKNOWN[code] in result.unidentified


def test_a_command_is_never_cached(
    run: Callable[..., FinishedRun],
) -> None:
    script = "import json, sys\nprint('done')\n"
    content = {
        "cases": [
            {
                "id": "c",
                "task": "t",
                "kind": "live-verify",
                "executor": [sys.executable, "agent.py"],
                "verify_command": "true",
            }
        ]
    }
    for number in range(2):
        end = run(content, {"agent.py": script + "#" * number})
        (result,) = read_results(end.folder)
        assert (result.status, result.cached) == ("pass", False)
        assert result.unidentified == "another program may read any file"


def test_a_state_that_a_trial_leaves_is_not_seen_by_the_next_one(
    run: Callable[..., FinishedRun],
) -> None:
    code = "seen = []\ndef f(value):\n    seen.append(value)\n    return len(seen)\n"
    rubric = {"id": "r", "assertions": [{"path": "/output", "expected": 1}]}
    cases = [{"id": str(n), "subject": "state.py:f", "input": n, "rubrics": ["r"]} for n in (1, 2)]
    end = run({"rubrics": [rubric], "trials": 2, "cases": cases}, {"state.py": code})
    assert [(case.passes, case.trials) for case in end.cases] == [(2, 2), (2, 2)]


def test_a_resumed_run_repeats_the_cases_whose_agent_has_changed(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [{"id": name, "subject": f"{name}.py:f", "rubrics": ["r"]} for name in ("a", "b", "c")]
    code = "import words_{0}\ndef f(value):\n    return words_{0}.TEXT\n"
    files = {f"{name}.py": code.format(name) for name in "abc"}
    files |= {f"words_{name}.py": "TEXT = 'hello'\n" for name in "abc"}
    folder = write({"pack.json": {"rubrics": RUBRICS, "cases": cases}, **files})
    monkeypatch.chdir(folder)
    first = run_pack([Path("pack.json")], RunOptions(output="out"))
    assert first.summary.passed == len(cases)
    results = folder / "out/results.jsonl"
    lines = results.read_text().splitlines()
    results.write_text("\n".join(lines[:2]) + "\n")  # the run was killed before the last case
    kept = json.loads(lines[0])["id"]
    changed = json.loads(lines[1])["id"]
    write({f"words_{changed}.py": "TEXT = 'goodbye'\n"})
    second = run_pack([Path("pack.json")], RunOptions(output="out", resume=True))
    assert {case.id: case.status for case in second.cases} == {
        "a": "pass", "b": "pass", "c": "pass", changed: "fail"
    }  # fmt: skip
    assert second.summary.changed == (changed,)
    assert kept not in second.summary.changed
    file = folder / f"words_{changed}.py"
    assert f"run again, because {file} has changed: {changed}" in [*render_table(second)]


def test_a_resumed_run_names_the_kept_results_that_may_have_changed(
    write: Write, monkeypatch: pytest.MonkeyPatch
):
    commands = {"executor": ["true"], "verify_command": ["true"]}
    verified = {"kind": "live-verify", "task": "x", "workspace": "work", **commands}
    known = {"id": "known", "subject": "greeter.py:greet", "rubrics": ["r"]}
    files = {"pack.json": {"rubrics": RUBRICS, "cases": [{"id": "c", **verified}, known]}}
    monkeypatch.chdir(write({**files, **FILES, "work/notes.txt": "x"}))
    first = run_pack([Path("pack.json")], RunOptions(output="out"))
    assert first.summary.unverified == ()
    second = run_pack([Path("pack.json")], RunOptions(output="out", resume=True))
    assert second.summary.unverified == ("c",)
    assert "kept, not known to be unchanged (another program may read any file): c" in [
        *render_counts(second.summary)
    ]
