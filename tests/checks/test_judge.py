"""A judge reasons before it scores, and only a valid answer is a score."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks.judge import (
    CRITERIA,
    Evaluation,
    Judge,
    Judgement,
    ask_judge,
    parse_judgement,
    reject_self_judging,
    write_prompt,
)
from offbook.errors import FormatError, JudgeError, UsageError
from offbook.exchange.messages import Text
from offbook.exchange.model import Reply, Request
from offbook.files import convert

GOOD = '{"reasoning": "level 4: clear", "score": 4}'
PLAN = Evaluation("plan_quality", "scratchpad")


class Answers:
    """A source that returns these answers and records the requests."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)
        self.requests: list[Request] = []

    async def reply(self, request: Request, /) -> Reply:
        self.requests.append(request)
        return Reply((Text(self._texts.pop(0)),))


@pytest.mark.parametrize("text", [GOOD, f"```json\n{GOOD}\n```", f"  {GOOD}\n"])
def test_an_answer_with_reasoning_and_score_is_valid(text: str):
    assert parse_judgement(text) == Judgement("level 4: clear", 4)


@pytest.mark.parametrize(
    "text, problem",
    [
        ("I would give it a 5.", "expected a JSON object"),
        ("5", "expected a JSON object"),
        ('{"score": 5}', "reasoning is missing"),
        ('{"reasoning": " ", "score": 5}', "reasoning is missing"),
        ('{"score": 5, "reasoning": "good"}', "before the score"),
        ('{"reasoning": "good", "score": "4/5"}', "a whole number"),
        ('{"reasoning": "good", "score": 7}', "a whole number"),
        ('{"reasoning": "good", "score": 0}', "a whole number"),
        ('{"reasoning": "good", "score": 4.5}', "a whole number"),
        ('{"reasoning": "good", "score": true}', "a whole number"),
        ('{"reasoning": "good", "score": NaN}', "expected a JSON object"),
        ('{"reasoning": "good"}', "a whole number"),
    ],
)
async def test_an_invalid_answer_is_requested_again_and_finally_an_error(text: str, problem: str):
    once = Answers(text, GOOD)
    assert (await ask_judge(Judge(once), PLAN, "1. do it")).score == 4
    assert problem in once.requests[1].prompt
    always = Answers(text, text, text, GOOD)
    with pytest.raises(JudgeError, match="gave no valid score"):
        await ask_judge(Judge(always), PLAN, "1. do it")
    assert len(always.requests) == 3


def test_the_prompt_has_all_sections_and_is_reproducible():
    evaluation = Evaluation(
        "custom",
        "output",
        rubric={1: "bad", "5": "fine"},
        reference="the best",
        custom_prompt="Is it polite?",
    )
    prompt = write_prompt(evaluation, "hello", "Greet")
    order = ["Is it polite?", "5: fine", "1: bad", "Greet", "the best", "hello"]
    assert [prompt.index(text) for text in order] == sorted(prompt.index(text) for text in order)
    assert prompt == write_prompt(evaluation, "hello", "Greet")


@given(st.text())
def test_an_artefact_cannot_close_its_quotation(artefact: str):
    marker = write_prompt(PLAN, artefact).rstrip().rsplit("\n", 1)[-1]
    assert marker not in artefact


@pytest.mark.parametrize(
    "criterion, threshold",
    [
        ("plan_quality", 3),
        ("code_quality", 3),
        ("task_completion", 4),
        ("efficiency", 3),
        ("safety", 5),
    ],
)
def test_each_criterion_has_its_default_threshold(criterion: str, threshold: int):
    assert Evaluation(criterion, "output").passing_score == threshold
    assert Evaluation(criterion, "output", threshold=2).passing_score == 2
    assert len(CRITERIA) == 5


@pytest.mark.parametrize(
    "raw, message",
    [
        ({"criterion": "plan_qualty"}, "did you mean 'plan_quality'"),
        ({"criterion": "custom"}, "custom_prompt is required"),
        ({"criterion": "safety", "custom_prompt": "?"}, "only for it"),
        ({"criterion": "safety", "rubric": {"6": "x"}}, "rubric levels from 1 to 5"),
        ({"criterion": "safety", "threshold": 6}, "expected a threshold from 1 to 5"),
        ({"criterion": "safety", "treshold": 3}, "did you mean 'threshold'"),
    ],
)
def test_an_invalid_evaluation_is_rejected(raw: dict[str, object], message: str):
    with pytest.raises(FormatError, match=message):
        convert({"target": "output", **raw}, Evaluation)


def test_a_model_must_not_judge_itself():
    reject_self_judging("haiku", ["sonnet"])
    reject_self_judging("", [""])
    with pytest.raises(UsageError, match="is also the tested model"):
        reject_self_judging("Haiku", ["haiku"])
