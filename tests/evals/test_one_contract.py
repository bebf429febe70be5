"""The verdict of a case is the same for every number of jobs, any order, alone, and in pytest."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offbook.evals import (
    FinishedRun,
    RunOptions,
    compare_runs,
    run_pack,
)
from tests.evals.conftest import RunPack

pytest_plugins = ["pytester"]
Write = Callable[[dict[str, Any]], Path]

# Subjects that leave something behind for whoever runs after them in the same process.
LEFTOVERS = """
import json, os, sys
import shared_state

calls = []

def counts(value):
    calls.append(value)
    return len(calls)

def counts_elsewhere(value):
    shared_state.calls.append(value)
    return len(shared_state.calls)

def breaks_a_library(value):
    before = json.dumps([1])
    json.dumps = lambda *a, **k: "broken"
    return 1 if before == "[1]" else 2

def changes_the_environment(value):
    os.environ["LEFT"] = str(int(os.environ.get("LEFT", 0)) + 1)
    return int(os.environ["LEFT"])

def dies(value):
    os._exit(3)

def fails(value):
    return 2
"""
NEIGHBOUR = "from neighbour import name\ndef answer(value):\n    return name\n"
SUBJECTS = [
    *("counts", "counts_elsewhere", "breaks_a_library", "changes_the_environment"),
    *("dies", "fails"),
]
GOOD = {*SUBJECTS} - {"dies", "fails"}
FIRST = {"id": "first", "assertions": [{"kind": "output", "expected": 1}]}


def write_pack(folder: Path, names: list[str]) -> Path:
    (folder / "left.py").write_text(LEFTOVERS)
    (folder / "shared_state.py").write_text("calls = []\n")
    cases = [
        {"id": f"c{n}", "subject": f"left.py:{name}", "input": n, "rubrics": ["first"]}
        for n, name in enumerate(names)
    ]
    path = folder / "pack.json"
    path.write_text(json.dumps({"rubrics": [FIRST], "cases": cases}))
    return path


def verdicts(run: FinishedRun) -> dict[str, str]:
    return {case.id: case.status for case in run.cases}


@settings(max_examples=3, deadline=None)
@given(
    names=st.lists(st.sampled_from(SUBJECTS), max_size=4),
    twice=st.sampled_from(sorted(GOOD)),  # finds what it has left itself
    seed=st.integers(0, 1000),
)
def test_verdicts_do_not_depend_on_jobs_order_or_company(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], twice: str, seed: int
):
    names = [*names, twice, twice]
    folder = tmp_path_factory.mktemp("runs")
    pack = write_pack(folder, names)
    number = iter(range(1000))

    def run(**options: Any) -> dict[str, str]:
        return verdicts(run_pack([pack], RunOptions(output=f"{folder}/{next(number)}", **options)))

    expected = run()
    assert {n for n, name in enumerate(names) if name in GOOD} == {
        int(name[1:]) for name, status in expected.items() if status == "pass"
    }
    assert run(jobs=2) == expected
    alone = f"c{seed % len(names)}"
    assert run(only=(alone,)) == {alone: expected[alone]}
    content = json.loads(pack.read_text())
    random.Random(seed).shuffle(content["cases"])  # noqa: S311 - not a secret
    pack.write_text(json.dumps(content))
    assert run() == expected


@pytest.mark.parametrize("jobs", [1, 2])
def test_subjects_with_modules_of_the_same_name_are_imported_apart(run_files: RunPack, jobs: int):
    files = {
        f"{name}/{file}": text
        for name in "ab"
        for file, text in (("agent.py", NEIGHBOUR), ("neighbour.py", f"name = {name!r}\n"))
    }
    cases = [
        {"id": name, "subject": f"{name}/agent.py:answer", "input": 1, "rubrics": [name]}
        for name in "ab"
    ]
    rubrics = [{"id": n, "assertions": [{"kind": "output", "expected": n}]} for n in "ab"]
    run = run_files({"rubrics": rubrics, "cases": cases}, files, jobs=jobs)
    assert verdicts(run) == {"a": "pass", "b": "pass"}


def test_a_shared_subject_is_declared(run_files: RunPack):
    files = {"left.py": LEFTOVERS, "shared_state.py": "calls = []\n"}
    case = {"subject": "left.py:counts", "input": 1, "rubrics": ["first"], "shared": True}
    cases = [{"id": name, **case} for name in ("one", "two")]
    run = run_files({"rubrics": [FIRST], "cases": cases}, files, jobs=1)
    assert verdicts(run) == {"one": "pass", "two": "fail"}


def test_an_import_that_hangs_ends_with_the_time_of_its_trial(run_files: RunPack):
    case = {"id": "c", "subject": "h.py:f", "input": 1, "rubrics": ["first"]}
    files = {"h.py": "import time\ntime.sleep(60)\ndef f(value): return 1\n"}
    run = run_files({"rubrics": [FIRST], "cases": [case]}, files, timeout=0.3)
    assert run.cases[0].failures == ("the process of the case did not end within 0.3 s",)


def test_variables_of_a_case_are_set_before_its_subject_is_imported(run_files: RunPack):
    files = {"e.py": "import os\nMODEL = os.environ['MODEL']\ndef f(value): return MODEL\n"}
    cases = [
        {"id": n, "subject": "e.py:f", "input": 1, "rubrics": [n], "env": {"MODEL": n}}
        for n in "ab"
    ]
    rubrics = [{"id": n, "assertions": [{"kind": "output", "expected": n}]} for n in "ab"]
    content = {"rubrics": rubrics, "cases": cases}
    assert verdicts(run_files(content, files, jobs=1)) == {"a": "pass", "b": "pass"}
    assert verdicts(run_files(content, files)) == {"a": "pass", "b": "pass"}  # in this process


def test_trials_in_pytest_are_as_isolated_as_those_of_a_run(pytester: pytest.Pytester):
    write_pack(pytester.path, ["counts", "counts", "dies"])
    content = json.loads((pytester.path / "pack.json").read_text())
    lines = [f"[[cases]]\nid = {c['id']!r}\nsubject = {c['subject']!r}" for c in content["cases"]]
    rest = '\ninput = 1\nrubrics = ["first"]\ntrials = 2\n'
    rubric = '[[rubrics]]\nid = "first"\nassertions = [{kind = "output", expected = 1}]\n'
    (pytester.path / "p.eval.toml").write_text(rubric + "".join(line + rest for line in lines))
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    options = ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    result = pytester.runpytest_inprocess(*options, "--offbook-evals")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*the process of the case exited with 3*"])


LIMIT = '[[cases]]\nid = "same"\nrun = "../run.json"\nthresholds = {{ max_tokens = {} }}\n'


def test_packs_with_the_same_name_keep_their_cases_apart(
    run_files: RunPack, write: Write, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(write({"run.json": {"status": "completed", "usage": {"input_tokens": 9}}}))
    packs = [Path("a/offbook.eval.toml"), Path("b/offbook.eval.toml")]
    for output, limit in (("before", 100), ("after", 1)):
        write({str(packs[0]): LIMIT.format(100), str(packs[1]): LIMIT.format(limit)})
        run_pack(packs, RunOptions(output=output))
    changed = compare_runs(Path("before"), Path("after")).changed
    assert [case.id for case in changed] == ["b/offbook.eval.toml/same"]
