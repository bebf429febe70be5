"""Patterns: a test, a fresh harness, and large graphs, against reaktiv.

Budgets: a typical test in 1 ms of CPU, a fresh harness in 200 µs; a fan-out of 10,000 at least 8
times as fast as reaktiv; a layered grid linear in its edges; a chain of 100,000; a million writes
without growth.

The peer of the budget is reaktiv 0.24.2, which is installed into a temporary folder; 0.21.5, which
the tests use, is faster and shown beside it. From 0.22 on, its notification of layered graphs is
exponential, and its chains end at a depth of some hundreds, so only the fan-out is compared.
"""

import os
import resource
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


def fan_out(size: int) -> float:
    """Return the CPU seconds for a change that reaches many computed values and then one."""
    runtime = Runtime()
    source = Cell(runtime, Store("source", 0))
    nodes = [runtime.computed(lambda i=i: source.get() + i) for i in range(size)]
    runtime.computed(lambda: sum(node.get() for node in nodes)).sink(lambda _: None)

    def change() -> None:
        source.set(source.sample() + 1)
        runtime.flush()

    return cpu(change, 3)


def fan_out_of_peer(version: str, size: int) -> float:
    """Return the same for a version of reaktiv, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        install = ["uv", "pip", "install", "--quiet", "--target", folder, f"reaktiv=={version}"]
        subprocess.run(install, check=True)
        command = [sys.executable, __file__, "--fan-out-of-reaktiv", str(size)]
        environment = {**os.environ, "PYTHONPATH": folder}  # before the installed version
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found, seconds = run.stdout.split()
    assert found == version
    return float(seconds)


def fan_out_of_reaktiv(size: int) -> float:
    """Return the same for the reaktiv of this process."""
    source = reaktiv.Signal(0)
    nodes = [reaktiv.Computed(lambda i=i: source() + i) for i in range(size)]
    total = reaktiv.Computed(lambda: sum(node() for node in nodes))
    effect = reaktiv.Effect(lambda: total() and None)
    seconds = cpu(lambda: source.set(source() + 1), 3)
    effect.dispose()
    return seconds


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


if __name__ == "__main__":
    if "--fan-out-of-reaktiv" in sys.argv:
        print(version("reaktiv"), fan_out_of_reaktiv(int(sys.argv[-1])))
        sys.exit()
    run_test()
    print(f"a test                        {cpu(run_test, 200) * 1e3:8.2f} ms      budget 1")
    print(f"a fresh harness               {cpu(run_empty, 1000) * 1e6:8.0f} µs      budget 200")
    ours = fan_out(10_000)
    ratios = [fan_out_of_peer(peer, 10_000) / ours for peer in ("0.24.2", "0.21.5")]
    print(f"fan-out of 10,000             {ours * 1e3:8.1f} ms")
    print(f"  times as fast as reaktiv 0.24.2 {ratios[0]:4.1f}         budget 8")
    print(f"  times as fast as reaktiv 0.21.5 {ratios[1]:4.1f}")
    small, large = grid(100, 50), grid(100, 100)
    times = f"{large / small:.2f} times 100 x 50"
    print(f"grid of 100 x 100             {large * 1e3:8.1f} ms      {times}")
    print(f"chain of 100,000              {chain(100_000) * 1e3:8.1f} ms")
    print(f"growth over a million writes  {growth(1_000_000):8.2f} MB")
