"""The identity of a result: what is read is noted, what cannot be followed is unknown."""

import contextlib
import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from offbook.determinism import set_environment
from offbook.runs import IdentityDigest, find_change, watch_used_files
from offbook.sources.inprocess import disable_telemetry


def test_a_file_is_noted_with_its_content_when_it_was_first_read(tmp_path: Path):
    state = tmp_path / "state.txt"
    state.write_text("1")
    with watch_used_files() as used:
        assert state.read_text() == "1"
        state.write_text("2")
    assert find_change(used.digests) == str(state)
    state.write_text("1")
    assert not find_change({str(state): used.digests[str(state)]})


def test_a_file_that_is_written_first_is_no_input(tmp_path: Path):
    with watch_used_files() as used:
        (tmp_path / "out.txt").write_text("1")
        assert (tmp_path / "out.txt").read_text() == "1"
    assert str(tmp_path / "out.txt") not in used.digests


def test_a_missing_file_and_a_listed_folder_are_inputs(tmp_path: Path):
    with watch_used_files() as used:
        assert not [*tmp_path.iterdir()]
        with contextlib.suppress(FileNotFoundError):
            (tmp_path / "in.txt").read_text()
    noted = {path: used.digests[path] for path in (str(tmp_path), str(tmp_path / "in.txt"))}
    assert not find_change(noted)
    (tmp_path / "in.txt").write_text("")
    assert find_change(noted)


def load_again(name: str) -> None:
    del sys.modules[name]
    importlib.import_module(name)


def replace_in_place(name: str) -> None:
    spec = importlib.util.find_spec(f"{name}_other")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


# how a module is loaded where another one was before -> the name of its file
LOADS: list[tuple[Callable[[str], object], str]] = [
    (lambda name: importlib.import_module(f"{name}_other"), "{}_other.py"),
    (load_again, "{}.py"),
    (replace_in_place, "{}_other.py"),
]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that is imported, beside another one that is not; both are forgotten afterwards."""
    names = ("noted_module", "noted_module_other")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in names:
        (tmp_path / f"{name}.py").write_text("")
        importlib.import_module(name)  # compiled
        del sys.modules[name]
    importlib.import_module(names[0])
    yield names[0]
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("load, file", LOADS)
def test_a_module_that_is_loaded_is_noted_where_modules_were_noted_before(
    tmp_path: Path, module: str, load: Callable[[str], object], file: str
):
    with watch_used_files():
        pass
    with watch_used_files() as used:
        load(module)
    assert str(tmp_path / file.format(module)) in used.digests


def test_a_command_has_the_content_of_its_files_and_is_unknown(tmp_path: Path):
    (tmp_path / "agent.py").write_text("1")

    def identify() -> str:
        identity = IdentityDigest()
        identity.add_command(["python3", "agent.py"], tmp_path)
        assert identity.unknown == "another program may read any file"
        return identity.hex

    before = identify()
    assert identify() == before
    (tmp_path / "agent.py").write_text("2")
    assert identify() != before


def identify_code() -> str:
    identity = IdentityDigest()
    identity.add_python(None)
    return identity.hex


def test_the_environment_of_python_code_is_part_of_its_identity(monkeypatch: pytest.MonkeyPatch):
    before = identify_code()
    monkeypatch.setenv("OFFBOOK_TEST_IDENTITY", "1")
    assert identify_code() != before
    monkeypatch.undo()
    assert identify_code() == before


def test_a_variable_that_offbook_sets_is_not_part_of_an_identity(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OFFBOOK_TEST_IDENTITY", "of the user")
    before = identify_code()
    with disable_telemetry(), set_environment({"OFFBOOK_TEST_IDENTITY": "ours"}):
        assert os.environ["OFFBOOK_TEST_IDENTITY"] == "ours"
        assert identify_code() == before
    assert identify_code() == before


IDENTIFY = """
from offbook.runs import IdentityDigest
identity = IdentityDigest()
identity.add_python(None)
print(identity.hex)
"""


# options of Python, variables -> whether the identity is that of a process without them
STARTS: list[tuple[list[str], dict[str, str], bool]] = [
    ([], {"PYTHONDONTWRITEBYTECODE": "1"}, True),
    (["-B", "-u", "-q"], {}, True),
    (["-O"], {}, False),
    (["-X", "dev"], {}, False),
]


@pytest.mark.parametrize("options, variables, same", STARTS)
def test_only_flags_that_change_what_code_computes_are_part_of_an_identity(
    options: list[str], variables: dict[str, str], *, same: bool, unwatched: dict[str, str]
):
    def run(options: list[str], variables: dict[str, str]) -> str:
        command = [sys.executable, *options, "-c", IDENTIFY]
        return subprocess.check_output(command, text=True, env=variables)

    environment = {k: v for k, v in unwatched.items() if not k.startswith("PYTHON")}
    plain = run([], environment)
    assert (run(options, environment | variables) == plain) is same
