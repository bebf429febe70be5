"""Judges: scores, votes, nonsense, and calibration against labelled examples."""

import json
from typing import Any

import pytest

from offbook.evals.judging import JudgeOptions, build_judge, settings_for
from offbook.evals.pack_file import read_pack
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
    "no confidence": (answers(score(5)), {"confidence_min": 0.9}, "no_data"),
}


@pytest.mark.parametrize("name", JUDGES)
def test_a_judge_scores_the_run(run_files: RunPack, name: str):
    text, settings, status = JUDGES[name]
    assert run_files(pack(settings), {"judge.jsonl": text}).cases[0].status == status


def test_a_threshold_on_the_score_is_applied(run_files: RunPack):
    content = pack(thresholds={"min_score": 0.9})
    assert run_files(content, {"judge.jsonl": answers(score(4))}).cases[0].status == "fail"


def test_a_provider_is_not_asked_without_live(run_files: RunPack):
    run = run_files(pack({"source": "openai-chat", "model": "m"}))
    assert run.cases[0].status == "fail"
    assert "allow it with --live" in run.cases[0].failures[0]


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


def test_a_judge_of_the_options_replaces_that_of_the_pack(run_files: RunPack):
    run = run_files(pack(), {"judge.jsonl": answers(score(1)), "run.json": RUN})
    loaded = read_pack(run.folder / "pack.json")
    options = JudgeOptions(str(run.folder / "judge.jsonl"), "other")
    settings = settings_for(loaded.rubrics["style"], loaded, options)
    assert settings.model == "other"
    assert build_judge(settings, loaded, options) is not None
