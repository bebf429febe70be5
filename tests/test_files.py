"""Files are decoded strictly and written atomically."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from offbook.errors import FormatError, UsageError
from offbook.files import (
    UMASK_LOCK,
    copy_atomic,
    import_object,
    parse_json,
    parse_toml,
    read_document,
    read_lines,
    read_text,
    write_atomic,
)


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
        ("title: t\ncases:\n  - name: a\n    limit: x\n", 4, "expected an integer"),
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
        ("cases: []\n", None, "missing key 'title'"),
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


def test_the_target_of_a_symbolic_link_is_written(tmp_path: Path):
    target, link = tmp_path / "real" / "shop.yaml", tmp_path / "link.yaml"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    write_atomic(link, "new")
    assert (target.read_text(), link.is_symlink()) == ("new", True)


@pytest.mark.parametrize("before, mode, after", [(0o600, 0o644, 0o600), (0o644, 0o600, 0o600)])
def test_a_file_that_exists_gets_no_further_permissions(
    tmp_path: Path, before: int, mode: int, after: int
):
    path = tmp_path / "report.json"
    path.touch()
    path.chmod(before)
    write_atomic(path, "{}", mode=mode)
    assert path.stat().st_mode & 0o777 == after


@pytest.mark.parametrize("umask, mode", [(0o077, 0o600), (0o022, 0o644)])
def test_a_new_file_has_the_permissions_of_the_umask(tmp_path: Path, umask: int, mode: int):
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "report.json", "{}")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert (tmp_path / "report.json").stat().st_mode & 0o777 == mode


def test_one_thread_at_a_time_reads_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    locked: list[bool] = []

    def umask(_: int) -> int:
        locked.append(UMASK_LOCK.locked())
        return 0o022

    monkeypatch.setattr(os, "umask", umask)
    write_atomic(tmp_path / "report.json", "{}")
    assert locked == [True, True]


def test_a_copy_has_the_content_and_the_permissions_of_its_source(tmp_path: Path):
    source = tmp_path / "private.yaml"
    source.write_text("one")
    source.chmod(0o600)
    copy = copy_atomic(source, tmp_path / "new" / "copy.yaml")
    assert (copy.read_text(), copy.stat().st_mode & 0o777) == ("one", 0o600)
    assert [path.name for path in copy.parent.iterdir()] == ["copy.yaml"]


def test_lines_are_decoded_and_a_torn_last_line_is_skipped(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"id":1}\n{"id":2}\n{"id"')
    assert list(read_lines(path, msgspec.json.decode, "result")) == [{"id": 1}, {"id": 2}]


def test_an_invalid_line_is_reported_with_its_number(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"id":1}\n{"id"\n{"id":3}\n')
    with pytest.raises(FormatError, match=r"results\.jsonl:2: invalid result"):
        list(read_lines(path, msgspec.json.decode, "result"))


def test_an_object_is_imported_by_its_module_and_name():
    assert import_object("offbook.files:import_object") is import_object


@pytest.mark.parametrize(
    "reference, message",
    [
        ("shop", "expected MODULE:NAME, got 'shop'"),
        (":agent", "expected MODULE:NAME, got ':agent'"),
        (".shop:agent", "expected MODULE:NAME, got '.shop:agent'"),
        ("no_such_module:agent", "cannot import no_such_module"),
        ("offbook.files:import_objct", "did you mean 'import_object'"),
    ],
)
def test_an_object_that_cannot_be_imported_is_reported(reference: str, message: str):
    with pytest.raises(UsageError) as caught:
        import_object(reference)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "source, line, message",
    [
        ("x = 1\ndef f(:", 2, "it raised SyntaxError: invalid syntax"),
        ("import os\n\nos.environ['NO_SUCH_VARIABLE']", 3, "it raised KeyError: "),
        ("import sys\nsys.exit(0)", 2, "it raised SystemExit: 0"),
    ],
)
def test_a_module_that_raises_when_it_is_imported_is_reported_with_its_line(
    source: str, line: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "broken_shop.py").write_text(source)
    with pytest.raises(UsageError, match="cannot import broken_shop: ") as caught:
        import_object("broken_shop:agent")
    assert message in str(caught.value)
    assert caught.value.where == f"{tmp_path / 'broken_shop.py'}:{line}"


LIMITS = {
    "deep.json": ("[" * 100_000, "nested too deeply"),
    "deep.toml": ("a = " + "[" * 5000, "nested too deeply"),
    "digits.toml": ("a = " + "9" * 6000, "a number has too many digits"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_file_beyond_the_limits_of_a_parser_is_an_error_of_the_file(name: str):
    text, message = LIMITS[name]
    parse = parse_json if name.endswith("json") else parse_toml
    with pytest.raises(FormatError, match=message) as failed:
        parse(text, Path(name))
    assert name in str(failed.value)


def test_a_device_without_an_end_is_too_large(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("offbook.files.MAX_FILE_SIZE", 1 << 20)
    with pytest.raises(FormatError, match="larger than 1 MiB"):
        read_text(Path("/dev/zero"))


def test_a_pipe_is_written_and_stays_a_pipe(tmp_path: Path):
    """As a report to /dev/null: a device that root replaces by a file is lost."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomic(pipe, "hello")
        assert os.read(reader, 100) == b"hello"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert [*tmp_path.iterdir()] == [pipe]
