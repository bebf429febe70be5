"""A snapshot has the files that its globs select, each as what it is."""

from pathlib import Path

import pytest

from offbook.checks import Snapshot, capture_snapshot, compare_snapshots, in_ci, read_small_text
from offbook.errors import UsageError
from offbook.trace import Redaction

FILES = [
    "a.py",
    "a.pyc",
    "src/a.py",
    "src/sub/b.py",
    "src/sub/deep/c.py",
    "xsrc/a.py",
    "y/src/b.py",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    "pattern, names",
    [
        ("a.py", ["a.py", "src/a.py", "xsrc/a.py"]),
        ("src/a.py", ["src/a.py"]),
        ("src/*", ["src/a.py"]),
        ("src/*.py", ["src/a.py"]),
        ("src/**", ["src/a.py", "src/sub/b.py", "src/sub/deep/c.py"]),
        ("src/**/*.py", ["src/a.py", "src/sub/b.py", "src/sub/deep/c.py"]),
        ("src/*/b.py", ["src/sub/b.py"]),
        ("src/b.py", []),
        ("**/b.py", ["src/sub/b.py", "y/src/b.py"]),
        ("**/src/b.py", ["y/src/b.py"]),
        ("?.py", [name for name in FILES if name != "a.pyc"]),
        ("src?a.py", []),
        ("*.pyc", ["a.pyc"]),
        ("a.p", []),
        ("a+py", []),
    ],
)
def test_a_glob_selects_and_excludes_the_same_files(folder: Path, pattern: str, names: list[str]):
    assert list(capture_snapshot(folder, [pattern]).files) == names
    others = [name for name in FILES if name not in names]
    assert list(capture_snapshot(folder, [], [pattern]).files) == others


def test_a_file_that_one_of_several_globs_selects_is_selected(folder: Path):
    assert list(capture_snapshot(folder, ["a.pyc", "src/*.py"]).files) == ["a.pyc", "src/a.py"]


@pytest.mark.parametrize("name", [".offbook/a", ".git/a", ".agent/home/a"])
def test_a_file_of_the_tools_is_left_out_at_the_top_only(folder: Path, name: str):
    for place in (name, f"src/{name}"):
        (folder / place).parent.mkdir(parents=True)
        (folder / place).write_text("x")
    assert name not in capture_snapshot(folder).files
    assert f"src/{name}" in capture_snapshot(folder).files


@pytest.mark.parametrize(
    "value, expected",
    [
        (None, False),
        ("", False),
        ("0", False),
        ("false", False),
        ("False", False),
        ("no", False),
        ("1", True),
        ("true", True),
        ("github", True),
    ],
)
def test_ci_is_known_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, value: str | None, *, expected: bool
):
    monkeypatch.delenv("CI", raising=False)
    if value is not None:
        monkeypatch.setenv("CI", value)
    assert in_ci() is expected


def test_a_file_is_text_up_to_a_megabyte(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1024 * 1024)
    assert read_small_text(path) == "x" * 1024 * 1024
    path.write_bytes(b"x" * (1024 * 1024 + 1))
    assert read_small_text(path) is None
    assert capture_snapshot(tmp_path).files["file"].startswith("large, 1048577 bytes, sha256 ")


def test_a_file_with_two_names_is_not_read(tmp_path: Path):
    (tmp_path / "one").write_text("secret")
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    assert read_small_text(tmp_path / "one") is None
    assert capture_snapshot(tmp_path).files["one"].startswith("hard link, 6 bytes, sha256 ")


def test_a_link_is_never_followed(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("x")
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "dangling").symlink_to("nowhere")
    assert capture_snapshot(tmp_path).files == {
        "dangling": "link to nowhere",
        "folder/file": "x",
        "link": "link to folder",
    }
    assert read_small_text(tmp_path / "link" / "file") == "x"
    assert read_small_text(tmp_path / "dangling") is None


def test_a_redaction_of_the_whole_snapshot_is_refused():
    from offbook.checks import redact_snapshot

    with pytest.raises(UsageError, match="replaces the whole snapshot"):
        redact_snapshot(Snapshot({"a": "b"}), Redaction({"paths": ["$.files"]}))
    redacted = redact_snapshot(Snapshot({"a": "b", "c": "d"}), Redaction({"paths": ["$.files.a"]}))
    assert redacted.files["a"] != "b"
    assert redacted.files["c"] == "d"


def test_a_difference_is_changed_added_or_deleted():
    diff = compare_snapshots(
        Snapshot({"same": "1", "changed": "1\n", "deleted": "1\n2\n"}),
        Snapshot({"same": "1", "changed": "2\n", "added": "1\n2\n3\n"}),
    )
    assert (diff.changed_files, diff.added_files, diff.deleted_files) == (
        ["changed"],
        ["added"],
        ["deleted"],
    )
    counts = {name: (file.additions, file.deletions) for name, file in diff.diffs.items()}
    assert counts == {"added": (3, 0), "changed": (1, 1), "deleted": (0, 2)}
    assert not diff.empty
    assert compare_snapshots(Snapshot({"a": "b"}), Snapshot({"a": "b"})).empty
