"""Output is searched block by block, with the same result as a search of the whole text."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks import OutputMatch, context
from offbook.errors import UsageError
from offbook.trace import Event, compile_pattern

PATTERNS = [
    *["ab", "b\nc", "a.*c", "a+b", "[abc]c", "(?:ab|ca)b?", r"\bab\b", "a{2,3}", "(?i)AB", "x*"],
    *["^b", "c$", r"a\sb", "a[^b]c", "(?s)a.*c", "(?m)^c", r"(?<=a)b", r"b(?!c)", r"\Ab", r"(a)\1"],
    *["^$", r"\A\Z"],
]
chunk_lists = st.lists(st.text(st.sampled_from("abcé \n"), max_size=5), max_size=30)


def output(text: str) -> Event:
    return Event(1, "process.output", {"stream": "stdout", "text": text})


@given(chunk_lists, st.sampled_from(PATTERNS), st.sampled_from([0, 1, 7, 10_000]))
def test_a_search_in_chunks_and_in_the_whole_text_gives_the_same_result(
    chunks: list[str], pattern: str, size: int
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "BLOCK_SIZE", size)
        match = OutputMatch("stdout", pattern)
        for chunk in chunks:
            match.on_event(output(chunk))
        whole = "".join(chunks)
        assert match.matched is (whole != "" and re.search(pattern, whole) is not None)
        assert match.tail == whole[-context.TAIL_LENGTH :]


def test_a_character_may_be_split_between_two_blocks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(context, "BLOCK_SIZE", 0)
    match = OutputMatch("stdout", "café!")
    for part in ("caf\u00e9!".encode()[:4], "caf\u00e9!".encode()[4:]):
        encoded = base64.b64encode(part).decode()
        match.on_event(Event(1, "ux.terminal.write", {"bytes": encoded, "stdout": True}))
    assert match.matched


def test_output_that_is_not_utf_8_is_searched_all_the_same():
    match = OutputMatch("stdout", "done")
    encoded = base64.b64encode(b"\xff done").decode()
    match.on_event(Event(1, "ux.terminal.write", {"bytes": encoded, "stdout": True}))
    assert match.matched


@pytest.mark.parametrize(
    "pattern, kept",
    [
        ("needle", len("needle") - 1),
        (r"need\w+ \d{3}", 0),
        ("(?:one|two).*three", 0),
        (r"need\s", 14_000),
        ("^needle", 14_000),
    ],
)
def test_only_text_that_can_become_a_match_is_kept(pattern: str, kept: int):
    text = "line of words\n" * 1000
    assert len(text) - compile_pattern(pattern).stream_bounds(text)[1] == kept


def test_output_after_a_first_result_continues_what_was_received_before():
    match = OutputMatch("stdout", "abc")
    match.on_event(output("ab"))
    assert not match.matched
    match.on_event(output("c"))
    assert match.matched


def test_an_invalid_pattern_is_raised_when_the_result_is_read():
    match = OutputMatch("stdout", "[")
    match.on_event(output("a"))
    with pytest.raises(UsageError, match=r"stdout_contains\.pattern"):
        _ = match.matched


@pytest.mark.parametrize(
    "data", [{"text": 5}, {"stream": "stderr", "text": "a"}, {"stream": None, "text": "a"}, {}]
)
def test_other_streams_and_malformed_events_are_ignored(data: dict[str, Any]):
    match = OutputMatch("stdout", "a")
    match.on_event(Event(1, "process.output", data))
    assert not match.matched
    assert not match.tail
