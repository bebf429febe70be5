"""Redaction hides secrets and replaces values that differ between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import UsageError
from offbook.trace import REQUIRED_CHARACTERS, Redaction, TrustedPattern, preset_for_command

ALL = {"$TIMESTAMP": True, "$UUID": True, "$API_KEY": True, "$PATH": True, "$DURATION": True}


@pytest.mark.parametrize(
    "text, redacted",
    [
        ("at 2024-01-13T10:00:00Z", "at [TIMESTAMP]"),
        ("at 2024-01-13 10:00:00.123+02:00!", "at [TIMESTAMP]!"),
        ("id 123e4567-e89b-42d3-a456-426614174000", "id [UUID]"),
        ("call_abc123def", "[UUID]"),
        ("toolu_01AbCdEf", "[UUID]"),
        ("tooluse_4fzb9QnU", "[UUID]"),
        ("sk-ant-api03-abcdefghijkl", "[API_KEY]"),
        ("in /tmp/ralph-test-xxx now", "in [WORKSPACE] now"),
        ("took 45.234s", "took [DURATION]"),
        ("took 12 ms", "took [DURATION]"),
        ("a/b and 3 apples", "a/b and 3 apples"),
    ],
)
def test_the_built_in_patterns(text: str, redacted: str):
    assert Redaction({"patterns": ALL}).text(text) == redacted


@pytest.mark.parametrize("source", REQUIRED_CHARACTERS)
@given(data=st.data())
def test_skipping_texts_without_the_required_characters_changes_no_result(
    source: str, data: st.DataObject
):
    matching = st.from_regex(source, alphabet=st.characters(max_codepoint=0x17F))
    text = data.draw(st.one_of(matching, st.text(), st.lists(matching).map(" ".join)))
    quick, slow = TrustedPattern(source, REQUIRED_CHARACTERS[source]), TrustedPattern(source)
    assert quick.replace("[X]", text) == slow.replace("[X]", text)


def test_secrets_are_always_hidden():
    assert Redaction().text("sk-ant-api03-abcdefghijkl") == "[API_KEY]"
    assert Redaction().value({"password": "x", "deep": [{"api_key": "y"}]}) == {
        "password": "[API_KEY]",
        "deep": [{"api_key": "[API_KEY]"}],
    }


def test_secrets_in_a_command_line_are_hidden():
    words = ["tool", "--api-key", "hunter2", "-v", "--token", "hunter3", "--password=hunter4", "go"]
    hidden = Redaction().value({"argv": words})["argv"]
    kept = ["tool", "--api-key", "[API_KEY]", "-v", "--token", "[API_KEY]"]
    assert hidden == [*kept, "--password=[API_KEY]", "go"]


def test_a_custom_pattern_is_replaced_by_its_name():
    redaction = Redaction({"patterns": {"user_id": "user_[a-z0-9]+"}})
    assert redaction.text("for user_abc123 only") == "for [USER_ID] only"


def test_a_json_path_is_redacted_in_a_copy():
    value: dict[str, Any] = {"response": {"headers": {"x-request-id": "r1"}}, "kept": 1}
    redaction = Redaction({"paths": ["$.response.headers['x-request-id']", "$.missing"]})
    assert redaction.value(value)["response"]["headers"]["x-request-id"] == "[REDACTED]"
    assert value["response"]["headers"]["x-request-id"] == "r1"


@pytest.mark.parametrize(
    "path",
    [
        "$.response.headers.x-request-id",
        "$.response.headers['x-request-id']",
        "$..x-request-id",
        "$.response['headers'].x-request-id",
        "$.response[?@['x-request-id'] == 'r1'].x-request-id",
    ],
)
def test_a_name_of_a_json_path_may_have_dashes(path: str):
    value = {"response": {"headers": {"x-request-id": "r1", "kept-too": 1}}}
    redacted = Redaction({"paths": [path]}).value(value)["response"]["headers"]
    assert redacted == {"x-request-id": "[REDACTED]", "kept-too": 1}


def test_a_folder_is_hidden_as_a_path_and_as_a_slug(tmp_path: Path):
    redaction = Redaction(roots={"WORKSPACE": tmp_path})
    slug = str(tmp_path).replace("/", "-").replace("_", "-")
    assert redaction.text(f"cd {tmp_path}/src") == "cd [WORKSPACE]/src"
    assert redaction.text(f"projects/{slug}") == "projects/[WORKSPACE]"


NOISE: list[tuple[str, Any, Any]] = [
    ("codex", {"client_metadata": {"turn": "a"}}, {"client_metadata": {"turn": "b"}}),
    ("codex", "Chunk ID: 248146", "Chunk ID: 7f"),
    ("codex", "Wall time: 0.0001 seconds", "Wall time: 1.25 seconds"),
    ("codex", "Original token count: 4", "Original token count: 18"),
    ("codex", "<current_date>2026-11-15<", "<current_date>2027-01-02<"),
    ("codex", "started 1763171234567", "started 1763179999999"),
    ("claude-code", "Today's date is 2026-11-15.", "Today's date is 2026-11-16."),
    ("claude-code", "toolu_01AbCdEf", "toolu_99XyZ123"),
    ("claude-code", {"metadata": {"user_id": "a"}}, {"metadata": {"user_id": "b"}}),
    ("gemini-cli", "is Sunday, November 15, 2026 (", "is Monday, March 1, 2027 ("),
    ("gemini-cli", "Process Group PGID: 11988", "Process Group PGID: 7"),
    ("gemini-cli", {"thoughtSignature": "a"}, {"thoughtSignature": "b"}),
]


@pytest.mark.parametrize("preset, first, second", NOISE)
def test_a_preset_replaces_the_values_that_differ_between_two_runs_of_a_client(
    preset: str, first: Any, second: Any
):
    redaction = Redaction({"presets": [preset]})
    assert redaction.value(first) == redaction.value(second)
    assert Redaction().value(first) != Redaction().value(second)


def test_the_preset_of_a_client_is_found_by_its_command():
    assert preset_for_command(["/usr/bin/claude", "-p", "hi"]) == ("claude-code",)
    assert preset_for_command(["codex"]) == ("codex",)
    assert preset_for_command(["python", "claude"]) == preset_for_command([]) == ()


@pytest.mark.parametrize(
    "rules, message",
    [
        ({"patterns": {"x": "["}}, "invalid pattern"),
        ({"patterns": {"x": "a*"}}, "matches the empty text"),
        ({"patterns": {"$UID": True}}, r"did you mean '\$UUID'"),
        ({"paths": ["response.x"]}, "invalid JSON path"),
        ({"presets": ["codx"]}, "did you mean 'codex'"),
        ({"pattern": {}}, "unknown key 'pattern'"),
        ({"patterns": []}, "expected a mapping"),
    ],
)
def test_an_invalid_rule_is_rejected_with_a_fix(rules: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        Redaction(rules)


def test_a_pattern_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("offbook.trace.matching.MAX_SECONDS", 0.05)
    redaction = Redaction({"patterns": {"x": "(a|aa)+$"}})
    with pytest.raises(UsageError, match="took longer than"):
        redaction.text("a" * 60 + "b")


@pytest.mark.parametrize(
    "value",
    [
        {"name": "API_KEY", "value": "hunter2butlonger"},
        {"Value": "hunter2butlonger", "Key": "DB_PASSWORD"},
        ["x-api-key", "hunter2butlonger"],
        {"kty": "oct", "k": "hunter2butlonger"},
    ],
    ids=str,
)
def test_a_value_is_hidden_by_the_name_beside_it(value: Any):
    assert "hunter2" not in str(Redaction(environment={}).value({"deep": [value]}))


@pytest.mark.parametrize(
    "value",
    [{"name": "order", "value": "A-1234567890"}, ["password", "new_password1"], {"k": "v2abc"}],
    ids=str,
)
def test_a_value_beside_another_name_is_kept(value: Any):
    assert Redaction(environment={}).value(value) == value
