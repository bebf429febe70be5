"""Patterns: a test, a fresh harness, and large graphs, against reaktiv and @preact/signals-core.

Budgets: a typical test in 1 ms of CPU, a fresh harness in 200 µs. In a harness, which computes each
value twice and records it, a change of a grid of 161 nodes in 1 ms and of a fan-out of 10,000 in
120 ms. On equal work (a plain runtime), ahead of reaktiv. A push to 10,000 items in 1 ms.

The peers are installed into a temporary folder. From 0.22 on, the notification of reaktiv is
exponential in the layers of a grid, so its newest version has a grid of 6 layers only.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import reaktiv

from offbook.patterns import Cell, Runtime, computed, create_harness, default, handler, pattern
from offbook.patterns.graph import Store


@handler
def increment(_event: Any, value: Any) -> None:
    """Add one."""
    value.set(value.get() + 1)


@pattern
def counter(value: Cell[int] = default(0)) -> dict[str, Any]:
    """Count."""
    return {
        "value": value,
        "double": computed(lambda: value.get() * 2),
        "increment": increment(value=value),
    }


def run_test() -> None:
    """Run a typical test of a pattern."""
    with create_harness() as h:
        loaded = h.load(counter, {"value": 1})
        loaded.result.increment.send()
        h.idle()
        assert loaded.result.double == 4


def run_empty() -> None:
    """Make and dispose a harness."""
    with create_harness():
        pass


def cpu(function: Callable[[], Any], repeat: int = 1) -> float:
    """Return the CPU seconds of one call."""
    start = time.process_time()
    for _ in range(repeat):
        function()
    return (time.process_time() - start) / repeat


def build_fan_out(size: int, make: Callable[[Callable[[], Any]], Any], read: Any) -> Any:
    """Return the sum of many computed values of one source."""
    nodes = [make(lambda i=i: read() + i) for i in range(size)]
    return make(lambda: sum(node() for node in nodes))


def build_grid(width: int, height: int, make: Callable[[Callable[[], Any]], Any], read: Any) -> Any:
    """Return the sum of the last layer of a grid over one source, with three edges per node."""
    layer: list[Any] = [read] * width
    for _ in range(height):
        layer = [
            make(lambda b=layer, at=at: (b[at]() + b[at - 1]() + b[at - 2]()) % 1_000)
            for at in range(width)
        ]
    return make(lambda: sum(node() for node in layer))


def build_chain(length: int, make: Callable[[Callable[[], Any]], Any], read: Any) -> Any:
    """Return the last of computed values that each read the one before."""
    for _ in range(length):
        read = make(lambda before=read: before() + 1)
    return read


BUILDERS: dict[str, Callable[..., Any]] = {
    "fan-out of 10,000": lambda make, read: build_fan_out(10_000, make, read),
    "fan-out, equal value": lambda make, read: build_fan_out(
        1_000, make, make(lambda: read() // 1_000_000)
    ),
    "chain of 50": lambda make, read: build_chain(50, make, read),
    "grid of 161": lambda make, read: build_grid(10, 16, make, read),
    "grid of 6 layers": lambda make, read: build_grid(10, 6, make, read),
}


def change_in_runtime(name: str) -> float:
    """Return the CPU seconds of a change, in a plain runtime."""
    runtime = Runtime()
    source = Cell(runtime, Store("source", 0))
    kept: list[Any] = []

    def make(function: Callable[[], Any]) -> Callable[[], Any]:
        kept.append(runtime.computed(function))
        return kept[-1].get

    BUILDERS[name](make, source.get)
    kept[-1].sink(lambda _: None)

    def change() -> None:
        source.set(source.sample() + 1)
        runtime.flush()

    return least(change)


def change_in_harness(name: str) -> float:
    """Return the CPU seconds of a change, in a harness."""

    @pattern
    def graph(source: Cell[int] = default(0)) -> dict[str, Any]:
        kept: list[Any] = []

        def make(function: Callable[[], Any]) -> Callable[[], Any]:
            kept.append(computed(function))
            return kept[-1].get

        BUILDERS[name](make, source.get)
        return {"total": kept[-1], "kept": kept}

    with create_harness() as h:
        loaded = h.load(graph)
        h.subscribe(loaded.outputs.total, lambda _: None)

        def change() -> None:
            loaded.cells.source.set(loaded.cells.source.sample() + 1)
            h.idle()

        return least(change)


def change_in_reaktiv(name: str) -> float:
    """Return the same for the reaktiv of this process."""
    source = reaktiv.Signal(0)
    total = BUILDERS[name](reaktiv.Computed, source)
    effect = reaktiv.Effect(lambda: total() and None)
    seconds = least(lambda: source.set(source() + 1), 3)
    effect.dispose()
    return seconds


def least(change: Callable[[], Any], times: int = 10) -> float:
    """Return the CPU seconds of the fastest of several calls."""
    return min(cpu(change) for _ in range(times))


def run_reaktiv(wanted: str, name: str) -> float:
    """Return the CPU seconds of a change with a version of reaktiv, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        pip = ["uv", "pip"] if shutil.which("uv") else [sys.executable, "-m", "pip"]
        install = [*pip, "install", "--quiet", "--target", folder, f"reaktiv=={wanted}"]
        subprocess.run(install, check=True)
        command = [sys.executable, __file__, "--reaktiv", name]
        environment = {**os.environ, "PYTHONPATH": folder}  # before the installed version
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found, seconds = run.stdout.split()
    assert found == wanted
    return float(seconds)


