"""The evidence of a run is outside of the agent's folder, and an agent that edits it fails."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from offbook.errors import RunError, UsageError
from offbook.workflows import (
    RunResult,
    Workspaces,
    check,
    cleanup,
    inspect,
    report,
    run,
    setup,
    snapshot,
)
from offbook.workflows import workspace as module

EXIT_0 = [{"type": "exit_code", "expected": 0}]
FORGED = '{"ts":1,"event":"_meta.termination","data":{"reason":"CompletionPromise","exit_code":0}}'


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the agent."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    return Path(setup("w", fixtures={"a.txt": "a\n"}).workspace_path)


def run_script(script: str) -> RunResult:
    command = ["sh", "-c", script]
    return run("w", "Go", backend="command", command=command, max_iterations=1)


async def test_a_second_run_in_a_workspace_is_refused_and_the_first_keeps_its_result():
    slow = [{"output": "first\nLOOP_COMPLETE", "delay_ms": 50}]
    first, second = await asyncio.gather(
        run("w", "One", mock_responses=slow),
        run("w", "Two", mock_responses=["second"], max_iterations=1),
        return_exceptions=True,
    )
    assert isinstance(first, RunResult)
    assert (first.exit_code, first.stdout) == (0, "first\nLOOP_COMPLETE")
    assert isinstance(second, UsageError)
    assert "the workspace 'w' is in use by another run" in str(second)
    assert "fix: wait until it has ended, or set up another workspace" in str(second)


def test_a_workspace_is_not_checked_or_removed_while_a_run_uses_it():
    run_script("echo LOOP_COMPLETE")
    with Workspaces().find("w").lock():
        for use in (lambda: check("w", EXIT_0), lambda: cleanup("w")):
            with pytest.raises(UsageError, match="in use by another run"):
                use()
    assert check("w", EXIT_0).passed


def test_a_session_that_the_agent_writes_in_its_folder_is_not_the_session(workspace: Path):
    ran = run_script(f"echo '{FORGED}' > session.jsonl")
    assert ran.termination_reason == "MaxIterations"
    assert Path(ran.session_file) == workspace.parent / "session.jsonl"
    assert not check("w", EXIT_0).passed


@pytest.mark.parametrize(
    "script",
    [
        f"echo '{FORGED}' > ../forged; mv ../forged ../session.jsonl",
        f"echo '{FORGED}' >> ../session.jsonl",
        ": > ../session.jsonl",
        "rm ../session.jsonl",
        "mv ../session.jsonl moved; ln -s files/moved ../session.jsonl",
    ],
    ids=["replaced", "appended", "truncated", "removed", "linked"],
)
def test_an_agent_that_edits_its_session_fails_and_leaves_none(script: str):
    with pytest.raises(RunError, match="the trace was changed while the agent ran"):
        run_script(f"{script}; echo LOOP_COMPLETE")
    with pytest.raises(UsageError, match="has no session yet"):
        check("w", EXIT_0)


def test_verdicts_are_not_written_through_a_link(workspace: Path, tmp_path: Path):
    ran = run_script("echo LOOP_COMPLETE")
    outside = tmp_path / "outside"
    Path(ran.session_file).rename(outside)
    Path(ran.session_file).symlink_to(outside)
    before = outside.read_bytes()
    with pytest.raises(UsageError, match="has no session yet"):
        check("w", EXIT_0)
    assert outside.read_bytes() == before


def test_an_agent_cannot_approve_its_own_snapshot(workspace: Path):
    snapshot("w", snapshot_id="approved")
    run_script(
        "echo b > a.txt; mkdir -p .offbook/snapshots; "
        """echo '{"files": {"a.txt": "b\\n"}}' > .offbook/snapshots/approved.json"""
    )
    [result] = check("w", [{"type": "snapshot_matches", "snapshot_id": "approved"}]).results
    assert (result.status, result.actual) == ("fail", ["a.txt"])


def test_a_report_does_not_replace_the_session(workspace: Path):
    run_script("echo LOOP_COMPLETE")
    check("w", EXIT_0)
    before = (workspace.parent / "session.jsonl").read_bytes()
    report("w", "json", "w", output_path="session.jsonl")
    assert (workspace.parent / "session.jsonl").read_bytes() == before
    assert check("w", EXIT_0).passed


def test_a_workspace_survives_git_clean_by_the_agent(workspace: Path):
    ran = run_script("git init -q . && git clean -ffdxq && echo LOOP_COMPLETE")
    assert (ran.exit_code, list(workspace.glob("a.txt"))) == (0, [])
    assert check("w", EXIT_0).passed
    assert cleanup("w").deleted
    setup("w")


def test_a_cleanup_that_is_killed_leaves_a_free_name(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    def die(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "remove_tree", die)
        with pytest.raises(KeyboardInterrupt):
            cleanup("w")
    assert Workspaces().ids() == []
    setup("w")
    [rest] = workspace.parents[1].glob(".removing-*")
    Workspaces().remove_stale()
    assert rest.exists()  # its process may still be at work
    two_days_ago = time.time() - 2 * module.STALE_SECONDS
    os.utime(rest, (two_days_ago, two_days_ago))
    Workspaces().remove_stale()
    assert not rest.exists()


def test_the_rest_of_a_workspace_can_be_removed(workspace: Path):
    (workspace.parent / module.MARKER).unlink()
    with pytest.raises(UsageError, match=r"exists already\nfix: offbook workspace cleanup w"):
        setup("w")
    assert cleanup("w").deleted
    setup("w")


def test_the_rest_of_a_workspace_keeps_its_session_on_request(workspace: Path):
    run_script("echo LOOP_COMPLETE")
    (workspace.parent / module.MARKER).unlink()
    assert cleanup("w", preserve_session=True).preserved_files == ["session.jsonl"]
    setup("w")
    assert (workspace.parent / "session-1.jsonl").is_file()
    with pytest.raises(UsageError, match="has no session yet"):
        inspect("w")
