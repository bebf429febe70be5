"""`offbook sandbox`: exit codes, JSON and progress. docs/guides/sandbox.md shows a real install."""

import json
from pathlib import Path

import pytest

from offbook.surfaces.cli import main
from tests.sandbox.packages import PYTHON_GOOD, write_package

SMOKE = "- when: Refund order 7\n  do:\n    - {call: refund, with: {id: 7}}\n    - say: Done.\n"


@pytest.fixture
def package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temp: Path, quick_install: None
) -> str:
    """Return the folder of a good Python project; nothing is fetched from the network."""
    monkeypatch.setenv("OFFBOOK_WHEELS", str(tmp_path))
    return str(write_package(tmp_path / "good", PYTHON_GOOD, {}))


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(["sandbox", *args])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


def test_json_has_what_was_loaded_and_no_progress(
    package: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    smoke = tmp_path / "smoke.yaml"
    smoke.write_text(SMOKE)
    assert run(package, "--expect-tools", "refund", "--smoke", str(smoke), "--json") == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert (result["passed"], result["faults"]) == (True, [])
    assert result["loaded"]["tools"] == ["refund"]
    assert result["smoke"] == {"tools": ["refund"]}
    assert [step["name"] for step in result["steps"]] == ["build", "install", "load", "smoke"]
    assert err == ""


def test_a_fault_exits_with_1_and_progress_is_on_stderr(
    package: str, capsys: pytest.CaptureFixture[str]
):
    assert run(package, "--expect-tools", "refund, other", "--expect-extensions", "2") == 1
    out, err = capsys.readouterr()
    assert "shop-ext 1.2.0: failed\n" in out
    assert "expectation: expected 2 extensions, got 1" in out
    assert "expectation: expected the tool 'other': available: 'refund'" in out
    assert err.splitlines() == ["build …", "install …", "load …"]


def test_wrong_usage_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(str(tmp_path)) == 2
    assert "no package.json and no pyproject.toml" in capsys.readouterr().err
