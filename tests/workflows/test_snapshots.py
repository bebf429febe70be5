"""Workspaces are kept as they were, and compared line by line."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks.snapshot import Snapshot, compare_snapshots
from offbook.errors import UsageError
from offbook.workflows.loop_run import run
from offbook.workflows.snapshots import diff, snapshot
from offbook.workflows.tools import check, setup

OLD = "one\ntwo\nthree\nfour\n"
DONE = [{"output": "LOOP_COMPLETE"}]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a file."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = setup("snap", fixtures={"src/a.txt": OLD, "b.txt": "b"}, scratchpad="# Plan")
    return Path(made.workspace_path)


def test_what_changed_since_the_setup_is_told_by_line(place: Path):
    (place / "src/a.txt").write_text(OLD.replace("two", "2"))
    (place / "new.txt").write_text("n\n")
    (place / "b.txt").unlink()
    found = diff("snap", "initial")
    assert (found.changed_files, found.added_files, found.deleted_files) == (
        ["src/a.txt"],
        ["new.txt"],
        ["b.txt"],
    )
    changed = found.diffs["src/a.txt"]
    assert (changed.additions, changed.deletions) == (1, 1)
    assert changed.hunks[0].content == " one\n-two\n+2\n three\n four"
    assert (changed.hunks[0].start, changed.hunks[0].end) == (1, 4)


def test_snapshots_are_numbered_or_named(place: Path):
    assert snapshot("snap").snapshot_id == "snap_snap_001"
    (place / "b.txt").write_text("c")
    second = snapshot("snap")
    assert second.snapshot_id == "snap_snap_002"
    assert (second.file_count, second.total_bytes) == (3, len(OLD) + 1 + len("# Plan"))
    found = diff("snap", "snap_snap_001", compare_to="snap_snap_002")
    assert found.changed_files == ["b.txt"]
    assert diff("snap", "snap_snap_002").empty


@pytest.mark.parametrize(
    "include, exclude, names",
    [
        ([], [], [".agent/scratchpad.md", "b.txt", "src/a.txt"]),
        (["*.txt"], [], ["b.txt", "src/a.txt"]),
        (["src/**"], [], ["src/a.txt"]),
        (["**/*.txt"], ["src/*"], ["b.txt"]),
        ([], [".agent/**", "?.txt"], []),
    ],
)
def test_globs_choose_the_files(
    place: Path, include: list[str], exclude: list[str], names: list[str]
):
    taken = snapshot("snap", include_patterns=include, exclude_patterns=exclude)
    assert sorted(taken.files) == names


async def test_what_the_tools_write_is_left_out(place: Path):
    before = snapshot("snap", snapshot_id="before")
    await run("snap", "Go", mock_responses=DONE)
    assert snapshot("snap").files == before.files


def test_links_and_bytes_are_told_and_not_followed(place: Path, tmp_path: Path):
    (tmp_path / "secret").write_text("hidden")
    (place / "link").symlink_to(tmp_path / "secret")
    (place / "bytes").write_bytes(b"\xff\x00")
    (place / "large").write_bytes(b"x" * (1024 * 1024 + 1))
    files = snapshot("snap").files
    assert "hidden" not in str(files)
    assert files["link"].startswith("link to ")
    assert files["bytes"].startswith("binary, 2 bytes, sha256 ")
    assert files["large"].startswith("large, 1048577 bytes, sha256 ")


async def test_an_approved_state_is_matched_but_for_its_redactions(place: Path):
    snapshot("snap", snapshot_id="approved")
    await run("snap", "Go", mock_responses=DONE)
    (place / ".agent/scratchpad.md").write_text("something else")
    wanted = {"type": "snapshot_matches", "snapshot_id": "approved"}
    [result] = check("snap", [wanted]).results
    assert (result.status, result.actual) == ("fail", [".agent/scratchpad.md"])
    assert result.context["diff"]["diffs"][".agent/scratchpad.md"]["additions"] == 1
    redactions = {"paths": ["$.files['.agent/scratchpad.md']"]}
    assert check("snap", [wanted | {"redactions": redactions}]).passed
    [missing] = check("snap", [wanted | {"snapshot_id": "aproved"}]).results
    assert missing.status == "error"
    assert "did you mean 'approved'" in missing.message


@pytest.mark.parametrize("name", ["current", "../x", "a/b", "", "."])
def test_no_name_leads_out(place: Path, name: str):
    if name:
        with pytest.raises(UsageError, match="no name for a snapshot"):
            snapshot("snap", snapshot_id=name)
    if name != "current":
        with pytest.raises(UsageError, match="no name for a snapshot"):
            diff("snap", name)


def test_a_snapshot_that_is_not_there_is_named_with_the_nearest(place: Path):
    with pytest.raises(UsageError, match="did you mean 'initial'"):
        diff("snap", "intial")


@pytest.mark.parametrize(
    "old, new",
    [
        ("a\nb\nc\n", "a\nc\n"),
        ("", "a\n"),
        ("a\n", ""),
        ("a\nb\n", "b\na\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("x\n" * 50, "x\n" * 49 + "y\n"),
    ],
)
def test_lines_are_counted_as_git_counts_them(tmp_path: Path, old: str, new: str):
    for name, text in (("old", old), ("new", new)):
        (tmp_path / name).write_bytes(text.encode())
    git = subprocess.run(
        ["git", "diff", "--no-index", "--numstat", "old", "new"],  # noqa: S607 - whichever git there is
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    counted = compare_snapshots(Snapshot({"f": old}), Snapshot({"f": new})).diffs["f"]
    assert git.stdout.split()[:2] == [str(counted.additions), str(counted.deletions)]


TEXTS = st.dictionaries(st.sampled_from("abc"), st.text(alphabet="xy\n", max_size=8))


@given(TEXTS, TEXTS)
def test_two_snapshots_differ_exactly_where_their_files_do(
    old: dict[str, str], new: dict[str, str]
):
    found = compare_snapshots(Snapshot(old), Snapshot(new))
    assert found.empty is (old == new)
    assert set(found.diffs) == {n for n in old.keys() | new.keys() if old.get(n) != new.get(n)}
