"""The result of a case: its checks, its severity and the gate."""

from pathlib import Path
from typing import Any

import pytest

from offbook.errors import FormatError
from offbook.evals import parse_replay_fixture, parse_run_record
from offbook.exchange import list_prices
from tests.evals.conftest import RUN, RunPack


def case(**fields: Any) -> dict[str, Any]:
    return {"id": "one", "run": "run.json", **fields}


def rubric(*assertions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "r", "assertions": list(assertions), **fields}


# Each assertion with a value that passes, and one that must fail.
ASSERTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "run-status": ({"expected": "completed"}, {"expected": "failed"}),
    "status": ({"expected": "completed"}, {"expected": "failed"}),
    "stage-status": (
        {"stage": "plan", "expected": "completed"},
        {"stage": "act", "expected": "completed"},
    ),
    "visible-text-contains": ({"contains": "plan is ready"}, {"contains": "Plan"}),
    "hitl-question-contains": ({"contains": "repository"}, {"contains": "branch"}),
    "tool-called": ({"expected": "read"}, {"expected": ["read", "write"]}),
    "tool-never": ({"expected": "write"}, {"expected": ["read"]}),
    "side-effect-level": ({"expected": "workspace_write"}, {"expected": "none"}),
    "path": (
        {"path": "/usage/models/0", "expected": "mock"},
        {"path": "/usage/models/1", "expected": "mock"},
    ),
}


@pytest.mark.parametrize("kind", ASSERTIONS)
@pytest.mark.parametrize("passes", [True, False])
def test_an_assertion_of_each_kind_passes_and_fails(run_files: RunPack, kind: str, *, passes: bool):
    fields = ASSERTIONS[kind][0 if passes else 1]
    pack = {"rubrics": [rubric({"kind": kind, **fields})], "cases": [case(rubrics=["r"])]}
    run = run_files(pack)
    assert run.summary.passed_gate is passes
    assert run.cases[0].status == ("pass" if passes else "fail")


OPERATORS: dict[str, tuple[str, Any, bool]] = {
    "eq": ("/usage/input_tokens", 3, True),
    "eq of another type": ("/usage/input_tokens", "3", False),
    "eq of null and a missing value": ("/nothing", None, False),
    "ne": ("/status", "failed", True),
    "lt": ("/usage/total_cost", 0.02, True),
    "le": ("/usage/total_cost", 0.01, True),
    "gt": ("/usage/total_cost", 0.01, False),
    "ge": ("/usage/total_cost", 0.01, True),
    "lt of a text and a number": ("/status", 3, False),
    "in": ("/status", ["completed", "done"], True),
    "contains": ("/usage/models", "mock", True),
    "matches": ("/status", "^comp", True),
    "matches not": ("/status", "^done", False),
    "not-contains": ("/usage/models", "real", True),
    "not-contains what is there": ("/usage/models", "mock", False),
    "not-contains in a missing value": ("/nothing", "mock", False),
    "not-contains in a number": ("/usage/input_tokens", "mock", False),
    "not-matches": ("/status", "^done", True),
    "not-matches what is there": ("/status", "^comp", False),
    "not-matches a number": ("/usage/input_tokens", "^x", False),
    "not-matches a missing value": ("/nothing", "^x", False),
    "exists": ("/usage", True, True),
    "exists not": ("/nothing", True, False),
    "exists false": ("/nothing", False, True),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_compares_the_value_of_a_pointer(run_files: RunPack, name: str):
    path, expected, passes = OPERATORS[name]
    item = {"path": path, "op": name.split(maxsplit=1)[0], "expected": expected}
    run = run_files({"rubrics": [rubric(item)], "cases": [case(rubrics=["r"])]})
    assert run.summary.passed_gate is passes


def test_a_pointer_escapes_slash_and_tilde(run_files: RunPack):
    record = {**RUN, "a/b": {"c~d": 1}}
    item = {"path": "/a~1b/c~0d", "expected": 1}
    pack = {"rubrics": [rubric(item)], "cases": [case(rubrics=["r"])]}
    assert run_files(pack, {"run.json": record}).summary.passed_gate


THRESHOLDS: dict[str, tuple[dict[str, Any], str]] = {
    "a latency at the limit": ({"max_latency_ms": 12}, "pass"),
    "a latency above the limit": ({"max_latency_ms": 11}, "fail"),
    "a cost above the limit": ({"max_cost_usd": 0.009}, "fail"),
    "tokens at the limit": ({"max_tokens": 7}, "pass"),
    "tokens above the limit": ({"max_tokens": 6}, "fail"),
    "stages above the limit": ({"max_stage_count": 0}, "fail"),
}


@pytest.mark.parametrize("name", THRESHOLDS)
@pytest.mark.parametrize("place", ["case", "defaults", "rubric"])
def test_a_threshold_is_a_limit(run_files: RunPack, name: str, place: str):
    limits, status = THRESHOLDS[name]
    pack: dict[str, Any] = {"cases": [case()]}
    if place == "defaults":
        pack["defaults"] = {"thresholds": limits}
    elif place == "rubric":
        pack |= {
            "rubrics": [rubric(kind="budget", thresholds=limits)],
            "cases": [case(rubrics=["r"])],
        }
    else:
        pack["cases"] = [case(thresholds=limits)]
    assert run_files(pack).cases[0].status == status


@pytest.mark.parametrize("limit", ["max_cost_usd", "max_latency_ms", "max_tokens"])
def test_a_run_without_usage_is_no_data_and_no_pass(run_files: RunPack, limit: str):
    record = {key: value for key, value in RUN.items() if key != "usage"}
    run = run_files({"cases": [case(thresholds={limit: 1})]}, {"run.json": record})
    assert run.cases[0].status == "no_data"
    assert not run.summary.passed_gate
    assert "no data" in run.cases[0].failures[0]


CUSTOM = {"custom-1": {"input": 3.0, "output": 15.0, "cache-read": 0.3}}
NO_COST = ("no data: the run has no cost usd",)

# the model of a run with a million input tokens, of them so many cached -> the failures
COSTS: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "a model of the pack": ("custom-1", 0, ("cost_usd 3 exceeds the maximum 0.2",)),
    "its snapshot": ("custom-1-2026-01-31", 0, ("cost_usd 3 exceeds the maximum 0.2",)),
    "cached tokens": ("custom-1", 1_000_000, ("cost_usd 0.3 exceeds the maximum 0.2",)),
    "a model of the table": ("gpt-4o-mini-2024-07-18", 0, ()),
    "a name that only begins like a known one": ("custom-1-mini", 0, NO_COST),
    "a later version": ("gpt-4o-mini-2", 0, NO_COST),
}


