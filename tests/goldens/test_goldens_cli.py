"""The commands `offbook golden …`."""

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from offbook.surfaces.cli import main
from tests.goldens.sample_project import LIVE, make_project

RunGolden = Callable[..., tuple[int, str]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sample project, with a subfolder of it as the current folder."""
    root = make_project(tmp_path)
    (root / "pyproject.toml").touch()
    monkeypatch.chdir(root / "tests")
    return root


@pytest.fixture
def golden(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> RunGolden:
    """Runs `offbook golden ARGS`, as outside of a test; returns the exit code and the output."""

    def run(*args: str) -> tuple[int, str]:
        for name in ("PYTEST_CURRENT_TEST", "PYTEST_VERSION"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(SystemExit) as end:
            main(["golden", *args])
        output = capsys.readouterr()
        return int(end.value.code or 0), output.out + output.err

    return run


def write_live_script(project: Path, before: str, after: str) -> None:
    (project / "scripts" / "live" / "till_live.py").write_text(LIVE.replace(before, after))


def test_record_prints_files_and_next_commands(project: Path, golden: RunGolden):
    code, output = golden("record", "till", "open-drawer")
    assert code == 0
    assert "recorded till/open-drawer: 3 steps, 1 events" in output
    assert "fixtures/scratch/till/open-drawer.jsonl" in output
    assert "offbook golden promote till/open-drawer" in output


def test_changed_component_is_recorded_compared_and_promoted(project: Path, golden: RunGolden):
    write_live_script(project, "till.put(1)", "till.put(7)")
    assert golden("record", "till", "open-drawer")[0] == 0
    code, output = golden("diff", "till/open-drawer")
    assert code == 1
    assert '-          "coins": 3' in output
    assert '+          "coins": 9' in output
    assert golden("promote", "till/open-drawer")[0] == 2
    code, output = golden("promote", "till/open-drawer", "--replace")
    assert (code, output) == (0, "promoted: fixtures/golden/till/open-drawer.jsonl\n")


def test_diff_of_equal_fixtures_exits_0(project: Path, golden: RunGolden):
    path = project / "fixtures" / "golden" / "till" / "open-drawer.jsonl"
    scratch = project / "fixtures" / "scratch" / "till"
    scratch.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, scratch)
    assert golden("diff", "till/open-drawer") == (0, "till/open-drawer: no difference\n")


def test_list_shows_golden_and_scratch_fixtures(project: Path, golden: RunGolden):
    golden("record", "till", "open-drawer")
    _, output = golden("list")
    assert [line.split()[:3] for line in output.splitlines()] == [
        ["golden", "till/open-drawer", "exact"],
        ["scratch", "till/open-drawer", "exact"],
    ]
    listed = msgspec.json.decode(golden("list", "--json")[1])
    assert listed["golden"][0]["steps"] == 3


def test_list_of_no_fixtures_says_so(tmp_path: Path, golden: RunGolden):
    assert "no fixtures in" in golden("--root", str(tmp_path), "list")[1]


def test_show_prints_a_fixture_as_json(project: Path, golden: RunGolden):
    code, output = golden("show", "till/open-drawer")
    assert code == 0
    assert msgspec.json.decode(output)["scenario"] == "open-drawer"
    assert golden("show", "till/open-drawer", "--scratch")[0] == 2


def test_check_replays_and_finds_edits(project: Path, golden: RunGolden):
    assert golden("check") == (0, "1 scenarios replayed, 0 problems\n")
    path = project / "fixtures" / "golden" / "till" / "open-drawer.jsonl"
    path.write_text(path.read_text().replace('"coins":3', '"coins":4'))
    code, output = golden("check", "till/open-drawer")
    assert code == 1
    assert "expected 4, got 3" in output
    assert "edited after it was recorded" in output


def test_check_without_goldens_exits_2(tmp_path: Path, golden: RunGolden):
    code, output = golden("--root", str(tmp_path), "check")
    assert code == 2
    assert "no goldens to check" in output


@pytest.mark.external
def test_check_foreign_skips_the_origin(shared_data: Path, tmp_path: Path, golden: RunGolden):
    for name in ("golden", "MANIFEST.json"):
        source = shared_data / "open-harness" / name
        target = tmp_path / "fixtures" / name
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    names = [f"hub/{path.stem}" for path in (tmp_path / "fixtures/golden/hub").glob("*.jsonl")]
    code, output = golden("--root", str(tmp_path), "check", "--foreign", *names)
    assert (code, output) == (0, f"{len(names)} scenarios replayed, 0 problems\n")


def test_spec_new_does_not_overwrite(project: Path, golden: RunGolden):
    code, output = golden("spec", "new", "cash-desk")
    assert code == 0
    assert "tests/specs/cash-desk.test-spec.md" in output
    assert golden("spec", "new", "cash-desk")[0] == 2


def test_spec_check_counts_and_reports_problems(project: Path, golden: RunGolden):
    assert golden("spec", "check") == (0, "1 specs, 1 requirements, 0 problems\n")
    code, output = golden("spec", "check", "--ran")
    assert code == 2
    assert "no test results" in output
    (project / "tests" / "replay" / "test_till.py").unlink()
    code, output = golden("spec", "check")
    assert code == 1
    assert output.startswith("tests/specs/till.test-spec.md:16: R1: missing test file")


def test_spec_check_replays_goldens(project: Path, golden: RunGolden):
    write_live_script(project, "self.coins += coins", "self.coins += 2 * coins")
    code, output = golden("spec", "check")
    assert code == 1
    assert "open-drawer.jsonl:1: events[0].event.coins: expected 3, got 6" in output


def test_spec_check_without_specs_exits_2(tmp_path: Path, golden: RunGolden):
    assert golden("--root", str(tmp_path), "spec", "check")[0] == 2


def test_spec_table_lists_requirements(project: Path, golden: RunGolden):
    assert "| till | R1: The drawer opens |" in golden("spec", "table")[1]


def test_live_prints_states_and_counts(project: Path, golden: RunGolden):
    code, output = golden("live")
    assert (code, output) == (0, "passed  till/open-drawer\n1 passed, 0 failed, 0 skipped\n")


def test_live_with_skipped_scenarios_only_exits_1(
    project: Path, golden: RunGolden, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("TILL_KEY", raising=False)
    write_live_script(project, "@scenario()", "@scenario(needs=['TILL_KEY'])")
    code, output = golden("live", "till")
    assert code == 1
    assert "0 passed, 0 failed, 1 skipped" in output
    assert "TILL_KEY is not set" in output
    assert "no scenario ran" in output


@pytest.mark.parametrize(
    "args, message",
    [(["live", "tell"], "did you mean 'till'"), (["--root", "/", "live", "x"], "no live script")],
)
def test_live_reports_an_unknown_component(
    project: Path, golden: RunGolden, args: list[str], message: str
):
    code, output = golden(*args)
    assert code == 2
    assert message in output
