"""Files are decoded strictly and written atomically."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from offbook.errors import FormatError
from offbook.files import copy_atomic, read_document, write_atomic


class Case(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    limit: int = 0
    kinds: tuple[Literal["fast", "slow"], ...] = ()


class Pack(msgspec.Struct, forbid_unknown_fields=True):
    title: str
    cases: list[Case] = []


@pytest.mark.parametrize(
    "text, line, message",
    [
        ("title: t\ncases:\n  - name: a\n  - nam: b\n", 4, "did you mean 'name'"),
        ("title: t\ncases:\n  - name: a\n    limit: x\n", 4, "Expected `int`"),
        ("titel: t\n", 1, "did you mean 'title'"),
        ("title: t\nname: x\n", 2, r"available: 'cases', 'title'"),
        (
            "title: t\ncases:\n  - name: a\n    title: b\n",
            4,
            r"available: 'kinds', 'limit', 'name'",
        ),
        (
            "title: t\ncases:\n  - name: a\n    kinds: [fsat]\n",
            4,
            r"invalid value 'fsat'.*\ndid you mean 'fast'\? expected one of: fast, slow",
        ),
        ("cases: []\n", None, "missing required field `title`"),
    ],
)
def test_a_wrong_field_is_reported_with_its_line_and_the_nearest_name(
    tmp_path: Path, text: str, line: int | None, message: str
):
    path = tmp_path / "pack.yaml"
    path.write_text(text)
    with pytest.raises(FormatError, match=message) as caught:
        read_document(path, Pack)
    assert caught.value.line == line


def test_a_missing_file_is_a_format_error(tmp_path: Path):
    with pytest.raises(FormatError, match=r"nope\.yaml: cannot be read: No such file"):
        read_document(tmp_path / "nope.yaml", Pack)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "golden.txt"
    write_atomic(path, "old")

    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["golden.txt"]


def test_a_copy_has_the_content_and_the_permissions_of_its_source(tmp_path: Path):
    source = tmp_path / "private.yaml"
    source.write_text("one")
    source.chmod(0o600)
    copy = copy_atomic(source, tmp_path / "new" / "copy.yaml")
    assert (copy.read_text(), copy.stat().st_mode & 0o777) == ("one", 0o600)
    assert [path.name for path in copy.parent.iterdir()] == ["copy.yaml"]
