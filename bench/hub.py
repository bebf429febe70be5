"""The hub: deliveries per second, constant memory, and replays of fixtures.

Budgets: 300,000 deliveries per second with 10 subscribers; 500 fixtures in one second of CPU; a
million events without growth.
"""

import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from offbook.goldens.components import Component
from offbook.goldens.fixture_store import FixtureStore, GoldenFixture
from offbook.goldens.golden_replay import replay_all
from offbook.trace.events import Event
from offbook.trace.hub import Hub


def ignore(event: Event) -> None:
    """Do nothing, as a listener."""


def measure_deliveries() -> float:
    """Return the deliveries per second of CPU, with ten subscribers."""
    hub = Hub()
    for _ in range(10):
        hub.subscribe(ignore)
    start = time.process_time()
    for _ in range(50_000):
        hub.emit("tool.call", {"tool": "bash"})
    return 500_000 / (time.process_time() - start)


def measure_growth() -> float:
    """Return the growth of the process in MB over a million events, after the first 100,000."""
    hub = Hub()
    hub.subscribe(ignore)
    hub.subscribe(ignore, "tool.*")
    with hub.scoped(agent="planner"):
        for number in range(1_000_000):
            hub.emit("tool.call", {"number": number})
            if number == 100_000:
                before = peak_memory()
    return peak_memory() - before


def peak_memory() -> float:
    """Return the peak memory of this process, in MB."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (1024 * 1024 if sys.platform == "darwin" else 1024)


def measure_replays(folder: Path) -> float:
    """Return the CPU seconds for reading and replaying 500 fixtures of ten steps."""
    store = FixtureStore(folder)
    context = {"sessionId": "s"}
    for number in range(500):
        names = [f"agent:{number}:{step}" for step in range(10)]
        steps = [{"type": "emit", "event": {"type": name, "n": number}} for name in names]
        events = [{"event": {"type": name, "n": number}, "context": context} for name in names]
        fixture = GoldenFixture("s", f"f{number}", steps, {"events": events, "status": "idle"})
        path = store.fixture_path("golden", "hub", f"f{number}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(fixture) + b"\n")
    start = time.process_time()
    replays = asyncio.run(replay_all(store.scenarios(), lambda _: Component))
    spent = time.process_time() - start
    assert len(replays) == 500
    assert all(replay.ok for replay in replays)
    return spent


def main() -> None:
    """Measure, print, and fail if a budget is exceeded."""
    deliveries = measure_deliveries()
    print(f"deliveries with 10 subscribers: {deliveries:,.0f} per second (at least 300,000)")
    growth = measure_growth()
    print(f"growth over a million events: {growth:.1f} MB (at most 1)")
    with tempfile.TemporaryDirectory() as folder:
        spent = measure_replays(Path(folder))
    print(f"500 fixtures replayed: {spent:.2f} s of CPU (at most 1)")
    assert deliveries >= 300_000
    assert growth <= 1
    assert spent <= 1


if __name__ == "__main__":
    main()
