"""A cassette is read strictly: an error has its line, and nothing is overwritten."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from offbook.errors import FormatError
from offbook.exchange import Usage, user
from offbook.sources.cassette import (
    CassetteFile,
    RecordedRequest,
    RecordedResponse,
    format_chunks,
    load_cassette,
    parse_chunks,
)
from tests.sources.cassette.conversations import SEED, ask, looking_up, record, replay

FOSSILS = Path(__file__).parent / "fossils"
GOOD = """\
format: offbook.cassette
version: 1
interactions:
  - id: 1
    request:
      prompt_hash: sha256:aa
      messages:
        - user: hello
    response:
      output: hi
  - id: 2
    request:
      prompt_hash: sha256:bb
      after: 1
      messages:
        - user: again
    response:
      output: hi again
"""
JSON = (
    '{"format": "offbook.cassette", "version": 1, "interactions": ['
    '{"request": {"prompt_hash": "sha256:aa"}, "response": {"output": "hi"}}, '
    '{"request": {"prompt_hash": "sha256:bb"}, "response": {"output": "ho"}}]}'
)
BOMB = (
    "".join(
        f"x{at}: &x{at} [{', '.join([f'*x{at - 1}' if at else 'lol'] * 9)}]\n" for at in range(9)
    )
    + GOOD
)


@pytest.mark.parametrize(
    "old, new, line, message",
    [
        ("output: hi again", "output: [hi", 18, "YAML"),
        ("  - id: 2", "\t- id: 2", 11, "YAML"),
        ("      output: hi\n", "      output: hi\n      output: ho\n", 11, "duplicate"),
        ("output: hi again", "outptu: hi again", 18, "did you mean 'output'"),
        ("prompt_hash: sha256:bb", "prompt_hash: 7", 13, "expected a text"),
        ("prompt_hash: sha256:bb", "prompt_hash: bb", 11, "begins with 'sha256:'"),
        ("      prompt_hash: sha256:bb\n", "", 12, "prompt_hash"),
        ("id: 2", "id: 1", 11, "duplicate interaction id 1"),
        ("after: 1", "after: 7", 11, "no interaction has that id"),
        ("after: 1", "after: 2", 11, "refers to itself"),
        ("output: hi again", "output: !!python/object:os.system x", 11, "tag"),
        ("- user: again", "- usr: again", None, "role"),
        ("version: 1", "version: one", 2, "expected an integer"),
        ("format: offbook.cassette", "format: offbook.trace", 1, "not a cassette"),
        ("interactions:", "interaction:", None, "interactions"),
    ],
)
def test_an_error_has_its_line_and_leaves_the_file_unchanged(
    tmp_path: Path, old: str, new: str, line: int | None, message: str
):
    path = tmp_path / "broken.yaml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(FormatError, match=message) as raised:
        load_cassette(path)
    assert raised.value.line == line or line is None
    assert str(path) in str(raised.value)
    assert path.read_text() == GOOD.replace(old, new)


def test_a_newer_version_is_refused(tmp_path: Path):
    path = tmp_path / "new.yaml"
    path.write_text(GOOD.replace("version: 1", "version: 99"))
    with pytest.raises(FormatError, match="upgrade Offbook") as raised:
        load_cassette(path)
    assert raised.value.line == 2


def test_an_alias_bomb_is_refused(tmp_path: Path):
    path = tmp_path / "bomb.yaml"
    path.write_text(BOMB)
    with pytest.raises(FormatError, match="alias"):
        load_cassette(path)


def test_a_missing_cassette_suggests_the_nearest_name(tmp_path: Path):
    (tmp_path / "refund.yaml").write_text(GOOD)
    with pytest.raises(FormatError, match=r"did you mean 'refund\.yaml'"):
        load_cassette(tmp_path / "refnud.yaml")


@pytest.mark.parametrize("cut", [10, 60, 120, 200, 260])
def test_a_truncated_cassette_is_not_read_as_a_whole_one(tmp_path: Path, cut: int):
    path = tmp_path / "cut.yaml"
    path.write_text(GOOD[:cut])
    try:
        file = load_cassette(path)
    except FormatError as error:
        assert str(path) in str(error)  # noqa: PT017 - a cut between two interactions leaves a valid file
    else:
        assert len(file) < 2


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("  - id", "- id").replace("\n    ", "\n  "),
        GOOD.replace("\n  ", "\n      "),
        GOOD.replace("interactions:", "interactions:   # all of them\n  # first\n"),
        GOOD.replace("output: hi\n", "output: &first hi\n").replace(
            "output: hi again", "output: *first"
        ),
        JSON,
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        "---\n" + GOOD + "...\n",
    ],
)
def test_other_layouts_of_the_same_value_are_read(tmp_path: Path, text: str):
    path = tmp_path / "layout.yaml"
    path.write_bytes(text.encode())
    file = load_cassette(path)
    assert [entry.id for entry in file.entries] == [1, 2]
    assert next(item.response.output for item in file) == "hi"


async def test_the_whole_conversation_of_a_request_is_rebuilt(tmp_path: Path):
    path = tmp_path / "talk.yaml"
    await record(path, looking_up("toolu_01"))
    file = load_cassette(path)
    texts = [message.text for message in file.messages(file.entries[-1])]
    assert texts[0] == "Refund order 7"
    assert texts[-1] == "thanks"
    assert file.settings(file.entries[-1]).system == "You help."


@pytest.mark.parametrize("fossil", sorted(FOSSILS.glob("*.yaml")), ids=lambda path: path.stem)
def test_cassettes_of_every_version_can_be_read(fossil: Path):
    assert len(load_cassette(fossil)) >= 2


async def test_a_stored_cassette_of_version_1_still_replays():
    requests = [
        ask("hello", system="Be kind."),
        ask("hello", "answer 1", "and again", system="Be kind."),
    ]
    assert await replay(FOSSILS / "v1.yaml", requests) == ["answer 1", "answer 2"]


def test_there_is_a_stored_cassette_of_each_version():
    assert {path.stem for path in FOSSILS.glob("*.yaml")} == {"v0", "v1"}
    assert (FOSSILS / "v0.yaml").read_text() == SEED


# --- What a new cassette looks like, and what a short one means

RECORDED = """\
format: offbook.cassette
version: 1
hashed: "97ae4b69c69161f7"

