"""`offbook review` of what checks of requests and of transcripts propose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from offbook.checks import assert_golden_transcript, list_proposed, update_goldens
from offbook.determinism import use_variable
from offbook.errors import CheckFailed
from offbook.exchange import History, Request, user
from offbook.runs import RequestGoldens
from offbook.viewer import ReviewDesk
from tests.surfaces.conftest import Offbook
from tests.terminals import Terminal

REQUESTS = "tests/requests/test_shop.yaml"
TRANSCRIPT = "tests/plan.json"
PROMPT = "q quit\n|key: end\n"
Contents = dict[str, str]


def check_requests(root: Path, prompt: str, *, update: bool = False) -> None:
    goldens = RequestGoldens(root / "tests", "test_shop")
    with use_variable(update_goldens, value=update):
        goldens.check([Request(History().plus(user(prompt)), system="You sell lamps.")])


def check_transcript(root: Path, step: str) -> None:
    assert_golden_transcript(root / TRANSCRIPT, {"id": 7, "steps": [step]})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in which the requests have changed, and a transcript has no golden yet."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "tests").mkdir()
    check_requests(tmp_path, "Find order 7", update=True)
    with pytest.raises(CheckFailed):
        check_requests(tmp_path, "Refund order 7")
    with pytest.raises(CheckFailed):
        check_transcript(tmp_path, "plan")
    return tmp_path


def contents(project: Path) -> Contents:
    files = (path for path in (project / "tests").rglob("*") if path.is_file())
    return {str(path.relative_to(project)): path.read_text() for path in files}


def press_keys(project: Path, keys: str) -> tuple[int, str]:
    with Terminal("review", cwd=project) as terminal:
        for key in keys:
            terminal.press(key, prompt=PROMPT)
        return terminal.end(), terminal.text


def test_a_failed_check_proposes_its_golden_and_leaves_the_approved_one(project: Path):
    files = contents(project)
    assert sorted(files) == [f"{TRANSCRIPT}.proposed", REQUESTS, f"{REQUESTS}.proposed"]
    assert "Find order 7" in files[REQUESTS]
    assert "Refund order 7" in files[f"{REQUESTS}.proposed"]


def test_the_message_names_the_review(project: Path):
    with pytest.raises(CheckFailed, match="or review it: offbook review"):
        check_requests(project, "Refund order 7")


@pytest.mark.parametrize("check", [check_requests, check_transcript])
def test_an_accepted_proposal_passes_its_check(
    project: Path, offbook_command: Offbook, check: Callable[[Path, str], None]
):
    assert offbook_command("review", "--accept", "all").code == 0
    check(project, "Refund order 7" if check is check_requests else "plan")
    assert sorted(contents(project)) == [TRANSCRIPT, REQUESTS]


def test_a_proposal_is_accepted_by_its_path(project: Path, offbook_command: Offbook):
    outcome = offbook_command("review", TRANSCRIPT, "--accept", TRANSCRIPT)
    assert outcome.code == 0
    assert sorted(contents(project)) == [TRANSCRIPT, REQUESTS, f"{REQUESTS}.proposed"]


def test_a_rejected_proposal_is_deleted(project: Path, offbook_command: Offbook):
    before = contents(project)[REQUESTS]
    assert offbook_command("review", "--reject", "all").code == 0
    assert contents(project) == {REQUESTS: before}


def test_a_check_that_passes_withdraws_its_proposal(project: Path):
    check_requests(project, "Find order 7")
    assert f"{REQUESTS}.proposed" not in contents(project)


def test_an_update_withdraws_the_proposal(project: Path):
    check_requests(project, "Refund order 7", update=True)
    assert f"{REQUESTS}.proposed" not in contents(project)


def test_nothing_is_proposed_in_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(CheckFailed):
        check_transcript(tmp_path, "plan")
    assert list(tmp_path.rglob("*")) == []


def test_a_proposal_has_no_secrets(project: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOP_API_KEY", "Zq8kT3vLm1Rw9xYb")
    with pytest.raises(CheckFailed):
        check_transcript(project, "use Zq8kT3vLm1Rw9xYb")
    assert "use [API_KEY]" in contents(project)[f"{TRANSCRIPT}.proposed"]


def test_a_folder_without_write_permission_fails_the_check_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("offbook.checks.expected_files.write_atomic", refuse)
    with pytest.raises(CheckFailed):
        check_transcript(project, "another")


def test_the_difference_is_shown_and_a_key_accepts(project: Path):
    code, text = press_keys(project, "saq")
    assert code == 1  # the first was skipped
    assert "Find order 7" in text
    assert "Refund order 7" in text
    assert sorted(contents(project)) == [f"{TRANSCRIPT}.proposed", REQUESTS]


def test_a_key_rejects(project: Path):
    code, _ = press_keys(project, "rrq")
    assert (code, sorted(contents(project))) == (0, [REQUESTS])


def test_a_key_accepts_all(project: Path):
    code, _ = press_keys(project, "Aq")
    assert (code, sorted(contents(project))) == (0, [TRANSCRIPT, REQUESTS])


@pytest.mark.parametrize("keys", ["auq", "Auq", "ruq", "sauq"])
def test_an_undone_decision_leaves_the_files_as_they_were(project: Path, keys: str):
    before = contents(project)
    code, _ = press_keys(project, keys)
    assert code == 1
    assert contents(project) == before


def test_the_review_of_the_page_has_them(project: Path):
    desk = ReviewDesk(lambda: list_proposed(project), token="t")  # noqa: S106 - of no account
    page = desk.render()
    assert "2 pending" in page
    assert f"golden {REQUESTS}" in page
    assert "Refund order 7" in page
    change = list_proposed(project)[0]
    before = contents(project)
    desk.decide({"action": "accept", "path": change.path, "digest": change.digest})
    assert "1 pending" in desk.render()
    desk.decide({"action": "undo"})
    assert contents(project) == before
