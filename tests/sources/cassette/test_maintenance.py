"""Maintenance of cassettes keeps everything that people wrote into them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from offbook.errors import FormatError, ModelError, UsageError
from offbook.exchange import Reply, Text, ToolCall
from offbook.sources.cassette import (
    Cassette,
    CassetteFile,
    CassetteTitle,
    Drift,
    Interaction,
    Journal,
    RecordedRequest,
    RecordedResponse,
    Rerecording,
    add_redactions,
    cassette_stats,
    compare_cassettes,
    count_hats,
    find_cassettes,
    load_cassette,
    rebuild_request,
    stale_interactions,
    trim_cassette,
    upgrade_cassette,
    verify_cassette,
)
from tests.sources.cassette.conversations import (
    LOOK,
    SEED,
    Counting,
    ask,
    calling_in_sequence,
    looking_up,
    record,
    replay,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "refund.yaml"
    asyncio.run(record(path, looking_up("toolu_01"), LOOK))
    return path


def test_statistics_count_interactions_hats_models_and_tokens(path: Path):
    stats = cassette_stats(path)
    assert (stats.interactions, stats.hats, stats.models) == (3, {"main": 3}, {"gpt-5": 3})
    assert (stats.tokens, stats.errors, stats.cost_dollars, stats.stale) == (53, 0, None, ())


@pytest.mark.parametrize("command", [cassette_stats, upgrade_cassette])
def test_a_command_parses_each_interaction_once(
    path: Path, command: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
):
    upgrade_cassette(path)
    parsed: list[int] = []
    parse = CassetteFile._parse_interaction  # pyright: ignore[reportPrivateUsage] - counted

    def count(file: CassetteFile, start: int, end: int, line: int) -> Interaction:
        parsed.append(line)
        return parse(file, start, end, line)

    monkeypatch.setattr(CassetteFile, "_parse_interaction", count)
    command(path)
    # An upgrade also checks the text that it writes.
    assert len(parsed) == (3 if command is cassette_stats else 6)


def test_trimming_copies_the_messages_that_other_interactions_refer_to(path: Path):
    text = path.read_text().replace("  - id: 3", "  # a reviewer\n  - id: 3")
    path.write_text(text)
    whole = load_cassette(path).messages(load_cassette(path).entries[2])
    trim_cassette(path, {1, 2})
    file = load_cassette(path)
    assert [entry.id for entry in file.entries] == [3]
    assert file.messages(file.entries[0]) == whole
    assert "# a reviewer" in path.read_text()
    assert asyncio.run(replay(path, looking_up("x")[2:])) == ["answer 3"]


def test_trimming_an_unknown_interaction_is_refused(path: Path):
    before = path.read_bytes()
    with pytest.raises(UsageError, match="no interaction 7"):
        trim_cassette(path, {1, 7})
    assert path.read_bytes() == before


def test_an_edited_request_is_stale_until_the_cassette_is_upgraded(path: Path):
    path.write_text(path.read_text().replace("- user: thanks", "- user: thank you  # kinder"))
    assert stale_interactions(load_cassette(path)) == [3]
    assert upgrade_cassette(path) == [3]
    assert stale_interactions(load_cassette(path)) == []
    assert "# kinder" in path.read_text()


@pytest.mark.parametrize("calls", [1, 2, 5])
async def test_an_upgrade_leaves_the_hashes_of_calls_in_sequence(calls: int, tmp_path: Path):
    path = tmp_path / "calls.yaml"
    requests, replies = calling_in_sequence(calls)
    await record(path, requests, *replies)
    assert stale_interactions(load_cassette(path)) == []
    assert upgrade_cassette(path) == []


async def test_calls_in_sequence_are_replayed_after_new_redactions(tmp_path: Path):
    path = tmp_path / "calls.yaml"
    requests, replies = calling_in_sequence(3)
    await record(path, requests, *replies)
    add_redactions(path, {"patterns": {"ORDER": "order [0-9]"}})
    again, _ = calling_in_sequence(3, prefix="other")
    assert (await replay(path, again))[-1] == "done"


def test_the_oldest_format_is_upgraded_with_its_comments(tmp_path: Path):
    path = tmp_path / "auth_flow.yaml"
    path.write_text(SEED)
    upgrade_cassette(path)
    file = load_cassette(path)
    assert file.header.version == 1
    assert [entry.id for entry in file.entries] == [1, 2]
    changed = [line for line in SEED.splitlines() if line not in path.read_text().splitlines()]
    assert changed == ["  - request:", "  - request:"]
    source = Cassette(path, strict=False)
    assert source.reply_to_prompt("x", "builder") is not None


async def test_replies_with_another_structure_are_drift(path: Path):
    current = (
        Reply((ToolCall("c", "find_order", {"id": "seven", "deep": True}),), "tool_use"),
        ModelError("gone", status=404),
    )
    assert await verify_cassette(path, Counting(LOOK)) == []
    drifts = await verify_cassette(path, Counting(*current))
    assert drifts == [
        Drift(
            1,
            added=("$.calls.find_order.deep: boolean",),
            removed=("$.text: text",),
            changed=("$.calls.find_order.id: number became text",),
        ),
        Drift(2, added=("$.error: 404 not_found",), removed=("$.stop: stop", "$.text: text")),
    ]
    assert "~ $.calls.find_order.id: number became text" in str(drifts[0])


async def test_two_cassettes_are_compared_interaction_by_interaction(path: Path, tmp_path: Path):
    other = tmp_path / "other.yaml"
    await record(other, looking_up("toolu_01"), Reply((Text("no need to look"),)))
    assert [drift.number for drift in compare_cassettes(path, other)] == [1]
    assert compare_cassettes(path, path) == []


async def test_a_cassette_without_stored_requests_cannot_be_verified(tmp_path: Path):
    path = tmp_path / "seed.yaml"
    path.write_text(SEED)
    with pytest.raises(FormatError, match="no request is stored"):
        await verify_cassette(path, Counting())


def test_cassettes_are_found_among_other_files(path: Path):
    (path.parent / "other.yaml").write_text("a: 1\n")
    (path.parent / "deep").mkdir()
    (path.parent / "deep" / "seed.yml").write_text(SEED)
    assert [cassette.name for cassette in find_cassettes(path.parent)] == [
        "seed.yml",
        "refund.yaml",
    ]


async def test_a_new_recording_of_an_answer_that_ends_like_a_comment_replaces_all_of_it(
    tmp_path: Path,
):
    path = tmp_path / "plan.yaml"
    await record(path, [ask("plan"), ask("go on")], Reply((Text("Plan\n# Step one"),)))
    with Rerecording(path, 1, Counting(Reply((Text("Fresh"),)))) as source:
        await source.reply(ask("plan"))
        await source.reply(ask("go on"))
    assert await replay(path, [ask("plan"), ask("go on")]) == ["Fresh", "answer 2"]


def test_trimming_keeps_a_neighbour_that_ends_like_a_comment(tmp_path: Path):
    path = tmp_path / "plan.yaml"
    plan = Reply((Text("Plan\n# Step one"),))
    asyncio.run(record(path, [ask("plan"), ask("go on")], plan))
    trim_cassette(path, {2})
    assert asyncio.run(replay(path, [ask("plan")])) == ["Plan\n# Step one"]


HAND_MADE = """# reviewed by me
format: offbook.cassette
version: 1

