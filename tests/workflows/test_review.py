"""Snapshots that do not match stay pending until a review; in CI there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offbook.checks import update_goldens
from offbook.determinism import use_variable
from offbook.errors import FormatError, UsageError
from offbook.workflows import (
    check,
    list_pending,
    read_scenario,
    review,
    run,
    run_scenario,
    setup,
    snapshot,
)

DONE = [{"output": "LOOP_COMPLETE"}]
ASSERTION = {"type": "snapshot_matches", "snapshot_id": "approved"}
SCENARIO = """\
snapshots: approved
setup:
  fixtures:
    a.txt: {text}
run:
  task: Go
  mock_responses:
    - output: LOOP_COMPLETE
assert:
  - type: snapshot_matches
    snapshot_id: state
"""


@pytest.fixture(autouse=True)
def isolated_workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)


async def fail_snapshot(old: str | None = "old\n", **fields: Any) -> Path:
    """Return the snapshots folder of a workspace whose approved snapshot does not match."""
    path = Path(setup("w", fixtures={"a.txt": old or "x"}).workspace_path)
    if old is not None:
        snapshot("w", snapshot_id="approved")
    await run("w", "Go", mock_responses=DONE)
    (path / "a.txt").write_text("new\n")
    assert not check("w", [{**ASSERTION, **fields}]).passed
    return path.parent / "snapshots"


async def test_an_accepted_snapshot_matches_afterwards():
    folder = await fail_snapshot()
    [pending] = list_pending(["w"])
    assert (pending.name, pending.new) == ("approved", False)
    assert pending.difference.diffs["a.txt"].hunks[0].content == "-old\n+new"
    result = review(["w"], accept=["approved"])
    assert result.accepted == [str(folder / "approved.json.proposed")]
    assert check("w", [ASSERTION]).passed
    assert list_pending(["w"]) == []


async def test_a_rejected_snapshot_is_deleted_and_still_fails():
    await fail_snapshot()
    assert len(review(["w"], reject=["all"]).rejected) == 1
    assert list_pending(["w"]) == []
    assert not check("w", [ASSERTION]).passed
    assert len(list_pending(["w"])) == 1


async def test_a_missing_snapshot_is_pending_as_new():
    await fail_snapshot(None)
    [pending] = list_pending(["w"])
    assert (pending.new, pending.difference.added_files) == (True, ["a.txt"])
    review(["w"], accept=["all"])
    assert check("w", [ASSERTION]).passed


async def test_the_failure_names_the_review_command():
    await fail_snapshot()
    [result] = check("w", [ASSERTION]).results
    assert "fix: offbook review w" in result.message
    assert Path(result.context["pending"]).is_file()  # noqa: ASYNC240 - a test


async def test_a_match_removes_the_pending_snapshot():
    folder = await fail_snapshot()
    (folder.parent / "files" / "a.txt").write_text("old\n")
    assert check("w", [ASSERTION]).passed
    assert list_pending(["w"]) == []


async def test_pending_snapshots_are_redacted():
    folder = await fail_snapshot(redactions={"patterns": {"word": "new"}})
    text = (folder / "approved.json.proposed").read_text()
    assert "new" not in text


async def test_in_ci_nothing_is_proposed_or_decided(monkeypatch: pytest.MonkeyPatch):
    folder = await fail_snapshot()
    monkeypatch.setenv("CI", "true")
    for decision in ({"accept": ["all"]}, {"reject": ["all"]}):
        with pytest.raises(UsageError, match="snapshots cannot be approved in CI"):
            review(["w"], **decision)
    assert len(review(["w"]).left) == 1
    (folder / "approved.json.proposed").unlink()
    assert not check("w", [ASSERTION]).passed
    assert list_pending(["w"]) == []


async def test_unknown_names_suggest_the_nearest():
    folder = await fail_snapshot()
    with pytest.raises(UsageError, match="no pending change 'aproved'\ndid you mean 'approved'"):
        review(["w"], accept=["aproved"])
    with pytest.raises(UsageError, match="cannot be accepted and rejected"):
        review(["w"], accept=["all"], reject=["approved"])
    with pytest.raises(UsageError, match="'ww' is neither a folder nor a workspace"):
        review(["ww"])
    (folder / "approved.json.proposed").write_text("{oops")
    with pytest.raises(FormatError, match="not a snapshot"):
        list_pending(["w"])


async def test_scenario_snapshots_are_next_to_its_file(tmp_path: Path):
    folder = tmp_path / "approved"
    path = tmp_path / "one.yaml"

    async def passes(text: str) -> bool:
        path.write_text(SCENARIO.format(text=text))
        return (await run_scenario(read_scenario(path), reports=tmp_path / "out")).passed

    assert not await passes("one")
    assert [item.name for item in list_pending([str(folder)])] == ["state"]
    review([str(folder)], accept=["state"])
    assert await passes("one")
    assert not await passes("two")
    [pending] = list_pending([str(folder)])
    assert pending.difference.changed_files == ["a.txt"]
    assert await passes("one")
    assert list_pending([str(folder)]) == []


async def test_an_update_approves_the_snapshots_of_a_check_and_of_a_scenario(tmp_path: Path):
    folder = await fail_snapshot()
    with use_variable(update_goldens, value=True):
        assert check("w", [ASSERTION]).passed
    assert sorted(path.name for path in folder.glob("approved*")) == ["approved.json"]
    path = tmp_path / "one.yaml"
    path.write_text(SCENARIO.format(text="one"))
    with use_variable(update_goldens, value=True):
        assert (await run_scenario(read_scenario(path), reports=tmp_path / "out")).passed
    assert (await run_scenario(read_scenario(path), reports=tmp_path / "out")).passed
    path.write_text(SCENARIO.format(text="two"))
    assert not (await run_scenario(read_scenario(path), reports=tmp_path / "out")).passed


async def test_a_scenario_in_ci_writes_no_pending_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CI", "1")
    path = tmp_path / "one.yaml"
    path.write_text(SCENARIO.format(text="one"))
    assert not (await run_scenario(read_scenario(path), reports=tmp_path / "out")).passed
    assert not (tmp_path / "approved").exists()
