"""Judges: scores, votes, nonsense, and calibration against labelled examples."""

import json
from pathlib import Path
from typing import Any

import pytest

from offbook import Mocks, Server
from offbook.evals import (
    EvalOptions,
    Evidence,
    JudgeOptions,
    build_judges,
    evaluate_case,
    parse_run_record,
    read_pack,
    read_target,
    settings_for,
)
from tests.evals.conftest import RUN, RunPack

CASE = {"id": "one", "run": "run.json", "rubrics": ["style"]}


def answers(*texts: Any) -> str:
    lines = [text if isinstance(text, str) else json.dumps(text) for text in texts]
    return "".join(json.dumps({"text": text}) + "\n" for text in lines)


def score(number: int) -> dict[str, Any]:
    return {"reasoning": "because", "score": number}


def pack(judge: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    settings = {"source": "judge.jsonl", **(judge or {})}
    rubric = {"id": "style", "kind": "llm-judge", "prompt": "Is it clear?", "judge": settings}
    return {"rubrics": [{**rubric, **fields}], "cases": [CASE]}


JUDGES: dict[str, tuple[str, dict[str, Any], str]] = {
    "a good score": (answers(score(5)), {}, "pass"),
    "a bad score": (answers(score(1)), {}, "fail"),
    "nonsense": (answers("no", "no", "no"), {}, "error"),
    "a score out of range": (answers(score(9), score(9), score(9)), {}, "error"),
    "a majority": (answers(score(5), score(1), score(5)), {"votes": 3}, "pass"),
    "a tie": (answers(score(5), score(1)), {"votes": 2}, "fail"),
    "a tie that passes": (answers(score(5), score(1)), {"votes": 2, "tie_break": "pass"}, "pass"),
    "too little confidence": (
        answers(score(5), score(1), score(5)),
        {"votes": 3, "confidence_min": 0.9},
        "fail",
    ),
    "enough confidence": (
        answers(score(5), score(1), score(5)),
        {"votes": 3, "confidence_min": 0.6},
        "pass",
    ),
    "a tie by a low median": (
        answers(score(4), score(1)),
        {"votes": 2, "tie_break": "median"},
        "fail",
    ),
    "a tie by a high median": (
        answers(score(5), score(3)),
        {"votes": 2, "tie_break": "median"},
        "pass",
    ),
    "no confidence": (answers(score(5)), {"confidence_min": 0.9}, "no_data"),
}


@pytest.mark.parametrize("name", JUDGES)
def test_a_judge_scores_the_run(run_files: RunPack, name: str):
    text, settings, status = JUDGES[name]
    assert run_files(pack(settings), {"judge.jsonl": text}).cases[0].status == status


def test_a_score_has_the_version_of_its_prompt(run_files: RunPack):
    run = run_files(pack({"prompt_version": "v3"}), {"judge.jsonl": answers(score(5), score(5))})
    loaded = read_pack(run.folder / "pack.json")
    result = evaluate_case(loaded, loaded.pack.cases[0], EvalOptions())
    assert [v.context["prompt_version"] for v in result.verdicts if v.context] == ["v3"]


def test_a_threshold_on_the_score_is_applied(run_files: RunPack):
    content = pack(thresholds={"min_score": 0.9})
    assert run_files(content, {"judge.jsonl": answers(score(4))}).cases[0].status == "fail"


def test_a_provider_is_not_asked_without_live(run_files: RunPack):
    run = run_files(pack({"source": "openai-chat", "model": "m"}))
    assert run.cases[0].status == "fail"
    assert "allow it with --live" in run.cases[0].failures[0]


@pytest.mark.parametrize(
    "record, target",
    [
        ({"output": "Done."}, "Done."),
        ({"output": {"ok": True}}, '{"ok": true}'),
        ({}, "The plan is ready"),
    ],
)
def test_the_output_is_judged_or_the_visible_text(record: dict[str, Any], target: str):
    evidence = Evidence(parse_run_record({**RUN, **record}, "run.json"))
    assert read_target(evidence) == target


def test_a_run_without_a_text_cannot_be_judged(run_files: RunPack):
    run = run_files(pack(), {"judge.jsonl": answers(score(5)), "run.json": {**RUN, "stages": []}})
    assert run.cases[0].status == "error"
    assert "nothing to judge" in run.cases[0].failures[0]


@pytest.mark.parametrize("prices, cost", [({"m": {"input": 1e6, "output": 0}}, 13.0), ({}, 0.0)])
def test_the_cost_of_a_live_judge_is_that_of_its_tokens(
    run_files: RunPack, monkeypatch: pytest.MonkeyPatch, prices: dict[str, Any], cost: float
):
    content = {**pack({"source": "anthropic", "model": "m"}), "prices": prices}
    loaded = read_pack(run_files(content).folder / "pack.json")
    answer = {"text": json.dumps(score(5)), "input_tokens": 13}
    with Server() as server:
        endpoint = server.mount(Mocks([answer]), run="")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", endpoint.url)
        options = EvalOptions(JudgeOptions(live=True))
        result = evaluate_case(loaded, loaded.pack.cases[0], options)
    assert (result.status, result.spent_usd) == ("pass", cost)


def examples(*labels: float) -> list[dict[str, Any]]:
    return [{"output": f"text {number}", "score": label} for number, label in enumerate(labels)]


def test_a_pack_can_demand_agreement_with_labelled_examples(run_files: RunPack):
    content = pack({"min_agreement": 0.5}, calibration=examples(1.0, 0.0, 1.0, 0.0))
    agreeing = answers(score(5), score(1), score(5), score(1), score(5))
    opposite = answers(score(1), score(5), score(1), score(5), score(5))
    other = pack({"min_agreement": 0.5, "model": "b"}, calibration=examples(1.0, 0.0, 1.0, 0.0))
    assert run_files(content, {"judge.jsonl": agreeing}).cases[0].status == "pass"
    run = run_files(other, {"judge.jsonl": opposite})
    assert run.cases[0].status == "error"
    assert "kappa -1.00, expected at least 0.5" in run.cases[0].failures[0]


def test_the_agreement_is_measured_once_for_all_cases(run_files: RunPack):
    labelled = [{**example, "input": "Explain it."} for example in examples(1.0, 0.0)]
    content = pack({"min_agreement": 0.5}, calibration=labelled)
    content["cases"] = [{**CASE, "id": name} for name in ("one", "two")]
    # two answers for the examples and one for the first case; each case opens the judge again
    judge = answers(score(5), score(1), score(5))
    run = run_files(content, {"judge.jsonl": judge})
    assert [item.status for item in run.cases] == ["pass", "pass"]


def test_judges_of_two_packs_with_the_same_name_are_different(run_files: RunPack, tmp_path: Path):
    content = pack({"min_agreement": 0.5}, calibration=examples(1.0, 0.0))
    agreeing = answers(score(5), score(1), score(5))
    assert run_files(content, {"judge.jsonl": agreeing}).cases[0].status == "pass"
    other = tmp_path / "other"
    other.mkdir()
    (other / "judge.jsonl").write_text(answers(score(1), score(5), score(5)))
    for name in ("run.json", "pack.json"):
        (other / name).write_text((tmp_path / name).read_text())
    loaded = read_pack(other / "pack.json")
    result = evaluate_case(loaded, loaded.pack.cases[0], EvalOptions())
    assert "kappa -1.00, expected at least 0.5" in result.problems[0]


@pytest.mark.parametrize("labels", [(1.0, 0.8), (0.0, 0.2)])
def test_labels_on_one_side_show_no_agreement(run_files: RunPack, labels: tuple[float, ...]):
    content = pack({"min_agreement": 0.5}, calibration=examples(*labels))
    judge = answers(*[score(5 if labels[0] else 1)] * 3)
    run = run_files(content, {"judge.jsonl": judge})
    assert run.cases[0].status == "error"
    assert "the labels of 'style' are all on one side of 0.5" in run.cases[0].failures[0]


def test_an_example_of_a_pair_needs_a_reference(run_files: RunPack):
    content = pack({"min_agreement": 0.5, "pairwise": True}, calibration=examples(1.0, 0.0))
    content["cases"] = [{**CASE, "reference": "Done."}]
    run = run_files(content, {"judge.jsonl": answers(score(5))})
    assert "the example 1 has no reference" in run.cases[0].failures[0]


def test_one_labelled_example_is_too_few(run_files: RunPack):
    content = pack({"min_agreement": 0.5}, calibration=[*examples(1.0), {"output": "unlabelled"}])
    run = run_files(content, {"judge.jsonl": answers(score(5))})
    assert run.cases[0].status == "error"
    assert "the rubric 'style' has 1 labelled example" in run.cases[0].failures[0]


def test_a_judge_of_the_options_replaces_that_of_the_pack(run_files: RunPack):
    run = run_files(pack(), {"judge.jsonl": answers(score(1)), "run.json": RUN})
    loaded = read_pack(run.folder / "pack.json")
    options = JudgeOptions(str(run.folder / "judge.jsonl"), "other")
    settings = settings_for(loaded.rubrics["style"], loaded, options)
    assert settings.model == "other"
    assert build_judges(settings, loaded, options)
