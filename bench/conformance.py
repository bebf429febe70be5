"""The conformance runner over 2,000 tiny cases, against the same processes without it.

Budget: the runner's own cost is less than 15 % of the bare processes'. Compared is the CPU time of
everything, so that other work on the machine counts little: the whole command `offbook conformance`
with its workers, and a loop of `subprocess.run` that only collects the output.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CASES = 2_000
BUDGET = 0.15


def write_suite(folder: Path, count: int) -> None:
    """Write tiny cases, in subfolders of a hundred."""
    for number in range(count):
        path = folder / f"part{number // 100}" / f"case{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"print({number} + 1)\n")
        path.with_suffix(".expected").write_text(f"{number + 1}\n")


def children_seconds() -> float:
    """Return the CPU seconds of all processes that ended, and of theirs."""
    times = os.times()
    return times.children_user + times.children_system


def run_bare(folder: Path) -> tuple[float, float]:
    """Run each case as a process; return the CPU seconds, with ours, and the seconds."""
    before, own, started = children_seconds(), time.process_time(), time.perf_counter()
    for path in sorted(folder.rglob("*.py")):
        run = subprocess.run([sys.executable, path], capture_output=True, check=True)
        assert run.stdout
    seconds = time.perf_counter() - started
    return children_seconds() - before + time.process_time() - own, seconds


def run_offbook(folder: Path, jobs: int) -> tuple[float, float]:
    """Run the command; return its CPU seconds and its seconds."""
    before, started = children_seconds(), time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "offbook",
        "conformance",
        folder,
        "--run",
        f"{sys.executable} {{file}}",
    ]
    command += ["--jobs", str(jobs)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{count} passed, 0 failed" in run.stdout, run.stdout
    return children_seconds() - before, time.perf_counter() - started


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else CASES
    with tempfile.TemporaryDirectory() as name:
        suite = Path(name)
        write_suite(suite, count)
        bare, bare_seconds = run_bare(suite)
        cpu, seconds = run_offbook(suite, 1)
        _, parallel = run_offbook(suite, os.cpu_count() or 1)
    cost = cpu / bare - 1
    print(f"{count} bare processes        {bare:8.2f} s CPU {bare_seconds:8.2f} s")
    print(f"offbook conformance, 1 job  {cpu:8.2f} s CPU {seconds:8.2f} s")
    print(f"  with {os.cpu_count()} jobs              {'':14}{parallel:8.2f} s")
    print(f"the runner's own cost       {cost:8.1%}       budget {BUDGET:.0%}")