SIGNALS = """
const { signal, computed, effect } = require("@preact/signals-core");
const layers = { "grid of 161": 16, "grid of 6 layers": 6 }[process.argv[1]];
const source = signal(0);
let nodes;
if (process.argv[1] === "chain of 50") {
  let last = source;
  for (let n = 0; n < 50; n++) {
    const b = last;
    last = computed(() => b.value + 1);
  }
  nodes = [last];
} else if (process.argv[1] === "fan-out, equal value") {
  const same = computed(() => Math.floor(source.value / 1e6));
  nodes = Array.from({ length: 1000 }, (_, i) => computed(() => same.value + i));
} else if (layers) {
  nodes = Array(10).fill(source);
  for (let n = 0; n < layers; n++) {
    const b = nodes;
    const sum = (at) => b[at].value + b.at(at - 1).value + b.at(at - 2).value;
    nodes = b.map((_, at) => computed(() => sum(at) % 1000));
  }
} else nodes = Array.from({ length: 10000 }, (_, i) => computed(() => source.value + i));
const total = computed(() => nodes.reduce((sum, node) => sum + node.value, 0));
effect(() => { total.value; });
let least = Infinity;
for (let run = 0; run < 50; run++) {
  const start = process.cpuUsage();
  source.value += 1;
  const used = process.cpuUsage(start);
  least = Math.min(least, used.user + used.system);
}
console.log(least / 1e6);
"""


def run_signals(folder: str, name: str) -> float:
    """Return the CPU seconds of a change with @preact/signals-core, in Node.js."""
    command = ["node", "-e", SIGNALS, name]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return float(run.stdout)


def other_work() -> dict[str, tuple[float, float]]:
    """Return CPU seconds of offbook and of reaktiv for work without a graph."""
    runtime = Runtime()
    cell, signal = Cell(runtime, Store("source", 0)), reaktiv.Signal(0)
    watched, observed = Cell(runtime, Store("watched", 0)), reaktiv.Signal(0)
    effects = [reaktiv.Effect(lambda: observed() and None) for _ in range(1_000)]
    for _ in range(1_000):
        runtime.effect(lambda: watched.get() and None)

    def change() -> None:
        watched.set(watched.sample() + 1)
        runtime.flush()

    def make_cells() -> None:
        kept.append([Cell(runtime, Store("source", n)) for n in range(1_000)])

    def make_signals() -> None:
        kept.append([reaktiv.Signal(n) for n in range(1_000)])

    kept: list[Any] = []
    work: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "1,000 new cells": (make_cells, make_signals),
        "1,000 reads": (
            lambda: [cell.get() for _ in range(1_000)],
            lambda: [signal() for _ in range(1_000)],
        ),
        "1,000 writes": (
            lambda: [cell.set(n) for n in range(1_000)],
            lambda: [signal.set(n) for n in range(1_000)],
        ),
        "change of 1,000 effects": (change, lambda: observed.set(observed() + 1)),
    }
    figures = {name: (least(ours), least(theirs)) for name, (ours, theirs) in work.items()}
    for effect in effects:
        effect.dispose()
    return figures


def push(items: int) -> float:
    """Return the CPU seconds of a push to a list that a computed value and its rows read."""
    runtime = Runtime()
    cell = Cell(runtime, Store("items", [{"n": n} for n in range(items)]))
    rows = cell.map(lambda item: item)
    assert len(rows.get()) == items
    return least(lambda: cell.push({"n": 0}))


