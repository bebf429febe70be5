"""A classifier that may abstain is scored by its labels, its coverage and what it saves."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from offbook import Mocks
from offbook.errors import FormatError
from offbook.evals import (
    Classification,
    ClassifierSettings,
    Classify,
    EvalOptions,
    LabelledExample,
    classify_by_model,
    classify_by_rules,
    evaluate_case,
    read_examples,
    read_pack,
    run_classifier,
)
from tests.evals.conftest import Files

Write = Callable[[Files], Path]
SETTINGS = ClassifierSettings()


def examples(*labels: str) -> list[LabelledExample]:
    return [LabelledExample(str(n), label, label) for n, label in enumerate(labels)]


def confident(confidence: float) -> Classify:
    return lambda prompt: Classification(prompt, confidence)


DATASETS = {
    "an unknown label": (["in_scop"], 2, "unknown label 'in_scop'"),
    "an id twice": (["in_scope", "in_scope"], 3, "the id 'x' is defined twice"),
}


@pytest.mark.parametrize("labels, line, message", DATASETS.values(), ids=DATASETS)
@pytest.mark.parametrize("shape", ["list", "object"])
def test_a_wrong_example_is_refused_with_its_line(
    tmp_path: Path, labels: list[str], line: int, message: str, shape: str
):
    rows = [json.dumps({"id": "x", "expected": label, "prompt": "p"}) for label in labels]
    text = "[\n" + ",\n".join(rows) + "]"
    (tmp_path / "d.json").write_text(text if shape == "list" else f'{{"cases": {text}}}')
    with pytest.raises(FormatError, match=message) as caught:
        read_examples(tmp_path / "d.json", SETTINGS)
    assert caught.value.line == line


def test_a_prompt_that_no_rule_matches_is_left_to_the_main_model():
    answer = classify_by_rules(SETTINGS)("What time is it?")
    assert answer == Classification("escalate", 0.55)


@pytest.mark.parametrize("confidence, label", [(0.65, "out_of_scope"), (0.64, "escalate")])
def test_a_label_below_the_threshold_is_no_label(confidence: float, label: str):
    _, (row,) = run_classifier(examples("out_of_scope"), confident(confidence), SETTINGS)
    assert (row.predicted, row.skipped) == (label, label == "out_of_scope")


@pytest.mark.parametrize(
    "answer, error",
    [
        ('{"label": "in_scope"}', ""),
        ('```json\n{"label": "in_scope"}\n```', ""),
        ('{"label": "spam"}', "unknown label 'spam'"),
        ("in_scope", "malformed"),
    ],
)
def test_an_answer_that_is_no_label_is_an_error_and_abstains(answer: str, error: str):
    classify = classify_by_model(Mocks([{"text": answer}]), "", "m", SETTINGS)
    report, (row,) = run_classifier(examples("in_scope"), classify, SETTINGS)
    assert (row.predicted, report.errors) == (("escalate", 1) if error else ("in_scope", 0))
    assert error in row.error


# the decision -> the labels of the examples, which are all right
DECISIONS = {
    "keep_opt_in_candidate_for_default_on": ["in_scope", "out_of_scope"],
    "did_not_converge_keep_hook_opt_in": ["in_scope", "in_scope"],
    "keep_opt_in_collect_more_data": ["in_scope"] * 3 + ["out_of_scope"],
}


@pytest.mark.parametrize("decision", DECISIONS)
def test_the_decision_follows_from_the_rates(decision: str):
    labels = DECISIONS[decision]
    report, _ = run_classifier(examples(*labels), confident(1.0), SETTINGS)
    assert report.decision == decision


RIGHT = {"in_scope": "Fix the parser", "out_of_scope": "Fix the mobile app", "ambiguous": "Hm"}
# the labels of the examples, which are all right -> the gates without data
WITHOUT_DATA: dict[str, tuple[list[str], list[str]]] = {
    "both labels": (["in_scope", "out_of_scope"], []),
    "nothing to keep": (["out_of_scope"], ["false positives"]),
    "nothing to keep, and unclear": (["out_of_scope", "ambiguous"], ["false positives"]),
    "nothing to skip": (["in_scope"], ["false negatives"]),
    "nothing": ([], ["cost reduction", "false positives", "false negatives"]),
}


@pytest.mark.parametrize("labels, missing", WITHOUT_DATA.values(), ids=WITHOUT_DATA)
def test_a_rate_of_no_examples_is_no_data(write: Write, labels: list[str], missing: list[str]):
    rows = [{"id": str(n), "expected": x, "prompt": RIGHT[x]} for n, x in enumerate(labels)]
    case = {"id": "c", "dataset": "prompts.json"}
    folder = write({"pack.json": {"cases": [case]}, "prompts.json": {"cases": rows}})
    loaded = read_pack(folder / "pack.json")
    result = evaluate_case(loaded, loaded.cases[0], EvalOptions())
    assert [v.check for v in result.verdicts if v.status == "no_data"] == missing
    assert result.report is not None
    assert result.report["pass"] is (not missing)


@pytest.mark.parametrize(
    "line",
    [
        "threshold = nan",
        "threshold = -inf",
        "gates = { max_false_positive_rate = inf }",
        "gates = { max_false_negative_rate = nan }",
        "gates = { min_reduction = -inf }",
        'rules = [{ label = "in_scope", confidence = nan }]',
    ],
)
def test_a_setting_that_is_not_finite_is_refused(write: Write, line: str):
    rows = [{"id": "0", "expected": "in_scope", "prompt": "p"}]
    case = {"id": "c", "dataset": "prompts.json", "settings": "s.toml"}
    files = {"pack.json": {"cases": [case]}, "prompts.json": rows, "s.toml": f"{line}\n"}
    loaded = read_pack(write(files) / "pack.json")
    result = evaluate_case(loaded, loaded.cases[0], EvalOptions())
    assert (result.status, "must be a finite number" in result.error) == ("error", True)
    assert "s.toml" in result.error
