"""A review decides about pending changes: whole, refused if stale, and undone on request."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks import (
    FileMove,
    PendingChange,
    Review,
    Snapshot,
    compare_snapshots,
    pending_change,
)
from offbook.errors import RunError, UsageError

EMPTY = compare_snapshots(Snapshot(), Snapshot())


@pytest.fixture(autouse=True)
def not_in_ci(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CI", raising=False)


def propose(
    folder: Path,
    name: str = "one",
    *,
    approved: str | None = "old",
    check: Callable[[], None] | None = None,
) -> PendingChange:
    """Return a change of two files; the new rule removes the approved one."""
    (folder / f"{name}.new").write_text("new")
    if approved is not None:
        (folder / name).write_text(approved)
        (folder / f"{name}.rule").write_text("rule")
    moves = [
        FileMove(str(folder / f"{name}.rule.new"), str(folder / f"{name}.rule")),
        FileMove(str(folder / f"{name}.new"), str(folder / name)),
    ]
    return pending_change("golden", name, moves, EMPTY, check)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_accepting_replaces_and_removes_approved_files(tmp_path: Path):
    change = propose(tmp_path)
    review = Review([change])
    review.accept(change)
    assert contents(tmp_path) == {"one": "new"}
    assert review.result.accepted == [str(tmp_path / "one.new")]
    assert review.left == []


def test_rejecting_deletes_the_proposal_only(tmp_path: Path):
    change = propose(tmp_path)
    Review([change]).reject(change)
    assert contents(tmp_path) == {"one": "old", "one.rule": "rule"}


def test_a_change_without_an_approved_file_is_new(tmp_path: Path):
    assert propose(tmp_path, approved=None).new
    assert not propose(tmp_path).new


@given(st.lists(st.sampled_from(["accept", "reject"]), min_size=1, max_size=3))
def test_undo_restores_every_decision(
    tmp_path_factory: pytest.TempPathFactory, decisions: list[str]
):
    folder = tmp_path_factory.mktemp("review")
    changes = [propose(folder, name) for name in ("one", "two", "three")]
    before = contents(folder)
    review = Review(changes)
    for change, decision in zip(changes, decisions, strict=False):
        getattr(review, decision)(change)
    while review.undo():
        pass
    assert contents(folder) == before
    assert review.left == changes


def test_undo_is_refused_if_a_file_has_changed_since(tmp_path: Path):
    change = propose(tmp_path)
    review = Review([change])
    review.accept(change)
    (tmp_path / "one").write_text("edited")
    with pytest.raises(UsageError, match="have changed since the decision"):
        review.undo()
    assert contents(tmp_path) == {"one": "edited"}


@pytest.mark.parametrize("file", ["one", "one.new", "one.rule"])
def test_a_decision_about_another_content_is_refused(tmp_path: Path, file: str):
    change = propose(tmp_path)
    (tmp_path / file).write_text("written by a later run")
    before = contents(tmp_path)
    for decide in (Review([change]).accept, Review([change]).reject):
        with pytest.raises(UsageError, match="has changed since it was shown"):
            decide(change)
    assert contents(tmp_path) == before


def test_a_change_that_fails_its_check_stays_pending(tmp_path: Path):
    def check() -> None:
        raise RunError("cannot promote one")

    change = propose(tmp_path, check=check)
    before = contents(tmp_path)
    review = Review([change])
    with pytest.raises(RunError, match="cannot promote one"):
        review.accept(change)
    assert (contents(tmp_path), review.left) == (before, [change])


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError], ids=["Ctrl-C", "a full disk"])
def test_an_interrupted_decision_leaves_all_files_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
):
    change = propose(tmp_path)
    before = contents(tmp_path)
    unlink = Path.unlink

    def interrupted(path: Path, *, missing_ok: bool = False) -> None:
        if path.name == "one.new":
            monkeypatch.undo()
            monkeypatch.delenv("CI", raising=False)
            raise error
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", interrupted)
    review = Review([change])
    with pytest.raises(error):
        review.accept(change)
    assert (contents(tmp_path), review.decisions) == (before, [])


def test_a_decision_is_refused_in_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    change = propose(tmp_path)
    monkeypatch.setenv("CI", "true")
    for decide in (Review([change]).accept, Review([change]).reject):
        with pytest.raises(UsageError, match="goldens cannot be approved in CI"):
            decide(change)