interactions:
  # the first one
  - id: 1
    request:
      prompt_hash: sha256:aa
      prompt: Refund order 7   # in the words of the user
    response: {output: Done.}
  - id: 2
    request:
      prompt_hash: sha256:...  # whatever it is
      prompt: And then?
    response:
      output: |
        Nothing.
        More.
"""


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_comments_line_ends_and_byte_order_mark_of_any_editor_are_handled(
    tmp_path: Path, ends: str, mark: str
):
    path = tmp_path / "hand.yaml"
    path.write_bytes((mark + HAND_MADE.replace("\n", ends)).encode())
    assert upgrade_cassette(path) == [1]
    text = path.read_bytes().decode()
    assert text.count("#") == HAND_MADE.count("#")
    assert text.count(ends) == text.count("\n")
    assert [item.response.output for item in load_cassette(path)] == ["Done.", "Nothing.\nMore.\n"]
    assert load_cassette(path).entries[1].hash == "sha256:..."
    trim_cassette(path, {1})
    text = path.read_bytes().decode()
    assert text.count(ends) == text.count("\n")
    assert "# reviewed by me" in text
    assert "# the first one" not in text


async def test_a_shortened_hash_that_matches_any_request_is_kept(tmp_path: Path):
    path = tmp_path / "hand.yaml"
    path.write_text(HAND_MADE)
    source = Cassette(path)
    assert (await source.reply(ask("Refund order 7"))).text == "Done."
    assert (await source.reply(ask("something else"))).text == "Nothing.\nMore.\n"


def test_the_top_comments_of_a_cassette_in_flow_style_are_kept(tmp_path: Path):
    path = tmp_path / "flow.yaml"
    request = '{prompt_hash: "sha256:aa", prompt: hi}'
    path.write_text(
        f"# mine\n{{interactions: [{{request: {request}, response: {{output: ho}}}}]}}\n"
    )
    assert upgrade_cassette(path) == [1]
    assert path.read_text().startswith("# mine\nformat:")


def test_an_alias_into_another_interaction_is_reported_and_nothing_is_overwritten(tmp_path: Path):
    path = tmp_path / "alias.yaml"
    text = HAND_MADE.replace("prompt: Refund", "prompt: &prompt Refund")
    text = text.replace("sha256:...", "sha256:bb").replace("prompt: And then?", "prompt: *prompt")
    path.write_text(text)
    assert len(load_cassette(path)) == 2
    with pytest.raises(FormatError, match="interaction 2 has an alias") as raised:
        upgrade_cassette(path)
    assert raised.value.line == 12
    assert path.read_text() == text


def test_the_interactions_of_a_killed_recorder_are_counted(path: Path):
    killed = Journal(path, CassetteTitle("refund.yaml"))
    request = RecordedRequest(hat="builder", prompt_hash="sha256:aa", prompt="more")
    killed.add(1, Interaction(id=9, request=request, response=RecordedResponse(output="x")))
    os.close(killed.file)  # as if the process had died here
    assert count_hats(path) == {"main": 3, "builder": 1}


def test_the_interactions_of_a_cassette_in_flow_style_are_counted(tmp_path: Path):
    path = tmp_path / "flow.yaml"
    response = '{output: "x"}'
    request = '{hat: planner, prompt_hash: "sha256:aa", prompt: go}'
    path.write_text(
        f"version: 1\ninteractions: [{{id: 1, request: {request}, response: {response}}}]\n"
    )
    assert count_hats(path) == {"planner": 1}


async def test_a_request_of_another_hat_is_sent_again_with_its_hat(tmp_path: Path):
    path = tmp_path / "hats.yaml"
    await record(path, [ask("one", hat="planner")])
    file = load_cassette(path)
    assert rebuild_request(file, file.entries[0]).metadata["hat"] == "planner"


async def test_the_items_of_a_list_belong_to_the_structure(path: Path, tmp_path: Path):
    def calling(*ids: object) -> Reply:
        return Reply((ToolCall("c", "find_order", {"ids": list(ids)}),), "tool_use")

    for name, reply in (("numbers", calling(1, 2)), ("texts", calling("a")), ("none", calling())):
        await record(tmp_path / f"{name}.yaml", [ask("one")], reply)
    numbers = tmp_path / "numbers.yaml"
    assert compare_cassettes(numbers, tmp_path / "texts.yaml") == [
        Drift(1, changed=("$.calls.find_order.ids[*]: number became text",))
    ]
    assert compare_cassettes(numbers, tmp_path / "none.yaml") == [
        Drift(1, removed=("$.calls.find_order.ids[*]: number",))
    ]


async def test_cassettes_of_different_lengths_are_not_compared(path: Path, tmp_path: Path):
    other = tmp_path / "other.yaml"
    await record(other, [ask("one")])
    with pytest.raises(UsageError, match=r"has 3 interactions, .* has 1"):
        compare_cassettes(path, other)


def test_cassettes_in_hidden_folders_are_not_found(path: Path):
    hidden = path.parent / ".cache"
    hidden.mkdir()
    (hidden / "seed.yaml").write_text(SEED)
    assert list(find_cassettes(path.parent)) == [path]
