"""The speed goals in one table: today's figure, the peer's, the goal and the verdict.

    ./dev bench                      all groups
    ./dev bench goals start cassette the named groups
    ./dev bench --record             also append the ratios to bench/history.jsonl and draw
                                     docs/images/speed.svg from it; exit with 1 if one is more than
                                     15 % worse than the median of the last five on this machine
    ./dev bench --plot               only draw it

Times are CPU of user and system, the least of several processes. Servers are asked in turns, at
least three processes of each, and the ranges are printed. The goal is met by a ratio of at most 1.

A goal is a multiple of a floor that the same run measures: what the work costs without Offbook. So
it says the same on any machine. Where it was a time, the multiple is at most that time in units of
the floor, on the machine where it was set:

    offbook --version, --help      50 ms, Python alone 16: 3.1 x, now 1.75 x and 2 x
    guarded test                   0.3 ms, Python alone 16: 1/53, now 1/60
    first guarded test             20 ms, Python alone 16: 1.25 x, now 1 x
    prompt in a session            220 µs, bare Python 44: 5 x
    cassette show                  2 s, where it took 1.7 s: 1.18 times its cost, which was 3.9 x
                                   the floor, so 4.6 x; now 3.2 x
    cassette list, stats, upgrade  1, 3 and 6 s, where they took 0.4, 1.7 and 2.6 s: 2.7, 1.7 and
                                   2.3 times their cost, which is 3, 3 and 4.5 x the floor, so 8,
                                   5.1 and 10 x; now 4 x, 3.7 x and 5.6 x
    serve, to the first reply      120 ms, bare Python 97: 1.23 x
    serve, first 200               170 ms, bare Python 105: 1.6 x
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, cast

BENCH = Path(__file__).parent
HISTORY = BENCH / "history.jsonl"
PLOT = BENCH.parent / "docs" / "images" / "speed.svg"
PYTHON = sys.executable
OFFBOOK = str(Path(PYTHON).parent / "offbook")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "offbook-bench"
STARTS = 10
PROCESSES = 3
SOAK = 100_000
INTERACTIONS = 5000
RECORDS = 5  # of the history, with which a run is compared
LOSS = 1.15
FLOOR = 1.25  # of what the same work costs in bare Python, measured in the same run
PROMPT = 5.0  # likewise, of a prompt in a session


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


def near_floor(
    name: str, figure: float, unit: str, floor: float, peer: str, factor: float = FLOOR
) -> Row:
    """Return the row of a figure that must stay near that of the same work without Offbook."""
    row = at_most(name, figure, unit, factor * floor, peer)
    return row._replace(goal=f"≤ {factor:g} x the floor")


def spread(figures: list[float], digits: int = 0) -> str:
    """Return the median of figures with their range."""
    low, high = min(figures), max(figures)
    return f"{statistics.median(figures):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


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
    yield near_floor("import of when, call, say, session", imported, "ms", msgspec, peer)
    peer = f"Python {empty:.0f}"
    yield near_floor("offbook --version", version, "ms", empty, peer, factor=1.75)
    yield near_floor("offbook --help", usage, "ms", empty, peer, factor=2)
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
    """The pytest plugin: loaded at the start of pytest, and the guard of a test."""
    # Of the plugin alone: next to a whole run of pytest, a few milliseconds would be lost in noise.
    load = (
        "import sys, time, empty_plugin\n"
        "from _pytest.config import get_config\n"
        "plugins = get_config().pluginmanager\n"
        "plugins.import_plugin('empty_plugin')\n"  # the first one reads the entry points
        "begun = time.process_time()\n"
        "plugins.import_plugin(sys.argv[1])\n"
        "print((time.process_time() - begun) * 1e3)\n"
    )
    names = ("pytest_offbook.plugin", "table_package.plugin", "table_plugin")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "empty_plugin.py").write_text("")
        table, hooks = write_table_plugin()
        Path(folder, "table_plugin.py").write_text(f"{table}\n{hooks}")
        # A plugin of several modules is a package: each file that Python finds takes 0.2 ms.
        package = Path(folder, "table_package")
        package.mkdir()
        package.joinpath("__init__.py").write_text(table)
        package.joinpath("plugin.py").write_text(f"from table_package import ADDED\n{hooks}")
        path = os.pathsep.join((folder, str(BENCH.parent / "src")))  # all are found at once
        env = os.environ | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        costs = [
            [float(subprocess.check_output((PYTHON, "-c", load, name), env=env)) for name in names]
            for _ in range(STARTS)
        ]
    ours, package_cost, single = map(min, zip(*costs, strict=True))
    peer = f"a package that does nothing {package_cost:.2f}, one file {single:.2f}"
    yield near_floor("plugin loaded", ours, "ms", package_cost, peer)
    program = (
        "import time, pytest, _pytest.config\n"
        "begun = time.process_time()\n"
        "from offbook.surfaces.pytest_session import block_network, disable_telemetry\n"
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
    [empty] = least((PYTHON, "-c", "pass"))
    peer = f"Python {empty:.0f}"
    row = near_floor("guarded test", min(later), "ms", empty, peer, factor=1 / 60)
    yield row._replace(goal="≤ 1/60 of Python")
    yield near_floor("first guarded test", min(first), "ms", empty, peer, factor=1)


def write_table_plugin() -> tuple[str, str]:
    """Return a plugin with the options of ours as a table, and hooks and fixtures that do nothing.

    The two parts are those of a package: the table, and the plugin.
    """
    from pytest_offbook import plugin as ours

    added: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    class Parser:
        def getgroup(self, *_: str) -> Parser:
            return self

        def addoption(self, *args: Any, **named: Any) -> None:
            added.append(("addoption", args, named | {"type": None} if "type" in named else named))

        def addini(self, *args: Any, **named: Any) -> None:
            added.append(("addini", args, named))

    ours.pytest_addoption(cast("Any", Parser()))
    lines = [
        "import pytest",
        "def pytest_addoption(parser):",
        "    group = parser.getgroup('table')",
        "    for name, args, named in ADDED:",
        "        getattr(parser if name == 'addini' else group, name)(*args, **named)",
    ]
    for name, value in vars(ours).items():
        if type(value).__name__ == "FixtureFunctionDefinition":
            lines += ["@pytest.fixture", f"def {name}(request):", "    yield"]
        elif name.startswith("pytest_") and name != "pytest_addoption":
            names = ", ".join(inspect.signature(value).parameters)
            if options := getattr(value, "pytest_impl", None):
                lines.append(f"@pytest.hookimpl(**{options!r})")
            lines += [f"def {name}({names}):", "    return (yield)" if options else "    pass"]
    return f"ADDED = {added!r}", "\n".join(lines)


def session() -> Iterator[Row]:
    """A prompt with one tool call in a session."""
    import session as measures

    mine, floor = asyncio.run(measures.against_floor())
    ratios = [own / bare for own, bare in zip(mine, floor, strict=True)]
    peer = asyncio.run(measures.pydantic_ai())
    plain = asyncio.run(measures.bare(None))
    figure = f"TestModel {peer:.0f} µs, {peer / min(mine):.0f} x; bare Python {min(floor):.0f} µs"
    figure += f", {plain:.0f} without the search for secrets"
    yield Row(
        "prompt with one tool call in a session",
        f"{spread(ratios, 2)} x, {min(mine):.0f} µs",
        figure,
        f"≤ {PROMPT:g} x the floor",
        statistics.median(ratios) / PROMPT,
    )


def sdk() -> Iterator[Row]:
    """Calls of an SDK that are answered in process."""
    import cassette
    import clients

    with tempfile.TemporaryDirectory() as folder:
        path = cassette.write_cassette(Path(folder, "c.yaml"), 1000)
        plain, bare, replayed = (1e6 * cost for cost in cassette.sdk_costs(path, 1000))
    peer = f"bare Python {bare:.0f} µs, mock transport {plain:.0f}"
    yield near_floor("replayed SDK call", replayed, "µs", bare, peer)
    costs = asyncio.run(clients.compare_agents())
    plain, bare = costs[clients.MOCKED], costs[clients.BARE]
    peer = f"bare Python {bare:.0f} µs, mock transport {plain:.0f}"
    # Most of it is the framework: a quarter more would hide a loss.
    yield near_floor("pydantic-ai run", costs["ours"], "µs", bare, peer, factor=1.1)


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
        program = str(BENCH / "floors" / "cassette.py")
        reading, parsing = ((PYTHON, program, name, str(path)) for name in ("list", "show"))
        upgrade = ("cassette", "edit", str(path), "--upgrade")
        commands = {
            "list": (("show", folder), reading, 4.0),
            "show": (("show", str(path)), parsing, 3.2),
            "stats": (("show", str(path), "--stats"), parsing, 3.7),
            "upgrade": (upgrade, parsing, 5.6),
        }
        for name, (command, bare, factor) in commands.items():
            turns = [(cpu(OFFBOOK, *command) / 1e3, cpu(*bare) / 1e3) for _ in range(STARTS // 2)]
            mine, floor = map(min, zip(*turns, strict=True))
            peer = f"bare Python {floor:.2f} s"
            yield near_floor(f"cassette {name}, {size}", mine, "s", floor, peer, factor)


def server() -> Iterator[Row]:
    """The server against aimock and bare Node, at least three processes of each."""
    import server as measures

    with suppress(OSError):
        os.sched_setaffinity(0, {1})
    starters = measures.starters(CACHE)
    runs = [
        {name: measures.first_requests(start) for name, start in starters.items()}
        for _ in range(STARTS)
    ]
    for index, (name, limit) in enumerate((("to the first reply", 1.23), ("first 200", 1.6))):
        costs = {who: [run[who][index] for run in runs] for who in starters}
        mine = costs.pop("ours")
        peers = ", ".join(f"{who} {spread(figures)}" for who, figures in costs.items())
        goal = f"≤ {limit:g} x bare Python" + ", below Node" * ("Node" in costs)
        floors = [limit * min(costs["bare Python"]), *map(min, filter(None, [costs.get("Node")]))]
        figure = f"{spread(mine)} ms, {min(mine) / min(costs['bare Python']):.2f} x"
        yield Row(f"offbook serve, {name}", figure, peers, goal, min(mine) / min(floors))
    chat, stream = measures.request(), measures.request(stream=True)
    history = measures.request(history=measures.TURNS)
    cases: list[tuple[str, Callable[[], Iterator[bytes]], tuple[bytes, ...], int, int, float]] = [
        ("chat, 32 clients", lambda: measures.vary(chat), measures.JSON_END, 2000, 6000, 2.4),
        ("stream, 32 clients", lambda: measures.vary(stream), measures.SSE_END, 1500, 6000, 3.1),
        (
            "conversation that grows to 109 kB",
            lambda: measures.grow(measures.TURNS),
            measures.JSON_END,
            measures.GROWTH,
            measures.GROWTH,
            3,
        ),
        (
            "conversation of 109 kB, all new",
            lambda: measures.vary(history),
            measures.JSON_END,
            384,
            768,
            1.2,
        ),
    ]
    memory: list[float] = []
    for name, requests, ending, count, warm_up, factor in cases:
        found: dict[str, list[float]] = {who: [] for who in starters}
        memory.clear()  # the memory of the last case is reported
        for _ in range(PROCESSES):
            with ExitStack() as stack:
                servers = {who: stack.enter_context(start()) for who, start in starters.items()}
                costs = measures.compare(servers, requests, ending, count, warm_up)
                memory.append(measures.resident(servers["ours"][0]))
            for who, cost in costs.items():
                found[who].append(cost)
        mine = found.pop("ours")
        peers = ", ".join(f"{who} {spread(figures)}" for who, figures in found.items())
        floor = [own / bare for own, bare in zip(mine, found["bare Python"], strict=True)]
        peers += f", {spread(floor, 2)} x bare Python"
        ratio: float | None = None
        figure = f"{spread(mine)} µs"
        if "aimock" in found:
            ratios = [theirs / own for own, theirs in zip(mine, found["aimock"], strict=True)]
            ratio = factor / statistics.median(ratios)
            figure = f"{spread(ratios, 2)} x, {figure}"
        yield Row(name, figure, peers, f"≥ {factor:g} x aimock", ratio)
    figure = f"{spread(memory)} MB"
    yield Row("  its resident memory", figure, "", "≤ 80 MB", max(memory) / 80)


def soak() -> Iterator[Row]:
    """The memory of the server over 100,000 requests."""
    import server as measures

    with suppress(OSError):
        os.sched_setaffinity(0, {1})
    sent = measures.vary(measures.request())
    CACHE.mkdir(parents=True, exist_ok=True)
    with measures.ours(CACHE) as (pid, port):
        client = measures.Client(port)
        memory: list[float] = []
        for _ in range(10):
            client.ask(sent, measures.JSON_END, SOAK // 10)
            memory.append(measures.resident(pid))
        client.close()
    first, last = memory[0], memory[-1]
    figure = f"{last / first:.2f} x, {first:.0f} to {last:.0f} MB"
    name = f"memory after {SOAK:,} requests"
    yield Row(name, figure, "", f"≤ 1.05 x after {SOAK // 10:,}", last / first / 1.05)


GROUPS: dict[str, Callable[[], Iterator[Row]]] = {
    "start": start,
    "plugin": plugin,
    "session": session,
    "sdk": sdk,
    "cassette": cassette,
    "server": server,
    "soak": soak,
}


# --- history


def record(rows: list[Row]) -> None:
    """Append the ratios of this run to the history."""
    commit = subprocess.run(
        ("git", "rev-parse", "--short", "HEAD"),  # noqa: S607 - the git of this checkout
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    ratios = {row.name.strip(): round(row.ratio, 3) for row in rows if row.ratio is not None}
    # The load marks a run on a busy machine, whose caches others share.
    load = round(os.getloadavg()[0], 1)
    run = {"machine": machine, "load": load, "commit": commit, "ratios": ratios}
    with HISTORY.open("a", encoding="utf-8") as file:
        file.write(json.dumps(run, ensure_ascii=False) + "\n")


def read_history() -> list[dict[str, Any]]:
    """Return the recorded runs, the oldest first."""
    return [json.loads(line) for line in HISTORY.read_text(encoding="utf-8").splitlines()]


def find_losses(runs: list[dict[str, Any]]) -> list[str]:
    """Return the goals of the last run that are worse than the median of those before it.

    Only runs on the same machine are compared. A ratio of 1 is the goal, and a higher one is worse.
    """
    *others, last = runs
    earlier = [run["ratios"] for run in others if run["machine"] == last["machine"]][-RECORDS:]
    losses: list[str] = []
    for name, ratio in last["ratios"].items():
        known = [ratios[name] for ratios in earlier if name in ratios]
        if known and ratio > LOSS * (usual := statistics.median(known)):
            losses.append(f"{name}: {ratio:.2f} of its goal, {usual:.2f} before")
    return losses


def draw(runs: list[dict[str, Any]]) -> str:
    """Return the history of each goal as a line of an SVG, from the oldest run to the newest."""
    names = list(dict.fromkeys(name for run in runs for name in run["ratios"]))
    left, chart, step = 330, 360, 30
    width, height = left + chart + 60, step * len(names) + 50
    last = runs[-1]
    title = f"share of each goal, {len(runs)} runs until {last['commit']} ({last['machine']})"
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            ' font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="20" font-weight="bold">{escape(title)}</text>',
        (
            '<text x="12" y="38" fill="#555">below the dashed line a goal is met; '
            "the top is twice the goal</text>"
        ),
    ]
    for index, name in enumerate(names):
        bottom = 50 + step * (index + 1) - 4
        scale = (step - 6) / 2  # a ratio of 2 is at the top
        points = [
            (left + chart * (n + 0.5) / len(runs), bottom - min(max(ratio, 0), 2) * scale)
            for n, run in enumerate(runs)
            if (ratio := run["ratios"].get(name)) is not None
        ]
        ratio = last["ratios"].get(name)
        colour = "#888" if ratio is None else "#2a7d4c" if ratio <= 1 else "#c1394b"
        goal = bottom - scale
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts += [
            f'<text x="{left - 12}" y="{bottom - 6}" text-anchor="end">{escape(name)}</text>',
            f'<path d="M{left} {goal:.1f}h{chart}" stroke="#bbb" stroke-dasharray="4 3"/>',
            f'<polyline points="{path}" fill="none" stroke="{colour}"/>',
            *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points),
        ]
        if ratio is not None:
            x = left + chart + 10
            parts.append(f'<text x="{x}" y="{bottom - 6}" fill="{colour}">{ratio:.2f}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main(arguments: list[str]) -> int:
    """Measure, print the table, and return 1 if a goal is missed."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users have compiled bytecode
    options = {argument for argument in arguments if argument.startswith("--")}
    chosen = [name for name in arguments if name not in options] or list(GROUPS)
    if unknown := (options - {"--record", "--plot"}) | (set(chosen) - GROUPS.keys()):
        known = ", ".join((*GROUPS, "--record", "--plot"))
        print(f"unknown argument {unknown.pop()!r}; choose from {known}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    if "--plot" not in options:
        rows = measure(chosen)
        if "--record" in options:
            record(rows)
    losses: list[str] = []
    if options:
        runs = read_history()
        PLOT.write_text(draw(runs), encoding="utf-8")
        losses = find_losses(runs) if rows else []
        print(*(f"SLOWER  {loss}" for loss in losses), sep="\n", end="\n" * bool(losses))
    return int(bool(losses) or any(row.ratio is not None and row.ratio > 1 for row in rows))


def measure(groups: list[str]) -> list[Row]:
    """Measure these groups; print each row when it is known, and return all."""
    rows: list[Row] = []
    print(f"{'work':42} {'today':32} {'peer':40} {'goal':20} verdict")
    for name in groups:
        for row in GROUPS[name]():
            rows.append(row)
            verdict = "not measured" if row.ratio is None else "ok" if row.ratio <= 1 else "MISSED"
            print(
                f"{row.name:42} {row.figure:32} {row.peer:40} {row.goal:20} {verdict}", flush=True
            )
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