@pytest.mark.parametrize("model, cached, failures", COSTS.values(), ids=COSTS)
def test_the_cost_of_a_run_is_computed_from_its_tokens(
    run_files: RunPack, model: str, cached: int, failures: tuple[str, ...]
):
    usage = {"input_tokens": 1_000_000, "output_tokens": 0, "models": [model]}
    usage["cache_read_tokens"] = cached
    pack = {"prices": CUSTOM, "cases": [case(thresholds={"max_cost_usd": 0.2})]}
    run = run_files(pack, {"run.json": {**RUN, "usage": usage}})
    assert run.cases[0].failures == failures


def test_a_price_is_positive_and_cached_input_is_not_dearer():
    for name, price in list_prices().items():
        assert 0 < price.input < price.output, name
        assert (price.cache_read or 0) < price.input, name


@pytest.mark.parametrize(
    "severity, gate", [("blocking", False), ("warning", True), ("informational", True)]
)
def test_a_failure_stays_visible_whatever_the_severity(
    run_files: RunPack, severity: str, *, gate: bool
):
    run = run_files({"cases": [case(severity=severity, thresholds={"max_tokens": 1})]})
    assert run.summary.passed_gate is gate
    assert run.summary.failed == 1
    assert run.cases[0].failures == ("tokens 7 exceeds the maximum 1",)
    assert run.cases[0].gated is gate


def test_a_case_that_checks_nothing_is_no_data(run_files: RunPack):
    run = run_files({"cases": [case()]})
    assert run.cases[0].status == "no_data"
    assert "nothing was checked" in run.cases[0].failures[0]


def test_a_missing_run_is_an_error_of_its_case_only(run_files: RunPack):
    cases = [case(thresholds={"max_tokens": 9}, id=name) for name in ("a", "b", "c")]
    cases[1]["run"] = "nope.json"
    run = run_files({"cases": cases})
    assert [item.status for item in run.cases] == ["pass", "error", "pass"]
    assert "nope.json" in run.cases[1].failures[0]


