"""Edits of a cassette keep the comments and the text around them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.files import dump_yaml, parse_yaml
from offbook.sources.cassette import (
    CassetteFile,
    Interaction,
    RecordedRequest,
    RecordedResponse,
    append_interactions,
    as_block_sequence,
    edit_mapping,
    remove_interactions,
    update_header,
    update_interactions,
)
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


def test_appending_keeps_every_existing_line():
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


def test_removing_takes_only_the_interaction_and_the_comment_above_it():
    first = remove_interactions(CassetteFile(REVIEWED.encode()), {1})
    assert "happy" not in first.decode()
    assert "the sad path" in first.decode()
    second = remove_interactions(CassetteFile(REVIEWED.encode()), {2})
    assert "sad" not in second.decode()
    assert "# the end" in second.decode()
    assert [entry.id for entry in CassetteFile(first).entries] == [2]
    assert [entry.id for entry in CassetteFile(second).entries] == [1]


def test_a_new_response_keeps_the_comments_around_it():
    file = CassetteFile(REVIEWED.encode())
    interaction = file.read(file.entries[0])
    response = RecordedResponse(output="welcome", tokens=7)
    changed = msgspec.structs.replace(interaction, response=response)
    raw = update_interactions(file, {1: changed})
    assert [" ".join(line.split()) for line in comments(raw)] == [
        " ".join(line.replace("output: hi ", "output: welcome ").split())
        for line in comments(REVIEWED.encode())
    ]
    assert CassetteFile(raw).read(CassetteFile(raw).entries[0]) == changed
    assert raw.decode().splitlines()[:5] == REVIEWED.splitlines()[:5]


def test_a_new_header_keeps_the_comments_around_it():
    file = CassetteFile(REVIEWED.encode())
    raw = update_header(file, {"hashed": "abc", "metadata": {"total_tokens": 9}})
    assert comments(raw) == comments(REVIEWED.encode())
    assert CassetteFile(raw).header.hashed == "abc"
    assert CassetteFile(raw).header.metadata == {"total_tokens": 9}


MARKDOWN = """\
interactions:
  - id: 1
    request:
      prompt_hash: sha256:aa
      prompt: plan
    response:
      output: |-
        Plan
        # Step one
  # about the neighbour
  - id: 2
    request:
      prompt_hash: sha256:bb
      prompt: go on
    response:
      output: |
        Done
        # Step two

# the end
"""


def test_an_answer_that_ends_like_a_comment_is_replaced_as_a_whole():
    file = CassetteFile(MARKDOWN.encode())
    first, second = file
    fresh = msgspec.structs.replace(first, response=RecordedResponse(output="Fresh"))
    raw = update_interactions(file, {1: fresh})
    assert [item.response.output for item in CassetteFile(raw)] == ["Fresh", "Done\n# Step two\n"]
    assert "  # about the neighbour\n  - id: 2" in raw.decode()
    fresh = msgspec.structs.replace(second, response=RecordedResponse(output="Fresh"))
    raw = update_interactions(file, {2: fresh})
    assert [item.response.output for item in CassetteFile(raw)] == ["Plan\n# Step one", "Fresh"]
    assert raw.endswith(b"\n# the end\n")


def test_removing_the_neighbour_keeps_an_answer_that_ends_like_a_comment():
    file = CassetteFile(MARKDOWN.encode())
    (first,) = CassetteFile(remove_interactions(file, {2}))
    assert first.response.output == "Plan\n# Step one"
    raw = remove_interactions(file, {1})
    (second,) = CassetteFile(raw)
    assert second.response.output == "Done\n# Step two\n"
    assert "# about the neighbour" in raw.decode()
    assert "# Step one" not in raw.decode()


def test_appending_to_an_answer_that_ends_like_a_comment_keeps_it():
    raw = append_interactions(MARKDOWN.encode(), [NEW])
    assert [item.response.output for item in CassetteFile(raw)] == [
        "Plan\n# Step one",
        "Done\n# Step two\n",
        "here",
    ]


def test_the_oldest_format_can_be_appended_to():
    file = CassetteFile(append_interactions(SEED.encode(), [NEW]))
    assert [entry.hat for entry in file.entries] == ["planner", "builder", "main"]
    assert file.header.metadata["total_tokens"] == 12500


@pytest.mark.parametrize("empty", ["interactions:\n", "interactions: []\n", "interactions: []"])
def test_the_first_interaction_is_added_to_an_empty_list(empty: str):
    raw = append_interactions(empty.encode(), [NEW])
    assert [item.id for item in CassetteFile(raw)] == [3]


def test_a_cassette_in_flow_style_is_written_as_blocks():
    item = '{"request": {"prompt_hash": "sha256:aa"}, "response": {"output": ""}}'
    text = f'{{"version": 1, "interactions": [{item}]}}'
    assert len(as_block_sequence(CassetteFile(text.encode()))) == 1
    assert len(CassetteFile(append_interactions(text.encode(), [NEW]))) == 2


@given(MAPPINGS, MAPPINGS)
def test_an_edited_mapping_has_exactly_the_new_value(old: dict[str, Any], new: dict[str, Any]):
    assert parse_yaml(edit_mapping(dump_yaml(old), new)) == new


@given(MAPPINGS)
def test_a_mapping_with_the_wanted_value_is_not_touched(value: dict[str, Any]):
    text = dump_yaml(value)
    assert edit_mapping(text, value) == text


COMMENTED = """\
request:
  hat: main  # the only hat
  prompt: hi   # the prompt

  # the price
  tokens: 5
  output: |-
    Plan
    # Step one
  # the reason
  stop: x
  messages:
    - user: again
    # the second
    - user: x
  # the number
  number: 1
"""


def test_comments_around_changed_inserted_and_removed_keys_stay():
    value = parse_yaml(COMMENTED)
    request = value["request"]
    request |= {"prompt": "one\ntwo", "output": "Fresh", "messages": [{"a": 1}], "number": [1, 2]}
    del request["tokens"]
    value["response"] = {"output": "new"}
    text = edit_mapping(COMMENTED, value)
    assert parse_yaml(text) == value
    kept = [line.strip() for line in COMMENTED.splitlines() if line.strip().startswith("# the")]
    assert [line.strip() for line in text.splitlines() if line.strip() in kept] == kept
    assert "hat: main  # the only hat\n" in text
