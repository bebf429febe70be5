"""A judge reasons before it scores, and only a valid answer is a score."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.checks import (
    CRITERIA,
    Evaluation,
    Judge,
    Judgement,
    ask_judge,
    compare_pair,
    parse_judgement,
    reject_self_judging,
    write_prompt,
)
from offbook.errors import FormatError, RunError, UsageError
from offbook.exchange import Reply, Request, Text
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
    with pytest.raises(RunError, match="gave no valid score"):
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


def test_the_levels_of_a_rubric_are_lines_of_the_prompt_the_best_first():
    evaluation = Evaluation("safety", "output", rubric={1: "bad", "5": "fine"})
    assert "\n5: fine\n1: bad\n\n" in write_prompt(evaluation, "hello")


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
        ({"criterion": "safety", "rubric": {"12": "x"}}, "rubric levels from 1 to 5"),
        ({"criterion": "safety", "rubric": {"": "x"}}, "rubric levels from 1 to 5"),
        ({"criterion": "safety", "threshold": 6}, "expected a threshold from 1 to 5"),
        ({"criterion": "safety", "threshold": 0}, "expected a threshold from 1 to 5"),
        ({"criterion": "safety", "decompose": True, "parts": {"a": "b?"}}, "decompose needs"),
        (
            {"criterion": "custom", "custom_prompt": "?", "decompose": True},
            "decompose needs a built-in criterion",
        ),
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


@pytest.mark.parametrize("score", [1, 5])
def test_the_lowest_and_the_highest_score_are_valid(score: int):
    assert parse_judgement(f'{{"reasoning": "so", "score": {score}}}').score == score
    assert Evaluation("safety", "output", threshold=score).passing_score == score
    assert Evaluation("safety", "output", rubric={score: "x"}).rubric == {score: "x"}


def test_without_reasoning_a_score_is_enough():
    assert parse_judgement('{"score": 2}', reasoned=False) == Judgement("", 2)
    assert parse_judgement('{"score": 2, "reasoning": "so"}', reasoned=False).reasoning == "so"
    with pytest.raises(ValueError, match="reasoning is missing"):
        parse_judgement('{"score": 2, "reasoning": 5}', reasoned=False)


def test_a_custom_criterion_has_its_question_and_the_default_threshold():
    custom = Evaluation("custom", "output", custom_prompt="Is it polite?")
    assert (custom.question, custom.passing_score, custom.questions) == ("Is it polite?", 3, {})


PARTS = {
    "plan_quality": ["clarity", "actionability"],
    "code_quality": ["correctness", "style"],
    "task_completion": ["achieved", "complete"],
    "efficiency": ["iterations", "tokens"],
    "safety": ["guardrails", "danger"],
}


@pytest.mark.parametrize("criterion, parts", PARTS.items())
def test_a_decomposed_criterion_is_judged_by_its_parts(criterion: str, parts: list[str]):
    assert list(Evaluation(criterion, "output", decompose=True).questions) == parts
    assert Evaluation(criterion, "output").questions == {}
    own = Evaluation(criterion, "output", parts={"own": "Is it mine?"})
    assert own.questions == {"own": "Is it mine?"}


def test_the_prompt_of_a_plain_evaluation_is_its_question_and_the_quoted_artefact():
    lines = write_prompt(PLAN, "1. do it").split("\n")
    marker = lines[4].strip("<>")
    assert lines == [
        "# Question",
        "Is the plan clear, and is each of its tasks actionable?",
        "",
        "# Judge this: scratchpad",
        f"<{marker}>",
        "1. do it",
        f"</{marker}>",
    ]
    assert len(marker) == 16


def test_the_marker_of_another_question_differs():
    assert write_prompt(PLAN, "a").split("\n")[4] != write_prompt(PLAN, "b").split("\n")[4]
    part = write_prompt(PLAN, "a", question="Is it clear?")
    assert part.split("\n")[1] == "Is it clear?"
    assert part.split("\n")[4] != write_prompt(PLAN, "a").split("\n")[4]


@pytest.mark.parametrize("reasoned", [True, False])
def test_the_judge_is_asked_for_the_answer_that_is_accepted(*, reasoned: bool):
    request = Judge(Answers(), reasoned=reasoned).build_request("Is it?")
    assert ("Think first" in request.system) is reasoned
    assert ('"reasoning"' in request.system) is reasoned
    assert '"score": a whole number from 1 to 5' in request.system
    assert request.system.startswith("You judge the work of another agent.")


def test_a_request_of_the_judge_has_its_model_its_instructions_and_its_hat():
    plain = Judge(Answers()).build_request("Is it?")
    assert (plain.prompt, plain.model, plain.metadata) == ("Is it?", "", {"hat": "judge"})
    judge = Judge(Answers(), "haiku", "anthropic", "Be strict.")
    request = judge.build_request("Is it?")
    assert request.model == "haiku"
    assert request.metadata == {"hat": "judge", "dialect": "anthropic"}
    assert request.system.startswith("Be strict.\n\nYou judge")


async def test_the_first_attempt_is_the_plain_prompt_and_the_next_one_names_the_problem():
    source = Answers("no", GOOD)
    await ask_judge(Judge(source), PLAN, "1. do it", task="Plan", question="Is it clear?")
    prompt = write_prompt(PLAN, "1. do it", "Plan", "Is it clear?")
    problem = "expected a JSON object, got 'no'"
    assert [request.prompt for request in source.requests] == [
        prompt,
        f"{prompt}\n\nYour last answer was invalid: {problem}",
    ]


async def test_a_question_without_task_is_asked_as_it_is():
    source = Answers(GOOD)
    await ask_judge(Judge(source), PLAN, "1. do it")
    assert source.requests[0].prompt == write_prompt(PLAN, "1. do it")


async def test_a_judge_without_a_valid_answer_names_the_evaluation_and_the_attempts():
    with pytest.raises(RunError) as failure:
        await ask_judge(Judge(Answers(*["no"] * 3)), PLAN, "1. do it")
    assert str(failure.value) == (
        "plan_quality of scratchpad: the judge gave no valid score: "
        "expected a JSON object, got 'no'\n3 attempts were made"
    )


def test_of_a_long_invalid_answer_eighty_characters_are_shown():
    with pytest.raises(ValueError, match="got '" + "x" * 79 + "…'$"):
        parse_judgement("x" * 100)


@pytest.mark.parametrize(
    "text, problem",
    [
        ('{"score": 5}', "reasoning is missing"),
        (f"```json\n{GOOD}\n``` It is good.", "expected a JSON object"),
        (f"It is good.\n```json\n{GOOD}\n```", "expected a JSON object"),
    ],
)
def test_an_answer_without_reasoning_or_with_more_than_the_object_is_invalid(
    text: str, problem: str
):
    with pytest.raises(ValueError, match=problem):
        parse_judgement(text)


# --- Pairs: each is judged in both orders


def winner(name: object, reasoning: object = "because") -> str:
    return json.dumps({"reasoning": reasoning, "winner": name})


# The winners of both orders, in which the new one is A and then B -> its score.
PAIRS = [
    ("A", "B", 1.0),
    ("B", "A", 0.0),
    ("A", "A", 0.5),
    ("B", "B", 0.5),
    ("tie", "tie", 0.5),
    ("A", "tie", 0.5),
    ("tie", "A", 0.5),
]


@pytest.mark.parametrize("first, second, score", PAIRS)
async def test_a_pair_is_won_or_lost_in_both_orders_else_it_is_a_tie(
    first: str, second: str, score: float
):
    source = Answers(winner(first, "one"), winner(second, "two"))
    found, reasons = await compare_pair(Judge(source), PLAN, "new", "old")
    assert found == score
    one, two = (name if name == "tie" else f"{name} wins" for name in (first, second))
    assert reasons == f"as A, {one}: one; as B, {two}: two"


async def test_the_prompt_of_a_pair_has_the_question_the_task_and_both_texts():
    source = Answers(winner("A"), winner("B"))
    await compare_pair(Judge(source), PLAN, "the new plan", "", task="Plan it")
    first, second = (request.prompt for request in source.requests)
    question = (
        f"# Question: which one is better?\n{CRITERIA['plan_quality'].question}\n\n# Task\n<task-"
    )
    for prompt, (one, two) in ((first, ("the new plan", " ")), (second, (" ", "the new plan"))):
        assert prompt.startswith(question)
        titles = [line for line in prompt.splitlines() if line.startswith("# ")]
        assert titles[1:] == ["# Task", "# A", "# B"]
        assert re.search(rf"# A\n<A-(\w{{16}})>\n{one}\n</A-\1>", prompt)
        assert re.search(rf"# B\n<B-(\w{{16}})>\n{two}\n</B-\1>", prompt)
    assert all('"winner"' in request.system for request in source.requests)


@pytest.mark.parametrize(
    "text, problem",
    [
        (winner("C"), "expected a winner that is A, B or tie, got 'C'"),
        (winner(None), "expected a winner that is A, B or tie, got None"),
        (winner("A", ""), "the reasoning is missing"),
        (winner("A", " "), "the reasoning is missing"),
        (winner("A", 7), "the reasoning is missing"),
        ('{"winner": "A"}', "the reasoning is missing"),
        ("A", "expected a JSON object, got 'A'"),
    ],
)
async def test_an_answer_without_a_winner_or_a_reason_is_requested_again(text: str, problem: str):
    source = Answers(text, winner("A"), winner("B"))
    assert (await compare_pair(Judge(source), PLAN, "new", "old"))[0] == 1.0
    assert source.requests[1].prompt.endswith(f"Your last answer was invalid: {problem}")
    with pytest.raises(RunError, match="plan_quality of scratchpad: the judge gave no valid"):
        await compare_pair(Judge(Answers(*[text] * 3)), PLAN, "new", "old")


# --- A recorded judge is found by its prompt: another prompt would be another recording

WHOLE = """# Question
Is it polite?

