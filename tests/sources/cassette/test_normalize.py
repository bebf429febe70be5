"""Requests with the same meaning have the same hash, others have not."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import UsageError
from offbook.exchange import (
    History,
    Image,
    Message,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    user,
)
from offbook.sources.cassette import ConversationDigest, Normalizer, collapse_whitespace
from offbook.trace import PRESETS
from tests.sources.cassette.conversations import ask, looking_up

UUID_A, UUID_B = "0b8f3b1e-7c1d-4c55-9d3e-6f1f6d2a9b10", "7d0c9a44-2f0e-4f6c-8a75-0e5f2b1c3d4e"

HASHES = {
    "no settings": "sha256:81cc1ad422696333713bb0f27a2fc0e7f71d32e40b07b3b42352214ccbcd312d",
    "settings": "sha256:b7075bc0098097b7acda1df654f2333627a5b26d136293b3e46b5a61b5f9849f",
    "call and result": "sha256:8045465f1dcb7b6da6dfb57c0b16d9e0917b547a8aa4bff4e7d353bcd3b3b1a2",
    "prompt": "sha256:7b4a45a20fa99609c0894a94bbf49e17b2e77f4a241c0e18f5feb066062e69b9",
}


@pytest.mark.parametrize(
    "one, other",
    [
        ("at 2024-01-13T10:00:00Z", "at 2026-11-15T03:42:13.123+01:00"),
        (f"id {UUID_A}", f"id {UUID_B}"),
        ("id call_abc123def", "id toolu_01XyZ99abc"),
        ("in /tmp/run-a/x", "in /tmp/pytest-7/x"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("trailing   \nspaces \t", "trailing\nspaces"),
        ("double  spaces", "double spaces"),
        ("\n\n around \n", "around"),
        ("key sk-ant-api03-aaaaaaaaaaaaaaaaaaaa", "key sk-ant-api03-bbbbbbbbbbbbbbbbbbbb"),
    ],
)
def test_values_that_vary_from_run_to_run_do_not_change_the_hash(one: str, other: str):
    normalizer = Normalizer(roots={})
    assert normalizer.hash_prompt(one) == normalizer.hash_prompt(other)
    assert normalizer.hash_request(ask(one)) == normalizer.hash_request(ask(other))


def test_the_workspace_and_its_slug_do_not_change_the_hash():
    one = Normalizer(roots={"WORKSPACE": Path("/home/ann/shop/ws-1")})
    other = Normalizer(roots={"WORKSPACE": Path("/srv/bob/ws-22")})
    prompt = "cwd {} and memory -{}-"
    hashes = [
        normalizer.hash_prompt(prompt.format(root, str(root).replace("/", "-").strip("-")))
        for normalizer in (one, other)
        for root in normalizer.roots.values()
    ]
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(
    "one, other",
    [
        (ask("Refund order 7"), ask("Refund order 8")),
        (ask("a b"), ask("ab")),
        (ask("hi"), ask("hi", system="Be kind.")),
        (ask("hi"), ask("hi", "hello", "hi")),
        (ask("hi", parameters={"temperature": 0}), ask("hi", parameters={"temperature": 1})),
        (ask("use run_command"), ask("use run_program")),
        (ask("read /etc/passwd"), ask("read /etc/shadow")),
    ],
)
def test_a_difference_in_meaning_changes_the_hash(one: Request, other: Request):
    normalizer = Normalizer(roots={})
    assert normalizer.hash_request(one) != normalizer.hash_request(other)


def test_options_that_identify_the_client_do_not_change_the_hash():
    one = ask("hi", parameters={"metadata": {"user_id": "a"}, "prompt_cache_key": "x"}, stream=True)
    assert Normalizer().hash_request(one) == Normalizer().hash_request(ask("hi"))


@pytest.mark.parametrize(
    "rules",
    [
        {"patterns": {"user": "user_[a-z]+"}},
        {"paths": ["$.messages[*].blocks[*].text"]},
        {"paths": ["$.messages[0].blocks[0].text"]},
        {"paths": ["$..text"]},
        {"paths": ["$['messages'][*].blocks[*].text"]},
        {"paths": ["$.*[*].blocks[*].text"]},
        {"paths": ["$[*][*].blocks[*].text"]},
        {"paths": ["$.messages[0]"]},
    ],
)
def test_redacted_values_do_not_change_the_hash(rules: dict[str, Any]):
    one, other = ask("for user_ann"), ask("for user_bob")
    assert Normalizer().hash_request(one) != Normalizer().hash_request(other)
    normalizer = Normalizer(rules)
    assert normalizer.hash_request(one) == normalizer.hash_request(other)


def test_a_path_with_an_index_applies_only_to_that_message():
    normalizer = Normalizer({"paths": ["$.messages[0].blocks[0].text"]})
    one, other = ask("a", "b", "c"), ask("a", "b", "d")
    assert normalizer.hash_request(one) != normalizer.hash_request(other)


@pytest.mark.parametrize(
    "rules, message",
    [
        ({"patterns": {"x": "["}}, "invalid pattern"),
        ({"patterns": {"x": "a*"}}, "matches the empty text"),
        ({"patterns": {"$WHEN": True}}, "unknown built-in redaction"),
        ({"paths": ["$.["]}, "JSON path"),
        ({"presets": ["codexx"]}, "did you mean 'codex'"),
        ({"pattern": {}}, "redactions"),
    ],
)
def test_an_invalid_redaction_is_refused_at_once(rules: Any, message: str):
    with pytest.raises(UsageError, match=message):
        Normalizer(rules)


def test_the_hashes_in_cassettes_of_earlier_versions_stay_valid():
    """A change of one of these needs a new REVISION."""
    normalizer = Normalizer(roots={})
    first, second, _ = looking_up("toolu_01")
    assert normalizer.fingerprint == "97ae4b69c69161f7"
    hashes = {
        "no settings": normalizer.hash_request(Request(History([user("in /tmp/run-1/x")]))),
        "settings": normalizer.hash_request(first),
        "call and result": normalizer.hash_request(second),
        "prompt": normalizer.hash_prompt("in /tmp/run-1/x"),
    }
    assert hashes == HASHES


def test_a_changed_preset_changes_the_fingerprint(monkeypatch: pytest.MonkeyPatch):
    before = Normalizer({"presets": ["codex"]}).fingerprint
    monkeypatch.setitem(PRESETS, "codex", ((("a", "b"),), ()))
    assert Normalizer({"presets": ["codex"]}).fingerprint != before
    assert Normalizer().fingerprint == Normalizer().fingerprint


def test_calls_and_results_are_numbered_by_first_appearance():
    def conversation(*ids: str) -> Request:
        calls = tuple(ToolCall(name, "look", {}) for name in ids)
        results = tuple(ToolResult(name, (Text(f"{index}"),)) for index, name in enumerate(ids))
        return Request(History([Message("assistant", calls), Message("tool", results)]))

    normalizer = Normalizer()
    assert normalizer.hash_request(conversation("a", "b")) == normalizer.hash_request(
        conversation("x", "y")
    )
    swapped = Request(
        History(
            [
                Message("assistant", (ToolCall("a", "look", {}), ToolCall("b", "look", {}))),
                Message("tool", (ToolResult("b", (Text("0"),)), ToolResult("a", (Text("1"),)))),
            ]
        )
    )
    assert normalizer.hash_request(swapped) != normalizer.hash_request(conversation("a", "b"))


def test_signatures_are_dropped_and_images_are_hashed():
    normalizer = Normalizer()
    message = Message("user", (Thinking("hm", signature="SIGN" * 99), Image(data="A" * 9999)))
    thought, image = normalizer.clean_message(message, 0).blocks
    assert thought == Thinking("hm")
    assert isinstance(image, Image)
    assert image.data.startswith("sha256:")
    clean = normalizer.clean_message(message, 0)
    assert normalizer.clean_message(clean, 0) == clean


@given(st.lists(st.text(max_size=30), max_size=4))
def test_a_stored_request_has_the_hash_of_the_original(texts: list[str]):
    normalizer = Normalizer(roots={})
    request = ask(*texts)
    stored = [normalizer.clean_message(m, index) for index, m in enumerate(request.messages)]
    original = normalizer.extend(ConversationDigest(ids={}), request.messages)
    assert (
        normalizer.extend(ConversationDigest(ids={}), stored, numbered=True).digest
        == original.digest
    )


@given(st.text())
def test_collapsing_whitespace_is_idempotent(text: str):
    assert collapse_whitespace(collapse_whitespace(text)) == collapse_whitespace(text)


SPACES = st.sampled_from("ab \t\n\r\x0b\u2003\u0085é")


@given(st.lists(st.text(alphabet=SPACES), max_size=3))
def test_the_shortcut_for_texts_gives_the_same_digest(texts: list[str]):
    normalizer = Normalizer(roots={})
    message = Message("user", tuple(Text(text) for text in texts))
    encoded = msgspec.json.encode(
        normalizer.comparable(msgspec.to_builtins(message)), order="sorted"
    )
    original = normalizer.extend(ConversationDigest(ids={}), (message,))
    assert original.digest == sha256(sha256(encoded).digest()).digest()


@given(st.text(alphabet=SPACES))
def test_a_line_is_collapsed_the_same_alone_and_among_others(text: str):
    assert collapse_whitespace(f"x\n{text}") == "\n".join(
        filter(None, ("x", *collapse_whitespace(text).split("\n")))
    )


@given(st.lists(st.sampled_from(["a", "b ", "call", "at 2024-01-13T10:00:00Z"]), min_size=1))
def test_a_growing_conversation_has_the_same_hash_as_a_whole_one(texts: list[str]):
    growing, calls = Normalizer(roots={}), (ToolCall("x1", "f"), ToolCall("x2", "f"))
    history = History()
    for index, text in enumerate(texts):
        blocks = (Text(text), *calls[index % 3 :]) if text == "call" else (Text(text),)
        history = history.plus(Message("user", blocks))
        whole = Request(History(list(history)))
        assert growing.hash_request(Request(history)) == Normalizer(roots={}).hash_request(whole)
        forked = Request(History([*list(history)[1:], Message("user", blocks)]))
        assert growing.hash_request(forked) == Normalizer(roots={}).hash_request(forked)
