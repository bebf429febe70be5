"""Texts are compared by line, and the result is a diff as git prints it."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks import diff_texts, split_lines

texts = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=9).map("\n".join)


@given(texts, texts)
def test_the_hunks_turn_one_text_into_the_other(before: str, after: str):
    diff = diff_texts(before, after)
    old, new = split_lines(before), split_lines(after)
    changed = [line for hunk in diff.hunks for line in hunk.content.split("\n")]
    removed = [line for line in changed if line.startswith("-")]
    added = [line for line in changed if line.startswith("+")]
    assert (len(added), len(removed)) == (diff.additions, diff.deletions)
    assert len(old) - diff.deletions == len(new) - diff.additions
    for hunk in diff.hunks:
        lines = [line for line in hunk.content.split("\n") if line[:1] in {"+", " "}]
        shown = [line[1:] for line in lines]
        assert shown == [line.removesuffix("\n") for line in new[hunk.start - 1 : hunk.end]]


@given(texts)
def test_equal_texts_have_no_hunks(text: str):
    diff = diff_texts(text, text)
    assert (diff.additions, diff.deletions, diff.hunks) == (0, 0, [])


def test_a_long_file_with_many_repeated_lines_is_compared_in_time():
    lines = ["repeated\n" if number % 3 else f"{number}\n" for number in range(30_000)]
    before = "".join(["first\n", *lines, "last\n"])
    after = "".join(["second\n", *lines, "end\n"])
    started = time.process_time()
    diff = diff_texts(before, after)
    assert (diff.additions, diff.deletions) == (2, 2)
    assert time.process_time() - started < 10  # of this process: others may be busy


@given(st.text(st.sampled_from("ab\n\r\f\x85\u2028")))
def test_only_a_line_feed_ends_a_line(text: str):
    lines = split_lines(text)
    assert "".join(lines) == text
    assert all("\n" not in line[:-1] and line for line in lines)


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
    git = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    diff = diff_texts(old, new)
    assert [str(diff.additions), str(diff.deletions)] == git.stdout.split()[:2]


def test_a_missing_newline_at_the_end_is_marked_as_git_marks_it():
    diff = diff_texts("a\n", "a")
    assert diff.hunks[0].content == "-a\n+a\n\\ No newline at end of file"
    diff = diff_texts("a", "a\n")
    assert diff.hunks[0].content == "-a\n\\ No newline at end of file\n+a"
