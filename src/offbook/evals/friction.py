"""Friction events and the context packs that they suggest.

A friction event is written each time when an agent or a person had to do something again: the same
query, the same question, a missing tool. Events that repeat are grouped, and each group becomes a
suggestion: a context pack, a workflow or both, with a manifest to review.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec

from offbook.checks.assertion import Assertion, AssertionResult, Check
from offbook.checks.context import CheckContext
from offbook.errors import FormatError, did_you_mean
from offbook.files import convert

REDACTED = "[redacted]"
MIN_OCCURRENCES = 2
MAX_EXAMPLES = 3
# The artifact that helps against each kind of friction.
ARTIFACTS = {
    "repeated_query": "context_pack",
    "repeated_clarification": "context_pack",
    "missing_context": "context_pack",
    "human_hypothesis": "context_pack",
    "approval_stall": "workflow",
    "manual_handoff": "workflow",
    "tool_gap": "both",
    "failed_assumption": "both",
    "expensive_model_used_for_deterministic_step": "both",
}
QUERY_KINDS = {"repeated_query", "missing_context"}
CONFIDENCE = {2: 0.62, 3: 0.74, 4: 0.82}
MAX_CONFIDENCE = 0.9
_KEY_SHAPE = re.compile(r"(?:sk-|ghp_|xoxb-|AKIA)|[A-Za-z0-9_-]{49,}\Z")
_ASSIGNED = re.compile(r"token=|password=|api_key=|apikey=")
_SECRET_NAMES = ("secret", "token", "password", "api_key", "apikey")
_REFERENCES = {"secret_ref"}  # the name of a secret is not the secret


class FrictionEvent(msgspec.Struct, frozen=True):
    """One event; its summary and metadata are redacted when it is read."""

    kind: str
    redacted_summary: str
    schema_version: int = 1
    id: str = ""
    source: str | None = None
    actor: str | None = None
    tenant_id: str | None = None
    task_id: str | None = None
    run_id: str | None = None
    workflow_id: str | None = None
    tool: str | None = None
    provider: str | None = None
    estimated_cost_usd: float | None = None
    estimated_time_ms: float | None = None
    recurrence_hints: list[str] = []
    trace_id: str | None = None
    span_id: str | None = None
    links: list[Any] = []
    human_hypothesis: Any = None
    metadata: dict[str, Any] = {}
    timestamp: str | float | None = None


class Savings(msgspec.Struct, frozen=True):
    """The time and cost that a suggestion would have saved: of all events but the first."""

    occurrences: int
    estimated_time_saved_ms: float
    estimated_cost_saved_usd: float


class Suggestion(msgspec.Struct, frozen=True):
    """A context pack or workflow that would have avoided a group of events."""

    title: str
    recommended_artifact: str
    confidence: float
    estimated_savings: Savings
    examples: list[str]
    evidence: list[dict[str, Any]]
    candidate_manifest: dict[str, Any]


class SuggestionExpectation(Check, frozen=True):
    """The suggestion that a case expects."""

    min_suggestions: int | None = None
    recommended_artifact: str | None = None
    title_contains: str | None = None
    manifest_name_contains: str | None = None
    required_capability: str | None = None
    required_output_slot: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if msgspec.to_builtins(self) == {"min_suggestions": 0}:
            raise ValueError("min_suggestions 0 alone would always pass")


# --- Reading


def parse_friction_events(value: Any, path: Path | str) -> list[FrictionEvent]:
    """Return the events of a document: a list, or `{"events": […]}`."""
    items = cast("dict[str, Any]", value).get("events") if isinstance(value, dict) else value
    if not isinstance(items, list):
        raise FormatError(
            "expected a list of friction events", path=path, hint='{"events": [{"kind": …}]}'
        )
    events: list[FrictionEvent] = []
    for number, item in enumerate(cast("list[Any]", items)):
        event = convert(item, FrictionEvent, path=path, at=f"$.events[{number}]")
        kind = event.kind.strip().lower()
        if kind not in ARTIFACTS:
            raise FormatError(
                f"unknown kind of friction {event.kind!r} (at $.events[{number}].kind)",
                path=path,
                hint=did_you_mean(kind, ARTIFACTS),
            )
        summary = redact_words(event.redacted_summary)
        if not summary:
            raise FormatError(f"empty redacted_summary (at $.events[{number}])", path=path)
        events.append(
            msgspec.structs.replace(
                event,
                kind=kind,
                redacted_summary=summary,
                metadata=cast("dict[str, Any]", redact_values(event.metadata)),
            )
        )
    return events


def redact_words(text: str) -> str:
    """Return a text without the words that look like keys, with single spaces."""
    return " ".join(
        REDACTED if _KEY_SHAPE.match(word) or _ASSIGNED.search(word) else word
        for word in text.split()
    )


def redact_values(value: Any, name: str = "") -> Any:
    """Return a value without secrets: texts that look like keys, and fields named like them."""
    folded = name.lower()
    named = any(word in folded for word in _SECRET_NAMES) or folded == "authorization"
    if named and folded not in _REFERENCES:
        return REDACTED
    if isinstance(value, str):
        return redact_words(value)
    if isinstance(value, list):
        return [redact_values(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: redact_values(item, key) for key, item in fields.items()}
    return value


# --- Suggestions


def suggest(
    events: Sequence[FrictionEvent], *, min_occurrences: int = MIN_OCCURRENCES, owner: str = ""
) -> list[Suggestion]:
    """Return a suggestion for each group of events that repeat."""
    groups: dict[str, list[FrictionEvent]] = {}
    for event in events:
        key = (event.kind, event.source or "", event.tool or "", event.provider or "", _hint(event))
        groups.setdefault("|".join(key), []).append(event)
    # One event does not repeat, whatever the option says.
    least = max(MIN_OCCURRENCES, min_occurrences)
    return [
        _suggestion(sorted(groups[key], key=lambda e: (str(e.timestamp or ""), e.id)), owner)
        for key in sorted(groups)
        if len(groups[key]) >= least
    ]


def _hint(event: FrictionEvent) -> str:
    if event.recurrence_hints:
        return event.recurrence_hints[0]
    return normalize_words(event.redacted_summary)


def normalize_words(text: str) -> str:
    """Return the letters and digits of a text without their case, words separated by one space.

    They are those of any script, with their marks: without its vowel signs, a word of Hindi is
    another one.
    """
    folded = unicodedata.normalize("NFC", text.casefold())
    kept = (char if unicodedata.category(char)[0] in "LMN" else " " for char in folded)
    return " ".join("".join(kept).split())


def _suggestion(group: list[FrictionEvent], owner: str) -> Suggestion:
    first, rest = group[0], group[1:]
    words = first.recurrence_hints[0] if first.recurrence_hints else _hint(first)
    if not first.recurrence_hints:
        words = " ".join(words.split()[:6])
    title = f"{first.source or 'team'} {words} context pack"
    savings = Savings(
        len(group),
        sum(event.estimated_time_ms or 0 for event in rest),
        sum(event.estimated_cost_usd or 0 for event in rest),
    )
    return Suggestion(
        title,
        ARTIFACTS[first.kind],
        CONFIDENCE.get(len(group), MAX_CONFIDENCE),
        savings,
        sorted({event.redacted_summary for event in group})[:MAX_EXAMPLES],
        [_evidence(event) for event in group],
        _manifest(group, title, owner),
    )


def _evidence(event: FrictionEvent) -> dict[str, Any]:
    fields = {
        "event_id": event.id,
        "kind": event.kind,
        "summary": event.redacted_summary,
        "run_id": event.run_id,
        "trace_id": event.trace_id,
        "links": event.links,
    }
    return {name: value for name, value in fields.items() if value}


def _manifest(group: list[FrictionEvent], title: str, owner: str) -> dict[str, Any]:
    """Return the manifest of the pack that a person would review."""
    first = group[0]
    slug = normalize_words(title).replace(" ", "_")
    tools: list[dict[str, Any]] = []
    queries: list[str] = []
    docs: list[str] = []
    capabilities: set[str] = set()
    secrets: set[str] = set()
    slots: set[str] = set()
    for event in group:
        data = event.metadata
        capability = _text(data, "capability")
        if event.tool:
            tools.append(
                {
                    "name": event.tool,
                    "capability": capability,
                    "deterministic": event.kind in QUERY_KINDS,
                }
            )
        query = _text(data, "query") or _text(data, "deterministic_query")
        if query or event.kind in QUERY_KINDS:
            queries.append(query or event.redacted_summary)
        docs += filter(None, (_text(data, "doc_url"), _text(data, "doc_path")))
        capabilities.add(capability)
        secrets.add(_text(data, "secret_ref"))
        slots.add(_text(data, "output_slot"))
    actor = next((event.actor for event in group if event.actor), None)
    return {
        "version": 1,
        "id": "_".join(slug.split("_")[:8]),
        "name": title,
        "owner": owner or actor or "team",
        "triggers": [{"kind": first.kind, "source": first.source, "match_hint": _hint(first)}],
        "inputs": [],
        "included_queries": queries,
        "included_docs": docs,
        "included_tools": tools,
        "capabilities": sorted(filter(None, capabilities)),
        "secrets": sorted(filter(None, secrets)),
        "output_slots": sorted(filter(None, slots)) or ["primary_context"],
        "refresh_policy": {"mode": "on_demand"},
        "review": {"approval_required": True, "status": "proposed"},
    }


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


# --- Checks


class SuggestionMade(Assertion, frozen=True, tag="suggestion"):
    """The friction events of a case lead to such a suggestion."""

    expected: SuggestionExpectation = SuggestionExpectation()
    reads: ClassVar[str] = "suggestions"

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> SuggestionMade:
        """Return the assertion of a pack; a text is the recommended artifact."""
        expected: Any = fields.get("expected") or {}
        if isinstance(expected, str):
            expected = {"recommended_artifact": expected}
        if "contains" in fields:
            expected = {**expected, "title_contains": fields["contains"]}
        return cls(convert(expected, SuggestionExpectation, path="expected"))

    def evaluate(self, context: CheckContext) -> AssertionResult:
        """Check that there are enough suggestions, and that one of them has what is expected."""
        suggestions: Sequence[Suggestion] = context.require("suggestions")
        least = 1 if self.expected.min_suggestions is None else self.expected.min_suggestions
        count = len(suggestions)
        if count < least:
            message = f"expected at least {least} suggestion(s), got {count}"
            return AssertionResult(False, least, count, message)
        problems = [suggestion_problem(self.expected, suggestion) for suggestion in suggestions]
        message = f"no suggestion has all that is expected: {'; '.join(problems)}"
        return AssertionResult(not suggestions or not all(problems), least, count, message)


def suggestion_problem(expected: SuggestionExpectation, suggestion: Suggestion) -> str:
    """Return what a suggestion lacks; empty if it has all that is expected."""
    manifest = suggestion.candidate_manifest
    wanted, actual = expected.recommended_artifact, suggestion.recommended_artifact
    if wanted and wanted != actual:
        return f"{suggestion.title!r} recommends {actual}, not {wanted}"
    for text, where, field in (
        (expected.title_contains, suggestion.title, "title"),
        (expected.manifest_name_contains, str(manifest["name"]), "manifest name"),
    ):
        if text and text.lower() not in where.lower():
            return f"the {field} {where!r} does not contain {text!r}"
    for value, key in (
        (expected.required_capability, "capabilities"),
        (expected.required_output_slot, "output_slots"),
    ):
        if value and value not in manifest[key]:
            return f"{suggestion.title!r} has no {value!r} in its {key}"
    return ""
