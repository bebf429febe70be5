"""Tapes: real clients are replayed, and twelve recorded failures are shrunk.

Budgets: each installed client is recorded once and replays ten times without a difference. Each
tape of a failure becomes as short as the table says, and the median takes at most twice as many
replays as its tape has interactions. The CPU time is printed, it has no budget.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from offbook import Cassette
from offbook.errors import OffbookError
from tests.clients import CLAUDE, CODEX, GEMINI, OPENCODE
from tests.runs.shrunk_failures import FAILURES, record_failure
from tests.runs.taped_clients import replay_client

REPLAYS = 10


def main() -> int:
    """Replay the clients and shrink the failures; return 1 if a budget is exceeded."""
    return int(replay_clients() or shrink_failures())


def replay_clients() -> bool:
    """Return whether a replay of a client differs."""
    differs = False
    for shell in (CODEX, CLAUDE, GEMINI, OPENCODE):
        if shell.client.find() is None:
            print(f"{shell!s:34} not installed")
            continue
        with tempfile.TemporaryDirectory() as name:
            try:
                passed = replay_client(shell, Path(name), REPLAYS)
                print(f"{shell!s:34} {passed} of {REPLAYS} replays without a difference")
            except OffbookError as error:
                print(f"{shell!s:34} {error}")
                passed = 0
            differs = differs or passed < REPLAYS
    return differs


def shrink_failures() -> bool:
    """Return whether a budget of the twelve failures is exceeded."""
    os.environ.setdefault("OPENAI_API_KEY", "none")
    lengths: list[int] = []
    recorded: list[int] = []
    seconds: list[float] = []
    ratios: list[float] = []
    exceeded = False
    with tempfile.TemporaryDirectory() as name:
        for number, (title, failure) in enumerate(FAILURES.items()):
            long, short = Path(name, f"long{number}.yaml"), Path(name, f"short{number}.yaml")
            record_failure(failure, long)
            start = time.process_time()
            shrunk = Cassette(long, tracks="model,people").shrink(failure.test, short)
            seconds.append(time.process_time() - start)
            lengths.append(shrunk.interactions)
            recorded.append(shrunk.recorded)
            ratios.append(shrunk.replays / shrunk.recorded)
            exceeded = exceeded or shrunk.interactions > failure.shortest
            print(
                f"{title:34} {shrunk.recorded:3} → {shrunk.interactions} interactions"
                f" {shrunk.replays:4} replays {seconds[-1]:6.2f} s"
            )
    print(
        f"median {statistics.median(recorded):g} → {statistics.median(lengths):g} interactions,"
        f" {statistics.median(seconds):.2f} s of CPU,"
        f" {statistics.median(ratios):.1f} replays for each recorded interaction"
    )
    return exceeded or statistics.median(ratios) > 2


if __name__ == "__main__":
    sys.exit(main())
