"""A judge reasons before it scores, and only an answer that counts is a score."""

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
    """A source that gives these answers, and remembers the questions."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)
        self.asked: list[Request] = []

    async def reply(self, request: Request, /) -> Reply:
        self.asked.append(request)
        return Reply((Text(self._texts.pop(0)),))


@pytest.mark.parametrize("text", [GOOD, f"```json\n{GOOD}\n```", f"  {GOOD}\n"])
def test_an_answer_with_reasoning_and_score_counts(text: str):
    assert parse_judgement(text) == Judgement("level 4: clear", 4)


@pytest.mark.parametrize(
    "text, why",
    [
        ("I would give it a 5.", "no JSON object"),
        ("5", "no JSON object"),
        ('{"score": 5}', "no reasoning"),
        ('{"reasoning": " ", "score": 5}', "no reasoning"),
        ('{"score": 5, "reasoning": "good"}', "before its reasoning"),
        ('{"reasoning": "good", "score": "4/5"}', "no whole number"),
        ('{"reasoning": "good", "score": 7}', "no whole number"),
        ('{"reasoning": "good", "score": 0}', "no whole number"),
        ('{"reasoning": "good", "score": 4.5}', "no whole number"),
        ('{"reasoning": "good", "score": true}', "no whole number"),
        ('{"reasoning": "good", "score": NaN}', "no JSON object"),
        ('{"reasoning": "good"}', "no whole number"),
    ],
)
async def test_what_does_not_count_is_asked_for_again_then_an_error(text: str, why: str):
    once = Answers(text, GOOD)
    assert (await ask_judge(Judge(once), PLAN, "1. do it")).score == 4
    assert why in once.asked[1].prompt
    always = Answers(text, text, text, GOOD)
    with pytest.raises(JudgeError, match="gave no score"):
        await ask_judge(Judge(always), PLAN, "1. do it")
    assert len(always.asked) == 3


def test_the_prompt_holds_all_that_is_to_be_known():
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
def test_what_is_judged_cannot_end_its_quotation(artefact: str):
    mark = write_prompt(PLAN, artefact).rstrip().rsplit("\n", 1)[-1]
    assert mark not in artefact


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
def test_the_thresholds_are_those_of_the_table(criterion: str, threshold: int):
    assert Evaluation(criterion, "output").enough == threshold
    assert Evaluation(criterion, "output", threshold=2).enough == 2
    assert len(CRITERIA) == 5


@pytest.mark.parametrize(
    "raw, told",
    [
        ({"criterion": "plan_qualty"}, "did you mean 'plan_quality'"),
        ({"criterion": "custom"}, "a custom criterion has a custom_prompt"),
        ({"criterion": "safety", "custom_prompt": "?"}, "and no other has"),
        ({"criterion": "safety", "rubric": {"6": "x"}}, "levels from 1 to 5"),
        ({"criterion": "safety", "threshold": 6}, "threshold is from 1 to 5"),
        ({"criterion": "safety", "treshold": 3}, "did you mean 'threshold'"),
    ],
)
def test_a_wrong_evaluation_is_refused(raw: dict[str, object], told: str):
    with pytest.raises(FormatError, match=told):
        convert({"target": "output", **raw}, Evaluation)


def test_a_model_does_not_judge_itself():
    reject_self_judging("haiku", ["sonnet"])
    reject_self_judging("", [""])
    with pytest.raises(UsageError, match="is the model that is tested"):
        reject_self_judging("Haiku", ["haiku"])
