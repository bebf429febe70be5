"""The checks of a run record: against a replay fixture, a question to ask, and a baseline."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from offbook.evals.run_record import QuestionRules, ReplayExpectation, RunRecord
from offbook.trace.events import Verdict

QUESTION_KIND = "clarifying_question"
_WORDS = re.compile(r"[^0-9a-z]+")


def check_replay(expected: ReplayExpectation, record: RunRecord) -> list[Verdict]:
    """Compare the status and the stages of a run with a replay fixture."""
    if expected.eval_kind == QUESTION_KIND:
        return check_question(expected, record)
    verdicts = [_equal("run status", expected.expected_status, record.status)]
    # Of stages with the same node, the last one counts: it ran after a retry.
    stages = {stage.node_id: stage for stage in record.stages}
    for item in expected.stage_assertions:
        stage = stages.get(item.node_id)
        name = f"stage {item.node_id}"
        if stage is None:
            verdicts.append(Verdict(name, "fail", f"missing stage {item.node_id}"))
            continue
        verdicts += [
            _equal(f"{name} status", item.expected_status, stage.status),
            _equal(f"{name} outcome", item.expected_outcome, stage.outcome),
            _equal(f"{name} branch", item.expected_branch, stage.branch),
        ]
        kinds = {artifact.kind for artifact in stage.artifacts}
        verdicts += [
            Verdict(f"{name} artifact {kind}", "pass")
            if kind in kinds
            else Verdict(f"{name} artifact", "fail", f"{name} missing artifact kind {kind}")
            for kind in item.required_artifact_kinds
        ]
        if (snippet := item.visible_text_contains) is not None:
            found = snippet in (stage.visible_text or "")
            message = f'{name} visible text does not contain expected snippet "{snippet}"'
            verdicts.append(
                Verdict(f"{name} text", "pass" if found else "fail", "" if found else message)
            )
    return verdicts


def _equal(name: str, expected: Any, actual: Any) -> Verdict:
    if expected == actual:
        return Verdict(name, "pass", "", expected, actual)
    shown = f"{name} mismatch: expected {_shown(expected)}, got {_shown(actual)}"
    return Verdict(name, "fail", shown, expected, actual)


def _shown(value: Any) -> str:
    return "none" if value is None else str(value) or '""'


# --- Clarifying questions


def check_question(expected: ReplayExpectation, record: RunRecord) -> list[Verdict]:
    """Check that the run asked the user as often and with such words as required."""
    rules = expected.clarifying_question or QuestionRules()
    verdicts = [_equal("run status", expected.expected_status, record.status)]
    prompts = [question.prompt for question in record.hitl_questions]
    # At least one question: an agent that asks nothing has not asked the right one.
    lowest = max(1, rules.min_questions)
    highest = max(1, 1 if rules.max_questions is None else rules.max_questions)
    count = len(prompts)
    problem = ""
    if count < lowest:
        problem = f"expected at least {lowest} clarifying question(s), got {count}"
    elif count > highest:
        problem = f"expected at most {highest} clarifying question(s), got {count}"
    verdicts.append(Verdict("question count", "fail" if problem else "pass", problem))
    constrained = rules.expected_question or rules.accepted_questions
    if prompts and (constrained or rules.required_terms or rules.forbidden_terms):
        problems = [question_problem(rules, prompt) for prompt in prompts]
        # One question has to meet the rules, and none may have a forbidden term.
        forbidden = [problem for prompt in prompts if (problem := _forbidden(rules, prompt))]
        message = ""
        if all(problems):
            message = f"no question meets the requirements: {'; '.join(problems)}"
        elif forbidden:
            message = f"a question has a forbidden term: {'; '.join(forbidden)}"
        ok = not message
        verdicts.append(Verdict("question text", "pass" if ok else "fail", message, None, prompts))
    return verdicts


def question_problem(rules: QuestionRules, prompt: str) -> str:
    """Return why a question does not meet the rules; empty if it does."""
    text = normalize_words(prompt)
    quoted = f'"{prompt}"'
    if rules.expected_question and text != normalize_words(rules.expected_question):
        return f'{quoted} is not "{rules.expected_question}"'
    if rules.accepted_questions and text not in map(normalize_words, rules.accepted_questions):
        return f"{quoted} is not an accepted question"
    for term in rules.required_terms:
        if normalize_words(term) not in text:
            return f"{quoted} does not mention {term!r}"
    return _forbidden(rules, prompt)


def _forbidden(rules: QuestionRules, prompt: str) -> str:
    text = normalize_words(prompt)
    for term in rules.forbidden_terms:
        if normalize_words(term) in text:
            return f'"{prompt}" mentions {term!r}'
    return ""


def normalize_words(text: str) -> str:
    """Return the letters and digits of a text in lower case, words separated by one space."""
    return _WORDS.sub(" ", text.lower()).strip()


# --- Baselines


class StageDiff(msgspec.Struct, frozen=True):
    """A stage that differs: `change` is added, removed or changed."""

    node_id: str
    change: str
    details: list[str] = []


class BaselineDiff(msgspec.Struct, frozen=True):
    """The differences between the record of a run (right) and its baseline (left)."""

    left_run_id: str
    right_run_id: str
    identical: bool
    status_changed: bool
    left_status: str
    right_status: str
    stage_diffs: list[StageDiff] = []
    tool_diffs: list[str] = []
    observability_diffs: list[str] = []
    transition_count_delta: int = 0
    artifact_count_delta: int = 0
    checkpoint_count_delta: int = 0


def compare_records(left: RunRecord, right: RunRecord) -> BaselineDiff:
    """Compare the structure of two runs: not their texts, times and ids."""
    stages = _stage_diffs(left, right)
    tools = _tool_diffs(left, right)
    observability = (
        []
        if left.observability == right.observability
        else ["the observability data of the runs differ"]
    )
    deltas = (
        len(right.transitions) - len(left.transitions),
        len(right.artifacts) - len(left.artifacts),
        len(right.checkpoints) - len(left.checkpoints),
    )
    changed = left.status != right.status
    identical = not (changed or stages or tools or observability or any(deltas))
    return BaselineDiff(
        left.id,
        right.id,
        identical,
        changed,
        left.status,
        right.status,
        stages,
        tools,
        observability,
        *deltas,
    )


def _stage_diffs(left: RunRecord, right: RunRecord) -> list[StageDiff]:
    before = {stage.node_id: stage for stage in left.stages}
    after = {stage.node_id: stage for stage in right.stages}
    diffs: list[StageDiff] = []
    for node in sorted({*before, *after}):
        if node not in after:
            diffs.append(StageDiff(node, "removed"))
        elif node not in before:
            diffs.append(StageDiff(node, "added"))
        else:
            one, other = before[node], after[node]
            details = [
                f"{name}: {_shown(getattr(one, name))} -> {_shown(getattr(other, name))}"
                for name in ("status", "outcome", "branch")
                if getattr(one, name) != getattr(other, name)
            ]
            if len(one.artifacts) != len(other.artifacts):
                details.append(f"artifacts: {len(one.artifacts)} -> {len(other.artifacts)}")
            if details:
                diffs.append(StageDiff(node, "changed", details))
    return diffs


def _tool_diffs(left: RunRecord, right: RunRecord) -> list[str]:
    def by_call(record: RunRecord) -> dict[tuple[str, str], Any]:
        return {(tool.tool_name, tool.args_hash): tool.result for tool in record.tool_recordings}

    before, after = by_call(left), by_call(right)
    diffs: list[str] = []
    for name, arguments in sorted({*before, *after}):
        key = (name, arguments)
        call = f"{name} {arguments}".strip()
        if key not in after:
            diffs.append(f"{call} was not called")
        elif key not in before:
            diffs.append(f"{call} was called in addition")
        elif before[key] != after[key]:
            diffs.append(f"{call} has another result")
    return diffs


def check_baseline(diff: BaselineDiff) -> Verdict:
    """Return the verdict of a comparison."""
    if diff.identical:
        return Verdict("baseline", "pass")
    parts = (
        [f"status {_shown(diff.left_status)} -> {_shown(diff.right_status)}"]
        if diff.status_changed
        else []
    )
    parts += [
        f"stage {stage.node_id} {stage.change}" + "".join(f", {text}" for text in stage.details)
        for stage in diff.stage_diffs
    ]
    parts += [*diff.tool_diffs, *diff.observability_diffs]
    deltas = {
        "transitions": diff.transition_count_delta,
        "artifacts": diff.artifact_count_delta,
        "checkpoints": diff.checkpoint_count_delta,
    }
    parts += [f"{delta:+d} {name}" for name, delta in deltas.items() if delta]
    message = f"run differs from baseline {diff.left_run_id}: {'; '.join(parts)}"
    return Verdict("baseline", "fail", message)
