"""The commands fixture, spec and live, as they are typed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from offbook.surfaces.cli import main
from tests.goldens.projects import LIVE, make_project

Offbook = Callable[..., tuple[int, str]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small project; the commands are typed in a folder of it, and no test runs there."""
    root = make_project(tmp_path)
    (root / "pyproject.toml").touch()
    monkeypatch.chdir(root / "tests")
    return root


@pytest.fixture
def offbook(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Offbook:
    """The exit code of a command, and what it said."""

    def run(*words: str) -> tuple[int, str]:
        for name in ("PYTEST_CURRENT_TEST", "PYTEST_VERSION"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(SystemExit) as end:
            main(words)
        told = capsys.readouterr()
        return int(end.value.code or 0), told.out + told.err

    return run


def test_recording_says_what_was_written_and_where_and_what_comes_next(
    project: Path, offbook: Offbook
):
    code, told = offbook("fixture", "record", "till", "open-drawer")
    assert code == 0
    assert "recorded till/open-drawer: 3 steps, 1 events" in told
    assert "fixtures/scratch/till/open-drawer.jsonl" in told
    assert "offbook fixture promote till/open-drawer" in told


def test_a_changed_component_is_seen_compared_and_promoted(project: Path, offbook: Offbook):
    live = project / "scripts" / "live" / "till_live.py"
    live.write_text(LIVE.replace("till.put(1)", "till.put(7)"))
    assert offbook("fixture", "record", "till", "open-drawer")[0] == 0
    code, told = offbook("fixture", "diff", "till/open-drawer")
    assert code == 1
    assert '-          "coins": 3' in told
    assert '+          "coins": 9' in told
    assert offbook("fixture", "promote", "till/open-drawer")[0] == 2
    code, told = offbook("fixture", "promote", "till/open-drawer", "--replace")
    assert (code, told) == (0, "golden now: fixtures/golden/till/open-drawer.jsonl\n")


def test_no_difference_is_told(project: Path, offbook: Offbook):
    golden = project / "fixtures" / "golden" / "till" / "open-drawer.jsonl"
    scratch = project / "fixtures" / "scratch" / "till"
    scratch.mkdir(parents=True, exist_ok=True)
    shutil.copy(golden, scratch)
    told = offbook("fixture", "diff", "till/open-drawer")
    assert told == (0, "till/open-drawer: no difference\n")


def test_listing_shows_both_shelves(project: Path, offbook: Offbook):
    offbook("fixture", "record", "till", "open-drawer")
    told = offbook("fixture", "list")[1]
    assert [line.split()[:3] for line in told.splitlines()] == [
        ["golden", "till/open-drawer", "exact"],
        ["scratch", "till/open-drawer", "exact"],
    ]
    listed = msgspec.json.decode(offbook("fixture", "list", "--json")[1])
    assert listed["golden"][0]["steps"] == 3


def test_listing_nothing_says_so(tmp_path: Path, offbook: Offbook):
    assert "there is no fixture" in offbook("fixture", "--root", str(tmp_path), "list")[1]


def test_showing_spells_a_fixture_out(project: Path, offbook: Offbook):
    code, told = offbook("fixture", "show", "till/open-drawer")
    assert code == 0
    assert msgspec.json.decode(told)["scenario"] == "open-drawer"
    assert offbook("fixture", "show", "till/open-drawer", "--scratch")[0] == 2


def test_checking_replays_and_flags(project: Path, offbook: Offbook):
    assert offbook("fixture", "check") == (0, "1 scenarios replayed, 0 complaints\n")
    golden = project / "fixtures" / "golden" / "till" / "open-drawer.jsonl"
    golden.write_text(golden.read_text().replace('"coins":3', '"coins":4'))
    code, told = offbook("fixture", "check", "till/open-drawer")
    assert code == 1
    assert "expected 4, got 3" in told
    assert "edited by hand" in told


def test_checking_nothing_is_no_success(tmp_path: Path, offbook: Offbook):
    code, told = offbook("fixture", "--root", str(tmp_path), "check")
    assert code == 2
    assert "there is no golden to check" in told


@pytest.mark.external
def test_fixtures_of_others_are_checked_without_asking_who_recorded_them(
    shared_data: Path, tmp_path: Path, offbook: Offbook
):
    for name in ("golden", "MANIFEST.json"):
        source = shared_data / "open-harness" / name
        target = tmp_path / "fixtures" / name
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    names = [f"hub/{path.stem}" for path in (tmp_path / "fixtures/golden/hub").glob("*.jsonl")]
    code, told = offbook("fixture", "--root", str(tmp_path), "check", "--foreign", *names)
    assert (code, told) == (0, f"{len(names)} scenarios replayed, 0 complaints\n")


def test_a_spec_is_begun_once(project: Path, offbook: Offbook):
    code, told = offbook("spec", "new", "cash-desk")
    assert code == 0
    assert "tests/specs/cash-desk.test-spec.md" in told
    assert offbook("spec", "new", "cash-desk")[0] == 2


def test_checking_specs_counts_and_tells(project: Path, offbook: Offbook):
    assert offbook("spec", "check") == (0, "1 specs, 1 requirements, 0 problems\n")
    code, told = offbook("spec", "check", "--ran")
    assert code == 2
    assert "no test has run here yet" in told
    (project / "tests" / "replay" / "test_till.py").unlink()
    code, told = offbook("spec", "check")
    assert code == 1
    assert told.startswith("tests/specs/till.test-spec.md:16: R1: the test file")


def test_checking_specs_replays_the_goldens(project: Path, offbook: Offbook):
    live = project / "scripts" / "live" / "till_live.py"
    live.write_text(LIVE.replace("self.coins += coins", "self.coins += 2 * coins"))
    code, told = offbook("spec", "check")
    assert code == 1
    assert "open-drawer.jsonl:1: events[0].event.coins: expected 3, got 6" in told


def test_checking_no_spec_is_no_success(tmp_path: Path, offbook: Offbook):
    assert offbook("spec", "--root", str(tmp_path), "check")[0] == 2


def test_the_table_of_specs_is_shown(project: Path, offbook: Offbook):
    assert "| till | R1: The drawer opens |" in offbook("spec", "table")[1]


def test_live_passes_and_counts(project: Path, offbook: Offbook):
    code, told = offbook("live")
    assert (code, told) == (0, "passed  till/open-drawer\n1 passed, 0 failed, 0 skipped\n")


def test_live_that_only_skips_is_no_success(
    project: Path, offbook: Offbook, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("TILL_KEY", raising=False)
    live = project / "scripts" / "live" / "till_live.py"
    live.write_text(LIVE.replace("@scenario()", "@scenario(needs=['TILL_KEY'])"))
    code, told = offbook("live", "till")
    assert code == 1
    assert "0 passed, 0 failed, 1 skipped" in told
    assert "TILL_KEY is not set" in told
    assert "nothing ran" in told


@pytest.mark.parametrize(
    "words, message",
    [(["live", "tell"], "did you mean 'till'"), (["live", "--root", "/", "x"], "no live script")],
)
def test_live_knows_what_there_is(project: Path, offbook: Offbook, words: list[str], message: str):
    code, told = offbook(*words)
    assert code == 2
    assert message in told
