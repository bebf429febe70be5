"""The scores of a judge, from 0 to 1: one question, several votes, and the tie-break."""

from __future__ import annotations

import json
from collections import Counter
from statistics import median
from typing import Any

import msgspec

from offbook.checks.judge import MAX_SCORE, MIN_SCORE, Evaluation, Judge, ask_judge
from offbook.evals.pack import JudgeSettings, Rubric

DEFAULT_MIN_SCORE = 0.5


class JudgeScore(msgspec.Struct, frozen=True):
    """The score of a judge from 0 to 1; `confidence` is the share of votes that agree with it."""

    score: float
    confidence: float | None
    reasoning: str
    passed: bool
    cost_usd: float = 0


def passing_score(rubric: Rubric) -> float:
    """Return the lowest score that passes."""
    limit = rubric.thresholds.min_score
    return DEFAULT_MIN_SCORE if limit is None else limit


def question_of(rubric: Rubric, settings: JudgeSettings) -> Evaluation:
    """Return the question to the judge."""
    prompt = rubric.prompt or settings.rubric or rubric.description
    return Evaluation("custom", rubric.id, custom_prompt=prompt or f"Is {rubric.id} fulfilled?")


async def ask_once(
    judge: Judge, rubric: Rubric, settings: JudgeSettings, text: str
) -> tuple[float, str]:
    """Return one score from 0 to 1, and its reasoning."""
    judgement = await ask_judge(judge, question_of(rubric, settings), text)
    return (judgement.score - MIN_SCORE) / (MAX_SCORE - MIN_SCORE), judgement.reasoning


async def vote(judge: Judge, rubric: Rubric, settings: JudgeSettings, text: str) -> JudgeScore:
    """Return the score of the majority of votes; without one, the tie-break decides."""
    answers = [await ask_once(judge, rubric, settings, text) for _ in range(max(1, settings.votes))]
    least = passing_score(rubric)
    passes = [score >= least for score, _ in answers]
    scores = [score for score, _ in answers]
    ((majority, count),) = Counter(passes).most_common(1)
    score = median(scores)
    if count * 2 == len(answers):
        match settings.tie_break:
            case "pass" | "highest":
                majority, score = True, max(scores)
            case "median":
                majority = score >= least
            case _:  # no benefit of doubt
                majority, score = False, min(scores)
    reasoning = next(text for (_, text), ok in zip(answers, passes, strict=True) if ok is majority)
    confidence = passes.count(majority) / len(answers) if len(answers) > 1 else None
    return JudgeScore(score, confidence, reasoning, majority)


def target_of_example(value: Any) -> str:
    """Return the text of a labelled example."""
    return value if isinstance(value, str) else json.dumps(value)
