"""A replay returns the recorded replies in their order, and refuses everything else."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import (
    FormatError,
    ModelError,
    ReplayMismatch,
    ScriptExhausted,
)
from offbook.exchange import History, Reply, Request, Text, Usage, user
from offbook.exchange.dialects import HttpRequest, request_metadata
from offbook.sources.cassette import (
    Cassette,
    Recording,
    format_chunks,
    load_cassette,
    parse_chunks,
    request_hat,
    shift_chunks,
)
from offbook.trace import Event, Hub
from tests.sources.cassette.conversations import (
    LOOK,
    SEED,
    Counting,
    ask,
    looking_up,
    record,
    record_prompts,
    replay,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "refund.yaml"


async def test_recorded_replies_are_returned_without_calling_the_model(path: Path):
    source = await record(path, looking_up("toolu_01"), LOOK)
    replay = Cassette(path)
    replies = [await replay.reply(request) for request in looking_up("toolu_01")]
    assert source.asked == 3
    assert replies[0].blocks == LOOK.blocks
    assert replies[0].stop == "tool_use"
    assert [reply.text for reply in replies[1:]] == ["answer 2", "answer 3"]
    assert [reply.step for reply in replies] == [1, 2, 3]
    assert replay.verdict().status == "pass"
    assert replay.summary().interactions_replayed == 3
    assert replay.summary().cost_dollars == 0.0


async def test_call_ids_may_differ_from_the_recording(path: Path):
    await record(path, looking_up("toolu_01"), LOOK)
    assert (await replay(path, looking_up("call_of_another_run")))[-1] == "answer 3"


async def test_the_file_grows_linearly_with_the_conversation(tmp_path: Path):
    def conversation(turns: int) -> list[Request]:
        texts = [
            f"{'word ' * 40}{at}" if at % 2 == 0 else f"answer {at // 2 + 1}"
            for at in range(2 * turns)
        ]
        return [ask(*texts[: 2 * turn + 1]) for turn in range(turns)]

    await record(tmp_path / "short.yaml", conversation(10))
    await record(tmp_path / "long.yaml", conversation(40))
    short, long = ((tmp_path / name).stat().st_size for name in ("short.yaml", "long.yaml"))
    assert long < 4.5 * short
    assert len(await replay(tmp_path / "long.yaml", conversation(40))) == 40


async def test_equal_requests_are_answered_in_order(path: Path):
    same = [ask("What time is it?"), ask("What time is it?")]
    await record(path, same)
    assert await replay(path, same) == ["answer 1", "answer 2"]


async def test_each_hat_has_a_separate_queue(path: Path):
    requests = [ask("plan", hat="planner"), ask("build", hat="builder"), ask("plan", hat="planner")]
    await record(path, requests)
    other_order = [requests[1], requests[0], requests[2]]
    assert await replay(path, other_order) == ["answer 2", "answer 1", "answer 3"]


async def test_requests_of_one_conversation_in_another_order_are_refused(path: Path):
    conversation = [ask("first"), ask("first", "answer 1", "second")]
    await record(path, conversation)
    with pytest.raises(ReplayMismatch, match="the order has changed since the recording"):
        await replay(path, conversation[::-1])


async def test_independent_conversations_are_matched_by_what_they_ask(path: Path):
    """A title and the work, recorded one after the other, may arrive in either order."""
    title = ask("Refund order 7", system="You write titles.")
    work = [ask("Refund order 7"), ask("Refund order 7", "answer 2", "And order 8")]
    await record(path, [title, *work])
    source = Cassette(path)
    texts = [(await source.reply(request)).text for request in (work[0], title, work[1])]
    assert texts == ["answer 2", "answer 1", "answer 3"]
    assert source.reordered == [2]
    assert source.verdict().status == "pass"


async def test_a_conversation_that_is_left_out_is_unused(path: Path):
    await record(path, [ask("first"), ask("second")])
    source = Cassette(path)
    await source.reply(ask("second"))
    assert [entry.number for entry in source.unused] == [1]
    assert source.verdict().status == "fail"


async def test_overlapping_conversations_may_be_replayed_in_any_order(path: Path):
    class Slow(Counting):
        async def reply(self, request: Request, /) -> Reply:
            await asyncio.sleep(0.02)
            return Reply((Text(f"about {request.prompt}"),))

    with Recording(Slow(), path) as recording:
        await asyncio.gather(*(recording.reply(ask(text)) for text in ("one", "two", "three")))
    source = Cassette(path)
    outputs = [(await source.reply(ask(text))).text for text in ("three", "one", "two")]
    assert outputs == ["about three", "about one", "about two"]
    assert source.reordered == [3]
    assert source.verdict().status == "pass"


async def test_after_a_mismatch_every_request_fails(path: Path):
    await record(path, [ask("one"), ask("two")])
    source = Cassette(path)
    with pytest.raises(ReplayMismatch):
        await source.reply(ask("another"))
    with pytest.raises(ReplayMismatch, match="interaction 1"):
        await source.reply(ask("one"))
    assert source.verdict().status == "fail"


async def test_a_loose_replay_follows_the_order_and_reports_drift(path: Path):
    await record(path, [ask("one"), ask("two")])
    hub, events = Hub(), list[Event]()
    hub.subscribe(events.append)
    source = Cassette(path, strict=False, hub=hub)
    assert (await source.reply(ask("uno"))).text == "answer 1"
    assert (await source.reply(ask("two"))).text == "answer 2"
    assert [(event.event, event.data["interaction"]) for event in events] == [("cassette.drift", 1)]
    assert source.verdict().status == "warn"


async def test_more_requests_than_recorded_are_always_refused(path: Path):
    await record(path, [ask("one")])
    for strict in (True, False):
        with pytest.raises(ScriptExhausted, match="all 1 interactions of the hat 'main'"):
            await replay(path, [ask("one"), ask("two")], strict=strict)


async def test_unused_interactions_fail_a_strict_replay_and_warn_in_a_loose_one(path: Path):
    await record(path, [ask("one"), ask("two")])
    for strict, status in ((True, "fail"), (False, "warn")):
        source = Cassette(path, strict=strict)
        await source.reply(ask("one"))
        verdict = source.verdict()
        assert verdict.status == status
        assert "1 of 2 interactions unused" in verdict.message
        assert "2. (hat: main) two" in verdict.message


async def test_only_unrecorded_requests_pass_through_and_are_counted(path: Path):
    await record(path, [ask("one"), ask("two")])
    live = Counting(Reply((Text("from the real model"),)))
    source = Cassette(path, passthrough=live)
    outputs = [(await source.reply(ask(text))).text for text in ("one", "new", "two")]
    assert outputs == ["answer 1", "from the real model", "answer 2"]
    assert live.asked == 1
    assert source.summary().interactions_passthrough == 1


async def test_a_recorded_error_of_the_provider_is_raised_again(path: Path):
    error = ModelError("slow down", status=429, retry_after=2.5)
    await record(path, [ask("one"), ask("one")], error)
    source = Cassette(path)
    with pytest.raises(ModelError) as raised:
        await source.reply(ask("one"))
    assert (raised.value.status, raised.value.category, raised.value.retry_after) == (
        429,
        "rate_limit",
        2.5,
    )
    assert (await source.reply(ask("one"))).text == "answer 2"


async def test_an_error_with_a_status_that_no_provider_has_can_be_replayed(path: Path):
    await record(path, [ask("one")], ModelError("odd", status=999))
    with pytest.raises(ModelError, match="odd") as raised:
        await Cassette(path).reply(ask("one"))
    assert raised.value.status == 500


async def test_the_chunks_of_a_stream_are_replayed_with_their_delays(path: Path):
    streamed = Reply((Text("Hello, wörld"),), chunks=("Hel", "lo, w", "örld"), delays=(120, 3.5, 0))
    await record(path, [ask("hi", stream=True)], streamed)
    reply = await Cassette(path).reply(ask("hi"))
    assert reply.chunks == streamed.chunks
    assert reply.delays == streamed.delays


def test_an_edited_answer_is_replayed_without_the_old_chunks(path: Path):
    streamed = Reply((Text("Hello"),), usage=Usage(1, 1), chunks=("Hel", "lo"))
    asyncio.run(record(path, [ask("hi")], streamed))
    path.write_text(path.read_text().replace("output: Hello", "output: Goodbye"))
    reply = asyncio.run(Cassette(path).reply(ask("hi")))
    assert (reply.text, reply.chunks) == ("Goodbye", ())


WORDS = st.lists(st.sampled_from(["a ", "it is in ", "/srv/shop/", "\n", "é"]), min_size=1)


@given(WORDS, st.lists(st.integers(1, 60)), st.sampled_from(["/w", "/a/much/longer/place"]))
def test_chunks_keep_their_cuts_when_a_folder_is_renamed(
    words: list[str], cuts: list[int], place: str
):
    text = "".join(words)
    places = sorted({cut for cut in cuts if cut < len(text)})
    lengths = [b - a for a, b in itertools.pairwise([0, *places, len(text)])]
    written = format_chunks(tuple("x" * length for length in lengths), ())
    kept, there = text.replace("/srv/shop", "[WORKSPACE]"), text.replace("/srv/shop", place)
    moved = shift_chunks(written, text, kept, lambda t: t.replace("/srv/shop", "[WORKSPACE]"))
    again = shift_chunks(moved, kept, there, lambda t: t.replace("[WORKSPACE]", place))
    chunks, _ = parse_chunks(again, there)
    assert "".join(chunks) == there
    if "/srv/shop" not in text:
        assert [len(chunk) for chunk in chunks] == lengths
    whole = [len("".join(chunks[:at])) for at in range(len(chunks) + 1)]
    outside = [cut for cut in places if not _within(text, cut, "/srv/shop")]
    expected = {len(text[:cut].replace("/srv/shop", place)) for cut in outside}
    assert expected <= set(whole)


def _within(text: str, cut: int, name: str) -> bool:
    return any(name in text[max(0, cut - at) : cut - at + len(name)] for at in range(1, len(name)))


@pytest.mark.parametrize("here, there", [("/app", "/home/me/shop"), ("/home/me/shop", "/app")])
async def test_a_workspace_directly_below_the_root_is_replaced(path: Path, here: str, there: str):
    def request(folder: str) -> Request:
        return ask(f"In {folder}: fix {folder}/main.py, not https://host/app/x nor my-app or /apps")

    recorded = Reply((Text(f"See {here}/main.py and /application."),))
    with Recording(Counting(recorded), path, roots={"WORKSPACE": Path(here)}) as recording:
        await recording.reply(request(here))
    reply = await Cassette(path, roots={"WORKSPACE": Path(there)}).reply(request(there))
    assert reply.text == f"See {there}/main.py and /application."


async def test_a_stream_with_a_secret_and_a_folder_keeps_its_other_chunks(tmp_path: Path):
    key = "sk-proj-aB3dE5gH7jK9mN1pQ3sT5"
    chunks = (f"{tmp_path}/", "here is sk-proj-aB3d", f"{key[12:]} and ", "more")
    streamed = Reply((Text("".join(chunks)),), chunks=chunks, delays=(5, 6, 7, 8))
    roots = {"WORKSPACE": tmp_path}
    with Recording(Counting(streamed), tmp_path / "one.yaml", roots=roots) as recording:
        await recording.reply(ask("go"))
    replay_ = Cassette(tmp_path / "one.yaml", roots={"WORKSPACE": Path("/w")})
    reply = await replay_.reply(ask("go"))
    assert reply.chunks == ("/w/", "here is [API_KEY] and ", "more")
    assert reply.delays == (5, 13, 8)


async def test_paths_in_answers_follow_the_workspace(path: Path, tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    reply = Reply((Text(f"I wrote {here}/a.txt"),))
    await record(path, [ask(f"work in {here}")], reply, roots={"WORKSPACE": here})
    assert str(here).encode() not in load_cassette(path).raw
    outputs = await replay(path, [ask(f"work in {there}")], roots={"WORKSPACE": there})
    assert outputs == [f"I wrote {there}/a.txt"]


def test_prompts_of_commands_are_replayed_by_hat(path: Path):
    record_prompts(path, [("planner", "plan it"), ("builder", "build it"), ("planner", "plan on")])
    source = Cassette(path)
    outputs = [
        source.reply_to_prompt(p, h)
        for h, p in (("builder", "build  it\r\n"), ("planner", "plan it"))
    ]
    assert [response.output for response in outputs if response] == ["output 2\n", "output 1\n"]


def test_the_oldest_format_is_replayed_by_position(path: Path):
    path.write_text(SEED)
    source = Cassette(path, strict=False)
    response = source.reply_to_prompt("anything", "builder")
    assert response is not None
    assert response.output == '<event topic="build.done">\nImplemented OAuth2 flow\n</event>\n'
    assert (response.exit_code, response.tokens, response.duration_ms) == (0, 4200, 5100)
    assert source.file.header.metadata["termination_reason"] == "CompletionPromise"


STEP = """
import sys
from pathlib import Path
from offbook.sources.cassette.replay import Cassette
response = Cassette(Path(sys.argv[1]), cursor=Path(sys.argv[2])).reply_to_prompt("go on", "worker")
print(response.output, end="")
"""


def test_an_agent_that_is_restarted_gets_the_next_reply(path: Path, tmp_path: Path):
    record_prompts(path, [("worker", "go on")] * 5)
    outputs = [
        subprocess.run(
            [sys.executable, "-c", STEP, path, tmp_path / "run" / "cursor"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(5)
    ]
    assert outputs == [f"output {number}\n" for number in range(1, 6)]


def test_two_replays_with_one_cursor_share_the_replies(path: Path, tmp_path: Path):
    record_prompts(path, [("worker", "go on")] * 6)
    one, two = (Cassette(path, cursor=tmp_path / "cursor") for _ in range(2))
    outputs = [source.reply_to_prompt("go on", "worker") for _ in range(3) for source in (one, two)]
    assert [response.output for response in outputs if response] == [
        f"output {number}\n" for number in range(1, 7)
    ]
    assert two.verdict().status == "pass"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="finds open files in /proc")
def test_the_file_of_a_cursor_is_closed_with_the_cassette(path: Path, tmp_path: Path):
    record_prompts(path, [("worker", "go on")])
    cursor = tmp_path / "cursor"

    def is_open() -> bool:
        return cursor.resolve() in [file.resolve() for file in Path("/proc/self/fd").iterdir()]

    cassette = Cassette(path, cursor=cursor)
    assert is_open()
    cassette.close()
    assert not is_open()
    cassette.close()


def test_a_cursor_of_another_cassette_is_refused(path: Path, tmp_path: Path):
    record_prompts(path, [("worker", "go on")])
    Cassette(path, cursor=tmp_path / "cursor").reply_to_prompt("go on", "worker")
    other = tmp_path / "other.yaml"
    record_prompts(other, [("worker", "go on"), ("worker", "and on")])
    with pytest.raises(FormatError, match="belongs to another cassette"):
        Cassette(other, cursor=tmp_path / "cursor").reply_to_prompt("go on", "worker")


def test_an_empty_cassette_is_refused(path: Path):
    with Recording(Counting(), path):
        pass
    with pytest.raises(FormatError, match="nothing to replay"):
        Cassette(path)


def test_another_task_is_refused_before_the_run(path: Path):
    record_prompts(path, [("worker", "go on")], task="Build the thing")
    source = Cassette(path)
    source.check_task("Build  the thing\n")
    with pytest.raises(ReplayMismatch) as raised:
        source.check_task("Break it")
    words = r"expected: Build the thing \(sha256:\w+\)\n +got: +Break it \(sha256:\w+\)"
    assert re.search(words, str(raised.value))


async def test_an_added_redaction_also_applies_to_recorded_requests(path: Path):
    await record(path, [ask("for user_abc"), ask("and user_abc again")])
    rules = {"patterns": {"user_id": "user_[a-z0-9]+"}}
    requests = [ask("for user_xyz"), ask("and user_xyz again")]
    assert await replay(path, requests, redactions=rules) == ["answer 1", "answer 2"]


def test_an_unchanged_file_is_read_once(path: Path):
    record_prompts(path, [("worker", "go on")])
    assert load_cassette(path) is load_cassette(path)
    path.write_text(path.read_text().replace("go on", "go off"))
    assert "go off" in load_cassette(path).raw.decode()


def test_a_request_header_may_name_the_hat():
    wire = HttpRequest("POST", "/v1/chat/completions", {"x-offbook-hat": "planner"})
    assert request_hat(Request(metadata=request_metadata(wire, "openai-chat"))) == "planner"
    assert request_hat(Request()) == "main"


async def test_a_side_request_is_answered_recorded_or_not(path: Path):
    metadata = {"user-agent": "claude-cli/2.1"}
    probe = Request(History((user("quota"),)), model="claude-haiku", metadata=metadata)
    await record(path, [probe, *looking_up("toolu_01")])
    replay = Cassette(path)
    assert (await replay.reply(probe)).text == "answer 1"
    assert (await replay.reply(probe)).role == "auxiliary (Claude Code quota)"
    replies = [await replay.reply(request) for request in looking_up("toolu_01")]
    assert [reply.step for reply in replies] == [2, 3, 4]
    assert replay.verdict().status == "pass"
