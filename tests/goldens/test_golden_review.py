"""`offbook review`: recordings that are new or differ from their golden."""

import json
from pathlib import Path

import pytest

from tests.goldens.sample_project import LIVE, make_project
from tests.surfaces.conftest import Offbook
from tests.terminals import Terminal

GOLDEN = "fixtures/golden/till/open-drawer.jsonl"
SCRATCH = "fixtures/scratch/till/open-drawer.jsonl"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offbook_command: Offbook) -> Path:
    """The sample project with a recording that differs from its golden."""
    for name in ("CI", "PYTEST_CURRENT_TEST", "PYTEST_VERSION"):
        monkeypatch.delenv(name, raising=False)
    root = make_project(tmp_path)
    (root / "pyproject.toml").touch()
    (root / "scripts/live/till_live.py").write_text(LIVE.replace("till.put(1)", "till.put(7)"))
    monkeypatch.chdir(root)
    assert offbook_command("golden", "record", "till/open-drawer").code == 0
    return root


def coins(project: Path) -> int:
    return json.loads((project / GOLDEN).read_text())["expect"]["coins"]


def test_without_a_terminal_the_recording_and_the_next_command_are_printed(
    project: Path, offbook_command: Offbook
):
    outcome = offbook_command("review")
    assert outcome.code == 1
    assert f"pending {project / SCRATCH} (changed)" in outcome.out
    assert "next: offbook review in a terminal" in outcome.out
    assert (project / SCRATCH).is_file()


def test_an_accepted_recording_is_the_golden(project: Path, offbook_command: Offbook):
    outcome = offbook_command("review", "--accept", "till/open-drawer")
    assert (outcome.code, coins(project)) == (0, 9)
    assert not (project / SCRATCH).exists()
    assert offbook_command("golden", "check").code == 0


def test_a_rejected_recording_is_deleted(project: Path, offbook_command: Offbook):
    assert offbook_command("review", "--reject", "all").code == 0
    assert (coins(project), (project / SCRATCH).exists()) == (3, False)


def test_an_unchanged_recording_is_not_pending(
    project: Path, offbook_command: Offbook, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    (project / "scripts/live/till_live.py").write_text(LIVE)
    assert offbook_command("golden", "record", "till/open-drawer").code == 0
    assert offbook_command("review").out == "nothing is pending\n"


def test_an_edited_recording_cannot_be_accepted(project: Path, offbook_command: Offbook):
    scratch = project / SCRATCH
    scratch.write_text(scratch.read_text().replace('"coins":9', '"coins":8'))
    outcome = offbook_command("review", "--accept", "all")
    assert (outcome.code, coins(project)) == (1, 3)
    assert "edited after it was recorded" in outcome.err
    assert scratch.is_file()


def test_a_recording_is_accepted_by_a_key_and_undone(project: Path):
    before = (project / SCRATCH).read_bytes()
    with Terminal("review", cwd=project) as terminal:
        terminal.press("a", prompt="q quit\n")
        assert '-          "coins": 3' in terminal.text
        assert '+          "coins": 9' in terminal.text
        terminal.press("u", prompt="key: end\n")
        terminal.press("q", prompt="q quit\n")
        assert terminal.end() == 1
    assert (coins(project), (project / SCRATCH).read_bytes()) == (3, before)


def test_a_refused_recording_stays_and_the_reason_is_shown(project: Path):
    scratch = project / SCRATCH
    scratch.write_text(scratch.read_text().replace('"coins":9', '"coins":8'))
    with Terminal("review", cwd=project) as terminal:
        terminal.press("A", prompt="q quit\n")
        terminal.expect("not accepted: cannot promote till/open-drawer")
        terminal.press("q", prompt="q quit\n")
        assert terminal.end() == 1
    assert scratch.is_file()


def test_one_review_has_recordings_snapshots_and_goldens_of_checks(
    project: Path, offbook_command: Offbook
):
    (project / "state.json.proposed").write_text('{"files": {"a.txt": "new"}}')
    (project / "plan.yaml.proposed").write_text("steps: []\n")
    outcome = offbook_command("review")
    pending = [line.split()[1] for line in outcome.out.splitlines() if line.startswith("pending")]
    assert [Path(path).name for path in pending] == [
        "plan.yaml.proposed",
        "state.json.proposed",
        "open-drawer.jsonl",
    ]
    assert offbook_command("review", "till/open-drawer", "plan.yaml", "--accept", "all").code == 0
    assert coins(project) == 9
    assert (project / "plan.yaml").read_text() == "steps: []\n"
    outcome = offbook_command("review", "--reject", "state", "--json")
    assert json.loads(outcome.out) == {
        "accepted": [],
        "rejected": ["state.json.proposed"],
        "left": [],
    }


def test_a_word_that_names_nothing_is_refused(project: Path, offbook_command: Offbook):
    outcome = offbook_command("review", "till/open-draw")
    assert outcome.code == 2
    assert "no folder and no pending change 'till/open-draw'" in outcome.err
    assert "did you mean 'till/open-drawer'?" in outcome.err
