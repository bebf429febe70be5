"""A writer that is killed at any moment loses nothing it has acknowledged, and tears no file."""

from __future__ import annotations

import os
import random
import select
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from offbook.checks.expected_files import (
    FileMove,
    Review,
    Snapshot,
    compare_snapshots,
    pending_change,
)
from offbook.evals import CaseResult, RunDirectory, read_results
from offbook.evals.run_directory import RunPlan
from offbook.files import write_atomic
from offbook.goldens.fixture_store import read_scenarios, write_fixture
from offbook.sources.cassette import RecordedResponse, Recording, load_cassette, trim_cassette
from tests.sources.cassette.conversations import Counting
from tests.thorough import THOROUGH

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked writer")
POINTS = 100 if THOROUGH else 15  # for each writer
GOLDEN = Path(__file__).parents[2] / "fixtures/golden/hub/subscribe-list.jsonl"


class Writer(NamedTuple):
    """Writes again and again, and yields after each write; `stored` reads how many are there.

    `stored` raises if a file is half-written.
    """

    write: Callable[[Path], Iterator[None]]
    stored: Callable[[Path], int]


def run_eval(folder: Path) -> Iterator[None]:
    directory = RunDirectory(folder / "run")
    directory.begin(RunPlan("run", [], [], "", "1"))
    for number in range(400):
        directory.append(CaseResult(f"case {number}", label="x" * 3000))
        yield


def count_results(folder: Path) -> int:
    results = [*read_results(folder / "run")]
    assert [result.id for result in results] == [f"case {n}" for n in range(len(results))]
    RunDirectory(folder / "run").close()  # the lock of the killed run is free
    return len(results)


def update_golden(folder: Path) -> Iterator[None]:
    (scenario,) = read_scenarios(GOLDEN)
    for number in range(200):
        fixture = msgspec.structs.replace(scenario.fixture, scenario=f"{number}")
        write_fixture(folder / "hub/case.jsonl", fixture, scenario.rule)
        yield


def count_updates(folder: Path) -> int:
    (scenario,) = read_scenarios(folder / "hub/case.jsonl")
    return int(scenario.fixture.scenario) + 1


def review(folder: Path) -> Iterator[None]:
    approved, proposed = folder / "one.json", folder / "one.json.proposed"
    for number in range(200):
        write_atomic(proposed, f"{number} " + "x" * 50_000 + " end")
        moves = [FileMove(str(proposed), str(approved))]
        difference = compare_snapshots(Snapshot({}), Snapshot({}))
        change = pending_change("snapshot", "one", moves, difference)
        Review([change]).accept(change)
        yield


def count_accepted(folder: Path) -> int:
    words = (folder / "one.json").read_text().split()
    assert words[-1] == "end"
    return int(words[0]) + 1


def edit_cassette(folder: Path) -> Iterator[None]:
    path = folder / "shop.yaml"
    with Recording(Counting(), path) as recording:
        for number in range(60):
            response = RecordedResponse(output=f"answer {number} " + "x" * 500)
            recording.record_output(f"question {number}", response, hat="a")
    yield
    for _ in range(58):
        trim_cassette(path, [1])
        yield


def count_edits(folder: Path) -> int:
    return 61 - len(load_cassette(folder / "shop.yaml"))


WRITERS = {
    "eval": Writer(run_eval, count_results),
    "golden update": Writer(update_golden, count_updates),
    "review": Writer(review, count_accepted),
    "cassette edit": Writer(edit_cassette, count_edits),
}


def kill_after(writer: Writer, folder: Path, acknowledged: int, seconds: float) -> int:
    """Kill a writer some time after it has acknowledged writes; return how many it has."""
    reader, pipe = os.pipe()
    child = os.fork()
    if not child:
        try:
            for _ in writer.write(folder):
                os.write(pipe, b".")
            signal.pause()  # it must not end before it is killed
        except BaseException:  # noqa: BLE001 - shown, and never raised in two processes
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(pipe)
    marks = b""
    while len(marks) < acknowledged:
        mark = os.read(reader, 1)
        assert mark, "the writer has failed"
        marks += mark
    select.select([], [], [], seconds)
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    while more := os.read(reader, 4096):
        marks += more
    os.close(reader)
    return len(marks)


@pytest.mark.parametrize("name", WRITERS)
def test_a_killed_writer_has_written_what_it_acknowledged(name: str, tmp_path: Path):
    moments = random.Random(name)  # noqa: S311 - the moments of the kills
    for point in range(POINTS):
        folder = tmp_path / str(point)
        folder.mkdir()
        done = kill_after(WRITERS[name], folder, 1 + point % 4, moments.random() * 0.01)
        assert done <= WRITERS[name].stored(folder) <= done + 1
