"""The frames of a failed test that the page shows."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offbook.errors import FormatError
from offbook.sources import read_script
from offbook.viewer.viewer_pytest import MAX_FRAMES, find_frames

KEY = "sk-ant-" + "api03-" + "k8Jd2mQx7Lw4Rt9Vz3Bn6Hc1Ys5Pf0Ga"
AGENT = f'''
class Shop:
    def find(self, number):
        """Find an order.

        1
        2
        3
        4
        5
        6
        """
        orders = {{}}
        return orders[number]


def refund(number):
    try:
        return Shop().find(number)
    except KeyError as error:
        key = "{KEY}"
        raise ValueError("no order") from error


def again(number):
    return again(number + 1)
'''
TEST = """

def test_refund():
    refund(8)


def test_again():
    again(8)
"""


def fail(folder: Path, monkeypatch: pytest.MonkeyPatch, test: str, **options: Any) -> Any:
    """Return the report of a test in this folder, as pytest renders it."""
    (folder / "agent.py").write_text(AGENT)
    (folder / "test_it.py").write_text(TEST)
    monkeypatch.chdir(folder)
    run = runpy.run_path("test_it.py", runpy.run_path("agent.py"))[test]
    with pytest.raises((ValueError, RecursionError)) as raised:
        run()
    shown = raised.getrepr(**options)
    return SimpleNamespace(longrepr=shown, location=("test_it.py", 4, test))


def names(frames: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    found = [(frame["path"], frame["line"], frame["function"]) for frame in frames]
    return [frame for frame in found if frame[0] in {"agent.py", "test_it.py"}]


def test_the_frames_of_a_cause_follow_those_of_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    frames = find_frames(fail(tmp_path, monkeypatch, "test_refund"))
    assert names(frames) == [
        ("test_it.py", 4, "test_refund"),
        ("agent.py", 22, "refund"),
        ("agent.py", 19, "refund"),
        ("agent.py", 14, "Shop.find"),
    ]
    assert [frame["line"] for frame in frames if frame.get("open")] == [4]


def test_lines_are_of_one_function_without_secrets_and_without_half_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    frames = find_frames(fail(tmp_path, monkeypatch, "test_refund"))
    lines = {frame["line"]: "\n".join(frame["lines"]) for frame in frames}
    assert lines[4] == "def test_refund():\n    refund(8)"
    assert lines[14] == "        orders = {}\n        return orders[number]"
    assert KEY not in str(frames)
    assert 'key = "' in lines[22]


def test_a_recursion_has_its_first_and_its_last_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    frames = names(find_frames(fail(tmp_path, monkeypatch, "test_again", truncate_locals=True)))
    assert len(frames) <= MAX_FRAMES
    assert ("test_it.py", 8, "test_again") in frames
    assert frames[-1] == ("agent.py", 26, "again")


def test_a_report_of_one_line_has_the_last_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    report = fail(tmp_path, monkeypatch, "test_refund", style="value")
    assert names(find_frames(report)) == [("agent.py", 22, "refund")]


def test_frames_of_offbook_and_of_pytest_are_left_out():
    with pytest.raises(FormatError) as raised:
        read_script(Path("nothing.yaml"))
    report: Any = SimpleNamespace(longrepr=raised.getrepr(), location=(__file__, 0, ""))
    paths = [frame["path"] for frame in find_frames(report)]
    assert paths[0].endswith("test_frames.py")
    assert [path for path in paths if "offbook" in Path(path).parts] == []


def test_a_text_without_frames_has_none():
    report: Any = SimpleNamespace(longrepr="a text", location=("test_it.py", 4, "test"))
    assert find_frames(report) == []
