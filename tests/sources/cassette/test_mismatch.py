"""The message of a replay for a request that was not recorded."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from offbook.errors import OffbookError, ReplayMismatch
from offbook.exchange import History, Message, Request, Text, Tool, detect_dialect, user
from offbook.exchange.dialects import ConversationStore, HttpRequest
from offbook.sources.cassette import Cassette
from offbook.surfaces.cli import offbook
from tests.sources.cassette.conversations import ask, looking_up, record, record_prompts, replay

GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def compare(name: str, error: ReplayMismatch) -> None:
    golden = GOLDENS / f"{name}.txt"
    assert f"{error}\n" == golden.read_text(encoding="utf-8")


def test_the_message_has_the_lines_of_the_specification(tmp_path: Path):
    path = Path("auth_flow.yaml")
    plan, build = "## Task\nImplement user auth", "## Build Task\nImplement auth for {}\n"
    record_prompts(path, [("planner", plan), ("builder", build.format("user_abc123"))])
    source = Cassette(path)
    source.reply_to_prompt(plan, "planner")
    with pytest.raises(ReplayMismatch) as raised:
        source.reply_to_prompt(build.format("user_xyz789"), "builder")
    compare("specification", raised.value)


CHAT = {
    "model": "gpt-5",
    "messages": [
        {"role": "system", "content": "You refund."},
        {"role": "user", "content": "Refund order 7\nIt was delivered on time."},
    ],
}
RESPONSES = {
    "model": "gpt-5",
    "instructions": "You refund.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Is build 9f8e7d6c5b green?"}]}
    ],
}
MESSAGES = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 64,
    "system": "You refund. Today is 2026-01-14.",
    "messages": [{"role": "user", "content": "Refund order 7"}],
}
GEMINI = {
    "contents": [{"role": "user", "parts": [{"text": "Refund order 7"}]}],
    "generationConfig": {"temperature": 0.5},
}
GEMINI_PATH = "/v1beta/models/gemini-2.5-pro:generateContent"


def read(path: str, body: dict[str, Any], old: str = "", new: str = "") -> Request:
    raw = msgspec.json.encode(body).replace(old.encode(), new.encode())
    wire = HttpRequest("POST", path, {"content-type": "application/json"}, raw)
    dialect = detect_dialect(wire)
    assert dialect is not None
    return dialect.decode(wire, ConversationStore())


@pytest.mark.parametrize(
    "name, path, body, old, new",
    [
        ("chat", "/v1/chat/completions", CHAT, "order 7", "order 8"),
        ("responses", "/v1/responses", RESPONSES, "9f8e7d6c5b", "0a1b2c3d4e"),
        ("messages", "/v1/messages", MESSAGES, "2026-01-14", "2026-01-15"),
        ("gemini", GEMINI_PATH, GEMINI, "0.5", "0.75"),
    ],
)
async def test_the_message_shows_the_difference_in_each_dialect(
    name: str, path: str, body: dict[str, Any], old: str, new: str
):
    cassette = Path("shop.yaml")
    await record(cassette, [read(path, body)])
    with pytest.raises(ReplayMismatch) as raised:
        await replay(cassette, [read(path, body, old, new)])
    compare(name, raised.value)


@pytest.mark.parametrize(
    "recorded, current",
    [
        ("for user_abc", "for user_xyz"),
        ("for user_abc123 and org-9", "for user_xyz789 and org-10"),
        ("Today is 2026-01-14.", "Today is 2026-02-01."),
        ("started at 1763171234567", "started at 1763179999999"),
        ("took 1.5s", "took 12.25s"),
        ("see /home/ann/work/a.py", "see /home/bob/src/a.py"),
        ("commit 9f8e7d6c", "commit 0a1b2c3d"),
        ("the server has pid 4711", "the server has pid 99"),
        ("it is 10:30", "it is 9:15"),
        ("wait for job-12", "wait for job-345"),
        ("at http://localhost:4312/x", "at http://localhost:555/x"),
        ("on Mon Nov 15 10:02:49 2026", "on Tue Nov 16 9:03:50 2026"),
        ("since November 5, 2026", "since May 15, 2027"),
        ("user_abc took 12 ms", "user_xyz took 3.5 s"),
    ],
)
async def test_the_suggested_redaction_makes_the_replay_pass(recorded: str, current: str):
    path = Path("one.yaml")
    await record(path, [ask(f"Do it {recorded} now")], roots={})
    with pytest.raises(ReplayMismatch) as raised:
        await replay(path, [ask(f"Do it {current} now")], roots={})
    command = re.search(r"^Hint: Add redaction for .*\n  (.*)$", str(raised.value), re.MULTILINE)
    assert command is not None, str(raised.value)
    result = CliRunner().invoke(offbook, shlex.split(command[1])[1:], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert await replay(path, [ask(f"Do it {current} now")], roots={}) == ["answer 1"]


@pytest.mark.parametrize(
    "recorded, current",
    [("Refund order 7", "Refund order 8"), ("add a test", "remove a test"), ("yes", "no")],
)
async def test_no_redaction_is_suggested_for_a_difference_in_meaning(recorded: str, current: str):
    path = Path("one.yaml")
    await record(path, [ask(recorded)])
    with pytest.raises(ReplayMismatch) as raised:
        await replay(path, [ask(current)])
    assert "Hint" not in str(raised.value)


async def test_a_different_tool_result_is_a_mismatch_of_the_next_request():
    path = Path("one.yaml")
    await record(path, looking_up("toolu_01"))
    with pytest.raises(ReplayMismatch) as raised:
        await replay(path, looking_up("toolu_01", found="it is red"), strict=True)
    assert "interaction 2" in str(raised.value)


FIND = Tool("find", "Find an order.", {"type": "object"})
REFUND = Tool("refund", "Refund an order.", {"type": "object"})
REPLY = Message("assistant", (Text("ok"),))
AGAIN = "Fix, if the change is intended: Recording(Live(), 'one.yaml', replace=True)"
MORE = "Fix, if the change is intended: Recording(Live(), 'one.yaml', append=True)"


def request(
    *messages: Message, tools: tuple[Tool, ...] = (), system: str = "", hat: str = "main"
) -> Request:
    return Request(History([*messages]), system, tools, "gpt-5", {}, {"hat": hat})


@pytest.mark.parametrize(
    "recorded, current, lines",
    [
        (
            request(user("hi"), tools=(FIND,)),
            request(user("hi"), tools=(FIND, REFUND)),
            ["Differs at: $.tools[1] (new)", "+ refund: Refund an order.", AGAIN],
        ),
        (
            request(user("hi"), tools=(FIND, REFUND)),
            request(user("hi"), tools=(REFUND,)),
            ["Differs at: $.tools[0] (gone)", "- find: Find an order."],
        ),
        (
            request(user("hi"), REPLY, user("go")),
            request(user("hi"), REPLY, user("wait"), user("go")),
            ["Differs at: $.messages[2] (new)", "+ user: wait"],
        ),
        (
            request(user("one"), system="a b c"),
            request(user("two"), system="a b d"),
            ["at $.system:\n- a b c\n+ a b d\n      ^\n  at $.messages[0].blocks[0].text:\n- one"],
        ),
        (
            request(user("took 12 of [1] at 7")),
            request(user("took 13 of [1] at 9")),
            ["+ took 13 of [1] at 9\n       ^^           ^\n"],
        ),
        (
            request(user("plan"), hat="planner"),
            request(user("plan"), hat="builder"),
            [
                "The same request is interaction 1 (hat: planner), recorded under another hat.",
                AGAIN,
            ],
        ),
    ],
    ids=["new tool", "removed tool", "new message", "two fields", "two words", "another hat"],
)
async def test_differences_are_shown_as_people_describe_them(
    recorded: Request, current: Request, lines: list[str]
):
    path = Path("one.yaml")
    await record(path, [recorded])
    with pytest.raises(ReplayMismatch) as error:
        await replay(path, [current])
    for line in lines:
        assert line in str(error.value)


ONE, TWO, THREE = ask("one"), ask("one", "answer 1", "two"), ask("three")


@pytest.mark.parametrize(
    "requests, fix",
    [([TWO], AGAIN), ([ONE, TWO, ONE], AGAIN), ([ONE, TWO, THREE], MORE)],
    ids=["order", "a known request again", "a new request"],
)
async def test_a_changed_order_or_length_suggests_a_new_recording(
    requests: list[Request], fix: str
):
    path = Path("one.yaml")
    await record(path, [ONE, TWO])
    with pytest.raises(OffbookError) as error:
        await replay(path, requests)
    assert fix in str(error.value)


async def test_an_unknown_hat_suggests_the_nearest():
    path = Path("one.yaml")
    await record(path, [ask("plan", hat="planner")])
    with pytest.raises(
        ReplayMismatch, match=r"for the hat 'plannner'[\s\S]*did you mean 'planner'"
    ):
        await replay(path, [ask("plan", hat="plannner")])


async def test_the_nearest_request_may_be_another_one_than_the_expected():
    path = Path("one.yaml")
    await record(path, [ask("Describe some ships"), ask("Describe all of the moons of Saturn")])
    with pytest.raises(ReplayMismatch, match=r"interaction 2 .hat: main., 9.* similar"):
        await replay(path, [ask("Describe all of the moons of Uranus")])


async def test_a_long_difference_is_shortened():
    path = Path("one.yaml")
    await record(path, [ask("\n".join(f"line {n} {'a' * 300}" for n in range(50)))])
    with pytest.raises(ReplayMismatch) as raised:
        await replay(path, [ask("\n".join(f"line {n} {'b' * 300}" for n in range(50)))])
    assert len(str(raised.value)) < 1500


async def test_the_message_contains_no_secret():
    path = Path("one.yaml")
    await record(path, [ask("one sk-ant-api03-abcdefghijklmnopqrstuvwxyz")])
    with pytest.raises(ReplayMismatch) as raised:
        await replay(path, [ask("two sk-ant-api03-zyxwvutsrqponmlkjihgfedcba")])
    assert "zyxwv" not in str(raised.value)
    assert "[API_KEY]" in str(raised.value)


async def test_the_message_shows_the_prompt_without_what_the_client_injected():
    reminder = "<system-reminder>\nToday is Monday.\n</system-reminder>\n"
    cassette = Path("shop.yaml")
    await record(cassette, [ask(f"{reminder}Refund order 7")])
    with pytest.raises(ReplayMismatch) as raised:
        await replay(cassette, [ask(f"{reminder.replace('Mon', 'Tues')}Refund order 7")])
    assert 'Prompt: "Refund order 7"' in str(raised.value)
