"""The hub: deliveries a second, memory that stays flat, and replays of fixtures.

Budgets: 300,000 deliveries a second with 10 subscribers; 500 fixtures within a second of CPU;
a million events without growing.
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
    """A listener with nothing to do."""


def measure_deliveries() -> float:
    """Deliveries a second of CPU, with ten subscribers."""
    hub = Hub()
    for _ in range(10):
        hub.subscribe(ignore)
    began = time.process_time()
    for _ in range(50_000):
        hub.emit("tool.call", {"tool": "bash"})
    return 500_000 / (time.process_time() - began)


def measure_growth() -> float:
    """How many megabytes the process grew by over a million events, after the first 100,000."""
    hub = Hub()
    hub.subscribe(ignore)
    hub.subscribe(ignore, "tool.*")
    with hub.scoped(agent="planner"):
        for number in range(1_000_000):
            hub.emit("tool.call", {"number": number})
            if number == 100_000:
                before = peak()
    return peak() - before


def peak() -> float:
    """The largest size of this process so far, in megabytes."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (1024 * 1024 if sys.platform == "darwin" else 1024)


def measure_replays(folder: Path) -> float:
    """The CPU seconds that 500 fixtures of ten steps take, reading them included."""
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
    began = time.process_time()
    replays = asyncio.run(replay_all(store.scenarios(), lambda _: Component))
    spent = time.process_time() - began
    assert len(replays) == 500
    assert all(replay.ok for replay in replays)
    return spent


def main() -> None:
    """Measure, print, and fail when a budget is broken."""
    deliveries = measure_deliveries()
    print(f"deliveries with 10 subscribers: {deliveries:,.0f} a second (at least 300,000)")
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
