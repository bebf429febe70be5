"""The CPU of a trivial eval case beside the peers: pydantic-evals, deepeval, promptfoo, Inspect.

    ./dev bench eval_peers              measures the peers that are installed
    python bench/eval_peers.py install  installs each in an environment of its own (1.8 GB)

A case compares `hello` with `hello`. The peers run all cases in one process: so does Offbook for
subjects that are declared as shared, which is compared. By default it gives each trial a process,
which is printed beside it. Offbook always writes the trace of a case and the peers do not, so that
it is measured without these files as well: not slower than pydantic-evals, and at most 1.3 times
its CPU with them. The figure is the CPU of the whole process with 1,000 cases,
less that with one case, so that imports do not count; the least of three. It includes the
processes that outlive the one that started them. Each runs with what it writes by default, except
for the cache of deepeval, which is off: it is quadratic. Files are written to memory where there is
a folder for that: to create one takes 20 to 500 µs of CPU on the same disk, by what was deleted
before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from evals import cpu_seconds, write_pack

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.matrix.homes import HOMES, Home
from tests.matrix.install import CannotInstallError, install

CASES = 1000
MEMORY = "/dev/shm"  # noqa: S108 - a private folder in it
SHARED = "offbook, with a trace of each case"
UNTRACED = "offbook, without these files"
ISOLATED = "offbook, a process for each trial"
ROUNDS = int(os.environ.get("OFFBOOK_BENCH_ROUNDS", "3"))
QUIET = {
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
}

PYDANTIC_EVALS = """
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import EqualsExpected

cases = [Case(name=str(n), inputs="hello", expected_output="hello") for n in range({count})]
report = Dataset(name="bench", cases=cases, evaluators=[EqualsExpected()]).evaluate_sync(
    lambda value: value, progress=False
)
assert len(report.cases) == {count} and report.averages().assertions == 1
"""
DEEPEVAL = """
from deepeval import evaluate
from deepeval.evaluate import CacheConfig, DisplayConfig
from deepeval.metrics import ExactMatchMetric
from deepeval.test_case import LLMTestCase

case = dict(input="hello", actual_output="hello", expected_output="hello")
result = evaluate(
    [LLMTestCase(**case) for _ in range({count})],
    [ExactMatchMetric()],
    cache_config=CacheConfig(write_cache=False, use_cache=False),
    display_config=DisplayConfig(show_indicator=False, print_results=False),
)
assert [test.success for test in result.test_results] == [True] * {count}
"""
INSPECT = """
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

def reply():  # with its usage: otherwise mockllm downloads a tokenizer
    output = ModelOutput.from_content("mockllm", "hello")
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return output

samples = [Sample(input="hello", target="hello") for _ in range({count})]
task = Task(dataset=samples, solver=generate(), scorer=includes())
model = get_model("mockllm/model", custom_outputs=[reply() for _ in range({count})])
[log] = eval(task, model=model, display="none", log_dir="logs")
assert log.status == "success" and log.results.scores[0].metrics["accuracy"].value == 1
"""


# The module that calls the function of a case writes its trace by these three calls.
UNTRACED_RUN = """
import os, sys
from types import SimpleNamespace
from offbook.evals import subject_cases
from offbook.surfaces.cli import main

