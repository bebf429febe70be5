"""The speed goals in one table: today's figure, the peer's, the goal and the verdict.

    ./dev bench                      all groups
    ./dev bench goals start cassette the named groups
    ./dev bench goals --record       also append the ratios to bench/history.jsonl and draw
                                     docs/images/speed.svg from it

Times are CPU of user and system, the least of several processes; against a server, three processes
of each are asked in turns, and the range of the ratios is printed. A ratio below 1 meets its goal.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

BENCH = Path(__file__).parent
HISTORY = BENCH / "history.jsonl"
PLOT = BENCH.parent / "docs" / "images" / "speed.svg"
PYTHON = sys.executable
OFFBOOK = str(Path(PYTHON).parent / "offbook")
STARTS = 10
INTERACTIONS = 5000


class Row(NamedTuple):
    """A goal, and what was measured: a `ratio` of at most 1 meets it, None was not measured."""

    name: str
    figure: str
    peer: str
    goal: str
    ratio: float | None


def at_most(name: str, figure: float, unit: str, limit: float, peer: str = "") -> Row:
    """Return the row of a figure that must not exceed a limit."""
    digits = 0 if figure >= 10 else 2
    return Row(name, f"{figure:.{digits}f} {unit}", peer, f"≤ {limit:g} {unit}", figure / limit)


def times(name: str, ratios: list[float], least: float, figure: str, peer: str) -> Row:
    """Return the row of a factor by which a peer must be slower."""
    middle = statistics.median(ratios)
    spread = f"{middle:.2f} x ({min(ratios):.2f} to {max(ratios):.2f}), {figure}"
    return Row(name, spread, peer, f"≥ {least:g} x", least / middle)


def cpu(*command: str, cwd: str | None = None) -> float:
    """Return the CPU milliseconds of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, cwd=cwd)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def least(*commands: tuple[str, ...], cwd: str | None = None) -> list[float]:
    """Return the least CPU milliseconds of each command, measured in turns."""
    costs = [[cpu(*command, cwd=cwd) for command in commands] for _ in range(STARTS)]
    return [min(column) for column in zip(*costs, strict=True)]


# --- groups of goals


def start() -> Iterator[Row]:
    """Imports, and commands that do little."""
    names = "from offbook import when, call, say, session"
    empty, msgspec, imported, version, usage = least(
        (PYTHON, "-c", "pass"),
        (PYTHON, "-c", "import msgspec"),
        (PYTHON, "-c", names),
        (OFFBOOK, "--version"),
        (OFFBOOK, "--help"),
    )
    peer = f"Python {empty:.0f}, msgspec alone {msgspec:.0f}"
    yield at_most("import of when, call, say, session", imported, "ms", 70, peer)
    yield at_most("offbook --version", version, "ms", 50)
    yield at_most("offbook --help", usage, "ms", 70)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        responses = json.dumps([{"hat": "planner", "output": "Done.\nLOOP_COMPLETE"}])
        check = json.dumps([{"type": "exit_code", "expected": 0}])
        scenario = Path(folder) / "flow.yaml"
        scenario.write_text(
            f"name: flow\nrun: {{task: Go, mock_responses: {responses}}}\nassert: {check}\n"
        )
        cpu(OFFBOOK, "workspace", "setup", "goal")
        cpu(OFFBOOK, "workspace", "run", "goal", "--task", "Go", "--mock-responses", responses)
        pytest, *costs = least(
            (PYTHON, "-m", "pytest", "--version"),
            (OFFBOOK, "scenario", "run", str(scenario)),
            (OFFBOOK, "workspace", "assert", "goal", check),
            (OFFBOOK, "workspace", "snapshot", "goal"),
            cwd=folder,
        )
        del os.environ["TMPDIR"]
    for name, cost in zip(("scenario run", "assert", "snapshot"), costs, strict=True):
        row = at_most(f"offbook {name}", cost, "ms", pytest, f"pytest --version {pytest:.0f}")
        yield row._replace(goal="below the peer")


