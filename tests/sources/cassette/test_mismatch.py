"""What a replay says when it was asked something else than was recorded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.errors import OffbookError, ReplayMismatch
from offbook.exchange.dialects.conversations import ConversationStore
from offbook.exchange.dialects.dialect import HttpRequest
from offbook.exchange.messages import History, Message, Text, user
from offbook.exchange.model import Request, Tool
from offbook.exchange.providers import detect_dialect
from offbook.sources.cassette.replay import Cassette
from tests.sources.cassette.conversations import ask, looking_up, record, record_prompts, replay

GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def compare(name: str, error: ReplayMismatch) -> None:
    golden = GOLDENS / f"{name}.txt"
    assert f"{error}\n" == golden.read_text(encoding="utf-8")


def test_the_message_of_the_specification(tmp_path: Path):
    path = Path("auth_flow.yaml")
    plan, build = "## Task\nImplement user auth", "## Build Task\nImplement auth for {}\n"
    record_prompts(path, [("planner", plan), ("builder", build.format("user_abc123"))])
    source = Cassette(path)
    source.output(plan, "planner")
    with pytest.raises(ReplayMismatch) as told:
        source.output(build.format("user_xyz789"), "builder")
    compare("specification", told.value)


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
async def test_each_dialect_has_a_message_that_shows_what_differs(
    name: str, path: str, body: dict[str, Any], old: str, new: str
):
    cassette = Path("shop.yaml")
    await record(cassette, [read(path, body)])
    with pytest.raises(ReplayMismatch) as told:
        await replay(cassette, [read(path, body, old, new)])
    compare(name, told.value)


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
async def test_the_redaction_that_is_proposed_makes_the_replay_pass(recorded: str, current: str):
    path = Path("one.yaml")
    await record(path, [ask(f"Do it {recorded} now")], roots={})
    with pytest.raises(ReplayMismatch) as told:
        await replay(path, [ask(f"Do it {current} now")], roots={})
    hint = re.search(r"^Hint: Add redaction for .+?: (\{.*\})$", str(told.value), re.MULTILINE)
    assert hint is not None, str(told.value)
    rules = msgspec.json.decode(hint[1])
    told_now = await replay(path, [ask(f"Do it {current} now")], roots={}, redactions=rules)
    assert told_now == ["answer 1"]


@pytest.mark.parametrize(
    "recorded, current",
    [("Refund order 7", "Refund order 8"), ("add a test", "remove a test"), ("yes", "no")],
)
async def test_no_redaction_is_proposed_for_what_has_meaning(recorded: str, current: str):
    path = Path("one.yaml")
    await record(path, [ask(recorded)])
    with pytest.raises(ReplayMismatch) as told:
        await replay(path, [ask(current)])
    assert "Hint" not in str(told.value)


async def test_what_a_tool_answered_differently_is_named_by_its_path():
    path = Path("one.yaml")
    await record(path, looking_up("toolu_01"))
    with pytest.raises(ReplayMismatch) as told:
        await replay(path, looking_up("toolu_01", found="it is red"), strict=True)
    assert "interaction 2" in str(told.value)


FIND = Tool("find", "Find an order.", {"type": "object"})
REFUND = Tool("refund", "Refund an order.", {"type": "object"})
SAID = Message("assistant", (Text("ok"),))
AGAIN = "To record it again: offbook record one.yaml --replace -- COMMAND"
ONLY = "To record only this one again: offbook record one.yaml --only 1 -- COMMAND"


def request(
    *messages: Message, tools: tuple[Tool, ...] = (), system: str = "", hat: str = "main"
) -> Request:
    return Request(History([*messages]), system, tools, "gpt-5", {}, {"hat": hat})


@pytest.mark.parametrize(
    "recorded, current, told",
    [
        (
            request(user("hi"), tools=(FIND,)),
            request(user("hi"), tools=(FIND, REFUND)),
            ["Differs at: $.tools[1] (new)", "+ refund: Refund an order.", ONLY],
        ),
        (
            request(user("hi"), tools=(FIND, REFUND)),
            request(user("hi"), tools=(REFUND,)),
            ["Differs at: $.tools[0] (gone)", "- find: Find an order."],
        ),
        (
            request(user("hi"), SAID, user("go")),
            request(user("hi"), SAID, user("wait"), user("go")),
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
            ["Interaction 1 (hat: planner) is this very request, under another hat.", AGAIN],
        ),
    ],
    ids=["a tool more", "a tool less", "a message more", "two places", "two words", "another hat"],
)
async def test_what_differs_is_told_as_people_would(
    recorded: Request, current: Request, told: list[str]
):
    path = Path("one.yaml")
    await record(path, [recorded])
    with pytest.raises(ReplayMismatch) as error:
        await replay(path, [current])
    for text in told:
        assert text in str(error.value)


@pytest.mark.parametrize("asked", [["two"], ["one", "two", "one"]], ids=["order", "exhausted"])
async def test_where_more_than_one_has_to_change_all_is_to_be_recorded(asked: list[str]):
    path = Path("one.yaml")
    await record(path, [ask("one"), ask("two")])
    with pytest.raises(OffbookError) as error:
        await replay(path, [ask(text) for text in asked])
    assert AGAIN in str(error.value)


async def test_a_hat_that_was_never_recorded_names_the_nearest():
    path = Path("one.yaml")
    await record(path, [ask("plan", hat="planner")])
    with pytest.raises(
        ReplayMismatch, match=r"for the hat 'plannner'[\s\S]*did you mean 'planner'"
    ):
        await replay(path, [ask("plan", hat="plannner")])


async def test_the_nearest_is_found_among_all_that_was_recorded():
    path = Path("one.yaml")
    await record(path, [ask("Tell me about ships"), ask("Tell me all about the moons of Saturn")])
    with pytest.raises(ReplayMismatch, match=r"interaction 2 .hat: main., 9.* alike"):
        await replay(path, [ask("Tell me all about the moons of Uranus")])


async def test_a_long_difference_is_cut():
    path = Path("one.yaml")
    await record(path, [ask("\n".join(f"line {at} {'a' * 300}" for at in range(50)))])
    with pytest.raises(ReplayMismatch) as told:
        await replay(path, [ask("\n".join(f"line {at} {'b' * 300}" for at in range(50)))])
    assert len(str(told.value)) < 1500


async def test_no_secret_is_told_in_a_message():
    path = Path("one.yaml")
    await record(path, [ask("one sk-ant-api03-abcdefghijklmnopqrstuvwxyz")])
    with pytest.raises(ReplayMismatch) as told:
        await replay(path, [ask("two sk-ant-api03-zyxwvutsrqponmlkjihgfedcba")])
    assert "zyxwv" not in str(told.value)
    assert "[API_KEY]" in str(told.value)
