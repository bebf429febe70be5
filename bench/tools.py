"""The test tools: the cost of a scenario, and of a session with a million events.

Budgets: a mock scenario (setup, three iterations, five assertions, cleanup) takes less than 4 ms
of CPU, and a thousand keep no more memory than the first hundred; `inspect` and `assert` over a
million events take a third of the CPU of jq with the same filter, the startup of Python included,
and a fraction of the file size in memory; a command on one workspace costs less than
`pytest --version`; `offbook mcp` responds to its client within a second.
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
    """Run one scenario, from its setup to its cleanup."""
    setup(name, fixtures={"src/main.py": "print()\n"})
    result = await run(name, "Add handlers", mock_responses=ANSWERS)
    assert result.iterations == 3, result
    assert check(name, ASSERTIONS).passed
    cleanup(name)


async def play_many(count: int) -> float:
    """Return the mean CPU milliseconds of `count` scenarios."""
    start = time.process_time()
    for number in range(count):
        await play(f"bench-{number}")
    return (time.process_time() - start) / count * 1e3


async def measure_scenarios() -> Iterator[Row]:
    """Measure a thousand scenarios; the fastest batch counts."""
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
            ("a scenario, memory kept", f"{grown:.0f} B", grown < 256),
        ]
    )


def make_event(number: int) -> dict[str, Any]:
    """Return one event of a long session."""
    iteration, position = divmod(number, 20)
    name = "process.output"
    data: dict[str, Any] = {"stream": "stdout", "text": f"line {number}, some words of an agent\n"}
    if position == 0:
        name, hat = "_meta.iteration", ("builder", "planner")[iteration % 2]
        data = {"n": iteration + 1, "elapsed_ms": number, "hat": hat}
    elif position in {5, 10}:
        topic = "build.task" if position == 5 else "build.done"
        name, data = (
            "bus.publish",
            {"topic": topic, "payload": f"step {number}: handlers and tests"},
        )
    elif position in {7, 8}:
        name = "tool.call" if position == 7 else "tool.result"
        data = {"call_id": f"c{number}", "tool": "bash", "input": {"command": "ls -la src"}}
    elif position % 2 == 0:
        name, data = "ux.terminal.write", {"bytes": "bGluZSBvZiBvdXRwdXQK", "stdout": True}
    return {"ts": number, "event": name, "data": data, "seq": number}


def write_session(path: Path) -> int:
    """Write a session of a million events; return its size in bytes."""
    end = {"reason": "CompletionPromise", "iterations": EVENTS // 20, "exit_code": 0}
    with path.open("w", encoding="utf-8") as file:
        for number in range(EVENTS):
            file.write(json.dumps(make_event(number), separators=(",", ":")) + "\n")
        file.write(json.dumps({"ts": EVENTS, "event": "_meta.termination", "data": end}) + "\n")
    return path.stat().st_size


def measure_cpu(*command: str) -> tuple[float, str]:
    """Return the CPU milliseconds of a process, the best of three, and its output."""
    costs: list[float] = []
    output = ""
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        costs.append(used * 1e3)
    return min(costs), output


def measure_memory(*command: str) -> float:
    """Return the peak memory of a process, in MB."""
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    return int(measure_cpu(PYTHON, "-c", code, *command)[1]) / 1024


FILTER = {"event_types": ["bus.publish"], "topics": ["build.*"]}
JQ_FILTER = (
    'select(.event == "bus.publish" and '
    '((.data.topic | split(".")) | length == 2 and .[0] == "build"))'
)
JQ_STDOUT = (
    'select((.event == "process.output" and (.data.text | test("line 999999, some"))) or '
    '(.event == "ux.terminal.write" and (.data.bytes | @base64d | test("line 999999, some"))))'
)
STDOUT_ASSERTION = {"type": "stdout_contains", "pattern": "line 999999, some"}
JQ_EVENT = 'select(.event == "bus.publish" and (.data.payload | test("step 999990:")))'
EVENT_ASSERTION = {"type": "event_occurred", "topic": "build.*", "payload_pattern": "step 999990:"}


def measure_sessions() -> Iterator[Row]:
    """Measure `inspect`, `assert` and jq over a million events."""
    jq = shutil.which("jq")
    if jq is None:
        yield ("inspect and assert", "jq is missing: not compared", True)
    session = Path(setup("bench-long").workspace_path).parent / "session.jsonl"
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
    assert_event = [OFFBOOK, "workspace", "assert", "bench-long", json.dumps(EVENT_ASSERTION)]
    assert_stdout = [OFFBOOK, "workspace", "assert", "bench-long", json.dumps(STDOUT_ASSERTION)]
    for name, command, program in (
        ("inspect", inspect, JQ_FILTER),
        ("assert", assert_event, JQ_EVENT),
        ("assert stdout", assert_stdout, JQ_STDOUT),
    ):
        ours, _ = measure_cpu(*command)
        theirs = measure_cpu(jq, "-c", program, str(session))[0] if jq else float("inf")
        figure = f"{ours:.0f} ms, jq {theirs:.0f} ms: {theirs / ours:.1f} times"
        yield (f"{name}, 1,000,000 events", figure, theirs >= 3 * ours)
        memory = measure_memory(*command)
        yield (
            f"  {name}, memory",
            f"{memory:.0f} MB of a file of {size:.0f} MB",
            memory < size / 2,
        )
    cleanup("bench-long")


def measure_commands() -> Iterator[Row]:
    """Measure each command on one workspace, against `pytest --version`."""
    theirs, _ = measure_cpu(PYTHON, "-m", "pytest", "--version")
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
        for name, arguments in commands.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([OFFBOOK, "workspace", *arguments], check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            costs[name].append(used * 1e3)
    for name, figures in costs.items():
        yield (f"  offbook workspace {name}", f"{min(figures):.0f} ms", min(figures) < theirs)


def measure_mcp_startup() -> Iterator[Row]:
    """Measure the time until the first response of the MCP server."""
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    waits: list[float] = []
    for _ in range(3):
        start = time.monotonic()
        with subprocess.Popen(
            [OFFBOOK, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(request).encode() + b"\n")
            server.stdin.flush()
            assert b"serverInfo" in server.stdout.readline()
            waits.append(time.monotonic() - start)
    yield ("offbook mcp, initialize", f"{min(waits) * 1e3:.0f} ms", min(waits) < 1)


def main() -> int:
    """Measure, print, and return 1 if a budget is exceeded."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users have compiled bytecode
    holds_all = True
    memory = Path("/dev/shm")  # noqa: S108 - keeps the disk out of the figures
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        for rows in (
            asyncio.run(measure_scenarios()),
            measure_commands(),
            measure_mcp_startup(),
            measure_sessions(),
        ):
            for name, figure, holds in rows:
                holds_all = holds_all and holds
                print(f"{name:28} {figure:45} {'ok' if holds else 'OVER BUDGET'}", flush=True)
        tempfile.tempdir = None
    return 0 if holds_all else 1


if __name__ == "__main__":
    sys.exit(main())