interactions:
  - id: 1
    request:
      prompt_hash: "sha256:b7075bc0098097b7acda1df654f2333627a5b26d136293b3e46b5a61b5f9849f"
      prompt_preview: "Refund order 7"
      model: "gpt-5"
      system: You help.
      tools:
        - name: find_order
          description: Finds an order.
          schema:
            type: object
      messages:
        - user: "Refund order 7"
    response:
      output: "answer 1"
      tokens: 12
      usage:
        input: 10
        output: 2

  - id: 2
    request:
      prompt_hash: "sha256:8045465f1dcb7b6da6dfb57c0b16d9e0917b547a8aa4bff4e7d353bcd3b3b1a2"
      prompt_preview: "Refund order 7"
      head: 1
      again: 1
      messages:
        - role: assistant
          blocks:
            - type: text
              text: let me look
            - type: tool_call
              id: "call-1"
              name: find_order
              arguments:
                id: 7
        - role: tool
          blocks:
            - type: tool_result
              call_id: "call-1"
              content:
                - type: text
                  text: it is blue
    response:
      output: "answer 2"
      tokens: 12
      usage:
        input: 10
        output: 2

  - id: 3
    request:
      prompt_hash: "sha256:53ffdaf7465767b4c9109c2344f8d9ff37b6d2ff022b72875f5c1dbc6a8334bf"
      prompt_preview: thanks
      head: 1
      after: 2
      messages:
        - user: thanks
    response:
      output: "answer 3"
      tokens: 12
      usage:
        input: 10
        output: 2

metadata:
  total_tokens: 36
"""


async def test_a_new_cassette_is_written_as_the_format_says(tmp_path: Path):
    path = tmp_path / "talk.yaml"
    await record(path, looking_up("toolu_01"))
    lines = path.read_text().splitlines(keepends=True)
    timed = ("# cassette: ", "# recorded: ", "    at_ms: ", "      duration_ms: ")
    assert "".join(line for line in lines if not line.startswith(timed)) == RECORDED


def test_what_a_cassette_leaves_out_has_its_default(tmp_path: Path):
    path = tmp_path / "short.yaml"
    path.write_text(GOOD)
    first, second = load_cassette(path)
    assert first.request == RecordedRequest(
        hat="main",
        prompt_hash="sha256:aa",
        prompt_preview="",
        prompt=None,
        dialect="",
        stream=False,
        head=None,
        model="",
        system="",
        tools=(),
        parameters={},
        after=None,
        again=None,
        messages=(user("hello"),),
    )
    assert first.response == RecordedResponse(
        output="hi",
        blocks=(),
        stop="stop",
        exit_code=0,
        error=None,
        model="",
        id="",
        tokens=0,
        usage=Usage(),
        cost_dollars=None,
        duration_ms=0,
        chunks="",
        roots=(),
        files={},
    )
    assert (first.at_ms, second.request.after) == (None, 1)


def test_the_title_of_a_request_is_its_preview_its_prompt_or_its_last_text():
    request = RecordedRequest(prompt_hash="sha256:aa", messages=(user("a"), user("b\n  c")))
    assert request.title == "b c"
    assert msgspec.structs.replace(request, prompt="d\n\te").title == "d e"
    assert msgspec.structs.replace(request, prompt="d", prompt_preview="f  g").title == "f  g"
    assert RecordedRequest(prompt_hash="sha256:aa").title == ""


def test_chunks_are_lengths_with_the_delays_that_are_known():
    assert format_chunks(("ab", "c"), ()) == "2 1"
    assert format_chunks(("ab", "c"), (5.0,)) == "2@5 1"
    assert format_chunks(("ab", "c"), (0.0, 1.5)) == "2 1@1.5"
    assert parse_chunks("2@5 1", "abc") == (("ab", "c"), (5.0, 0.0))
    assert parse_chunks("2@5 1", "abcd") == ((), ())


def test_bytes_without_a_path_that_are_no_cassette_are_refused():
    with pytest.raises(FormatError, match="the key 'interactions' is missing"):
        CassetteFile(b"name: package\n")
