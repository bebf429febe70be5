"""`offbook review`: pending snapshots, by keys in a terminal or by name."""

import json
from pathlib import Path

import pytest

from tests.surfaces.conftest import Offbook
from tests.terminals import Terminal

STATE = '{{"files": {{"a.txt": "{}\\n"}}}}'
PROMPT = "q quit\n|key: end\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three pending snapshots, one of them new."""
    monkeypatch.delenv("CI", raising=False)
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.json.proposed").write_text(STATE.format("new"))
        if name != "three":
            (tmp_path / f"{name}.json").write_text(STATE.format("old"))
    return tmp_path


def pending(folder: Path) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in folder.glob("*.json.proposed"))


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def press_keys(folder: Path, keys: str) -> tuple[int, str]:
    with Terminal("review", ".", cwd=folder) as terminal:
        for key in keys:
            terminal.press(key, prompt=PROMPT)
        return terminal.end(), terminal.text


def test_snapshots_are_accepted_and_rejected_by_name(folder: Path, offbook_command: Offbook):
    outcome = offbook_command("review", folder, "--accept", "one", "--reject", "three")
    assert outcome.code == 1  # one is still pending
    assert [line.split()[0] for line in outcome.out.splitlines()] == [
        "accepted",
        "rejected",
        "pending",
        "next:",
    ]
    assert (folder / "one.json").read_text() == STATE.format("new")
    assert pending(folder) == ["two"]
    rest = offbook_command("review", folder, "--accept", "all", "--json")
    assert (rest.code, json.loads(rest.out)["left"]) == (0, [])
    assert offbook_command("review", folder).out == "nothing is pending\n"


def test_without_a_terminal_the_pending_snapshots_and_the_next_command_are_printed(
    folder: Path, offbook_command: Offbook
):
    outcome = offbook_command("review", folder)
    assert (outcome.code, outcome.out.count("pending ")) == (1, 3)
    assert f"next: offbook review {folder} in a terminal" in outcome.out
    assert pending(folder) == ["one", "three", "two"]


def test_in_ci_a_decision_exits_with_2(
    folder: Path, offbook_command: Offbook, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CI", "true")
    outcome = offbook_command("review", folder, "--accept", "all")
    assert (outcome.code, "snapshots cannot be approved in CI" in outcome.err) == (2, True)
    assert pending(folder) == ["one", "three", "two"]


def test_in_ci_a_terminal_is_not_asked(folder: Path):
    with Terminal("review", ".", cwd=folder, CI="true") as terminal:
        assert terminal.end() == 1
        assert "accept all" not in terminal.text
    assert pending(folder) == ["one", "three", "two"]


# The snapshots are shown in the order one, three, two; the last key ends a finished review.
@pytest.mark.parametrize(
    "keys, left, accepted, code",
    [
        ("arsx", ["two"], ["one"], 1),
        ("aaax", [], ["one", "three", "two"], 0),
        ("q", ["one", "three", "two"], [], 1),
        ("aq", ["three", "two"], ["one"], 1),
        ("sAx", ["one"], ["three", "two"], 1),
        ("auq", ["one", "three", "two"], [], 1),
        ("ruaq", ["three", "two"], ["one"], 1),
        ("Auq", ["one", "three", "two"], [], 1),
        ("raauuq", ["three", "two"], [], 1),
        ("uq", ["one", "three", "two"], [], 1),
        ("\x04", ["one", "three", "two"], [], 1),
        ("sss", ["one", "three", "two"], [], 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_key_decides(folder: Path, keys: str, left: list[str], accepted: list[str], code: int):
    assert press_keys(folder, keys)[0] == code
    assert pending(folder) == left
    new = STATE.format("new")
    approved = {path.stem for path in folder.glob("*.json") if path.read_text() == new}
    assert sorted(name for name in approved if "." not in name) == accepted


def test_the_difference_is_printed_in_colour(folder: Path):
    with Terminal("review", ".", cwd=folder) as terminal:
        terminal.expect("q quit")
        title = "snapshot one 1 of 3 · changed · one.json.proposed"
        assert f"{title}\n~ a.txt (+1 -1)\n@@ 1-1 @@\n-old\n+new\n" in terminal.text
        assert "\x1b[31m-old" in terminal.raw
        assert "\x1b[32m+new" in terminal.raw


def test_an_unknown_key_changes_nothing(folder: Path):
    with Terminal("review", ".", cwd=folder) as terminal:
        terminal.press("?", prompt=PROMPT)
        terminal.expect(r"unknown key '\?'")
        terminal.press("q", prompt=PROMPT)
        assert terminal.end() == 1
    assert pending(folder) == ["one", "three", "two"]


def test_ctrl_c_keeps_the_decisions_before_it(folder: Path):
    before = contents(folder)
    with Terminal("review", ".", cwd=folder) as terminal:
        terminal.press("a", prompt=PROMPT)
        terminal.expect("accepted one")
        terminal.press("\x03", prompt=PROMPT)
        assert terminal.end() == 130
    after = contents(folder)
    assert after.pop("one.json") == before.pop("one.json.proposed")
    before.pop("one.json")
    assert after == before


def test_escape_sequences_of_a_snapshot_do_not_reach_the_terminal(folder: Path):
    (folder / "one.json.proposed").write_text(STATE.format("\\u001b[2J\\u0007"))
    with Terminal("review", ".", cwd=folder) as terminal:
        terminal.expect(r"\+␛\[2J␇")
        assert "\x1b[2J" not in terminal.raw
