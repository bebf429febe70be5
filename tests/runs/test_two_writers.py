"""Two writers of one file are refused or serialised; a full disk costs no summary of the tests."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.errors import OffbookError, UsageError
from offbook.evals import RunDirectory
from offbook.files import close_locked, try_lock, write_atomic
from offbook.goldens.fixture_store import read_scenarios, write_fixture
from offbook.sources.cassette import RecordedResponse, Recording, load_cassette
from offbook.trace import Event, Recorder, read_trace
from offbook.workflows import Workspaces
from tests.sources.cassette.conversations import Counting

pytest_plugins = ["pytester"]
GOLDEN = Path(__file__).parents[2] / "fixtures/golden/hub/subscribe-list.jsonl"


@contextmanager
def open_trace(folder: Path) -> Generator[None]:
    recorder = Recorder(folder / "trace.jsonl", ts=0)
    recorder.record(Event(1, "first", {}, 1))
    yield
    recorder.record(Event(2, "last", {}, 2))
    recorder.close()
    assert not recorder.changed


@contextmanager
def open_cassette(folder: Path) -> Generator[None]:
    with Recording(Counting(), folder / "shop.yaml") as recording:
        recording.record_output("a", RecordedResponse(output="one"), hat="x")
        yield


@contextmanager
def open_run(folder: Path) -> Generator[None]:
    directory = RunDirectory(folder / "run")
    yield
    directory.close()


@contextmanager
def open_workspace(folder: Path) -> Generator[None]:
    workspaces = Workspaces(folder / "workspaces")
    if not workspaces.ids():
        workspaces.create("shop")
    with workspaces.find("shop").lock():
        yield


WRITERS: dict[str, Callable[[Path], Any]] = {
    "trace": open_trace,
    "cassette": open_cassette,
    "run of a pack": open_run,
    "workspace": open_workspace,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_second_writer_is_refused_until_the_first_has_ended(name: str, tmp_path: Path):
    first = WRITERS[name](tmp_path)
    with first, pytest.raises(OffbookError, match="another"), WRITERS[name](tmp_path):
        pass
    (tmp_path / "shop.yaml").unlink(missing_ok=True)  # a cassette is not replaced unasked
    with WRITERS[name](tmp_path):
        pass


def test_the_refused_writer_leaves_the_trace_of_the_first(tmp_path: Path):
    with open_trace(tmp_path), pytest.raises(UsageError, match="another run is writing"):
        Recorder(tmp_path / "trace.jsonl", ts=0)
    events, faults = read_trace(tmp_path / "trace.jsonl")
    assert ([event.event for event in events], faults) == (["first", "last"], [])


@contextmanager
def fork_that_waits() -> Generator[None]:
    """Fork this process, as an agent may do; the fork ends after the block."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(write)
        os.read(read, 1)  # until the parent closes the pipe
        os._exit(0)
    yield
    os.close(write)
    os.waitpid(child, 0)


@pytest.mark.parametrize("name", WRITERS)
def test_a_process_that_the_agent_forked_has_no_lock(name: str, tmp_path: Path):
    with ExitStack() as stack:
        with WRITERS[name](tmp_path):
            stack.enter_context(fork_that_waits())
        (tmp_path / "shop.yaml").unlink(missing_ok=True)
        with WRITERS[name](tmp_path):
            pass


@pytest.mark.parametrize("name", WRITERS)
def test_a_fork_that_outlives_a_killed_writer_has_no_lock(name: str, tmp_path: Path):
    read, write = os.pipe()
    locked, lock = os.pipe()
    writer = os.fork()
    if not writer:
        try:
            os.close(write)
            with WRITERS[name](tmp_path):
                if os.fork():
                    os.write(lock, b".")
                os.read(read, 1)
                os._exit(0)
        finally:
            os._exit(1)
    assert os.read(locked, 1)
    with pytest.raises(OffbookError, match="another"), WRITERS[name](tmp_path):
        pass
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    if name == "cassette":
        assert len(load_cassette(tmp_path / "shop.yaml")) == 1
        (tmp_path / "shop.yaml").unlink()
    with WRITERS[name](tmp_path):
        pass
    os.close(write)  # ends the fork


def test_a_fork_can_still_write_to_the_file_that_its_parent_has_locked(tmp_path: Path):
    file = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    assert try_lock(file)
    os.write(file, b"a")
    if not (child := os.fork()):
        os.write(file, b"b")
        os._exit(0)
    os.waitpid(child, 0)
    os.write(file, b"c")
    close_locked(file)
    assert (tmp_path / "file").read_bytes() == b"abc"


def write_goldens(folder: Path, writer: str) -> None:
    (scenario,) = read_scenarios(GOLDEN)
    for number in range(30):
        fixture = msgspec.structs.replace(scenario.fixture, scenario=f"{writer} {number}")
        write_fixture(folder / "hub/case.jsonl", fixture, scenario.rule)


def test_goldens_of_two_writers_are_whole(tmp_path: Path):
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write_goldens, args=(tmp_path, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    (scenario,) = read_scenarios(tmp_path / "hub/case.jsonl")
    assert scenario.fixture.scenario.endswith(" 29")
    names = {path.name for path in (tmp_path / "hub").iterdir()}
    assert names == {"case.jsonl", "case.match.json"}


def write_cassette(folder: Path) -> Path:
    with open_cassette(folder):
        pass
    assert len(load_cassette(folder / "shop.yaml")) == 1
    return folder / "shop.yaml"


def write_trace(folder: Path) -> Path:
    with open_trace(folder):
        pass
    return folder / "trace.jsonl"


def write_journal(folder: Path) -> Path:
    with open_cassette(folder):
        (journal,) = folder.glob(".*.journal")
        mode = stat.S_IMODE(journal.stat().st_mode)
    kept = folder / "mode"
    kept.touch(mode)
    return kept


@pytest.mark.parametrize("write", [write_trace, write_cassette, write_journal])
def test_a_file_with_prompts_and_answers_is_private(write: Callable[[Path], Path], tmp_path: Path):
    before = os.umask(0)
    try:
        assert stat.S_IMODE(write(tmp_path).stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_temporary_file_is_private_until_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    modes: list[int] = []
    fsync = os.fsync

    def watch(file: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(file).st_mode))
        fsync(file)

    monkeypatch.setattr(os, "fsync", watch)
    before = os.umask(0)
    try:
        write_atomic(tmp_path / "golden.json", "{}")
    finally:
        os.umask(before)
    assert modes == [0o600]


TESTS = """
from offbook import say, when

def test_passes(offbook):
    offbook.session().run(when("Hello", [say("Hi")]))

def test_has_no_space(offbook):
    offbook.session(trace="/dev/full").run(when("Hello", [say("Hi")]))
"""
UNWRITABLE = {
    "traces": (["--offbook-traces=file"], "No space left"),
    "page": (["--offbook-html=/dev/full"], "/dev/full was not written: No space left"),
    "page in a file": (["--offbook-html=file/page.html"], "page.html was not written"),
    "coverage": (["--offbook-coverage=file/coverage.json"], "coverage.json was not written"),
    "step summary": (["--offbook-github"], "no step summary: No space left"),
}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("name", UNWRITABLE)
def test_a_file_that_cannot_be_written_costs_no_summary(
    name: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    options, message = UNWRITABLE[name]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/dev/full")
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(TESTS)
    (pytester.path / "file").touch()
    plain = ("-p", "no:randomly", "-p", "no:cacheprovider")
    result = pytester.runpytest_inprocess(*plain, *options)
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"*{message}*"])
