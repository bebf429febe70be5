"""A real Ray cluster of two nodes: a node and the driver are killed, and a case hangs.

Ray has an environment of its own; `./dev cluster` installs it and runs this file.
"""

import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from offbook.runs.ray_engine import BATCHES_PER_CPU
from tests.evals.test_one_contract import GOOD, SUBJECTS
from tests.evals.test_one_contract import write_pack as write_leftovers
from tests.matrix.homes import HOMES
from tests.matrix.rows import WHOLE

HOME = HOMES["ray"]
CASES = 200
MANY = 2000
SUBJECT = """
import os, time

def work(value):
    with open(os.environ["OFFBOOK_TEST_LOG"], "a") as log:
        log.write(os.environ["RAY_RAYLET_PID"] + "\\n")
    time.sleep(0.05)
    return value

def hangs(value):
    time.sleep(600)

def waits(value):
    while not os.path.exists(os.path.dirname(os.environ["OFFBOOK_TEST_LOG"]) + "/go"):
        time.sleep(0.05)
    return value
"""
RUBRIC = {"id": "same", "assertions": [{"kind": "output", "expected": "x"}]}
CASE: dict[str, Any] = {"subject": "subject.py:work", "input": "x", "rubrics": ["same"]}
HUNG: dict[str, Any] = {
    "id": "hung",
    **CASE,
    "subject": "subject.py:hangs",
    "timeout_seconds": 2,
}

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
    patience = {"RAY_raylet_start_wait_time_s": "120"}  # a busy machine starts nodes slowly
    cluster = Cluster({**os.environ, **patience, "OFFBOOK_TEST_LOG": str(log)})
    yield cluster
    cluster.close()


def wait_for_lines(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 280
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert process.poll() is None, "the run ended too early"
        assert time.monotonic() < end, "the run made no progress"
        time.sleep(0.05)


def write_pack(
    folder: Path, *more: dict[str, Any], count: int = CASES, first: tuple[dict[str, Any], ...] = ()
) -> list[str]:
    """Write a pack of many cases; return the command that runs it."""
    (folder / "subject.py").write_text(SUBJECT)
    cases = [*first, *({"id": f"case-{number}", **CASE} for number in range(count)), *more]
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


@contextmanager
def start(command: list[str], folder: Path) -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        try:
            yield run
        finally:
            run.kill()  # of a failed test; any other has ended


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


def test_two_thousand_cases_survive_the_loss_of_a_node_and_of_the_driver(
    tmp_path: Path, cluster: Cluster, log: Path
):
    command = write_pack(tmp_path, HUNG, count=MANY)
    address = ["--address", cluster.address]
    results = tmp_path / "run" / "results.jsonl"
    with start([*command, "--output", "run", *address], tmp_path) as run:
        wait_for_lines(results, MANY // 4, run)
        cluster.kill_second_node()
        wait_for_lines(results, MANY // 2, run)
        run.kill()
    with start([*command, "--resume", "run", *address], tmp_path) as run:
        output, _ = run.communicate(timeout=280)
    assert run.returncode == 1, output
    passing = {f"case-{number}": "pass" for number in range(MANY)}
    assert read_statuses(tmp_path) == {**passing, "hung": "error"}
    # One trial for the lost node, and one for each worker of the killed driver.
    assert MANY <= len(log.read_text().split()) <= MANY + 3


@pytest.mark.parametrize("seed", [1, 2])
def test_random_packs_have_the_verdicts_of_one_machine(tmp_path: Path, cluster: Cluster, seed: int):
    names = random.Random(seed).choices(SUBJECTS, k=12)  # noqa: S311 - not a secret
    write_leftovers(tmp_path, names)
    command = [HOME.python, "-m", "offbook", "eval", "run", "pack.json"]
    engines = (["--jobs", "1"], ["--engine", "ray", "--address", cluster.address])
    found: list[dict[str, str]] = []
    for number, options in enumerate(engines):
        with start([*command, "--output", f"run-{number}", *options], tmp_path) as run:
            output, _ = run.communicate(timeout=200)
        assert run.returncode in {0, 1}, output
        lines = (tmp_path / f"run-{number}" / "results.jsonl").read_text().splitlines()
        results = [json.loads(line) for line in lines]
        found.append({result["id"]: result["status"] for result in results})
    assert found[0] == found[1]
    passing = {f"c{number}" for number, name in enumerate(names) if name in GOOD}
    assert {name for name, status in found[0].items() if status == "pass"} == passing
    assert len(found[0]) == len(names)


SHOP = """
from offbook import session

MOCKS = dict.fromkeys(("bash", "edit", "read", "write"), "ok")
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}

def world():
    refunds = []

    def extension(api):
        @api.tool("refund", parameters=NUMBER)
        def refund(params, ctx):
            while params["number"] == 7 and len(refunds) > 1:
                pass
            refunds.append(params["number"])
            return "refunded"

    return session(extensions=[extension], mock_tools=MOCKS), refunds

def never_twice(run, refunds):
    assert len(refunds) == len(set(refunds)), "refunded twice"
"""


def test_a_search_finds_the_same_as_on_one_machine(tmp_path: Path, cluster: Cluster):
    (tmp_path / "shop.py").write_text(SHOP)
    command = [HOME.python, "-m", "offbook", "explore", "shop:world", "Refund order 7", "--json"]
    options = ["--invariant", "shop:never_twice", "--runs", "60", "--deadline", "2"]
    found: list[dict[str, Any]] = []
    for engine in (
        ["--jobs", "1"],
        ["--jobs", "2"],
        ["--engine", "ray", "--address", cluster.address],
    ):
        with start([*command, *options, *engine], tmp_path) as run:
            output, _ = run.communicate(timeout=280)
        assert run.returncode == 1, output
        found.append(json.loads(output))
    for one in found:
        del one["seconds"], one["states_per_minute"]
    assert {finding["invariant"] for finding in found[0]["findings"]} == {"never_twice", "no hang"}
    assert found[0] == found[1] == found[2]


def test_a_hung_case_delays_only_its_batch_and_only_until_its_timeout(
    tmp_path: Path, cluster: Cluster
):
    batch, count = 10, 79
    assert (count + 2) // (2 * BATCHES_PER_CPU) == batch
    waits = {"id": "waits", **CASE, "subject": "subject.py:waits"}
    command = write_pack(tmp_path, first=(waits, HUNG), count=count)
    with start([*command, "--output", "run", "--address", cluster.address], tmp_path) as run:
        # No other worker waits for the one of the first batch, however long that takes.
        wait_for_lines(tmp_path / "run" / "results.jsonl", count + 2 - batch, run)
        assert "waits" not in read_statuses(tmp_path)
        (tmp_path / "go").touch()
        output, _ = run.communicate(timeout=280)
    assert run.returncode == 1, output
    statuses = read_statuses(tmp_path)
    assert [name for name, status in statuses.items() if status != "pass"] == ["hung"]
    # In the order of their ends: the batch goes on after the timeout.
    own = ["waits", "hung", *(f"case-{number}" for number in range(batch - 2))]
    assert [*statuses][-batch:] == own
