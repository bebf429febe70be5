"""Temporary folders are removed without fuss, and without hiding what matters (F13 to F19)."""

import errno
import shutil
from pathlib import Path

import pytest

from offbook.runs.run_files import make_temp_folder, remove_temp_folder


@pytest.fixture
def folder() -> Path:
    made = make_temp_folder()
    (made / "deep").mkdir()
    (made / "deep" / "file").write_text("x")
    return made


def test_f13_a_folder_is_removed_with_all_that_is_in_it(folder: Path):
    remove_temp_folder(folder)
    assert not folder.exists()


def test_f14_a_folder_that_was_never_there_is_no_error(tmp_path: Path):
    remove_temp_folder(tmp_path / "none")


def test_f15_a_folder_may_be_removed_twice(folder: Path):
    remove_temp_folder(folder)
    remove_temp_folder(folder)
    assert not folder.exists()


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def rmtree(path: Path) -> None:
        raise OSError(number, "refused", str(path))

    monkeypatch.setattr(shutil, "rmtree", rmtree)


def test_f16_a_folder_that_may_not_be_removed_is_left(monkeypatch: pytest.MonkeyPatch):
    refuse(monkeypatch, errno.EPERM)
    remove_temp_folder(Path("held"))


def test_f17_a_folder_that_somebody_holds_is_left(monkeypatch: pytest.MonkeyPatch):
    refuse(monkeypatch, errno.EBUSY)
    remove_temp_folder(Path("held"))


def test_f18_what_is_no_folder_is_an_error(monkeypatch: pytest.MonkeyPatch):
    refuse(monkeypatch, errno.EISDIR)
    with pytest.raises(OSError, match="refused"):
        remove_temp_folder(Path("odd"))


def test_f19_a_folder_without_access_is_an_error(monkeypatch: pytest.MonkeyPatch):
    refuse(monkeypatch, errno.EACCES)
    with pytest.raises(OSError, match="refused"):
        remove_temp_folder(Path("locked"))


def test_each_run_has_a_folder_of_its_own(folder: Path):
    other = make_temp_folder()
    assert other != folder
    assert list(other.iterdir()) == []
    remove_temp_folder(other)
    remove_temp_folder(folder)
