"""What a reviewer wrote into a cassette survives whatever is done to it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.sources.cassette.cassette_file import CassetteFile
from offbook.sources.cassette.editing import (
    append_interactions,
    remove_interactions,
    respell,
    revise,
    update_header,
    update_interactions,
)
from offbook.sources.cassette.format import Interaction, RecordedRequest, RecordedResponse
from offbook.yaml_files import dump_yaml, parse_yaml
from tests.sources.cassette.conversations import SEED

REVIEWED = """\
# cassette: shop.yaml
format: offbook.cassette   # ours
version: 1

interactions:
  # the happy path
  - id: 1
    # what was asked
    request:
      hat: main  # one hat only
      prompt_hash: sha256:aa
      prompt: "hello"
    response:
      output: hi   # kind
      tokens: 5

  # the sad path
  - id: 2
    request:
      prompt_hash: sha256:bb
      prompt: bye
    response:
      output: |
        # this is no comment
        so long

# the end
metadata:
  # counted by hand
  total_tokens: 5
"""
NEW = Interaction(
    id=3,
    request=RecordedRequest(prompt_hash="sha256:cc", prompt="new"),
    response=RecordedResponse(output="here"),
)
SCALARS = st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=12)
MAPPINGS = st.dictionaries(
    st.text("abcdef_", min_size=1, max_size=4),
    st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text("abcdef_", min_size=1, max_size=4), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    min_size=1,
    max_size=5,
)


def comments(raw: bytes) -> list[str]:
    return [line.strip() for line in raw.decode().splitlines() if "#" in line]


def test_adding_leaves_every_line_that_was_there():
    raw = append_interactions(REVIEWED.encode(), [NEW])
    lines = raw.decode().splitlines()
    assert [line for line in lines if line in REVIEWED.splitlines()] == [
        line
        for line in lines
        if "new" not in line and "cc" not in line and "here" not in line and line != "  - id: 3"
    ]
    assert comments(raw) == comments(REVIEWED.encode())
    assert [entry.id for entry in CassetteFile(raw).entries] == [1, 2, 3]
    assert raw.decode().index("# the end") > raw.decode().index("output: here")


def test_removing_takes_only_the_one_and_the_comment_above_it():
    first = remove_interactions(CassetteFile(REVIEWED.encode()), {1})
    assert "happy" not in first.decode()
    assert "the sad path" in first.decode()
    second = remove_interactions(CassetteFile(REVIEWED.encode()), {2})
    assert "sad" not in second.decode()
    assert "# the end" in second.decode()
    assert [entry.id for entry in CassetteFile(first).entries] == [2]
    assert [entry.id for entry in CassetteFile(second).entries] == [1]


def test_a_new_answer_keeps_the_comments_around_it():
    tape = CassetteFile(REVIEWED.encode())
    item = tape.read(tape.entries[0])
    changed = msgspec.structs.replace(item, response=RecordedResponse(output="welcome", tokens=7))
    raw = update_interactions(tape, {1: changed})
    assert comments(raw) == [
        line.replace("output: hi ", "output: welcome ") for line in comments(REVIEWED.encode())
    ]
    assert CassetteFile(raw).read(CassetteFile(raw).entries[0]) == changed
    assert raw.decode().splitlines()[:5] == REVIEWED.splitlines()[:5]


def test_a_new_header_keeps_the_comments_around_it():
    tape = CassetteFile(REVIEWED.encode())
    raw = update_header(tape.raw, tape, {"hashed": "abc", "metadata": {"total_tokens": 9}})
    assert comments(raw) == comments(REVIEWED.encode())
    assert CassetteFile(raw).header.hashed == "abc"
    assert CassetteFile(raw).header.metadata == {"total_tokens": 9}


def test_the_first_format_can_be_added_to():
    raw = append_interactions(SEED.encode(), [NEW])
    tape = CassetteFile(raw)
    assert [entry.hat for entry in tape.entries] == ["planner", "builder", "main"]
    assert tape.header.metadata["total_tokens"] == 12500


@pytest.mark.parametrize("empty", ["interactions:\n", "interactions: []\n", "interactions: []"])
def test_the_first_interaction_finds_its_place(empty: str):
    raw = append_interactions(empty.encode(), [NEW])
    assert [item.id for item in CassetteFile(raw)] == [3]


def test_what_is_spelt_in_one_line_can_be_written_anew():
    request = '{"prompt_hash": "sha256:aa"}'
    text = f'{{"version": 1, "interactions": [{{"request": {request}, "response": {{}}}}]}}'
    assert len(CassetteFile(respell(CassetteFile(text.encode())))) == 1
    assert len(CassetteFile(append_interactions(text.encode(), [NEW]))) == 2


@given(MAPPINGS, MAPPINGS)
def test_a_revised_text_says_the_new_and_nothing_else(old: dict[str, Any], new: dict[str, Any]):
    text = revise(dump_yaml(old), old, new, 0)
    assert parse_yaml(text) == new


@given(MAPPINGS)
def test_what_says_the_same_already_is_not_touched(value: dict[str, Any]):
    text = dump_yaml(value).replace("\n", "\n", 1)
    assert revise(text, value, value, 0) == text
