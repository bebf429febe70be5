"""A snapshot that does not match waits for a decision, and in CI nobody decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offbook.errors import FormatError, UsageError
from offbook.workflows.loop_run import run
from offbook.workflows.scenario import read_scenario
from offbook.workflows.scenario_runner import run_scenario
from offbook.workflows.snapshots import list_pending, review, snapshot
from offbook.workflows.tools import check, setup

DONE = [{"output": "LOOP_COMPLETE"}]
WANTED = {"type": "snapshot_matches", "snapshot_id": "approved"}
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
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)


async def make(old: str | None = "old\n", **fields: Any) -> Path:
    """A workspace whose approved snapshot does not match any more."""
    path = Path(setup("w", fixtures={"a.txt": old or "x"}).workspace_path)
    if old is not None:
        snapshot("w", snapshot_id="approved")
    await run("w", "Go", mock_responses=DONE)
    (path / "a.txt").write_text("new\n")
    assert not check("w", [{**WANTED, **fields}]).passed
    return path / ".offbook" / "snapshots"


async def test_what_was_found_is_approved_and_matches_from_then_on():
    folder = await make()
    [waiting] = list_pending(["w"])
    assert (waiting.name, waiting.new) == ("approved", False)
    assert waiting.difference.diffs["a.txt"].hunks[0].content == "-old\n+new"
    reviewed = review(["w"], accept=["approved"])
    assert reviewed.accepted == [str(folder / "approved.pending.json")]
    assert check("w", [WANTED]).passed
    assert list_pending(["w"]) == []


async def test_what_is_rejected_is_forgotten_and_still_does_not_match():
    await make()
    assert len(review(["w"], reject=["all"]).rejected) == 1
    assert list_pending(["w"]) == []
    assert not check("w", [WANTED]).passed
    assert len(list_pending(["w"])) == 1


async def test_a_snapshot_that_is_missing_waits_as_a_new_one():
    await make(None)
    [waiting] = list_pending(["w"])
    assert (waiting.new, waiting.difference.added_files) == (True, ["a.txt"])
    review(["w"], accept=["all"])
    assert check("w", [WANTED]).passed


async def test_the_failure_says_how_to_review_it():
    await make()
    [result] = check("w", [WANTED]).results
    assert "review it: offbook workspace review w" in result.message
    assert Path(result.context["pending"]).is_file()  # noqa: ASYNC240 - a test


async def test_what_matches_again_waits_no_longer():
    folder = await make()
    (folder.parents[1] / "a.txt").write_text("old\n")
    assert check("w", [WANTED]).passed
    assert list_pending(["w"]) == []


async def test_redactions_are_kept_in_what_waits():
    folder = await make(redactions={"patterns": {"word": "new"}})
    text = (folder / "approved.pending.json").read_text()
    assert "new" not in text


async def test_in_ci_nothing_waits_and_nobody_decides(monkeypatch: pytest.MonkeyPatch):
    folder = await make()
    monkeypatch.setenv("CI", "true")
    for decision in ({"accept": ["all"]}, {"reject": ["all"]}):
        with pytest.raises(UsageError, match="in CI no snapshot is approved"):
            review(["w"], **decision)
    assert len(review(["w"]).left) == 1
    (folder / "approved.pending.json").unlink()
    assert not check("w", [WANTED]).passed
    assert list_pending(["w"]) == []


async def test_wrong_words_are_told_with_the_nearest():
    folder = await make()
    with pytest.raises(UsageError, match="no snapshot 'aproved' waits\ndid you mean 'approved'"):
        review(["w"], accept=["aproved"])
    with pytest.raises(UsageError, match="cannot be accepted and rejected"):
        review(["w"], accept=["all"], reject=["approved"])
    with pytest.raises(UsageError, match="'ww' is no folder, and no workspace"):
        review(["ww"])
    (folder / "approved.pending.json").write_text("{oops")
    with pytest.raises(FormatError, match="this is no snapshot"):
        list_pending(["w"])


async def test_the_snapshots_of_a_scenario_stand_beside_it(tmp_path: Path):
    folder = tmp_path / "approved"
    path = tmp_path / "one.yaml"

    async def passes(text: str) -> bool:
        path.write_text(SCENARIO.format(text=text))
        return (await run_scenario(read_scenario(path), reports=tmp_path / "out")).passed

    assert not await passes("one")
    assert [one.name for one in list_pending([str(folder)])] == ["state"]
    review([str(folder)], accept=["state"])
    assert await passes("one")
    assert not await passes("two")
    [waiting] = list_pending([str(folder)])
    assert waiting.difference.changed_files == ["a.txt"]
    assert await passes("one")
    assert list_pending([str(folder)]) == []


async def test_a_scenario_in_ci_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CI", "1")
    path = tmp_path / "one.yaml"
    path.write_text(SCENARIO.format(text="one"))
    assert not (await run_scenario(read_scenario(path), reports=tmp_path / "out")).passed
    assert not (tmp_path / "approved").exists()
