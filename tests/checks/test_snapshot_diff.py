"""Texts are compared by the line, with as few that differ as there can be."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks import snapshot
from offbook.checks.snapshot import (
    Snapshot,
    compare_snapshots,
    match_lines,
    pair_lines,
    split_lines,
)

texts = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=9)


def longest(before: list[str], after: list[str]) -> int:
    """How many lines can be paired, by the book."""

    @cache
    def count(a: int, b: int) -> int:
        if a == len(before) or b == len(after):
            return 0
        if before[a] == after[b]:
            return 1 + count(a + 1, b + 1)
        return max(count(a + 1, b), count(a, b + 1))

    return count(0, 0)


@given(texts, texts)
def test_as_many_lines_are_paired_as_can_be(before: list[str], after: list[str]):
    pairs = pair_lines(before, after)
    assert pairs is not None
    assert all(before[a] == after[b] for a, b in pairs)
    assert pairs == sorted(set(pairs))
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == longest(before, after)


@given(texts, texts)
def test_what_is_told_to_be_done_makes_one_the_other(before: list[str], after: list[str]):
    made: list[str] = []
    for _, a, b, c, d in match_lines(before, after).get_opcodes():
        made += before[a:b] if before[a:b] == after[c:d] else after[c:d]
    assert made == after


def test_texts_that_have_little_in_common_are_compared_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(snapshot, "MOST", 3)
    before, after = list("abcdefgh"), list("ijklmnoh")
    assert pair_lines(before, after) is None
    assert match_lines(before, after).get_opcodes()[-1] == ("equal", 7, 8, 7, 8)


@given(st.text(st.sampled_from("ab\n\r\f\x85\u2028")))
def test_nothing_but_a_line_feed_ends_a_line(text: str):
    found = split_lines(text)
    assert "".join(found) == text
    assert all("\n" not in line[:-1] and line for line in found)


CASES = [
    ("a\nb\n", "a\nb"),
    ("a\r\nb\nc\n", "a\nb\nd\n"),
    ("a\fb\nc\n", "a\fb\nd\n"),
    ("a\u2028b\n", "a\u2028c\n"),
    ("x\ny\nx\ny\nz\n", "y\nx\nz\ny\n"),
    ("", "a\n"),
    ("a\n", ""),
    ("a", "a\r"),
    ("one\ntwo\n\nthree\n", "one\n\n\nthree"),
]


@pytest.mark.skipif(shutil.which("git") is None, reason="git counts the lines")
@pytest.mark.parametrize("old, new", CASES)
def test_lines_are_counted_as_git_counts_them(tmp_path: Path, old: str, new: str):
    for name, text in (("old", old), ("new", new)):
        (tmp_path / name).write_bytes(text.encode())
    command = ["git", "diff", "--no-index", "--numstat", "--text", "old", "new"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = compare_snapshots(Snapshot({"f": old}), Snapshot({"f": new})).diffs["f"]
    assert [str(found.additions), str(found.deletions)] == told.stdout.split()[:2]


def test_a_last_line_without_an_end_is_told_as_git_tells_it():
    found = compare_snapshots(Snapshot({"f": "a\n"}), Snapshot({"f": "a"})).diffs["f"]
    assert found.hunks[0].content == "-a\n+a\n\\ No newline at end of file"
