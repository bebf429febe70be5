"""The changes of the files in a folder since the last look at them."""

from __future__ import annotations

from pathlib import Path

import pytest

from offbook.checks import MAX_STATE_TEXT, MAX_STATE_TEXTS, MAX_STATES, FileStates


def test_only_changes_are_returned(tmp_path: Path):
    states = FileStates(tmp_path)
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two")
    assert states.changes() == ({"a.txt": "one", "b.txt": "two"}, [])
    assert states.changes() == ({}, [])
    (tmp_path / "a.txt").write_text("three")
    (tmp_path / "b.txt").unlink()
    assert states.changes() == ({"a.txt": "three"}, ["b.txt"])
    assert states.changes() == ({}, [])


def test_a_long_or_binary_file_is_its_size_and_hash(tmp_path: Path):
    (tmp_path / "long.txt").write_text("x" * (MAX_STATE_TEXT + 1))
    (tmp_path / "data.bin").write_bytes(b"\xff")
    (tmp_path / "longest.bin").write_bytes(b"\xff" * MAX_STATE_TEXT)
    written, _ = FileStates(tmp_path).changes()
    assert written["long.txt"].startswith(f"large, {MAX_STATE_TEXT + 1} bytes, sha256 ")
    assert written["data.bin"].startswith("binary, 1 bytes, sha256 a8100ae6aa1940d0")
    assert written["longest.bin"].startswith(f"binary, {MAX_STATE_TEXT} bytes, sha256 ")


def test_a_link_is_not_followed(tmp_path: Path):
    (tmp_path / "key").symlink_to("/etc/passwd")
    assert FileStates(tmp_path).changes() == ({"key": "link to /etc/passwd"}, [])


def test_the_changes_are_limited(tmp_path: Path):
    for number in range(MAX_STATES + 1):
        (tmp_path / f"{number:04}").write_text("x" * 1000)
    written, _ = FileStates(tmp_path).changes()
    assert len(written) == MAX_STATES
    assert sum(len(text) == 1000 for text in written.values()) == MAX_STATE_TEXTS // 1000


def test_a_file_beyond_the_limit_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("offbook.checks.expected_files.MAX_STATES", 1)
    states = FileStates(tmp_path)
    (tmp_path / "b").write_text("two")
    states.changes()
    (tmp_path / "a").write_text("one")
    assert states.changes() == ({"a": "one"}, [])


def test_a_folder_that_is_gone_is_a_deletion(tmp_path: Path):
    states = FileStates(tmp_path)
    (tmp_path / "a.txt").touch()
    states.changes()
    (tmp_path / "a.txt").unlink()
    tmp_path.rmdir()
    assert states.changes() == ({}, ["a.txt"])