calls = dict(open=lambda *_: -1, write=lambda *_: 0, close=lambda _: None)
subject_cases.os = SimpleNamespace(**{**vars(os), **calls})
main(sys.argv[1:])
"""


class Peer(NamedTuple):
    """A peer, and how many times less CPU Offbook must use, with and without files of traces."""

    name: str
    home: Home
    command: Callable[[Home, Path, int], list[str]]
    factor: float
    untraced: float = 0


def run_program(program: str) -> Callable[[Home, Path, int], list[str]]:
    """Return the command that runs a Python program in the home of a peer."""
    return lambda home, _folder, count: [home.python, "-c", program.format(count=count)]


def run_promptfoo(home: Home, folder: Path, count: int) -> list[str]:
    """Write a configuration, and return the command that evaluates it."""
    test = {"vars": {"word": "hello"}, "assert": [{"type": "equals", "value": "hello"}]}
    config = {"prompts": ["{{word}}"], "providers": ["echo"], "tests": [test] * count}
    path = folder / f"promptfoo-{count}.json"
    path.write_text(json.dumps(config))
    program = home.folder / "node_modules" / ".bin" / "promptfoo"
    output = folder / "promptfoo.json"
    return [str(program), "eval", "-c", str(path), "--no-cache", "--no-table", "-o", str(output)]


PEERS = (
    Peer(
        "pydantic-evals",
        HOMES["pydantic-evals"],
        run_program(PYDANTIC_EVALS),
        1 / 1.3,
        1,
    ),
    Peer("deepeval", HOMES["deepeval"], run_program(DEEPEVAL), 4),
    Peer(
        "promptfoo",
        HOMES["promptfoo"],
        run_promptfoo,
        12,
    ),
    Peer("inspect-ai", HOMES["inspect"], run_program(INSPECT), 30),
)


def run_offbook(kind: str, folder: Path, count: int) -> list[str]:
    """Return the command that runs a pack with this number of cases."""
    pack = write_pack(folder, count, shared=kind != ISOLATED)
    output = tempfile.mkdtemp(dir=folder)
    program = ["-c", UNTRACED_RUN] if kind == UNTRACED else ["-m", "offbook"]
    return [sys.executable, *program, "eval", "run", str(pack), "--output", output]


def cpu_of(command: list[str], folder: Path) -> float:
    """Return the CPU seconds of a command and of all processes that it has started."""
    before = cpu_seconds()
    environment = {**os.environ, **QUIET, "HOME": str(folder)}
    ended = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )
    used = cpu_seconds() - before
    # promptfoo ends with 1 at random after it has written its results.
    if ended.returncode and "promptfoo" not in command[0]:
        raise RuntimeError(f"{command[0]}: {ended.stderr[-500:]}")
    return used


def main() -> int:
    """Print the figures; return 1 if a goal is missed."""
    if sys.argv[1:] == ["install"]:
        for peer in PEERS:
            try:
                if not peer.home.ready:
                    install(peer.home)
            except CannotInstallError as error:
                print(f"{peer.name}: {error}")
        return 0
    peers = [peer for peer in PEERS if peer.home.ready]
    costs: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(dir=MEMORY if Path(MEMORY).is_dir() else None) as name:
        folder = Path(name)
        # In turns: other work on the machine then slows down all of them.
        for _ in range(ROUNDS):
            for peer in (SHARED, UNTRACED, ISOLATED, *peers):
                one, many = (
                    cpu_of(
                        run_offbook(peer, folder, count)
                        if isinstance(peer, str)
                        else peer.command(peer.home, folder, count),
                        folder,
                    )
                    for count in (1, CASES)
                )
                name_of = peer if isinstance(peer, str) else peer.name
                costs.setdefault(name_of, []).append((one, many))
    figures = {
        name: (min(many for _, many in pairs) - min(one for one, _ in pairs)) / (CASES - 1) * 1000
        for name, pairs in costs.items()
    }
    for name in (SHARED, UNTRACED, ISOLATED):
        print(f"{name:<36}{figures[name]:8.3f} ms CPU per case")
    missed = 0
    for peer in PEERS:
        if peer.name not in figures:
            print(f"{peer.name:<36} not measured: python bench/eval_peers.py install")
            continue
        print(f"{peer.name:<36}{figures[peer.name]:8.3f} ms CPU per case")
        for kind, factor in ((SHARED, peer.factor), (UNTRACED, peer.untraced)):
            ratio = figures[peer.name] / figures[kind]
            missed += ratio < factor
            verdict = "MISSED" if ratio < factor else "met"
            if factor:
                print(f"    {ratio:.2f} x {kind} (goal {factor:.2f} x: {verdict})")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
