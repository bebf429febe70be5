"""A real Ray cluster of two nodes: a node and the driver are killed, and a case hangs.

Ray has an environment of its own; `./dev cluster` installs it and runs this file.
"""

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.matrix.homes import HOMES
from tests.matrix.rows import WHOLE

HOME = HOMES["ray"]
CASES = 200
SUBJECT = """
import os, time

def work(value):
    with open(os.environ["OFFBOOK_TEST_LOG"], "a") as log:
        log.write(os.environ["RAY_RAYLET_PID"] + "\\n")
    time.sleep(0.05)
    return value

def hangs(value):
    time.sleep(600)
"""
RUBRIC = {"id": "same", "assertions": [{"kind": "output", "expected": "x"}]}
CASE: dict[str, Any] = {"subject": "subject.py:work", "input": "x", "rubrics": ["same"]}

pytestmark = [
    pytest.mark.clients,
    pytest.mark.slow,
    pytest.mark.skipif(not WHOLE, reason="./dev cluster runs it: it takes a minute"),
]


class Cluster:
    """The process of `two_nodes.py`."""

    def __init__(self, environment: dict[str, str]) -> None:
        script = Path(__file__).with_name("two_nodes.py")
        self.process = subprocess.Popen(
            [HOME.python, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.address = self._read_line()
        if not self.address:  # without one, the run would start a Ray on its own
            self.close()
            pytest.fail("the cluster did not start: its error is below", pytrace=False)

    def _read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill_second_node(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("kill\n")
        self.process.stdin.flush()
        assert self._read_line() == "killed"

    def close(self) -> None:
        self.process.communicate(timeout=300)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "nodes.txt"


@pytest.fixture
def cluster(log: Path) -> Iterator[Cluster]:
    if not HOME.ready:
        pytest.fail(HOME.describe_missing(), pytrace=False)
    cluster = Cluster({**os.environ, "OFFBOOK_TEST_LOG": str(log)})
    yield cluster
    cluster.close()


def wait_for_lines(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert process.poll() is None, "the run ended too early"
        assert time.monotonic() < end, "the run made no progress"
        time.sleep(0.05)


def write_pack(folder: Path, *more: dict[str, Any]) -> list[str]:
    """Write a pack of many cases; return the command that runs it."""
    (folder / "subject.py").write_text(SUBJECT)
    cases = [*({"id": f"case-{number}", **CASE} for number in range(CASES)), *more]
    (folder / "pack.json").write_text(
        json.dumps({"id": "cluster", "rubrics": [RUBRIC], "cases": cases})
    )
    return [HOME.python, "-m", "offbook", "eval", "run", "pack.json", "--engine", "ray"]


def read_statuses(folder: Path) -> dict[str, str]:
    """Return the status of each case; one that is there twice fails."""
    lines = (folder / "run" / "results.jsonl").read_text().splitlines()
    results = [json.loads(line) for line in lines]
    assert max(Counter(result["id"] for result in results).values()) == 1
    return {result["id"]: result["status"] for result in results}


def start(command: list[str], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_every_case_is_reported_once_when_a_node_is_killed(
    tmp_path: Path, cluster: Cluster, log: Path
):
    command = write_pack(tmp_path)
    results = tmp_path / "run" / "results.jsonl"
    with start([*command, "--output", "run", "--address", cluster.address], tmp_path) as run:
        wait_for_lines(results, CASES // 4, run)
        cluster.kill_second_node()
        output, _ = run.communicate(timeout=200)
    assert run.returncode == 0, output
    assert read_statuses(tmp_path) == {f"case-{number}": "pass" for number in range(CASES)}
    started = Counter(log.read_text().split())
    assert len(started) == 2, "both nodes worked"
    assert CASES <= started.total() <= CASES + 1, "only the trial of the killed node ran again"


def test_a_killed_driver_repeats_at_most_one_trial_for_each_worker(
    tmp_path: Path, cluster: Cluster, log: Path
):
    command = write_pack(tmp_path)
    address = ["--address", cluster.address]
    with start([*command, "--output", "run", *address], tmp_path) as run:
        wait_for_lines(tmp_path / "run" / "results.jsonl", CASES // 4, run)
        run.kill()
    with start([*command, "--resume", "run", *address], tmp_path) as run:
        output, _ = run.communicate(timeout=200)
    assert run.returncode == 0, output
    assert read_statuses(tmp_path) == {f"case-{number}": "pass" for number in range(CASES)}
    assert CASES <= len(log.read_text().split()) <= CASES + 2


def test_a_hung_case_is_the_only_one_that_fails(tmp_path: Path, cluster: Cluster):
    hung: dict[str, Any] = {
        "id": "hung",
        **CASE,
        "subject": "subject.py:hangs",
        "timeout_seconds": 2,
    }
    command = [*write_pack(tmp_path, hung), "--output", "run", "--address", cluster.address]
    with start(command, tmp_path) as run:
        output, _ = run.communicate(timeout=200)
    assert run.returncode == 1, output
    statuses = read_statuses(tmp_path)
    assert [name for name, status in statuses.items() if status != "pass"] == ["hung"]
    assert len(statuses) == CASES + 1
