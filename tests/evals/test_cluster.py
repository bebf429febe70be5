"""A real Ray cluster of two nodes: one is killed in the middle, and every case is reported once.

Ray has an environment of its own; `./dev cluster` installs it and runs this file.
"""

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrix.homes import HOMES
from tests.matrix.rows import WHOLE

HOME = HOMES["ray"]
CASES = 200
SUBJECT = """
import os, time, ray

def work(value):
    with open(os.environ["OFFBOOK_TEST_LOG"], "a") as log:
        log.write(ray.get_runtime_context().get_node_id() + "\\n")
    time.sleep(0.05)
    return value
"""
RUBRIC = {"id": "same", "assertions": [{"kind": "output", "expected": "x"}]}
CASE = {"subject": "subject.py:work", "input": "x", "rubrics": ["same"]}

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


def test_every_case_is_reported_once_when_a_node_is_killed(
    tmp_path: Path, cluster: Cluster, log: Path
):
    (tmp_path / "subject.py").write_text(SUBJECT)
    cases = [{"id": f"case-{number}", **CASE} for number in range(CASES)]
    (tmp_path / "pack.json").write_text(
        json.dumps({"id": "cluster", "rubrics": [RUBRIC], "cases": cases})
    )
    command = [HOME.python, "-m", "offbook", "eval", "run", "pack.json", "--output", "run"]
    command += ["--engine", "ray", "--address", cluster.address]
    results = tmp_path / "run" / "results.jsonl"
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        wait_for_lines(results, CASES // 4, run)
        cluster.kill_second_node()
        output, _ = run.communicate(timeout=200)
    assert run.returncode == 0, output
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert Counter(line["id"] for line in lines) == Counter(case["id"] for case in cases)
    assert {line.get("status", "pass") for line in lines} == {"pass"}
    started = Counter(log.read_text().split())
    assert len(started) == 2, "both nodes worked"
    assert started.total() > CASES, "what the killed node had begun was begun again"
