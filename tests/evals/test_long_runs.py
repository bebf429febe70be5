"""Long runs: isolation of cases, interruption, resume, shards, cost limit, cache and locks."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.evals import (
    RESULTS,
    RunDirectory,
    RunOptions,
    find_results,
    plan_trials,
    read_pack,
    read_results,
)
from tests.clients import is_alive
from tests.evals.conftest import RUN, Files, RunPack
from tests.forked import run_python
from tests.waiting import wait_until

SUBJECTS = """
import os, signal, sys, time

def echo(value):
    return value

def fails(value):
    raise ValueError("broken subject")

def hangs(value):
    time.sleep(60)

def gate(path):
    while not os.path.exists(path):
        time.sleep(0.01)
    return "hello"

def waits(path):
    with open(path, "w") as file:
        file.write(f"{os.getpid()}\\n")
    signal.pause()

def dies(value):
    os.kill(os.getpid(), signal.SIGKILL)

def exits(value):
    os._exit(7)

def leaves(value):
    os._exit(0)

def talks(value):
    print('{"nonsense": ', file=sys.stdout)
    os.write(1, b"\\x00\\xff nonsense")
    return value

def speaks(value):
    os.write(2, b"last words")
    os._exit(7)

def cleans(value):
    import tempfile
    os.write(2, b"last words")
    os.unlink(tempfile.gettempdir() + "/output.txt")  # of its process
    os._exit(7)

def repeats(value):
    return "x" * 1_000_000

def dials(value):
    import socket
    socket.create_connection(("192.0.2.1", 80), timeout=1)

def counts(path):
    with open(path, "a") as file:
        file.write("x")
    return os.path.getsize(path) % 2
