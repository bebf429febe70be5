"""Snapshots of a workspace are stored and compared line by line."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks import Snapshot, compare_snapshots
from offbook.errors import UsageError
from offbook.files import parse_yaml
from offbook.workflows import check, diff, record, report, run, setup, snapshot

OLD = "one\ntwo\nthree\nfour\n"
DONE = [{"output": "LOOP_COMPLETE"}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a file."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = setup("snap", fixtures={"src/a.txt": OLD, "b.txt": "b"}, scratchpad="# Plan")
    return Path(made.workspace_path)


def test_changes_since_the_setup_are_listed_by_line(folder: Path):
    (folder / "src/a.txt").write_text(OLD.replace("two", "2"))
    (folder / "new.txt").write_text("n\n")
    (folder / "b.txt").unlink()
    difference = diff("snap", "initial")
    assert (difference.changed_files, difference.added_files, difference.deleted_files) == (
        ["src/a.txt"],
        ["new.txt"],
        ["b.txt"],
    )
    changed = difference.diffs["src/a.txt"]
    assert (changed.additions, changed.deletions) == (1, 1)
    assert changed.hunks[0].content == " one\n-two\n+2\n three\n four"
    assert (changed.hunks[0].start, changed.hunks[0].end) == (1, 4)


def test_snapshots_are_numbered_or_named(folder: Path):
    assert snapshot("snap").snapshot_id == "snap_snap_001"
    (folder / "b.txt").write_text("c")
    second = snapshot("snap")
    assert second.snapshot_id == "snap_snap_002"
    assert (second.file_count, second.total_bytes) == (3, len(OLD) + 1 + len("# Plan"))
    difference = diff("snap", "snap_snap_001", compare_to="snap_snap_002")
    assert difference.changed_files == ["b.txt"]
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
def test_globs_select_the_files(
    folder: Path, include: list[str], exclude: list[str], names: list[str]
):
    result = snapshot("snap", include_patterns=include, exclude_patterns=exclude)
    assert sorted(result.files) == names


async def test_files_of_the_tools_are_left_out(folder: Path):
    before = snapshot("snap", snapshot_id="before")
    await run("snap", "Go", mock_responses=DONE)
    assert snapshot("snap").files == before.files


def test_links_binary_and_large_files_are_summarized(folder: Path, tmp_path: Path):
    (tmp_path / "secret").write_text("hidden")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "bytes").write_bytes(b"\xff\x00")
    (folder / "large").write_bytes(b"x" * (1024 * 1024 + 1))
    files = snapshot("snap").files
    assert "hidden" not in str(files)
    assert files["link"].startswith("link to ")
    assert files["bytes"].startswith("binary, 2 bytes, sha256 ")
    assert files["large"].startswith("large, 1048577 bytes, sha256 ")


async def test_an_approved_snapshot_matches_except_redactions(folder: Path):
    snapshot("snap", snapshot_id="approved")
    await run("snap", "Go", mock_responses=DONE)
    (folder / ".agent/scratchpad.md").write_text("something else")
    assertion = {"type": "snapshot_matches", "snapshot_id": "approved"}
    [result] = check("snap", [assertion]).results
    assert (result.status, result.actual) == ("fail", [".agent/scratchpad.md"])
    assert result.context["diff"]["diffs"][".agent/scratchpad.md"]["additions"] == 1
    redactions = {"paths": ["$.files['.agent/scratchpad.md']"]}
    assert check("snap", [assertion | {"redactions": redactions}]).passed
    [missing] = check("snap", [assertion | {"snapshot_id": "aproved"}]).results
    assert missing.status == "error"
    assert "did you mean 'approved'" in missing.message


@pytest.mark.parametrize("name", ["current", "../x", "a/b", "", "."])
def test_invalid_names_are_rejected(folder: Path, name: str):
    if name:
        with pytest.raises(UsageError, match="invalid snapshot name"):
            snapshot("snap", snapshot_id=name)
    if name != "current":
        with pytest.raises(UsageError, match="invalid snapshot name"):
            diff("snap", name)


def test_an_unknown_snapshot_suggests_the_nearest(folder: Path):
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
def test_lines_are_counted_like_git(tmp_path: Path, old: str, new: str):
    for name, text in (("old", old), ("new", new)):
        (tmp_path / name).write_bytes(text.encode())
    git = subprocess.run(
        ["git", "diff", "--no-index", "--numstat", "old", "new"],  # noqa: S607 - any git
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    expected = compare_snapshots(Snapshot({"f": old}), Snapshot({"f": new})).diffs["f"]
    assert git.stdout.split()[:2] == [str(expected.additions), str(expected.deletions)]


TEXTS = st.dictionaries(st.sampled_from("abc"), st.text(alphabet="xy\n", max_size=8))


@given(TEXTS, TEXTS)
def test_a_diff_lists_exactly_the_different_files(old: dict[str, str], new: dict[str, str]):
    difference = compare_snapshots(Snapshot(old), Snapshot(new))
    assert difference.empty is (old == new)
    assert set(difference.diffs) == {n for n in old.keys() | new.keys() if old.get(n) != new.get(n)}


WRITES = "mkdir -p reports cassettes; echo x > reports/leak.txt; echo y > cassettes/z"
COMMAND = ["sh", "-c", f"{WRITES}; echo LOOP_COMPLETE"]


def test_the_reports_and_cassettes_of_an_agent_are_part_of_a_snapshot(folder: Path):
    snapshot("snap", snapshot_id="before")
    run("snap", "Go", backend="command", command=COMMAND)
    assert folder.is_dir()
    [found] = check("snap", [{"type": "snapshot_matches", "snapshot_id": "before"}]).results
    assert (found.passed, found.actual) == (False, ["cassettes/z", "reports/leak.txt"])


def test_the_reports_and_cassettes_of_offbook_are_left_out_of_a_snapshot(folder: Path):
    before = snapshot("snap").files
    record("snap", "take", "Go", "command", command=["sh", "-c", "echo LOOP_COMPLETE"])
    report("snap", "junit", "the test")
    report("snap", "tap", "the test", output_path="result.tap")
    written = ["cassettes/take.yaml", "reports/junit.xml", "result.tap"]
    assert all((folder / name).is_file() for name in written)
    assert snapshot("snap").files == before


def test_a_cassette_of_the_setup_is_left_out_of_a_snapshot(folder: Path):
    assert folder.is_dir()
    setup("replayed", fixtures={"cassettes/take.yaml": "x", "a.txt": "a"})
    assert list(snapshot("replayed").files) == ["a.txt"]


@pytest.mark.parametrize("change", ["text", "link"])
def test_a_report_that_the_agent_has_changed_is_part_of_a_snapshot(folder: Path, change: str):
    run("snap", "Go", backend="mock", mock_responses=DONE)
    path = Path(report("snap", "junit", "the test").report_path)
    path.unlink()
    path.write_text("all green") if change == "text" else path.symlink_to("../b.txt")
    assert folder.is_dir()
    assert "reports/junit.xml" in snapshot("snap").files


def test_a_recording_has_the_reports_of_the_agent_and_not_itself(folder: Path):
    second = "test -d reports && echo LOOP_COMPLETE || echo Go on."
    record("snap", "take", "Go", "command", command=["sh", "-c", f"{second}; {WRITES}"])
    path = folder / "cassettes/take.yaml"
    recorded = parse_yaml(path.read_text(), path)["interactions"]
    names = [sorted(interaction["response"].get("files", {})) for interaction in recorded]
    assert names == [["cassettes/z", "reports/leak.txt"], []]
