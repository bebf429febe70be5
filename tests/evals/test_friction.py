"""Friction events become suggestions of context packs."""

from typing import Any

import pytest

from offbook.checks import CheckContext
from offbook.errors import FormatError
from offbook.evals import (
    SuggestionExpectation,
    SuggestionMade,
    parse_friction_events,
    redact_values,
    redact_words,
    suggest,
)


def events(count: int, **fields: Any) -> list[dict[str, Any]]:
    base = {
        "kind": "repeated_query",
        "redacted_summary": "Same search",
        "recurrence_hints": ["search"],
        "estimated_time_ms": 10,
    }
    return [{**base, **fields} for _ in range(count)]


@pytest.mark.parametrize("count, confidence", [(2, 0.62), (3, 0.74), (4, 0.82), (5, 0.9), (9, 0.9)])
def test_more_events_give_more_confidence(count: int, confidence: float):
    (suggestion,) = suggest(parse_friction_events(events(count), "x"))
    assert suggestion.confidence == confidence
    assert suggestion.estimated_savings.estimated_time_saved_ms == 10 * (count - 1)


def test_one_event_suggests_nothing_whatever_the_option():
    assert suggest(parse_friction_events(events(1), "x"), min_occurrences=1) == []


def test_different_hints_are_different_groups():
    mixed = [*events(2), *events(2, recurrence_hints=["other"])]
    assert len(suggest(parse_friction_events(mixed, "x"))) == 2


def test_different_summaries_in_any_script_are_different_groups():
    summaries = ["全部削除", "どの環境"]
    mixed = [e for text in summaries for e in events(2, redacted_summary=text, recurrence_hints=[])]
    titles = {suggestion.title for suggestion in suggest(parse_friction_events(mixed, "x"))}
    assert titles == {f"team {text} context pack" for text in summaries}


@pytest.mark.parametrize("word", ["ghp_x", "sk-live", "xoxb-1", "AKIA123", "token=abc", "a" * 49])
def test_a_key_is_redacted(word: str):
    assert redact_words(f"see {word} here") == "see [redacted] here"


def test_a_field_named_like_a_secret_is_redacted_and_its_reference_is_not():
    nested = {"Authorization": "y", "ok": "z", "list": ["sk-live", 3, None]}
    value = {"api_key": "x", "secret_ref": "NAME", "nested": nested}
    assert redact_values(value) == {
        "api_key": "[redacted]",
        "secret_ref": "NAME",
        "nested": {"Authorization": "[redacted]", "ok": "z", "list": ["[redacted]", 3, None]},
    }


EXPECTATIONS: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing": ({}, True),
    "enough": ({"min_suggestions": 1}, True),
    "too few": ({"min_suggestions": 2}, False),
    "the artifact": ({"recommended_artifact": "context_pack"}, True),
    "another artifact": ({"recommended_artifact": "workflow"}, False),
    "the title": ({"title_contains": "SEARCH"}, True),
    "another title": ({"title_contains": "nope"}, False),
    "a capability": ({"required_capability": "nope"}, False),
    "the slot": ({"required_output_slot": "primary_context"}, True),
}


@pytest.mark.parametrize("name", EXPECTATIONS)
def test_one_suggestion_must_have_all_that_is_expected(name: str):
    fields, passes = EXPECTATIONS[name]
    suggestions = suggest(parse_friction_events(events(2), "x"))
    verdict = SuggestionMade(SuggestionExpectation(**fields)).judge(
        CheckContext(None, suggestions=suggestions)
    )
    assert (verdict.status == "pass") is passes


def test_an_empty_expectation_without_suggestions_fails():
    assert SuggestionMade().judge(CheckContext(None, suggestions=[])).status == "fail"


@pytest.mark.parametrize("value", ["x", {"event": []}, None])
def test_a_document_without_a_list_of_events_is_refused(value: Any):
    with pytest.raises(FormatError, match="expected a list of friction events"):
        parse_friction_events(value, "friction.json")


def test_events_without_hints_are_grouped_by_their_words():
    texts = ["No search of the old wiki: why?", "no SEARCH of the old wiki, why!"]
    items = [event for text in texts for event in events(1, redacted_summary=text)]
    found = suggest(parse_friction_events([{**e, "recurrence_hints": []} for e in items], "x"))
    assert [suggestion.title for suggestion in found] == [
        "team no search of the old wiki context pack"
    ]


def test_only_a_query_is_a_query_of_the_manifest():
    handoffs = events(1, kind="manual_handoff") + events(
        1, kind="manual_handoff", metadata={"query": "select 1"}
    )
    (suggestion,) = suggest(parse_friction_events(handoffs, "x"))
    assert suggestion.candidate_manifest["included_queries"] == ["select 1"]
