"""Temporary folders are removed, and only harmless errors are ignored (F13 to F19)."""

import errno
import shutil
from pathlib import Path

import pytest

from offbook.files import make_temp_folder, remove_temp_folder


@pytest.fixture
def folder() -> Path:
    path = make_temp_folder()
    (path / "deep").mkdir()
    (path / "deep" / "file").write_text("x")
    return path


def test_f13_a_folder_is_removed_with_its_content(folder: Path):
    remove_temp_folder(folder)
    assert not folder.exists()


def test_f14_a_missing_folder_is_ignored(tmp_path: Path):  # noqa: OB101 - it must not raise
    remove_temp_folder(tmp_path / "none")


def test_f15_a_folder_can_be_removed_twice(folder: Path):
    remove_temp_folder(folder)
    remove_temp_folder(folder)
    assert not folder.exists()


def fail_rmtree(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def rmtree(path: Path) -> None:
        raise OSError(number, "refused", str(path))

    monkeypatch.setattr(shutil, "rmtree", rmtree)


def test_f16_a_folder_without_permission_to_remove_is_kept(monkeypatch: pytest.MonkeyPatch):
    fail_rmtree(monkeypatch, errno.EPERM)
    remove_temp_folder(Path("held"))


def test_f17_a_busy_folder_is_kept(monkeypatch: pytest.MonkeyPatch):
    fail_rmtree(monkeypatch, errno.EBUSY)
    remove_temp_folder(Path("held"))


def test_f18_another_error_is_raised(monkeypatch: pytest.MonkeyPatch):
    fail_rmtree(monkeypatch, errno.EISDIR)
    with pytest.raises(OSError, match="refused"):
        remove_temp_folder(Path("odd"))


def test_f19_missing_access_is_raised(monkeypatch: pytest.MonkeyPatch):
    fail_rmtree(monkeypatch, errno.EACCES)
    with pytest.raises(OSError, match="refused"):
        remove_temp_folder(Path("locked"))


def test_each_run_has_its_own_folder(folder: Path):
    other = make_temp_folder()
    assert other != folder
    assert list(other.iterdir()) == []
    remove_temp_folder(other)
    remove_temp_folder(folder)
