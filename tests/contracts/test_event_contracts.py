"""Contracts fail the run at the event that breaks them, and an unused one is no pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook import call, say, session, when
from offbook.contracts import Contracts, enforce, infer_contracts
from offbook.errors import ContractBroken, FormatError, UsageError
from offbook.trace import PUBLISH, Event

CALL = {"properties": {"input": {"required": ["path"]}}}
SCRIPT = when("Go", [call("bash", {"command": "true"}), say("Done.")])

ANY: dict[str, Any] = {"required": ["tool"]}


def published(topic: str, payload: Any, seq: int = 3) -> Event:
    return Event(1, PUBLISH, {"topic": topic, "payload": payload}, seq)


class BuildDone(msgspec.Struct):
    status: str
    files: list[str] = []


def test_an_event_that_breaks_a_contract_fails_the_run():
    with (
        enforce(Contracts(events={"tool.call": CALL})),
        pytest.raises(ContractBroken) as raised,
        session() as rehearsal,
    ):
        rehearsal.run(SCRIPT)
    [number] = [e.seq for e in rehearsal.events.named("tool.call")]
    message = str(raised.value)
    assert f"event {number}, tool.call: the contract of tool.call at .input" in message
    assert "'path'" in message or '"path"' in message
    assert "got {'command': 'true'}" in message


def test_a_run_that_matches_its_contracts_passes():
    contracts = Contracts(events={"tool.call": {"required": ["input"]}})
    with enforce(contracts), session() as rehearsal:
        rehearsal.run(SCRIPT)
    assert contracts.matched == {"event tool.call": 1}
    assert contracts.unused == []


def test_a_contract_without_an_event_is_unused():
    contracts = Contracts(events={"tool.call": ANY, "tool.cal": ANY}, topics={"build.done": True})
    with enforce(contracts), session() as rehearsal:
        rehearsal.run(SCRIPT)
    assert contracts.unused == ["topic build.done", "event tool.cal"]


def test_no_contract_is_held_after_the_block():
    with enforce(Contracts(events={"tool.call": CALL})):
        pass
    with session() as rehearsal:
        rehearsal.run(SCRIPT)


@pytest.mark.parametrize(
    "payload, path",
    [
        ({"status": "ok"}, ""),
        ('{"status": "ok", "files": ["a"]}', ""),
        ({"status": 3}, ".payload.status"),
        ({"status": "ok", "files": ["a", 2]}, ".payload.files.1"),
        ("{broken", ".payload"),
        (None, ".payload"),
    ],
)
def test_the_payload_of_a_topic_is_checked_by_a_type(payload: Any, path: str):
    contracts = Contracts(topics={"build.done": BuildDone})
    found = contracts.check(published("build.done", payload))
    assert [violation.path for violation in found] == ([path] if path else [])


def test_a_topic_of_text_is_not_parsed():
    contracts = Contracts(topics={"note": {"type": "string"}})
    assert contracts.check(published("note", "{}")) == []


def test_an_unknown_topic_is_reported_with_the_nearest_one():
    contracts = Contracts(topics={"build.done": True, "review.*": True})
    [violation] = contracts.check(published("build.don", "x"))
    assert (violation.actual, violation.hint) == ("build.don", "did you mean 'build.done'?")
    assert contracts.check(published("review.passed", "x")) == []


def test_without_contracts_of_topics_every_topic_is_allowed():
    assert Contracts(events={"tool.call": ANY}).check(published("any", "x")) == []


def test_contracts_without_content_are_refused():
    with pytest.raises(UsageError, match="no contract is given"):
        Contracts()


@pytest.mark.parametrize(
    "text, message",
    [
        ("topics: {a: {type: strin}}", "invalid JSON schema"),
        ("topic: {}", "topics"),
        ("topics: [", "contracts.yaml"),
    ],
)
def test_a_wrong_file_is_an_error_with_its_place(tmp_path: Path, text: str, message: str):
    path = tmp_path / "contracts.yaml"
    path.write_text(text)
    with pytest.raises((UsageError, FormatError), match=message) as raised:
        Contracts.read(path)
    assert "contracts.yaml" in str(raised.value)


def test_the_contracts_of_the_project_hold_for_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "pyproject.toml").write_text('[tool.offbook]\ncontracts = "contracts.json"\n')
    (tmp_path / "contracts.json").write_bytes(msgspec.json.encode({"events": {"tool.call": CALL}}))
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    rehearsal = session()
    with pytest.raises(ContractBroken, match=r"contracts\.json"):
        rehearsal.run(SCRIPT)
    rehearsal.dispose()


def test_a_project_that_names_a_missing_file_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "pyproject.toml").write_text('[tool.offbook]\ncontracts = "missing.json"\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FormatError, match="offbook contract TRACE… --infer"):
        session()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@given(st.lists(json_values, min_size=1, max_size=4))
def test_the_events_of_an_inference_match_what_was_inferred(payloads: list[Any]):
    events = [published("a.b", payload) for payload in payloads]
    inferred = infer_contracts(events, [PUBLISH])
    contracts = Contracts(topics=inferred.topics, events=inferred.events)
    assert [violation for event in events for violation in contracts.check(event)] == []


def test_a_field_that_is_sometimes_missing_is_not_required():
    inferred = infer_contracts([published("a", {"x": 1, "y": 2}), published("a", {"x": 1.5})])
    assert inferred.topics == {
        "a": {
            "type": "object",
            "properties": {"x": {"type": "number"}, "y": {"type": "integer"}},
            "required": ["x"],
        }
    }


def test_a_payload_that_is_the_text_of_an_object_is_inferred_as_the_object():
    inferred = infer_contracts([published("a", '{"x": 1}')])
    assert inferred.topics["a"] == {
        "type": "object",
        "properties": {"x": {"type": "integer"}},
        "required": ["x"],
    }


def test_a_payload_that_only_looks_like_json_is_inferred_as_a_text():
    inferred = infer_contracts([published("a", "{not json")])
    assert inferred.topics["a"] == {"type": "string"}


@pytest.mark.parametrize(
    "schema, message",
    [
        ({}, "the schema accepts every value"),
        ({"title": "A build"}, "the schema accepts every value"),
        (Any, "the schema accepts every value"),
        ({"typ": "string"}, "unknown keyword 'typ' (at $)\ndid you mean 'type'"),
        (
            {"properties": {"id": {"minimun": 1}}},
            "unknown keyword 'minimun' (at $.properties.id)\ndid you mean 'minimum'",
        ),
        ({"anyOf": [{"typ": "string"}]}, "unknown keyword 'typ' (at $.anyOf[0])"),
        ({"items": [{"typ": "string"}]}, "unknown keyword 'typ' (at $.items[0])"),
    ],
)
def test_a_schema_that_would_check_nothing_is_refused(schema: Any, message: str):
    with pytest.raises(UsageError) as caught:
        Contracts(events={"tool.call": schema}, where="contracts.yaml")
    assert f"contracts.yaml: tool.call: {message}" in str(caught.value)


def test_a_keyword_of_its_own_is_a_name_with_x():  # noqa: OB101 - it must not raise
    Contracts(events={"tool.call": {"x-team": "shop", "required": ["tool"]}})


ASKED = Event(1, "tool.call", {"call_id": "1", "tool": "refund", "input": {"number": 7}})
TOOL_EVENTS: dict[str, tuple[Event, list[str]]] = {
    "with the model's input": (
        Event(2, "tool.start", {"call_id": "1", "tool": "refund", "input": {"number": 7}}),
        [],
    ),
    "with another input": (
        Event(2, "tool.start", {"call_id": "1", "tool": "refund", "input": {"number": "x"}}),
        [".input.number"],
    ),
    "without a call": (
        Event(2, "tool.start", {"call_id": "", "tool": "refund", "input": {}}),
        [".input"],
    ),
    "in the agent's request": (
        Event(2, "tool.result", {"call_id": "1", "tool": "refund", "input": {"number": "x"}}),
        [".input.number"],
    ),
}


@pytest.mark.parametrize("event, paths", TOOL_EVENTS.values(), ids=TOOL_EVENTS)
def test_a_contract_of_calls_holds_for_what_the_tool_got(event: Event, paths: list[str]):
    numbered = {"required": ["number"], "properties": {"number": {"type": "integer"}}}
    contracts = Contracts(events={"tool.call": {"properties": {"input": numbered}}})
    assert contracts.wants(event.event)
    assert contracts.check(ASKED) == []
    assert [violation.path for violation in contracts.check(event)] == paths
    assert contracts.matched == {"event tool.call": 1 + len(paths)}


def call_of(tool: str, **given: Any) -> Event:
    return Event(1, "tool.call", {"call_id": "1", "tool": tool, "input": given})


def test_each_tool_has_a_contract_of_its_own():
    seen = [call_of("refund", number=7), call_of("refund", number=8), call_of("read", path="a")]
    inferred = infer_contracts(seen, ["tool.call"])
    assert sorted(inferred.events) == ["tool.call read", "tool.call refund"]
    contracts = Contracts(events=inferred.events)
    assert [violation for event in seen for violation in contracts.check(event)] == []
    assert contracts.matched == {"event tool.call read": 1, "event tool.call refund": 2}
    # A contract of all tools would take the input of one for that of the other.
    (violation,) = contracts.check(call_of("refund", path="a"))
    assert (violation.contract, violation.path) == ("the contract of tool.call refund", ".input")


def test_a_contract_of_another_tool_is_unused():
    contracts = Contracts(events={"tool.call refund": {"required": ["input"]}})
    assert contracts.check(call_of("read", path="a")) == []
    assert contracts.unused == ["event tool.call refund"]