"""
OUTPUT = {"id": "output", "assertions": [{"kind": "output", "expected": "hello"}]}


def case(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "subject": f"subjects.py:{name.partition('-')[0]}",
        "input": "hello",
        "rubrics": ["output"],
        **fields,
    }


def pack(*cases: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "p", "rubrics": [OUTPUT], "cases": list(cases), **fields}


FILES = {"subjects.py": SUBJECTS}

BROKEN = {
    "fails": ("error", "ValueError: broken subject"),
    "hangs": ("error", "the process of the case did not end within 0.3 s"),
    "dies": ("error", "the process of the case was killed by SIGKILL"),
    "exits": ("error", "the process of the case exited with 7"),
    "dials": ("error", "ConnectionBlocked"),
}


def test_a_broken_case_is_one_failed_case_with_its_reason(run_files: RunPack):
    cases = [case("echo-1"), *(case(name) for name in BROKEN), case("talks"), case("echo-2")]
    for item in cases:
        if item["id"] == "hangs":
            item["timeout_seconds"] = 0.3
    run = run_files(pack(*cases), FILES, jobs=2)
    by_id = {item.id: item for item in run.cases}
    assert {name: by_id[name].status for name in ("echo-1", "talks", "echo-2")} == {
        "echo-1": "pass",
        "talks": "pass",
        "echo-2": "pass",
    }
    for name, (status, message) in BROKEN.items():
        assert by_id[name].status == status
        assert message in " ".join(by_id[name].failures)
    assert [item.id for item in run.cases] == [item["id"] for item in cases]


@pytest.mark.parametrize("shared", [True, False])
def test_a_process_that_ends_without_a_result_is_not_the_end_of_a_trial(
    run_files: RunPack, *, shared: bool
):
    names = ("echo-1", "leaves", "echo-2", "echo-3")
    cases = [case(name, shared=shared, input=f"hello {name}") for name in names]
    rubrics = [
        {"id": name, "assertions": [{"kind": "output", "expected": f"hello {name}"}]}
        for name in names
    ]
    cases = [item | {"rubrics": [item["id"]]} for item in cases]
    run = run_files({"rubrics": rubrics, "cases": cases}, FILES, jobs=1, timeout=100)
    found = {item.id: item.failures for item in run.cases}
    lost = ("the process of the case exited with 0",)
    assert found == {"echo-1": (), "leaves": lost, "echo-2": (), "echo-3": ()}


def test_a_lost_case_has_its_own_output_and_not_that_of_the_last(run_files: RunPack):
    run = run_files(pack(case("talks"), case("exits"), case("speaks")), FILES, jobs=1)
    found = {result.id: result.output for result in read_results(run.folder)}
    assert found == {"talks": "", "exits": "", "speaks": "last words"}


def test_a_case_that_removes_the_log_of_its_process_has_no_output(run_files: RunPack):
    run = run_files(pack(case("cleans")), FILES, jobs=1)
    (result,) = read_results(run.folder)
    assert (result.error, result.output) == ("the process of the case exited with 7", "")


def test_a_result_that_is_larger_than_a_pipe_arrives_as_a_whole(run_files: RunPack):
    rule = {"path": "/output", "op": "contains", "expected": "no"}
    rubric = {"id": "big", "assertions": [rule] * 20}
    item = case("repeats", rubrics=["big"])
    run = run_files({"rubrics": [rubric], "cases": [item]}, FILES, jobs=1)
    (result,) = read_results(run.folder)
    # A verdict quotes an output, it does not copy it.
    assert sum(len(str(verdict.actual)) for verdict in result.verdicts) > 20 * 20_000


def test_trials_give_the_rate_and_name_flaky_cases(run_files: RunPack):
    item = {"id": "flaky", "subject": "subjects.py:counts", "input": "count", "rubrics": ["odd"]}
    rubric = {"id": "odd", "assertions": [{"kind": "output", "expected": 1}]}
    run = run_files({"rubrics": [rubric], "cases": [item], "trials": 4}, FILES, jobs=1)
    (flaky,) = run.cases
    assert (flaky.passes, flaky.trials, flaky.flaky, flaky.status) == (2, 4, True, "fail")
    assert (flaky.pass_at_k[-1], flaky.pass_hat_k[-1]) == (1.0, 0.0)
    assert run.summary.flaky == 1
    assert not run.summary.passed_gate


def test_every_case_is_in_exactly_one_shard(run_files: RunPack, tmp_path: Path):
    names = [f"echo-{number}" for number in range(20)]
    run_files(pack(*(case(name) for name in names)), FILES)
    loaded = read_pack(tmp_path / "pack.json")
    shards = [plan_trials([loaded], RunOptions(shard=(number, 3))) for number in (1, 2, 3)]
    positions = sorted(trial.case for shard in shards for trial in shard)
    assert positions == list(range(20))
    assert all(shards)


def test_a_cached_result_is_used_until_the_content_changes(run_files: RunPack, tmp_path: Path):
    content = pack(case("echo"))
    first = run_files(content, FILES, cache=True)
    second = run_files(content, FILES, cache=True)
    assert [result.cached for result in read_results(first.folder)] == [False]
    assert [result.cached for result in read_results(second.folder)] == [True]
    third = run_files(content, {"subjects.py": SUBJECTS + "\n# changed\n"}, cache=True)
    assert [result.cached for result in read_results(third.folder)] == [False]


def test_what_another_subject_used_is_no_part_of_a_result(run_files: RunPack):
    other = "import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', ''])\n"
    other += "def echo(value):\n    return value\n"
    run_files(pack(case("other", subject="other.py:echo")), {**FILES, "other.py": other})
    run_files(pack(case("echo")), FILES, cache=True)
    second = run_files(pack(case("echo")), FILES, cache=True)
    assert [result.cached for result in read_results(second.folder)] == [True]


@pytest.mark.parametrize("content", ["", "{", "{}", '{"id": "echo"}', "\xff"])
def test_a_damaged_file_of_the_cache_is_no_result(run_files: RunPack, tmp_path: Path, content: str):
    run_files(pack(case("echo")), FILES, cache=True)
    (cached,) = (tmp_path / ".offbook/evals/cache").rglob("*.json")
    cached.write_bytes(content.encode("latin-1"))
    second = run_files(pack(case("echo")), FILES, cache=True)
    assert [(r.status, r.cached) for r in read_results(second.folder)] == [("pass", False)]


# a file that a result depends on -> whether a cached result is used after a change of it
DEPENDENCIES = {
    "run.json": False,
    "judge.jsonl": False,
    "pack_judge.jsonl": False,
    "other.txt": True,
}


@pytest.mark.parametrize("changed, cached", DEPENDENCIES.items())
def test_a_cached_result_is_not_used_after_a_change_of_its_files(
    run_files: RunPack, tmp_path: Path, changed: str, *, cached: bool
):
    answer = json.dumps({"text": json.dumps({"reasoning": "r", "score": 5})})
    files = dict.fromkeys(DEPENDENCIES, answer) | {"run.json": json.dumps(RUN)}
    content = {
        "judge": {"source": "pack_judge.jsonl"},
        "fixtures": [{"id": "inline", "kind": "run-record", "inline": RUN}],
        "rubrics": [{"id": "j", "kind": "llm-judge", "prompt": "Good?"}],
        "cases": [
            {"id": "c", "run": "run.json", "rubrics": ["j"]},
            {"id": "d", "run": "inline", "compare_to": "run.json"},
        ],
    }
    run_files(content, files, cache=True, judge="judge.jsonl")
    with (tmp_path / changed).open("a") as file:
        file.write("\n")
    kept = {name: (tmp_path / name).read_text() for name in files}
    second = run_files(content, kept, cache=True, judge="judge.jsonl")
    assert {result.cached for result in read_results(second.folder)} == {cached}


@pytest.mark.parametrize(
    "changed, cached", [("work/notes.txt", False), ("mocks.jsonl", False), ("other.txt", True)]
)
def test_a_cached_result_of_an_agent_is_not_used_after_a_change_of_its_workspace(
    run_files: RunPack, changed: str, *, cached: bool
):
    item = {"id": "c", "subject": "subjects.py:echo", "prompt": "Hi", "playbook": "mocks.jsonl"}
    files = {**FILES, "mocks.jsonl": '{"text": "Hi"}\n'}
    files |= {"work/notes.txt": "x", "other.txt": "x"}
    content = {"cases": [{**item, "workspace": "work"}]}
    first = run_files(content, files, cache=True)
    assert [result.unidentified for result in read_results(first.folder)] == [""]
    second = run_files(content, {**files, changed: f"{files[changed]}\n"}, cache=True)
    assert [result.cached for result in read_results(second.folder)] == [cached]


def test_the_process_that_watches_for_left_processes_is_no_part_of_a_result(run_files: RunPack):
    files = {
        "subjects.py": "import multiprocessing.popen_spawn_posix\ndef echo(value): return value\n",
        "mocks.jsonl": '{"text": "Hi"}\n',
    }
    item = {"id": "c", "subject": "subjects.py:echo", "prompt": "Hi", "playbook": "mocks.jsonl"}
    run_files({"cases": [item]}, files, cache=True)
    second = run_files({"cases": [item]}, files, cache=True)
    assert [result.cached for result in read_results(second.folder)] == [True]


def test_an_error_is_not_cached(run_files: RunPack):
    content = pack(case("fails"))
    for _ in range(2):
        run = run_files(content, FILES, cache=True)
        (result,) = read_results(run.folder)
        assert (result.status, result.cached) == ("error", False)


def test_the_cost_limit_stops_the_run_and_fails_it(run_files: RunPack):
    record = {"status": "completed", "usage": {"total_cost": 0.6}}
    program = f"print('{json.dumps(record)}')"
    items = [
        {
            "id": f"paid-{number}",
            "kind": "live-verify",
            "task": "work",
            "executor": {"argv": [sys.executable, "-c", program]},
            "verify_command": {"argv": ["true"]},
        }
        for number in range(5)
    ]
    run = run_files({"cases": items}, cost_limit=1.0)
    assert run.summary.stopped == "cost limit of 1 USD reached"
    assert run.summary.not_run >= 1
    assert run.summary.cost_usd >= 1.0
    assert not run.summary.passed_gate


def test_a_directory_with_results_is_not_overwritten(run_files: RunPack):
    content = pack(case("echo"))
    run_files(content, FILES, output="out")
    with pytest.raises(UsageError, match="has results of another run"):
        run_files(content, FILES, output="out")


def test_a_second_run_in_the_same_directory_is_refused(run_files: RunPack, tmp_path: Path):
    directory = RunDirectory(tmp_path / "out")
    try:
        with pytest.raises(UsageError, match="another run is writing to this directory"):
            run_files(pack(case("echo")), FILES, output=str(tmp_path / "out"))
    finally:
        directory.close()


def test_a_changed_pack_is_not_resumed(run_files: RunPack):
    run_files(pack(case("echo")), FILES, output="out")
    with pytest.raises(UsageError, match="the packs have changed"):
        run_files(pack(case("echo"), case("echo-2")), FILES, output="out", resume=True)


def test_an_unknown_case_is_suggested(run_files: RunPack):
    with pytest.raises(UsageError, match="did you mean 'echo-1'"):
        run_files(pack(case("echo-1")), FILES, only=("echo-11",))


def without_times(report: dict[str, Any]) -> dict[str, Any]:
    for key in ("seconds", "id", "directory"):
        report.pop(key)
    for item in report["cases"]:
        for key in ("millis", "trace"):
            item.pop(key, None)
        item["metrics"].pop("latency_ms", None)
    return report


@pytest.mark.slow
def test_a_killed_run_is_resumed_and_gives_the_same_report(
    write: Callable[[Files], Path], unwatched: dict[str, str]
):
    count, noted = 40, 10
    cases = [case(f"echo-{number}") for number in range(count)]
    cases[-1] = case("gate", input="open")  # the first run cannot end
    folder = write({"pack.json": pack(*cases), **FILES})

    def run(*options: str) -> dict[str, Any]:
        done = run_python(*command, "--json", *options, cwd=folder, env=unwatched)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    command = ["-m", "offbook", "eval", "run", "pack.json"]
    killed = [sys.executable, *command, "--output", "killed"]
    process = subprocess.Popen(killed, cwd=folder, stdout=subprocess.DEVNULL, env=unwatched)
    results = folder / "killed" / RESULTS
    wait_until(lambda: results.exists() and results.read_bytes().count(b"\n") > noted, process)
    process.kill()
    process.wait()
    (folder / "open").touch()
    with results.open("ab") as file:
        file.write(b'{"id":"torn')  # as a machine that stops in the middle of a line
    done = results.read_bytes().count(b"\n")
    assert noted < done < count
    resumed = run("--resume", "killed")
    assert len(list(read_results(folder / "killed"))) == count
    assert resumed["changed"] == []
    assert without_times(resumed) == without_times(run("--output", "whole"))


def test_a_killed_run_leaves_no_worker_that_waits_for_ever(run_files: RunPack, tmp_path: Path):
    noted = tmp_path / "pid"
    run_files(
        pack(case("echo"), case("waits", input=str(noted))), FILES, output="unused", only=("echo",)
    )
    command = [sys.executable, "-m", "offbook", "eval", "run", "pack.json", "--output", "killed"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    wait_until(lambda: noted.exists() and noted.read_text().endswith("\n"), process)
    worker = int(noted.read_text())
    assert is_alive(worker)
    process.kill()
    process.wait()
    wait_until(lambda: not is_alive(worker))


def test_a_worker_does_not_keep_the_lock_of_the_directory(tmp_path: Path):
    directory = RunDirectory(tmp_path / "out")
    ours, its = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        its.send(b"forked")
        its.recv(1)  # until the test has closed its end
        os._exit(0)
    its.close()
    try:
        assert ours.recv(6) == b"forked"
        directory.close()
        RunDirectory(tmp_path / "out").close()
    finally:
        ours.close()
        os.waitpid(child, 0)


def test_an_interrupted_run_keeps_what_is_done(run_files: RunPack, tmp_path: Path):
    content = pack(case("echo"), case("hangs"))
    run_files(content, FILES, output="unused", only=("echo",))
    command = [sys.executable, "-m", "offbook", "eval", "run", "pack.json", "--output", "out"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    results = tmp_path / "out" / RESULTS
    wait_until(lambda: results.exists() and results.read_bytes(), process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["passed"], summary["not_run"], summary["stopped"]) == (1, 1, "interrupted")


def test_one_case_is_found_without_reading_the_others(run_files: RunPack):
    run = run_files(pack(case("echo-1"), case("echo-10")), FILES, jobs=1)
    (result,) = find_results(run.folder, "echo-1")
    assert result.id == "echo-1"
    assert Path(result.trace).is_file()