def plugin() -> Iterator[Row]:
    """The pytest plugin: merely installed, and the guard of a test."""
    pytest = (PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # other plugins would add noise
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_nothing.py").write_text("def test_nothing():\n    assert True\n")
        Path(folder, "empty_plugin.py").write_text("")
        os.environ["PYTHONPATH"] = folder
        ours, empty = least(
            (*pytest, "-p", "pytest_offbook.plugin"), (*pytest, "-p", "empty_plugin"), cwd=folder
        )
        del os.environ["PYTHONPATH"], os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"]
    yield at_most("plugin installed", ours - empty, "ms", 2, f"an empty plugin {empty:.0f}")
    program = (
        "import time, pytest, _pytest.config\n"
        "begun = time.process_time()\n"
        "from offbook.surfaces.isolation import block_network, disable_telemetry\n"
        "costs = []\n"
        "for _ in range(50):\n"
        "    with disable_telemetry(), block_network(): pass\n"
        "    costs.append(time.process_time() - begun); begun = time.process_time()\n"
        "print(costs[0] * 1e3, min(costs) * 1e3)\n"
    )
    runs = [
        subprocess.run((PYTHON, "-c", program), check=True, capture_output=True, text=True).stdout
        for _ in range(STARTS)
    ]
    first, later = zip(*(map(float, run.split()) for run in runs), strict=True)
    yield at_most("guarded test", min(later), "ms", 0.3)
    yield at_most("first guarded test", min(first), "ms", 20)


def session() -> Iterator[Row]:
    """A prompt with one tool call in a session."""
    import session as measures

    cost = asyncio.run(measures.ours())
    peer = asyncio.run(measures.pydantic_ai())
    figure = f"TestModel {peer:.0f} µs, {peer / cost:.0f} x"
    yield at_most("prompt with one tool call in a session", cost, "µs", 220, figure)


def sdk() -> Iterator[Row]:
    """Calls of an SDK that are answered in process."""
    import cassette
    import clients

    with tempfile.TemporaryDirectory() as folder:
        plain, replayed = cassette.sdk_costs(cassette.write_cassette(Path(folder, "c.yaml"), 1000))
    peer = f"mock transport {plain * 1e6:.0f} µs"
    yield at_most("replayed SDK call over the mock transport", replayed / plain, "x", 1.12, peer)
    costs = asyncio.run(clients.compare_agents())
    mocked = costs[clients.MOCKED]
    share = costs["ours"] / mocked
    yield at_most("driven pydantic-ai run", share, "x", 1.05, f"mock transport {mocked:.0f} µs")


def cassette() -> Iterator[Row]:
    """The commands for a large cassette."""
    import cassette as measures

    measures.ANSWER = "The order was delivered on time, and the refund is on its way.\n" * 60
    small = measures.body

    def body(number: int) -> dict[str, Any]:
        made = small(number)
        made["messages"][0]["content"] += "A line of a tool result, as long as most.\n" * 85
        return made

    measures.body = body
    with tempfile.TemporaryDirectory() as folder:
        path = measures.write_cassette(Path(folder, "large.yaml"), INTERACTIONS)
        size = f"{INTERACTIONS:,} interactions, {path.stat().st_size / 1e6:.0f} MB"
        for command, limit in (("list", 1), ("show", 2), ("stats", 3), ("upgrade", 6)):
            seconds = cpu(OFFBOOK, "cassette", command, str(path)) / 1e3
            yield at_most(f"cassette {command}, {size}", seconds, "s", limit)


def server() -> Iterator[Row]:
    """The server against aimock and bare Node, three processes of each."""
    import server as measures

    with suppress(OSError):
        os.sched_setaffinity(0, {1})
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "offbook-bench"
    peer = measures.install_aimock(folder)
    with tempfile.TemporaryDirectory() as name:
        mocks = Path(name, "mocks.jsonl")
        line = {"match": f"*{measures.prompt(0)}*", "text": measures.TEXT}
        mocks.write_text(json.dumps(line) + "\n")

        def ours() -> Any:
            port = measures.free_port()
            return measures.started(OFFBOOK, "serve", str(mocks), "--port", str(port), port=port)

        starters: dict[str, Callable[[], Any]] = {"ours": ours, "Node": measures.node}
        if peer:
            starters["aimock"] = lambda: measures.aimock(folder, 1)
        costs = {
            name: [first_requests(start) for _ in range(3)] for name, start in starters.items()
        }
    for index, (name, limit) in enumerate((("start to first reply", 120), ("first 200", 170))):
        figures = {who: min(runs[index] for runs in cost) for who, cost in costs.items()}
        mine, node = figures.pop("ours"), figures["Node"]
        shown = ", ".join(f"{who} {figure:.0f}" for who, figure in figures.items())
        row = at_most(f"offbook serve, {name}", mine, "ms", min(limit, node), shown)
        yield row._replace(goal=f"≤ {limit} ms, below Node")
    measures.ROUNDS = 3
    memory = 0.0
    chat, stream = (measures.request(measures.prompt(0), stream=flag) for flag in (False, True))
    history = measures.request(measures.prompt(0), history=measures.TURNS)
    cases: list[tuple[str, Callable[[], Iterator[bytes]], tuple[bytes, ...], int, float]] = [
        ("chat, 32 clients", lambda: measures.vary(chat), measures.JSON_END, 2000, 2.4),
        ("stream, 32 clients", lambda: measures.vary(stream), measures.SSE_END, 1500, 3.1),
        (
            "conversation that grows to 109 kB",
            lambda: measures.grow(measures.prompt(0), measures.TURNS),
            measures.JSON_END,
            measures.GROWTH,
            3,
        ),
        (
            "conversation of 109 kB, all new",
            lambda: measures.vary(history),
            measures.JSON_END,
            400,
            1.2,
        ),
    ]
    for name, requests, ending, count, factor in cases:
        if not peer:
            yield Row(name, "", "npm is not available", f"≥ {factor:g} x aimock", None)
            continue
        ratios: list[float] = []
        mine, memory = 0.0, 0.0  # the memory of the last case is reported
        for _ in range(3):
            with measures.ours(1) as own, measures.aimock(folder, 1) as other:
                costs_by_server = measures.compare(
                    {"ours": own, "aimock": other}, requests, ending, count
                )
                memory = max(memory, measures.resident(own[0]))
            mine = costs_by_server["ours"]
            ratios.append(costs_by_server["aimock"] / mine)
        yield times(name, ratios, factor, f"{mine:.0f} µs", "aimock")
    if peer:
        yield at_most("  its resident memory", memory, "MB", 80)


def first_requests(start: Callable[[], Any]) -> tuple[float, float]:
    """Return the CPU milliseconds of a server until its first reply, and until the 200th."""
    import server as measures

    sent = measures.vary(measures.request(measures.prompt(0)))
    with start() as (pid, port):
        client = measures.Client(port, 1)
        client.ask(sent, measures.JSON_END, 1)
        first = measures.cpu(pid) * 1e3
        client.ask(sent, measures.JSON_END, 199)
        whole = measures.cpu(pid) * 1e3
        client.close()
    return first, whole


GROUPS: dict[str, Callable[[], Iterator[Row]]] = {
    "start": start,
    "plugin": plugin,
    "session": session,
    "sdk": sdk,
    "cassette": cassette,
    "server": server,
}


# --- history


def record(rows: list[Row]) -> None:
    """Append the ratios of this run to the history, and draw all of it."""
    commit = subprocess.run(
        ("git", "rev-parse", "--short", "HEAD"),  # noqa: S607 - the git of this checkout
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    ratios = {row.name.strip(): round(row.ratio, 3) for row in rows if row.ratio is not None}
    with HISTORY.open("a", encoding="utf-8") as file:
        # The load tells a run on a busy machine, whose caches others share.
        load = round(os.getloadavg()[0], 1)
        run = {"machine": machine, "load": load, "commit": commit, "ratios": ratios}
        file.write(json.dumps(run) + "\n")
    PLOT.write_text(draw([json.loads(line) for line in HISTORY.read_text().splitlines()]))


def draw(runs: list[dict[str, Any]]) -> str:
    """Return the last run as bars, one for each goal, with a mark for every earlier run."""
    names = list(runs[-1]["ratios"])
    scale, left, step = 200, 360, 22
    width, height = left + 3 * scale, step * (len(names) + 2)
    title = f"commit {runs[-1]['commit']}: share of each goal, lower is better; the line is it"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"',
        ' font-family="sans-serif" font-size="12">',
        f'<text x="{left}" y="14">{title}</text>',
    ]
    for index, name in enumerate(names, 1):
        ratio, y = runs[-1]["ratios"][name], step * index
        colour = "#2a9d5c" if ratio <= 1 else "#d1495b"
        width = max(0, min(ratio, 2.5)) * scale
        parts.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{name}</text>')
        parts.append(
            f'<rect x="{left}" y="{y + 4}" width="{width:.0f}" height="12" fill="{colour}"/>'
        )
        for run in runs[:-1]:
            if name in run["ratios"]:
                x = left + min(run["ratios"][name], 2.5) * scale
                parts.append(f'<circle cx="{x:.0f}" cy="{y + 10}" r="3" fill="#8d99ae"/>')
        parts.append(f'<text x="{left + width + 6:.0f}" y="{y + 14}">{ratio:.2f}</text>')
    goal, bottom = left + scale, step * (len(names) + 1)
    parts.append(f'<line x1="{goal}" x2="{goal}" y1="{step}" y2="{bottom}" stroke="#333"/>')
    return "\n".join([*parts, "</svg>\n"])


def main() -> int:
    """Measure, print the table, and return 1 if a goal is missed."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users have compiled bytecode
    arguments = sys.argv[1:]
    keep = "--record" in arguments
    chosen = [name for name in arguments if name != "--record"] or list(GROUPS)
    if unknown := set(chosen) - GROUPS.keys():
        print(f"unknown group {unknown.pop()!r}; choose from {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    print(f"{'goal':44} {'today':34} {'peer':34} {'goal':22}verdict")
    for name in chosen:
        for row in GROUPS[name]():
            rows.append(row)
            verdict = "not measured" if row.ratio is None else "ok" if row.ratio <= 1 else "MISSED"
            print(f"{row.name:44} {row.figure:34} {row.peer:34} {row.goal:22}{verdict}", flush=True)
    if keep:
        record(rows)
    return int(any(row.ratio is not None and row.ratio > 1 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
