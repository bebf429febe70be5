"""A cassette is read strictly: an error has its line, and nothing is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from offbook.errors import FormatError, FutureVersion
from offbook.sources.cassette import load_cassette
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
    with pytest.raises(FutureVersion, match="upgrade Offbook") as raised:
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
