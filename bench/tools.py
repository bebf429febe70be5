"""The test tools: what a scenario costs, and what a session of a million events does.

Budgets: a mock scenario (setup, three iterations, five assertions, cleanup) takes less than 4 ms
of CPU, and a thousand leave no more memory behind than the first hundred; `inspect` and `assert`
over a million events take a third of the CPU of jq with the same filter, the start of Python
included, and a fraction of the file in memory; a command of one workspace costs less than
`pytest --version`; `offbook mcp` greets its client within a second.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from offbook.workflows.loop_tools import run
from offbook.workflows.tools import check, cleanup, setup

PYTHON = sys.executable
OFFBOOK = str(Path(PYTHON).parent / "offbook")
SCENARIOS, BATCH = 1000, 100
EVENTS = 1_000_000
ANSWERS = [
    {"hat": "planner", "output": '<event topic="build.task">handlers</event>'},
    {"hat": "builder", "output": '<event topic="build.done">handlers</event>'},
    {"hat": "planner", "output": "All is built.\nLOOP_COMPLETE"},
]
ASSERTIONS: list[dict[str, Any]] = [
    {"type": "exit_code", "expected": 0},
    {"type": "hat_sequence", "hats": ["planner", "builder", "planner"]},
    {"type": "event_sequence", "topics": ["task.start", "build.task", "build.done"]},
    {"type": "no_event", "topic": "build.blocked"},
    {"type": "stdout_contains", "pattern": "All is built"},
]
Row = tuple[str, str, bool]


async def play(name: str) -> None:
    """One scenario, from its setup to its cleanup."""
    setup(name, fixtures={"src/main.py": "print()\n"})
    ran = await run(name, "Add handlers", mock_responses=ANSWERS)
    assert ran.iterations == 3, ran
    assert check(name, ASSERTIONS).passed
    cleanup(name)


async def play_many(count: int) -> float:
    """CPU milliseconds of one of so many scenarios."""
    start = time.process_time()
    for number in range(count):
        await play(f"bench-{number}")
    return (time.process_time() - start) / count * 1e3


async def measure_scenarios() -> Iterator[Row]:
    """A thousand scenarios: the best batch is what they cost, the rest is the machine."""
    await play_many(10)
    costs = [await play_many(BATCH) for _ in range(SCENARIOS // BATCH)]
    tracemalloc.start()
    await play_many(BATCH)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    await play_many(BATCH)
    gc.collect()
    grown = (tracemalloc.get_traced_memory()[0] - before) / BATCH
    tracemalloc.stop()
    least = min(costs)
    return iter(
        [
            ("a scenario, CPU", f"{least:.2f} ms of {SCENARIOS}", least < 4),
            ("a scenario leaves behind", f"{grown:.0f} B", grown < 256),
        ]
    )


def make_event(at: int) -> dict[str, Any]:
    """One event of a long session."""
    iteration, place = divmod(at, 20)
    name = "process.output"
    data: dict[str, Any] = {"stream": "stdout", "text": f"line {at}, some words of an agent\n"}
    if place == 0:
        name, hat = "_meta.iteration", ("builder", "planner")[iteration % 2]
        data = {"n": iteration + 1, "elapsed_ms": at, "hat": hat}
    elif place in {5, 10}:
        topic = "build.task" if place == 5 else "build.done"
        name, data = "bus.publish", {"topic": topic, "payload": f"step {at}: handlers and tests"}
    elif place in {7, 8}:
        name = "tool.call" if place == 7 else "tool.result"
        data = {"call_id": f"c{at}", "tool": "bash", "input": {"command": "ls -la src"}}
    elif place % 2 == 0:
        name, data = "ux.terminal.write", {"bytes": "bGluZSBvZiBvdXRwdXQK", "stdout": True}
    return {"ts": at, "event": name, "data": data, "seq": at}


def write_session(path: Path) -> int:
    """A session of a million events; how large it is comes back."""
    end = {"reason": "CompletionPromise", "iterations": EVENTS // 20, "exit_code": 0}
    with path.open("w", encoding="utf-8") as file:
        for at in range(EVENTS):
            file.write(json.dumps(make_event(at), separators=(",", ":")) + "\n")
        file.write(json.dumps({"ts": EVENTS, "event": "_meta.termination", "data": end}) + "\n")
    return path.stat().st_size


def spend(*command: str) -> tuple[float, str]:
    """CPU milliseconds of a process, the best of three, and what it said."""
    costs: list[float] = []
    said = ""
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        costs.append(used * 1e3)
    return min(costs), said


def weigh(*command: str) -> float:
    """How many MB a process has at most."""
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    return int(spend(PYTHON, "-c", code, *command)[1]) / 1024


FILTER = {"event_types": ["bus.publish"], "topics": ["build.*"]}
JQ = (
    'select(.event == "bus.publish" and '
    '((.data.topic | split(".")) | length == 2 and .[0] == "build"))'
)
SAID = (
    'select((.event == "process.output" and (.data.text | test("line 999999, some"))) or '
    '(.event == "ux.terminal.write" and (.data.bytes | @base64d | test("line 999999, some"))))'
)
SAYS = {"type": "stdout_contains", "pattern": "line 999999, some"}
SEARCH = 'select(.event == "bus.publish" and (.data.payload | test("step 999990:")))'
WANTED = {"type": "event_occurred", "topic": "build.*", "payload_pattern": "step 999990:"}


def measure_sessions() -> Iterator[Row]:
    """A million events, looked through by `inspect`, by `assert` and by jq."""
    jq = shutil.which("jq")
    if jq is None:
        yield ("inspect and assert", "jq is missing: not compared", True)
    session = Path(setup("bench-long").workspace_path) / "session.jsonl"
    size = write_session(session) / 1024**2
    inspect = [
        OFFBOOK,
        "workspace",
        "inspect",
        "bench-long",
        "--json",
        "--filter",
        json.dumps(FILTER),
    ]
    judge = [OFFBOOK, "workspace", "assert", "bench-long", json.dumps(WANTED)]
    hear = [OFFBOOK, "workspace", "assert", "bench-long", json.dumps(SAYS)]
    for name, command, program in (
        ("inspect", inspect, JQ),
        ("assert", judge, SEARCH),
        ("assert stdout", hear, SAID),
    ):
        ours, _ = spend(*command)
        theirs = spend(jq, "-c", program, str(session))[0] if jq else float("inf")
        told = f"{ours:.0f} ms, jq {theirs:.0f} ms: {theirs / ours:.1f} times"
        yield (f"{name}, 1,000,000 events", told, theirs >= 3 * ours)
        heavy = weigh(*command)
        yield (f"  {name}, memory", f"{heavy:.0f} MB of a file of {size:.0f} MB", heavy < size / 2)
    cleanup("bench-long")


def measure_commands() -> Iterator[Row]:
    """Each command of one workspace, beside `pytest --version`."""
    theirs, _ = spend(PYTHON, "-m", "pytest", "--version")
    yield ("pytest --version", f"{theirs:.0f} ms", True)
    answers = json.dumps(ANSWERS)
    commands = {
        "setup": ["setup", "bench-one", "--fixture", "a.txt=hello"],
        "run": ["run", "bench-one", "--task", "Go", "--mock-responses", answers],
        "assert": ["assert", "bench-one", json.dumps(ASSERTIONS)],
        "inspect": ["inspect", "bench-one", "--format", "timeline"],
        "report": ["report", "bench-one", "junit"],
        "snapshot": ["snapshot", "bench-one"],
        "diff": ["diff", "bench-one"],
        "cleanup": ["cleanup", "bench-one"],
    }
    costs: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(3):
        for name, words in commands.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([OFFBOOK, "workspace", *words], check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            costs[name].append(used * 1e3)
    for name, found in costs.items():
        yield (f"  offbook workspace {name}", f"{min(found):.0f} ms", min(found) < theirs)


def measure_greeting() -> Iterator[Row]:
    """How long a client of the MCP server waits for its first answer."""
    greeting = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    waits: list[float] = []
    for _ in range(3):
        start = time.monotonic()
        with subprocess.Popen(
            [OFFBOOK, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(greeting).encode() + b"\n")
            server.stdin.flush()
            assert b"serverInfo" in server.stdout.readline()
            waits.append(time.monotonic() - start)
    yield ("offbook mcp, initialize", f"{min(waits) * 1e3:.0f} ms", min(waits) < 1)


def main() -> int:
    """Measure, print, and tell whether the budgets hold."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users have their bytecode
    holds_all = True
    memory = Path("/dev/shm")  # noqa: S108 - so that it is not the disk that is measured
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        for rows in (
            asyncio.run(measure_scenarios()),
            measure_commands(),
            measure_greeting(),
            measure_sessions(),
        ):
            for what, told, holds in rows:
                holds_all = holds_all and holds
                print(f"{what:28} {told:45} {'ok' if holds else 'OVER BUDGET'}", flush=True)
        tempfile.tempdir = None
    return 0 if holds_all else 1


if __name__ == "__main__":
    sys.exit(main())