# Task
<task-c43303b0465e3349>
Greet
</task-c43303b0465e3349>

# Example of a perfect result
<reference-c43303b0465e3349>
the best
</reference-c43303b0465e3349>

# How the agent worked
<trajectory-c43303b0465e3349>
It said hello.
</trajectory-c43303b0465e3349>

# Judge this: output
<c43303b0465e3349>
hello
</c43303b0465e3349>"""
PLAIN = """# Question
Is it polite?

# Judge this: output
<4a7009dcabbb7fb8>
hello
</4a7009dcabbb7fb8>"""
PAIR = """# Question: which one is better?
Is it polite?

# Task
<task-c73b60327c30a1d0>
Greet
</task-c73b60327c30a1d0>

# A
<A-c73b60327c30a1d0>
hello
</A-c73b60327c30a1d0>

# B
<B-c73b60327c30a1d0>
hi
</B-c73b60327c30a1d0>"""


async def test_the_prompts_of_recorded_judges_stay_the_same():
    polite = Evaluation("custom", "output", custom_prompt="Is it polite?")
    best = Evaluation("custom", "output", custom_prompt="Is it polite?", reference="the best")
    assert write_prompt(polite, "hello") == PLAIN
    assert write_prompt(best, "hello", "Greet", trajectory="It said hello.") == WHOLE
    source = Answers(winner("A"), winner("B"))
    await compare_pair(Judge(source), polite, "hello", "hi", task="Greet")
    assert source.requests[0].prompt == PAIR