REPLAYS: dict[str, tuple[dict[str, Any], str]] = {
    "all equal": ({}, ""),
    "another status": ({"expected_status": "failed"}, "run status mismatch: expected failed"),
    "a missing stage": ({"node_id": "act"}, "missing stage act"),
    "another outcome": ({"expected_outcome": "error"}, "stage plan outcome mismatch"),
    "a branch": ({"expected_branch": "x"}, "stage plan branch mismatch: expected x, got none"),
    "an artifact": ({"required_artifact_kinds": ["diff"]}, "missing artifact kind diff"),
    "a text": ({"visible_text_contains": "nope"}, "does not contain expected snippet"),
}


@pytest.mark.parametrize("name", REPLAYS)
def test_a_replay_fixture_is_compared_field_by_field(run_files: RunPack, name: str):
    changes, message = REPLAYS[name]
    stage = {"node_id": "plan", "expected_status": "completed", "expected_outcome": "success"}
    fixture: dict[str, Any] = {
        "expected_status": "completed",
        "stage_assertions": [{**stage, **changes}],
    }
    if "expected_status" in changes:
        fixture = {"expected_status": "failed", "stage_assertions": []}
    run = run_files({"cases": [case(fixture="fixture.json")]}, {"fixture.json": fixture})
    assert message in "; ".join(run.cases[0].failures)
    assert run.summary.passed_gate is (message == "")


def test_a_branch_that_is_not_expected_is_a_difference(run_files: RunPack):
    record = {**RUN, "stages": [{**RUN["stages"][0], "branch": "x"}]}
    stage = {"node_id": "plan", "expected_status": "completed", "expected_outcome": "success"}
    fixture = {"expected_status": "completed", "stage_assertions": [stage]}
    run = run_files({"cases": [case(fixture="f.json")]}, {"run.json": record, "f.json": fixture})
    assert "branch mismatch: expected none, got x" in run.cases[0].failures[0]


