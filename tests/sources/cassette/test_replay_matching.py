"""A replay says exactly which interaction matched, how, and what is left."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import FormatError, ReplayMismatch, UsageError
from offbook.exchange import (
    History,
    Image,
    Message,
    RawBlock,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from offbook.sources import Live
from offbook.sources.cassette import (
    Cassette,
    ConversationDigest,
    Normalizer,
    RecordedResponse,
    Recording,
    ReplayCursor,
    RequestHashes,
    hide_roots,
    merge_rules,
    number_call_ids,
    register_call_ids,
    request_as_json,
    request_hat,
    restore_roots,
)
from offbook.sources.cassette import (
    format as cassette_format,
)
from offbook.trace import Event, Hub, RedactionRules, matching
from tests.sources.cassette.conversations import Counting, ask, record, record_prompts


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "refund.yaml"


# ----------------------------------------------------------------------------- shortened hashes

HANDWRITTEN = """\
interactions:
  - request:
      hat: worker
      prompt_hash: {hash}
    response:
      output: by hand
"""


@pytest.mark.parametrize(
    "start, end, matches",
    [
        (0, "", True),
        (13, "...", True),
        (7, "...", True),
        (13, "x...", False),
        (-6, "...", False),
        (13, "", False),
    ],
)
def test_a_hash_in_a_cassette_may_be_shortened(path: Path, start: int, end: str, *, matches: bool):
    whole = Normalizer().hash_prompt("go on")
    # The whole hash, its beginning, or its end in place of its beginning.
    kept = whole[:start] if start > 0 else whole if start == 0 else f"sha256:{whole[start:]}"
    path.write_text(HANDWRITTEN.format(hash=kept + end))
    source = Cassette(path)
    if matches:
        response = source.reply_to_prompt("go on", "worker")
        assert response is not None
        assert (response.output or "").strip() == "by hand"
        assert source.verdict().status == "pass"
    else:
        with pytest.raises(ReplayMismatch):
            source.reply_to_prompt("go on", "worker")
        assert source.verdict().status == "fail"


# ----------------------------------------------------------------------------- events and numbers


def heard(path: Path, **options: Any) -> tuple[Cassette, list[Event]]:
    events: list[Event] = []
    hub = Hub()
    hub.subscribe(events.append)
    return Cassette(path, hub=hub, **options), events


async def test_an_exact_replay_emits_nothing(path: Path):
    await record(path, [ask("one"), ask("two")])
    source, events = heard(path)
    for text in ("one", "two"):
        await source.reply(ask(text))
    assert events == []
    assert msgspec.to_builtins(source.summary()) == {
        "interactions_replayed": 2,
        "interactions_passthrough": 0,
        "interactions_unused": 0,
        "drifted": 0,
        "reordered": 0,
        "cost_dollars": 0.0,
    }
    verdict = source.verdict()
    assert (verdict.check, verdict.status, verdict.message) == ("cassette replayed", "pass", "")
    assert verdict.context["interactions_replayed"] == 2


async def test_a_reordered_interaction_is_emitted(path: Path):
    await record(path, [ask("one", hat="a"), ask("two", hat="a")])
    source, events = heard(path)
    await source.reply(ask("two", hat="a"))
    await source.reply(ask("one", hat="a"))
    assert [(event.event, event.data) for event in events] == [
        ("cassette.reordered", {"interaction": 2, "hat": "a"})
    ]
    assert source.summary().reordered == 1


async def test_a_drifted_interaction_is_emitted_with_both_hashes(path: Path):
    await record(path, [ask("one"), ask("two")])
    source, events = heard(path, strict=False)
    assert (await source.reply(ask("another"))).text == "answer 1"
    normalizer = Normalizer()
    assert [(event.event, event.data) for event in events] == [
        (
            "cassette.drift",
            {
                "interaction": 1,
                "hat": "main",
                "recorded": normalizer.hash_request(ask("one")),
                "hash": normalizer.hash_request(ask("another")),
            },
        )
    ]
    await source.reply(ask("two"))
    verdict = source.verdict()
    assert (verdict.status, verdict.message) == (
        "warn",
        "0 requests went to the real model, 1 differed from the recording",
    )


async def test_a_request_that_passes_through_is_emitted_with_its_number(path: Path):
    await record(path, [ask("one")])
    source, events = heard(path, passthrough=Counting())
    await source.reply(ask("one"))
    await source.reply(ask("new"))
    assert [(event.event, event.data) for event in events] == [
        (
            "cassette.passthrough",
            {"request": 2, "hat": "main", "hash": Normalizer().hash_request(ask("new"))},
        )
    ]
    assert source.verdict().message == (
        "1 request went to the real model, 0 differed from the recording"
    )


async def test_a_reply_has_the_hat_as_its_role_unless_it_is_the_main_one(path: Path):
    await record(path, [ask("one"), ask("two", hat="builder")])
    source = Cassette(path)
    assert (await source.reply(ask("one"))).role == ""
    assert (await source.reply(ask("two", hat="builder"))).role == "builder"


async def test_the_next_number_is_that_of_the_hat_and_zero_at_the_end(path: Path):
    await record(path, [ask("one"), ask("two", hat="b"), ask("three")])
    source = Cassette(path)
    assert source.next_number(ask("x", hat="b")) == 2
    await source.reply(ask("one"))
    assert source.next_number(ask("x")) == 3
    await source.reply(ask("two", hat="b"))
    assert source.next_number(ask("x", hat="b")) == 0


async def test_the_settings_that_changed_are_named(path: Path):
    await record(path, [ask("one"), ask("two", system="Be kind.", parameters={"top_p": 1})])
    source = Cassette(path)
    assert source.changed_settings(ask("other"), 1) == []
    assert source.changed_settings(ask("two"), 2) == ["system", "top_p"]
    assert source.changed_settings(ask("one", tools=(Tool("a"),)), 1) == ["tools"]


def test_of_a_recorded_prompt_no_settings_are_known(path: Path):
    record_prompts(path, [("worker", "go on")])
    assert Cassette(path).changed_settings(ask("go on", system="x"), 1) == []


async def test_only_a_passthrough_that_relays_makes_a_relay(path: Path):
    await record(path, [ask("one")])
    assert Cassette(path).relays is False
    assert Cassette(path, passthrough=Counting()).relays is False
    assert Cassette(path, passthrough=Live()).relays is True


@pytest.mark.parametrize(
    "metadata, hat",
    [
        ({}, "main"),
        ({"hat": "a"}, "a"),
        ({"role": "b"}, "b"),
        ({"hat": "a", "role": "b"}, "a"),
        ({"hat": ""}, "main"),
        ({"hat": 5}, "main"),
    ],
)
def test_the_hat_of_a_request_is_in_its_metadata(metadata: dict[str, Any], hat: str):
    assert request_hat(Request(History(), metadata=metadata)) == hat


async def test_the_first_five_unused_interactions_are_listed(path: Path):
    await record(path, [ask(f"ask {number}", hat="a") for number in range(1, 8)])
    source = Cassette(path)
    await source.reply(ask("ask 1", hat="a"))
    error = source.unfinished()
    assert error is not None
    assert error.what == "cassette not fully replayed: 6 of 7 interactions unused"
    assert error.where == str(path)
    lines = error.hint.split("\n")
    assert [line.split(".")[0].strip() for line in lines[:5]] == ["2", "3", "4", "5", "6"]
    assert "(hat: a)" in lines[0]
    assert lines[5] == "    ... +1 more"
    assert lines[6].endswith(f"offbook cassette edit {path} --trim 2-7")
    await source.reply(ask("ask 2", hat="a"))
    five = source.unfinished()
    assert five is not None
    assert "more" not in five.hint


def test_a_redaction_that_takes_too_long_is_located_in_the_cassette(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(matching, "MAX_SECONDS", 0.001)
    path.write_text(
        "redactions:\n  patterns:\n    slow: '(x|xx)+$'\n" + HANDWRITTEN.format(hash="sha256:...")
    )
    source = Cassette(path)
    with pytest.raises(FormatError, match="took longer than") as refusal:
        source.take(ask("x" * 99 + "!", hat="worker"))
    assert str(refusal.value).startswith(f"{path}:3")


# ------------------------------------------------------------------------------------- the cursor


def test_a_cursor_notes_and_reads_the_used_numbers(tmp_path: Path):
    file = tmp_path / "runs" / "1" / "cursor"
    one, two = ReplayCursor(file, cassette="abc"), ReplayCursor(file, cassette="abc")
    with one.turn() as used:
        assert used == set()
        one.take(1)
        one.take(12)
    with two.turn() as used:
        assert used == {1, 12}
        two.take(3)
    with one.turn() as used:
        assert used == {1, 3, 12}
    assert file.read_text() == "abc\n1\n12\n3\n"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_forked_process_reads_what_its_parent_has_used(tmp_path: Path):
    # Both have the same position in the file.
    script = """
