"""Files that people write are understood strictly and written whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import FormatError
from offbook.files import copy_atomic, dump_yaml, parse_yaml, read_document, write_atomic

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{last}'] * 9)}]\n"
    for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)


class Case(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    limit: int = 0


class Pack(msgspec.Struct, forbid_unknown_fields=True):
    title: str
    cases: list[Case] = []


@given(st.dictionaries(st.text(), JSON_VALUES, min_size=1))
def test_what_is_dumped_reads_back_the_same(value: dict[str, Any]):
    assert parse_yaml(dump_yaml(value)) == value


def test_long_texts_are_dumped_as_people_write_them():
    assert dump_yaml({"output": "one\ntwo\n", "hat": "planner", "tokens": 1}) == (
        "output: |\n  one\n  two\nhat: planner\ntokens: 1\n"
    )


@pytest.mark.parametrize(
    "text, line, message",
    [
        ("a: [1,\nb: 2\n", 2, "not good YAML"),
        ("a: 1\nb: 2\na: 3\n", 3, "duplicate"),
        ("a: !!python/object:os.system x\n", None, "tag"),
        (BOMB, 2, "alias"),
    ],
)
def test_bad_yaml_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int | None, message: str
):
    with pytest.raises(FormatError, match=f"(?i){message}") as caught:
        parse_yaml(text, tmp_path / "x.yaml")
    assert caught.value.line == line
    assert "x.yaml" in str(caught.value)


@pytest.mark.parametrize(
    "text, line, message",
    [
        ("title: t\ncases:\n  - name: a\n  - nam: b\n", 4, "did you mean 'name'"),
        ("title: t\ncases:\n  - name: a\n    limit: x\n", 4, "Expected `int`"),
        ("titel: t\n", 1, "did you mean 'title'"),
        ("cases: []\n", None, "missing required field `title`"),
    ],
)
def test_what_does_not_fit_is_told_with_its_line_and_the_nearest_name(
    tmp_path: Path, text: str, line: int | None, message: str
):
    path = tmp_path / "pack.yaml"
    path.write_text(text)
    with pytest.raises(FormatError, match=message) as caught:
        read_document(path, Pack)
    assert caught.value.line == line


def test_a_file_that_is_not_there_is_an_error_of_ours(tmp_path: Path):
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


def test_a_copy_has_the_text_and_the_rights_of_its_source(tmp_path: Path):
    source = tmp_path / "private.yaml"
    source.write_text("one")
    source.chmod(0o600)
    copy = copy_atomic(source, tmp_path / "new" / "copy.yaml")
    assert (copy.read_text(), copy.stat().st_mode & 0o777) == ("one", 0o600)
    assert [path.name for path in copy.parent.iterdir()] == ["copy.yaml"]