QUESTIONS: dict[str, tuple[list[str], dict[str, Any], bool]] = {
    "the required term": (["Which repository?"], {"required_terms": ["repository"]}, True),
    "a forbidden term": (["Which branch?"], {"forbidden_terms": ["branch"]}, False),
    "two questions": (["Which repository?", "Why?"], {"max_questions": 1}, False),
    "no question": ([], {"required_terms": ["repository"]}, False),
    "no question and no rule": ([], {}, False),
    "a normalized term": (["Which repo-sitory?!"], {"required_terms": ["repo sitory"]}, True),
    "the expected question": (["which REPO"], {"expected_question": "Which repo?"}, True),
    "not the expected question": (["Why?"], {"expected_question": "Which repo?"}, False),
    "another question": (["why"], {"accepted_questions": ["which", "what"]}, False),
    "a required term that is missing": (["Which branch?"], {"required_terms": ["repo"]}, False),
    "the term in another script": (["どの環境ですか。"], {"required_terms": ["環境"]}, True),
    "another term of a script": (["全部削除しますか。"], {"required_terms": ["環境"]}, False),
    "another question of a script": (
        ["全部削除しますか。"],
        {"expected_question": "どの環境ですか。"},
        False,
    ),
    "another vowel sign": (["कि"], {"expected_question": "की"}, False),
    "a forbidden term of a script": (["Удалить всё?"], {"forbidden_terms": ["УДАЛИТЬ"]}, False),
    "an accent in two ways": (["Quel re\u0301seau ?"], {"required_terms": ["RÉSEAU"]}, True),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_clarifying_question_is_checked(run_files: RunPack, name: str):
    prompts, rules, passes = QUESTIONS[name]
    record = {**RUN, "hitl_questions": [{"prompt": prompt} for prompt in prompts]}
    fixture = {
        "eval_kind": "clarifying_question",
        "expected_status": "completed",
        "clarifying_question": rules,
    }
    run = run_files({"cases": [case(fixture="f.json")]}, {"run.json": record, "f.json": fixture})
    assert run.summary.passed_gate is passes


RULES_OF_NOTHING = [
    {"required_terms": [""]},
    {"forbidden_terms": ["?"]},
    {"accepted_questions": ["Which?", "…"]},
    {"expected_question": "。"},
]


@pytest.mark.parametrize("rules", RULES_OF_NOTHING, ids=str)
@pytest.mark.parametrize("embedded", [True, False])
def test_a_term_without_letters_and_digits_is_refused(
    tmp_path: Path, rules: dict[str, Any], *, embedded: bool
):
    fixture = {"expected_status": "completed", "clarifying_question": rules}
    value = {**RUN, "replay_fixture": fixture} if embedded else fixture
    parse = parse_run_record if embedded else parse_replay_fixture
    with pytest.raises(FormatError, match=r"f\.json: .*no letters and no digits"):
        parse(value, tmp_path / "f.json")


def test_a_difference_from_the_baseline_is_named(run_files: RunPack):
    stage = {**RUN["stages"][0], "outcome": "error"}
    run = run_files({"cases": [case(compare_to="b.json")]}, {"b.json": {**RUN, "stages": [stage]}})
    assert "stage plan changed, outcome: error -> success" in run.cases[0].failures[0]


@pytest.mark.parametrize("status, passes", [("completed", True), ("failed", False)])
def test_a_replay_fixture_may_be_part_of_its_run(run_files: RunPack, status: str, *, passes: bool):
    embedded = {"_type": "replay_fixture", "expected_status": status}
    run = run_files({"cases": [case()]}, {"run.json": {**RUN, "replay_fixture": embedded}})
    assert run.summary.passed_gate is passes


STAGE: dict[str, Any] = RUN["stages"][0]
TOOL: dict[str, Any] = RUN["tool_recordings"][0]
# the fields of the baseline -> the difference of the run from it
BASELINES: dict[str, tuple[dict[str, Any], str]] = {
    "a status": ({"status": "failed"}, "status failed -> completed"),
    "a stage that is new": ({"stages": []}, "stage plan added"),
    "a stage that is gone": (
        {"stages": [STAGE, {**STAGE, "node_id": "act"}]},
        "stage act removed",
    ),
    "the artifacts of a stage": (
        {"stages": [{**STAGE, "artifacts": []}]},
        "stage plan changed, artifacts: 0 -> 1",
    ),
    "a call that is new": ({"tool_recordings": []}, "read 1 was called in addition"),
    "a call that is gone": (
        {"tool_recordings": [TOOL, {**TOOL, "tool_name": "write"}]},
        "write 1 was not called",
    ),
    "a call that is made less often": (
        {"tool_recordings": [TOOL, TOOL, TOOL]},
        "read 1 was called 1 time, expected 3",
    ),
    "a call that was rejected": (
        {"tool_recordings": [TOOL, {**TOOL, "is_rejected": True}]},
        "read 1 (rejected) was not called",
    ),
    "a call without its arguments, more often": (
        {"tool_recordings": [TOOL, {**TOOL, "args_hash": ""}]},
        "read was called 1 time, expected 2",
    ),
    "the result of a call": (
        {"tool_recordings": [{**TOOL, "result": "no"}]},
        "read 1 has another result",
    ),
    "observability": ({"observability": {"x": 1}}, "the observability data of the runs differ"),
    "the number of transitions": ({"transitions": [{}, {}]}, "-2 transitions"),
    "the number of artifacts": ({"artifacts": [{}]}, "-1 artifacts"),
}


@pytest.mark.parametrize("name", BASELINES)
def test_each_difference_from_the_baseline_fails(run_files: RunPack, name: str):
    fields, message = BASELINES[name]
    run = run_files({"cases": [case(compare_to="b.json")]}, {"b.json": {**RUN, **fields}})
    assert run.cases[0].failures == (f"run differs from baseline run_1: {message}",)


def test_a_baseline_ignores_texts_times_and_unknown_arguments(run_files: RunPack):
    other = {**RUN, "id": "x", "usage": None}
    other["stages"] = [{**RUN["stages"][0], "visible_text": "different"}]
    other["tool_recordings"] = [{**TOOL, "args_hash": ""}]  # unknown arguments
    assert run_files({"cases": [case(compare_to="b.json")]}, {"b.json": other}).summary.passed_gate


@pytest.mark.parametrize("severity, status", [(None, "fail"), ("warning", "pass")])
def test_a_judge_that_is_not_configured_fails_a_blocking_rubric(
    run_files: RunPack, severity: str | None, status: str
):
    limits = {"severity": severity} if severity else {}
    judged = {"id": "j", "kind": "llm-judge", "prompt": "Is it good?", "thresholds": limits}
    checked = rubric({"kind": "run-status", "expected": "completed"})
    pack = {"rubrics": [judged, checked], "cases": [case(rubrics=["j", "r"])]}
    run = run_files(pack)
    assert run.cases[0].status == status


def test_fixtures_are_under_the_fixture_root_and_paths_are_not(run_files: RunPack):
    pack = {
        "defaults": {"fixture_root": "data"},
        "fixtures": [{"id": "f", "kind": "run-record", "path": "run.json"}],
        "rubrics": [rubric({"path": "/id", "expected": "in-data"})],
        "cases": [case(run="f", rubrics=["r"]), case(id="two", rubrics=["r"])],
    }
    run = run_files(pack, {"data/run.json": {**RUN, "id": "in-data"}})
    assert [item.status for item in run.cases] == ["pass", "fail"]


EXPECTED: dict[str, Any] = {"expected_status": "completed", "stage_assertions": []}


def test_a_replay_rubric_without_a_fixture_is_no_data(run_files: RunPack):
    pack = {"rubrics": [rubric(kind="replay")], "cases": [case(rubrics=["r"])]}
    assert run_files(pack).cases[0].failures == ("no data: the case has no replay fixture",)
    with_fixture = {**pack, "cases": [case(rubrics=["r"], fixture="f.json")]}
    assert run_files(with_fixture, {"f.json": EXPECTED}).cases[0].failures == ()


TRACE = "".join(
    f'{{"ts": {ts}, "event": "{name}", "data": {data}}}\n'
    for ts, name, data in ((0, "_meta.run_start", "{}"), (9, "_meta.run_end", '{"ok": true}'))
)
FRICTION = [{"kind": "tool_gap", "redacted_summary": "No search"}] * 2
# the key of a case, the kind of its fixture, and the content
INLINE: dict[str, tuple[str, str, Any]] = {
    "a run": ("run", "run-record", RUN),
    "a replay fixture": ("fixture", "replay-fixture", EXPECTED),
    "a baseline": ("compare_to", "run-record", RUN),
    "friction events": ("friction_events", "friction-events", FRICTION),
}


@pytest.mark.parametrize("name", INLINE)
@pytest.mark.parametrize("place", ["inline", "a fixture file", "a file"])
def test_a_reference_is_inline_or_a_file(run_files: RunPack, name: str, place: str):
    key, kind, content = INLINE[name]
    reference = "data/f.json" if place == "a file" else "f"
    source = {"path": "data/f.json"} if place == "a fixture file" else {"inline": content}
    fixtures = [] if place == "a file" else [{"id": "f", "kind": kind, **source}]
    limits = {} if key == "friction_events" else {"thresholds": {"max_tokens": 7}}
    base = {} if key == "friction_events" else {"run": "run.json"}
    item = {"id": "one", **base, **limits, key: reference}
    run = run_files({"fixtures": fixtures, "cases": [item]}, {"data/f.json": content})
    assert run.cases[0].failures == ()


@pytest.mark.parametrize("fixture", [True, False])
def test_a_baseline_may_be_a_trace(run_files: RunPack, *, fixture: bool):
    name = "t.log" if fixture else "t.jsonl"
    fixtures = [{"id": "f", "kind": "trace", "path": name}] if fixture else []
    item = case(compare_to="f" if fixture else name)
    run = run_files({"fixtures": fixtures, "cases": [item]}, {name: TRACE})
    assert run.cases[0].failures[0].startswith("run differs from baseline t: stage plan added")


def test_a_missing_trace_is_an_error_of_its_case(run_files: RunPack):
    item = {"id": "one", "trace": "nope.jsonl", "thresholds": {"max_tokens": 1}}
    run = run_files({"cases": [item]})
    assert (run.cases[0].status, "no such trace" in run.cases[0].failures[0]) == ("error", True)


# the rubrics and metadata of a case with friction events -> its failure
SUGGESTED: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "a suggestion": ([], {}, ""),
    "no suggestion": ([], {"min_occurrences": 3}, "no context-pack suggestion was generated"),
    "the artifact": ([{"kind": "suggestion", "expected": "both"}], {}, ""),
    "another artifact": (
        [{"kind": "suggestion", "expected": "workflow"}],
        *({}, "recommends both, not workflow"),
    ),
    "a title": ([{"kind": "context-pack-suggestion", "contains": "search"}], {}, ""),
    "a run": ([{"kind": "run-status", "expected": "completed"}], {}, "has no run record"),
}


@pytest.mark.parametrize("name", SUGGESTED)
def test_a_case_of_friction_events_checks_its_suggestions(run_files: RunPack, name: str):
    assertions, metadata, message = SUGGESTED[name]
    rubrics = [rubric(*assertions, kind="friction")] if assertions else []
    item = {"id": "one", "friction_events": "f.json", "rubrics": [r["id"] for r in rubrics]}
    pack = {"rubrics": rubrics, "cases": [item], "metadata": metadata}
    run = run_files(pack, {"f.json": FRICTION})
    assert message in "; ".join(run.cases[0].failures)
    assert run.summary.passed_gate is (message == "")