import os, sys
from pathlib import Path
from offbook.sources.cassette.replay import ReplayCursor

cursor = ReplayCursor(Path(sys.argv[1]), cassette="abc")
with cursor.turn():
    cursor.take(1)
child = os.fork()
if child == 0:
    with cursor.turn():
        cursor.take(2)
else:
    os.waitpid(child, 0)
    with cursor.turn() as used:
        print(sorted(used))
"""
    command = [sys.executable, "-c", script, str(tmp_path / "cursor")]
    assert subprocess.check_output(command, text=True) == "[1, 2]\n"


def test_a_cursor_in_another_encoding_is_that_of_another_cassette(tmp_path: Path):
    (tmp_path / "cursor").write_bytes(b"\xff\xfea\x00\n")
    cursor = ReplayCursor(tmp_path / "cursor", cassette="abc")
    with pytest.raises(FormatError, match="belongs to another cassette"), cursor.turn():
        pass


def test_a_closed_cursor_has_no_open_file_and_can_be_closed_again(tmp_path: Path):
    cursor = ReplayCursor(tmp_path / "cursor", cassette="abc")
    before = set(Path("/proc/self/fd").iterdir())
    with cursor.turn():
        cursor.take(1)
    cursor.close()
    cursor.close()
    assert set(Path("/proc/self/fd").iterdir()) <= before
    with cursor.turn() as used:  # it is opened again
        assert used == {1}
    cursor.close()


def test_a_cursor_in_memory_needs_no_file():
    cursor = ReplayCursor(None, cassette="abc")
    with cursor.turn() as used:
        cursor.take(2)
        assert used == {2}
    cursor.close()


def test_the_cursor_of_another_cassette_names_its_file(tmp_path: Path):
    with ReplayCursor(tmp_path / "cursor", cassette="abc").turn():
        pass
    with (
        pytest.raises(FormatError, match="belongs to another cassette") as refusal,
        ReplayCursor(tmp_path / "cursor", cassette="def").turn(),
    ):
        pass
    assert str(tmp_path / "cursor") in str(refusal.value)


@pytest.mark.parametrize("days, refused", [(9, False), (11, True)])
def test_a_recording_older_than_the_limit_is_refused(
    path: Path, tmp_path: Path, days: int, *, refused: bool
):
    recorded = (datetime.now(UTC) - timedelta(days=days)).isoformat()
    path.write_text(f"# recorded: {recorded}\n" + HANDWRITTEN.format(hash="sha256:..."))
    if refused:
        command = "offbook record tape.yaml --only {number} -- ./agent"
        with pytest.raises(
            UsageError, match=f"the recording is {days} days old, the limit is 10"
        ) as refusal:
            Cassette(path, max_age=timedelta(days=10), record_command=command)
        expected = "record it again: offbook record tape.yaml --replace -- ./agent"
        assert refusal.value.hint == expected
    else:
        Cassette(path, max_age=timedelta(days=10))
    path.write_text(HANDWRITTEN.format(hash="sha256:..."))
    with pytest.raises(UsageError, match="the age of the recording is unknown"):
        Cassette(path, max_age=timedelta(days=10))


def test_a_prompt_that_was_not_recorded_passes_through_with_its_hash(path: Path):
    record_prompts(path, [("worker", "go on")])
    source = Cassette(path, passthrough=Counting())
    assert source.reply_to_prompt("stop", "worker") is None
    assert source.passed_through == [Normalizer().hash_prompt("stop")]


def test_a_replay_keeps_the_recorded_delays_only_on_demand(path: Path):
    record_prompts(path, [("worker", "go on")])
    assert (Cassette(path).timed, Cassette(path, timed=True).timed) == (False, True)


def test_a_prompt_is_compared_by_its_own_hash(path: Path):
    record_prompts(path, [("worker", "go on")])
    [entry] = Cassette(path).file.entries
    assert RequestHashes("whole", "prompt").comparable_to(entry) == "prompt"


async def test_a_request_is_compared_as_a_whole(path: Path):
    await record(path, [ask("one")])
    [entry] = Cassette(path).file.entries
    assert RequestHashes("whole", "prompt").comparable_to(entry) == "whole"


async def test_a_request_is_compared_with_a_recorded_prompt_by_its_prompt(path: Path):
    with Recording(Counting(), path) as recording:
        recording.record_output("go on", RecordedResponse(output="done"), hat="worker")
        await recording.reply(ask("one", hat="worker"))
    source = Cassette(path)
    assert (await source.reply(ask("go on", hat="worker"))).text == "done"
    assert (await source.reply(ask("one", hat="worker"))).text == "answer 1"
    assert source.verdict().status == "pass"


async def test_a_request_that_differs_from_a_recorded_prompt_is_shown_as_a_prompt(path: Path):
    record_prompts(path, [("worker", "go on")])
    with pytest.raises(ReplayMismatch) as failure:
        await Cassette(path).reply(ask("stop", hat="worker"))
    assert "stop" in str(failure.value)
    assert "gpt-5" not in str(failure.value)


# ------------------------------------------------------------------------------- compared requests


@pytest.mark.parametrize(
    "option",
    [
        *("client_metadata", "metadata", "prompt_cache_key", "safety_identifier", "stream"),
        *("stream_options", "user"),
    ],
)
def test_an_option_that_identifies_the_client_is_ignored(option: str):
    normalizer = Normalizer()
    assert normalizer.settings(ask("hi", parameters={option: "x"})).parameters == {}
    assert normalizer.hash_request(ask("hi", parameters={option: "x"})) == (
        normalizer.hash_request(ask("hi"))
    )


@pytest.mark.parametrize("option", ["temperature", "users", "tool_choice"])
def test_any_other_option_is_compared(option: str):
    normalizer = Normalizer()
    assert normalizer.settings(ask("hi", parameters={option: "x"})).parameters == {option: "x"}


@pytest.mark.parametrize(
    "text, clean",
    [
        ("a \nb", "a\nb"),
        ("a\t\nb", "a\nb"),
        ("a \t \nb\t", "a\nb"),
        ("a\r\nb\rc", "a\nb\nc"),
        (" a ", "a"),
        ("a  b", "a  b"),
    ],
)
def test_a_stored_text_has_plain_lines(text: str, clean: str):
    assert Normalizer(roots={}).clean_text(text) == clean
    assert Normalizer(roots={}).clean_value({"a": [text]}) == {"a": [clean]}


@pytest.mark.parametrize(
    "paths, ignored, compared",
    [
        (["$.messages[0].blocks[0].text", "$..signature"], ("x", "b", "c"), ("a", "b", "x")),
        (["$.messages[2].blocks[0].text"], ("a", "b", "x"), ("x", "b", "c")),
    ],
)
def test_of_several_paths_each_may_have_an_index(
    paths: list[str], ignored: tuple[str, ...], compared: tuple[str, ...]
):
    normalizer = Normalizer({"paths": paths})
    recorded = normalizer.hash_request(ask("a", "b", "c"))
    assert normalizer.hash_request(ask(*ignored)) == recorded
    assert normalizer.hash_request(ask(*compared)) != recorded


def test_a_path_with_an_index_applies_to_one_of_two_equal_messages():
    normalizer = Normalizer({"paths": ["$.messages[2].blocks[0].text"]})
    equal, other = ask("a", "b", "a"), ask("a", "b", "c")
    assert normalizer.hash_request(equal) == normalizer.hash_request(other)


def test_a_preset_of_the_tools_keeps_them_comparable():
    normalizer = Normalizer({"paths": ["$.tools"]})
    one = normalizer.settings(ask("hi", tools=(Tool("a"),)))
    assert one.tools == ()
    assert "tools" in one.parameters
    assert normalizer.hash_request(ask("hi", tools=(Tool("a"),))) == (
        normalizer.hash_request(ask("hi", tools=(Tool("b"),)))
    )


def test_the_root_folder_is_no_root():
    assert Normalizer(roots={"ALL": Path("/"), "ONE": Path("/one")}).roots == {"ONE": Path("/one")}
    assert Normalizer().roots == {"WORKSPACE": Path.cwd().resolve()}


def test_call_ids_are_numbered_in_calls_and_results():
    ids: dict[str, str] = {}
    calls = Message("assistant", (Text("t"), ToolCall("x", "a", {}), ToolCall("y", "b", {})))
    results = Message("tool", (ToolResult("y", ()), ToolResult("x", ()), ToolResult("z", ())))
    assert number_call_ids(calls, ids).blocks == (
        Text("t"),
        ToolCall("call-1", "a", {}),
        ToolCall("call-2", "b", {}),
    )
    assert [b.call_id for b in number_call_ids(results, ids).results] == [
        "call-2",
        "call-1",
        "call-3",
    ]
    assert [ids[name] for name in "xyz"] == ["call-1", "call-2", "call-3"]
    plain = Message("user", (Text("t"),))
    assert number_call_ids(plain, ids) is plain


def test_numbered_call_ids_are_kept():
    ids: dict[str, str] = {}
    message = Message("assistant", (ToolCall("call-4", "a", {}), ToolResult("call-9", ())))
    assert register_call_ids(message, ids) is message
    others = Message("assistant", tuple(ToolCall(f"call-{n}", "a", {}) for n in range(9, 5, -1)))
    numbers = [call.id for call in number_call_ids(others, ids).calls]
    assert numbers == ["call-2", "call-3", "call-5", "call-6"]


def test_a_stored_conversation_has_the_digest_of_the_sent_one():
    """A cassette has the ids of the model in its replies, and numbers in its requests."""
    normalizer = Normalizer()
    sent = stored = ConversationDigest(ids={})
    for turn in range(1, 4):
        reply = (ToolCall(f"id-{turn}", "find", {"order": turn}),)
        sent = normalizer.extend_with_reply(sent, reply)
        sent = normalizer.extend(sent, [Message("tool", (ToolResult(f"id-{turn}", ()),))])
        stored = normalizer.extend_with_reply(stored, reply)
        result = Message("tool", (ToolResult(f"call-{turn}", ()),))
        stored = normalizer.extend(stored, [result], numbered=True)
        assert stored.digest == sent.digest


def test_a_digest_counts_its_messages():
    normalizer = Normalizer()
    begun = normalizer.extend(ConversationDigest(ids={}), ask("a", "b").messages)
    assert begun.length == 2
    assert normalizer.extend_with_reply(begun, (Text("c"),)).length == 3
    assert normalizer.extend_with_reply(begun, (Text("c"),)).digest == (
        normalizer.extend(begun, [Message("assistant", (Text("c"),))]).digest
    )


@given(st.lists(st.text(max_size=5), min_size=1, max_size=5))
def test_a_full_cache_does_not_change_a_hash(texts: list[str]):
    with pytest.MonkeyPatch.context() as patch:
        whole = Normalizer(roots={}).hash_request(ask(*texts))
        patch.setattr(cassette_format, "CACHE_SIZE", 1)
        small = Normalizer(roots={})
        for number in range(1, len(texts) + 1):
            small.hash_request(ask(*texts[:number], system=str(number)))
        assert small.hash_request(ask(*texts)) == whole
        assert len(small._message_digests) <= 1  # pyright: ignore[reportPrivateUsage]
        assert len(small._conversations) <= 1  # pyright: ignore[reportPrivateUsage]
        assert len(small._settings) <= 1  # pyright: ignore[reportPrivateUsage]


def test_what_only_the_agent_reads_is_not_stored():
    large = "x" * (cassette_format.MAX_RAW_TEXT + 1)
    message = Message(
        "tool",
        (
            Thinking("hm", signature="s", redacted=True),
            Image(data="sha256:known"),
            RawBlock("document", {"data": large, "name": large[1:]}),
            ToolResult("1", (Image(data="AAAA"),), None, "find", details={"secret": 1}),
        ),
    )
    thought, image, raw, result = Normalizer().clean_message(message, 0).blocks
    assert thought == Thinking("hm", redacted=True)
    assert image == Image(data="sha256:known")
    assert isinstance(raw, RawBlock)
    assert raw.data["data"].startswith("sha256:")
    assert raw.data["name"] == large[1:]
    assert isinstance(result, ToolResult)
    assert (result.failed, result.details) == (False, None)
    [part] = result.content
    assert isinstance(part, Image)
    assert part.data.startswith("sha256:")


def test_the_signature_of_a_thought_beside_a_text_is_not_stored():
    message = Message("assistant", (Thinking("hm", signature="s"), Text("Done.")))
    assert Normalizer().clean_message(message, 0).blocks == (Thinking("hm"), Text("Done."))


def test_a_failed_result_differs_from_one_that_did_not_fail():
    def request(*, failed: bool | None) -> Request:
        return Request(History([Message("tool", (ToolResult("1", (Text("a"),), failed),))]))

    normalizer = Normalizer()
    failed, fine, unknown = (
        normalizer.hash_request(request(failed=value)) for value in (True, False, None)
    )
    assert failed != fine
    assert fine == unknown


def test_empty_parts_of_a_request_are_left_out_of_a_comparison():
    normalizer = Normalizer()
    request = ask("hi", parameters={"top_p": 1})
    body = request_as_json(normalizer.settings(request), request.messages)
    assert list(body) == ["model", "top_p", "messages"]


def test_of_two_sets_of_rules_the_later_pattern_counts():
    rules = RedactionRules({"a": "1", "b": "2"}, ("$.a",), ("codex",))
    merged = merge_rules(rules, {"patterns": {"b": "3"}, "paths": ["$.a", "$.b"]})
    assert merged == RedactionRules({"a": "1", "b": "3"}, ("$.a", "$.b"), ("codex",))


def test_folders_are_hidden_and_restored():
    roots = {"WORKSPACE": Path("/app"), "OTHER": Path("/srv")}
    hidden, used = hide_roots({"a": ["in /app/x", "in /apple", "/srvs"]}, roots)
    assert hidden == {"a": ["in [WORKSPACE]/x", "in /apple", "/srvs"]}
    assert used == ("WORKSPACE",)
    there = {"WORKSPACE": Path("/work")}
    assert restore_roots(hidden, used, there) == {"a": ["in /work/x", "in /apple", "/srvs"]}
    assert restore_roots(hidden, (), there) == hidden
    assert restore_roots(hidden, used, {}) == hidden
