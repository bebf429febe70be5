"""Evals: CPU per case, opening results, 100,000 cases, and two workers.

OFFBOOK_BENCH_CASES=100000 measures a large pack. `eval_peers.py` compares with other tools, and
`./dev cluster` installs the Ray on which two workers are measured.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from ctypes import CDLL
from pathlib import Path

CASES = 1000
PR_SET_CHILD_SUBREAPER = 36  # of prctl
MANY = int(os.environ.get("OFFBOOK_BENCH_CASES", "20000"))
SUBJECT = """
import time

def echo(value):
    return value

def slow(value):
    time.sleep(0.05)
"""


def write_pack(folder: Path, count: int, function: str = "echo", *, shared: bool = False) -> Path:
    """Write a pack of trivial cases; with `shared`, all of them run in one process."""
    rubric = {"id": "same", "assertions": [{"kind": "output", "expected": "hello"}]}
    if function == "slow":
        rubric = {"id": "same", "assertions": [{"kind": "run-status", "expected": "completed"}]}
    case = {"subject": f"subject.py:{function}", "input": "hello", "rubrics": ["same"]}
    case |= {"shared": True} if shared else {}
    cases = [{"id": f"case-{number}", **case} for number in range(count)]
    (folder / "subject.py").write_text(SUBJECT)
    path = folder / f"{function}-{count}{'-shared' if shared else ''}.json"
    path.write_text(json.dumps({"id": "bench", "rubrics": [rubric], "cases": cases}))
    return path


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all that it has started, which must have ended."""
    # The processes of a killed worker become children of this one, and are counted.
    CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with suppress(ChildProcessError):
        while True:
            os.wait()
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


def run(pack: Path, output: Path, jobs: int = 1) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of a run."""
    from offbook.evals import RunOptions, run_pack

    start, cpu = time.perf_counter(), cpu_seconds()
    finished = run_pack([pack], RunOptions(output=str(output), jobs=jobs))
    assert finished.summary.passed_gate
    return time.perf_counter() - start, cpu_seconds() - cpu


def measure_opening(folder: Path) -> None:
    """Print how long it takes to open a summary and one case."""
    from offbook.evals.run_directory import find_results, read_summary

    start = time.perf_counter()
    read_summary(folder)
    summary = (time.perf_counter() - start) * 1000
    start = time.perf_counter()
    assert find_results(folder, f"case-{CASES - 1}")
    case = (time.perf_counter() - start) * 1000
    print(f"summary of {CASES} cases {summary:.2f} ms, one case {case:.2f} ms")


RAY = """
import sys, time
from pathlib import Path
import ray
from offbook.evals import RunOptions, run_pack

ray.init(num_cpus=2, log_to_driver=False, logging_level="error", include_dashboard=False)
pack, folder = Path(sys.argv[1]), Path(sys.argv[2])
for name in ("warm", "measured"):  # the first run starts the workers
    start = time.perf_counter()
    run = run_pack([pack], RunOptions(output=str(folder / name), engine="ray"))
    assert run.summary.passed_gate
print(time.perf_counter() - start)
"""


def measure_ray(folder: Path, pack: Path, one: float) -> None:
    """Print how much faster two workers of Ray are than one process."""
    python = Path(__file__).resolve().parents[1] / ".clients" / "ray" / "bin" / "python"
    if not python.exists():
        print("two workers on Ray: not measured, Ray is not installed: ./dev cluster")
        return
    command = [str(python), "-c", RAY, str(pack), str(folder / "ray")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    two = float(ended.stdout.split()[-1])
    print(f"two workers on Ray: {one / two:.2f} x for cases of 50 ms")
    assert one / two >= 1.5


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pack = write_pack(folder, CASES)
        _, cpu = run(pack, folder / "warm")
        _, cpu = min(run(pack, folder / f"run-{n}") for n in range(3))
        print(f"{CASES} cases, each with its trace: {cpu / CASES * 1000:.3f} ms CPU per case")
        measure_opening(folder / "run-0")
        slow = write_pack(folder, 60, "slow")
        one, _ = run(slow, folder / "one")
        two, _ = run(slow, folder / "two", jobs=2)
        print(f"two workers: {one / two:.2f} x for cases of 50 ms")
        assert one / two >= 1.7
        measure_ray(folder, slow, one)
        busy = write_pack(folder, MANY)
        _, cpu = run(busy, folder / "many")
        peak = max(
            resource.getrusage(who).ru_maxrss
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        print(f"{MANY} cases: {cpu / MANY * 1000:.3f} ms CPU per case, peak {peak // 1024} MB")


if __name__ == "__main__":
    sys.exit(main())