def grid(width: int, height: int) -> float:
    """Return the CPU seconds for a change of a layered grid with three edges per node."""
    runtime = Runtime()
    source = [Cell(runtime, Store("source", 1)) for _ in range(width)]
    layer: list[Any] = source
    for _ in range(height):
        layer = [
            runtime.computed(
                lambda before=layer, at=at: (
                    (before[at].get() + before[at - 1].get() + before[at - 2].get()) % 1_000
                )
            )
            for at in range(width)
        ]
    for node in layer:
        node.sink(lambda _: None)

    def change() -> None:
        for cell in source:
            cell.set(cell.sample() + 1)
        runtime.flush()

    return cpu(change, 2)


def chain(length: int) -> float:
    """Return the CPU seconds for a change at the beginning of a chain."""
    runtime = Runtime()
    source = Cell(runtime, Store("source", 0))
    node: Any = source
    for _ in range(length):
        node = runtime.computed(lambda before=node: before.get() + 1)
    node.sink(lambda _: None)

    def change() -> None:
        source.set(source.sample() + 1)
        runtime.flush()

    return cpu(change)


def growth(writes: int) -> float:
    """Return the growth of the process in MB over many writes, after a tenth of them."""
    runtime = Runtime()
    source = Cell(runtime, Store("source", 0))
    for number in range(writes):
        source.set(number)
        if number == writes // 10:
            before = peak_memory()
    return peak_memory() - before


def peak_memory() -> float:
    """Return the peak memory of this process, in MB."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (1024 * 1024 if sys.platform == "darwin" else 1024)


def main() -> int:
    """Print all figures; return 1 if a budget is exceeded or reaktiv is ahead."""
    missed: list[str] = []

    def show(name: str, figure: float, unit: str, budget: float) -> None:
        print(f"{name:31}{figure:8.2f} {unit}      budget {budget:g}")
        if figure > budget:
            missed.append(f"{name}: {figure:.2f} {unit}, budget {budget:g}")

    run_test()
    show("a test", cpu(run_test, 200) * 1e3, "ms", 1)
    show("a fresh harness", cpu(run_empty, 1000) * 1e6, "µs", 200)
    show("push on 10,000 items", push(10_000) * 1e3, "ms", 1)
    for name, budget in (("grid of 161", 1), ("fan-out of 10,000", 120)):
        show(f"{name} in a harness", change_in_harness(name) * 1e3, "ms", budget)
    print("one change, on equal work     offbook   reaktiv 0.21.5   0.24.2   @preact/signals-core")
    with tempfile.TemporaryDirectory() as folder:
        install = ["npm", "install", "--silent", "--no-fund", "--no-audit", "@preact/signals-core"]
        subprocess.run(install, cwd=folder, check=True, capture_output=True)
        for name in BUILDERS:
            peers = [run_reaktiv("0.21.5", name), float("nan"), run_signals(folder, name)]
            if name != "grid of 161":
                peers[1] = run_reaktiv("0.24.2", name)
            ours = change_in_runtime(name)
            figures = [f"{seconds * 1e3:9.3f}" for seconds in (ours, *peers)]
            print(f"  {name:25}{'  '.join(figures)} ms")
            if any(ours > peer for peer in peers[:2]):
                missed.append(f"{name}: reaktiv is ahead")
    for name, (ours, theirs) in other_work().items():
        print(
            f"  {name:25}{ours * 1e3:9.3f}  {theirs * 1e3:9.3f} ms (reaktiv {version('reaktiv')})"
        )
        if ours > theirs:
            missed.append(f"{name}: reaktiv is ahead")
    small, large = grid(100, 50), grid(100, 100)
    times = f"{large / small:.2f} times 100 x 50"
    print(f"grid of 100 x 100             {large * 1e3:8.1f} ms      {times}")
    print(f"chain of 100,000              {chain(100_000) * 1e3:8.1f} ms")
    print(f"growth over a million writes  {growth(1_000_000):8.2f} MB")
    print(*missed, sep="\n")
    return int(bool(missed))


if __name__ == "__main__":
    if "--reaktiv" in sys.argv:
        print(version("reaktiv"), change_in_reaktiv(sys.argv[-1]))
        sys.exit()
    sys.exit(main())
