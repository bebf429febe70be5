"""Defaults apply to the rehearsals that are opened inside of their block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offbook import drive, say, when
from offbook.determinism import current_llm, parse_faults, use_variable
from offbook.errors import CheckFailed, ScriptUnfinished
from offbook.files import ReusedFolder
from offbook.runs import Rehearsal, RehearsalDefaults, SyncBridge, use_defaults
from offbook.subjects import MOCKS_USED
from offbook.trace import COLLECT_TRACES, Verdict
from tests.runs.echo_subject import HELLO, Always, Echo

UNFINISHED = when("One", [say("1"), say("never")])


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let nothing read the traces of all runs."""
    monkeypatch.delenv(COLLECT_TRACES, raising=False)
    monkeypatch.setattr("offbook.trace.recorder._observers", [])
    monkeypatch.chdir(tmp_path)


def test_a_rehearsal_without_options_has_the_automatic_assertions():
    with Rehearsal(Echo()) as t, pytest.raises(ScriptUnfinished):
        t.run(UNFINISHED)
    t = Rehearsal(Echo(Verdict(MOCKS_USED, "fail", "a mock was never used")))
    t.run(HELLO)
    with pytest.raises(CheckFailed):
        t.dispose()


def test_the_source_is_that_of_the_defaults_in_the_block_only():
    with use_defaults(RehearsalDefaults(source=Always())), drive(Echo()) as t:
        assert t.run("Hello").output == "from a source"
    with drive(Echo()) as t:
        assert t.run(HELLO).output == "Hi!"


def test_a_source_of_the_call_comes_before_that_of_the_defaults():
    class Never(Always):
        text = "never"

    with use_defaults(RehearsalDefaults(source=Never())), drive(Echo(), source=Always()) as t:
        assert t.run("Hello").output == "from a source"


class Scope(Always):
    """The scope of mocks that a test has opened."""

    text = "from the scope"

    def __init__(self, *, has_lines: bool) -> None:
        self.has_lines = has_lines


def test_a_scope_of_mocks_with_lines_is_the_source_if_there_is_no_other():
    with use_variable(current_llm, Scope(has_lines=True)):
        with drive(Echo()) as t:
            assert t.run("Hello").output == "from the scope"
        with drive(Echo(), source=Always()) as t:
            assert t.run("Hello").output == "from a source"
    with use_variable(current_llm, Scope(has_lines=False)), drive(Echo()) as t:
        assert t.run(HELLO).output == "Hi!"


def test_without_the_assertions_of_the_defaults_an_unfinished_script_passes():
    with use_defaults(RehearsalDefaults(auto_assert=False)), drive(Echo()) as t:
        assert t.run(UNFINISHED).output == "1"


def test_the_trace_is_the_file_of_the_defaults_or_that_of_the_call(tmp_path: Path):
    defaults = RehearsalDefaults(trace=tmp_path / "default.jsonl")
    with use_defaults(defaults), drive(Echo()) as t:
        t.run(HELLO)
    assert (tmp_path / "default.jsonl").exists()
    with use_defaults(defaults), drive(Echo(), trace=tmp_path / "own.jsonl") as t:
        t.run(HELLO)
    assert (tmp_path / "own.jsonl").exists()


def test_a_trace_without_a_path_is_in_the_temporary_folder():
    with drive(Echo()) as t:
        t.run(HELLO)
        assert t.trace == t.cwd.parent / "trace.jsonl"
        assert t.trace.exists()


@pytest.mark.usefixtures("unread")
def test_a_run_in_memory_has_events_and_no_file():
    with use_defaults(RehearsalDefaults(in_memory=True)), drive(Echo()) as t:
        assert t.run(HELLO).output == "Hi!"
        assert [verdict.status for verdict in t.events.verdicts] == ["pass"]
        assert not t.trace.exists()


@pytest.mark.usefixtures("unread")
def test_a_run_in_memory_has_a_file_where_all_traces_are_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv(COLLECT_TRACES, str(tmp_path))
    with use_defaults(RehearsalDefaults(in_memory=True)), drive(Echo()) as t:
        t.run(HELLO)
        assert t.trace.exists()


def test_an_empty_working_directory_is_used_again():
    reused = ReusedFolder()
    with use_defaults(RehearsalDefaults(folder=reused, in_memory=True)):
        for _ in range(2):
            with drive(Echo()) as t:
                t.run(HELLO)
                assert t.cwd.is_dir()
    reused.remove()


def test_a_reused_folder_is_empty_for_each_rehearsal():
    folders: list[Path] = []
    reused = ReusedFolder()
    with use_defaults(RehearsalDefaults(folder=reused)):
        for _ in range(2):
            with drive(Echo()) as t:
                t.run(HELLO)
                assert list(t.cwd.iterdir()) == []
                (t.cwd / "file").write_text("x")
            folders.append(t.cwd)
        with drive(Echo()) as t:  # an empty folder cwd is kept
            t.run(HELLO)
        with drive(Echo()) as t:
            t.run(HELLO)
            assert t.cwd.is_dir()
    reused.remove()
    assert folders[0] == folders[1]
    assert not folders[0].exists()


def test_the_event_loop_of_the_defaults_is_used():
    used: list[object] = []

    class Bridge(SyncBridge):
        def run(self, work: Any) -> Any:
            used.append(work)
            return super().run(work)

    with use_defaults(RehearsalDefaults(bridge=Bridge())), drive(Echo()) as t:
        t.run(HELLO)
    assert len(used) == 3  # open, run, dispose


def test_the_faults_are_those_of_the_defaults_or_those_of_the_call():
    defaults = RehearsalDefaults(
        faults=parse_faults({"kinds": ["slow@1"], "delay": 0.001}), auto_assert=False
    )
    with use_defaults(defaults):
        for faults, kind in ((None, "slow"), (["status@1"], "status")):
            with drive(Echo(patient=True), faults=faults) as t:
                [fault] = t.run(HELLO).faults
                assert fault.kind == kind
