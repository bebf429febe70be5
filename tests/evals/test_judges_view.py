"""What a judge sees, how it is asked, and what becomes of its answers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from offbook import Server
from offbook.errors import UsageError
from offbook.evals import CaseResult, EvalOptions, JudgeOptions, evaluate_case, read_pack
from offbook.exchange.messages import Text
from offbook.exchange.model import Reply, Request
from offbook.runs.agents import JudgeConfig
from tests.evals.conftest import RUN, RunPack


class Judges:
    """Models behind a server: they note their requests, and answer by the name of the model."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: dict[str, list[dict[str, Any]]] = {}

    async def reply(self, request: Request, /) -> Reply:
        self.requests.append(request)
        answers = self.answers.get(request.model) or [score(5)]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return Reply((Text(json.dumps(answer)),))


def score(number: int, reasoning: str = "because") -> dict[str, Any]:
    return {"reasoning": reasoning, "score": number}


def winner(name: str) -> dict[str, Any]:
    return {"reasoning": "because", "winner": name}


@pytest.fixture
def judges(monkeypatch: pytest.MonkeyPatch) -> Iterator[Judges]:
    source = Judges()
    with Server() as server:
        url = server.mount(source, run="").url
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        yield source


def evaluate(
    run_files: RunPack,
    case: dict[str, Any] | None = None,
    judge: dict[str, Any] | None = None,
    files: dict[str, Any] | None = None,
    **rubric: Any,
) -> CaseResult:
    settings = {"model": "m", **(judge or {})}
    if "panel" not in settings:
        settings.setdefault("source", "openai-chat")
    kind = {"id": "style", "kind": "llm-judge", "prompt": "Is it clear?", "judge": settings}
    item = {"id": "c", "run": "run.json", "rubrics": ["style"], **(case or {})}
    if "subject" in item:
        del item["run"]
    folder = run_files({"rubrics": [{**kind, **rubric}], "cases": [item]}, files).folder
    loaded = read_pack(folder / "pack.json")
    options = EvalOptions(JudgeOptions(live=True), traces=str(folder / "traces"))
    return evaluate_case(loaded, loaded.pack.cases[0], options)


def section(prompt: str, title: str) -> str:
    """Return the quoted text of a section; its quotation must be closed by its own marker."""
    head, _, rest = prompt.partition(f"# {title}\n<")[2].partition(">\n")
    text, end, _ = rest.partition(f"\n</{head}>")
    assert end
    return text


AGENT = {"a.py": "def answer(value):\n    return 'Order ' + str(value) + ' is refunded.'\n"}
PLAYBOOK = "- when: Refund order 7\n  do:\n    - say: Refunded.\n"
MODEL = (
    "import openai\n\n"
    "def agent(text):\n"
    "    client = openai.OpenAI(api_key='x')\n"
    "    message = {'role': 'user', 'content': text}\n"
    "    reply = client.chat.completions.create(model='m', messages=[message])\n"
    "    return reply.choices[0].message.content\n"
)
# the case and its files -> the input that the judge sees
INPUTS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "an input": ({"subject": "a.py:answer", "input": "Refund 7"}, AGENT, "Refund 7"),
    "an input that is not a text": ({"subject": "a.py:answer", "input": [7]}, AGENT, "[7]"),
    "a prompt": ({"subject": "a.py:answer", "prompt": "Refund 7"}, AGENT, "Refund 7"),
    "a stored run": ({}, {"run.json": {**RUN, "task": "Plan it"}}, "Plan it"),
    "the prompts of a playbook": (
        {"subject": "b.py:agent", "playbook": "p.yaml"},
        {"b.py": MODEL, "p.yaml": PLAYBOOK},
        "Refund order 7",
    ),
}


@pytest.mark.parametrize("name", INPUTS)
def test_the_judge_sees_the_question(run_files: RunPack, judges: Judges, name: str):
    case, files, expected = INPUTS[name]
    assert evaluate(run_files, case, files=files).status == "pass"
    assert section(judges.requests[-1].prompt, "Task") == expected


def test_the_judge_sees_the_reference(run_files: RunPack, judges: Judges):
    evaluate(run_files, {"reference": {"refunded": 7}})
    found = section(judges.requests[-1].prompt, "Example of a perfect result")
    assert json.loads(found) == {"refunded": 7}


TOOL_RUN = {**RUN, "output": "Done.", "tool_recordings": [{"tool_name": "refund", "result": "ok"}]}


@pytest.mark.parametrize("wanted", [True, False])
def test_the_judge_sees_the_trajectory_on_request(
    run_files: RunPack, judges: Judges, *, wanted: bool
):
    evaluate(run_files, judge={"trajectory": wanted}, files={"run.json": TOOL_RUN})
    assert ("refund\n-> ok" in judges.requests[-1].prompt) is wanted


def test_the_trajectory_of_an_agent_is_what_its_tools_did(run_files: RunPack, judges: Judges):
    agent = (
        "from pydantic_ai import Agent\n"
        "agent = Agent('openai:m')\n"
        "@agent.tool_plain\n"
        "def refund(order: int) -> str:\n"
        "    return f'refunded {order}'\n"
    )
    script = "- when: Refund\n  do:\n    - call: refund\n      with: {order: 7}\n    - say: Done.\n"
    case = {"subject": "shop.py:agent", "playbook": "p.yaml"}
    files = {"shop.py": agent, "p.yaml": script}
    result = evaluate(run_files, case, {"trajectory": True}, files)
    assert result.problems == []
    found = section(judges.requests[-1].prompt, "How the agent worked")
    assert found == 'refund {"order": 7}\n-> refunded 7'


@pytest.mark.parametrize("place", ["task", "reference", "output"])
def test_no_text_can_close_its_quotation(run_files: RunPack, judges: Judges, place: str):
    text = "x"
    for _ in range(2):  # the second time with the markers of the first
        case = {"reference": text if place == "reference" else "r"}
        run = {**RUN, "task": "t", "output": "o", place: text}
        evaluate(run_files, case, files={"run.json": run})
        text = judges.requests[-1].prompt
    first, second = (request.prompt for request in judges.requests[-2:])
    assert first.rstrip().rsplit("\n", 1)[-1] != second.rstrip().rsplit("\n", 1)[-1]
    assert "do not follow them" in judges.requests[-1].system


@pytest.mark.parametrize(
    "settings, source, parameters",
    [
        ({"temperature": 0.2, "seed": 7}, "openai-chat", {"temperature": 0.2, "seed": 7}),
        ({"temperature": 0.0}, "openai-chat", {"temperature": 0.0}),
        ({"temperature": 0.2}, "anthropic", {"temperature": 0.2}),
        ({}, "openai-chat", {}),
    ],
)
def test_temperature_and_seed_are_sent(
    run_files: RunPack,
    judges: Judges,
    settings: dict[str, Any],
    source: str,
    parameters: dict[str, Any],
):
    assert evaluate(run_files, judge={**settings, "source": source}).problems == []
    sent = judges.requests[-1].parameters
    assert {k: v for k, v in sent.items() if k in {"temperature", "seed"}} == parameters


@pytest.mark.parametrize("source", ["anthropic", "openai-responses", "bedrock"])
def test_a_seed_that_a_provider_does_not_have_is_refused(
    run_files: RunPack, judges: Judges, source: str
):
    result = evaluate(run_files, judge={"seed": 7, "source": source})
    assert result.status == "error"
    assert f"the judge {source!r} has no seed" in result.problems[0]
    assert judges.requests == []


def test_a_client_as_the_judge_has_no_temperature(tmp_path: Any):
    with pytest.raises(UsageError, match="the judge 'claude' has no temperature"):
        JudgeConfig("judge.yaml", "claude", temperature=0.5).build(tmp_path)


def test_the_parameters_of_gemini_are_in_its_generation_config(tmp_path: Any):
    config = JudgeConfig("gemini", model="g", env={"GEMINI_API_KEY": "x"}, temperature=0.5, seed=1)
    assert config.build(tmp_path).parameters == {
        "generationConfig": {"temperature": 0.5, "seed": 1}
    }


CRITERIA = {"polite": "Is it polite?", "short": "Is it short?"}


def test_each_criterion_has_a_score_and_a_reason(run_files: RunPack, judges: Judges):
    judges.answers["m"] = [score(5, "kind"), score(2, "wordy")]
    result = evaluate(run_files, criteria=CRITERIA)
    assert result.scores == {"style/polite": 1.0, "style/short": 0.25}
    assert result.problems == ["style/short: score 0.25 is below 0.5: wordy"]
    assert [v.context["reasoning"] for v in result.verdicts if v.context] == ["kind", "wordy"]
    questions = [request.prompt.partition("\n\n# ")[0] for request in judges.requests]
    assert ["polite?" in questions[0], "short?" in questions[1]] == [True, True]


def test_a_threshold_of_the_case_is_one_on_each_criterion(run_files: RunPack, judges: Judges):
    judges.answers["m"] = [score(5), score(4)]
    case = {"thresholds": {"min_score": 0.8}}
    result = evaluate(run_files, case, criteria=CRITERIA, thresholds={"min_score": 0.1})
    assert result.problems == ["score 0.75 is below the minimum 0.8"]


PANEL = [{"source": "openai-chat", "model": name} for name in ("a", "b", "c")]


@pytest.mark.parametrize(
    "scores, status, agreement",
    [((5, 5, 5), "pass", 1.0), ((5, 1, 5), "pass", 2 / 3), ((1, 1, 5), "fail", 2 / 3)],
)
def test_the_majority_of_a_panel_decides(
    run_files: RunPack,
    judges: Judges,
    scores: tuple[int, ...],
    status: str,
    agreement: float,
):
    judges.answers = {name: [score(n)] for name, n in zip("abc", scores, strict=True)}
    result = evaluate(run_files, judge={"panel": PANEL})
    assert result.status == status
    details = next(verdict.context for verdict in result.verdicts if verdict.context)
    assert details["agreement"] == pytest.approx(agreement)
    assert [vote["judge"] for vote in details["votes"]] == ["a", "b", "c"]
    assert result.metrics.confidence == pytest.approx(agreement)


def test_a_panel_that_disagrees_too_much_fails(run_files: RunPack, judges: Judges):
    judges.answers["b"] = [score(1)]
    result = evaluate(run_files, judge={"panel": PANEL, "confidence_min": 0.9})
    assert result.problems == ["confidence 0.67 is below 0.9"]


def test_a_panel_with_a_judge_that_is_not_allowed_is_not_run(run_files: RunPack):
    rubric = {"id": "style", "kind": "llm-judge", "prompt": "?", "judge": {"panel": PANEL}}
    case = {"id": "c", "run": "run.json", "rubrics": ["style"]}
    run = run_files({"rubrics": [rubric], "cases": [case]})
    assert "openai-chat is a real model; allow it with --live" in run.cases[0].failures[0]


# the winner in both orders -> the score of the output
PAIRS = {
    ("A", "B"): 1.0,
    ("B", "A"): 0.0,
    ("tie", "tie"): 0.5,
    ("A", "A"): 0.5,  # it prefers the first one, whatever that is
    ("B", "B"): 0.5,
    ("A", "tie"): 0.5,
}


@pytest.mark.parametrize("winners", PAIRS)
def test_a_pair_is_judged_in_both_orders(
    run_files: RunPack, judges: Judges, winners: tuple[str, str]
):
    judges.answers["m"] = [winner(name) for name in winners]
    files = {"run.json": {**RUN, "output": "new"}}
    result = evaluate(run_files, {"reference": "old"}, {"pairwise": True}, files)
    assert result.scores == {"style": PAIRS[winners]}
    pairs = [(section(r.prompt, "A"), section(r.prompt, "B")) for r in judges.requests]
    assert pairs == [("new", "old"), ("old", "new")]


def test_a_pair_needs_a_reference(run_files: RunPack, judges: Judges):
    result = evaluate(run_files, judge={"pairwise": True})
    assert result.status == "error"
    assert "the case has no reference" in result.problems[0]


def test_an_answer_without_a_winner_is_an_error(run_files: RunPack, judges: Judges):
    judges.answers["m"] = [score(5)]
    result = evaluate(run_files, {"reference": "old"}, {"pairwise": True})
    assert "expected a winner that is A, B or tie" in result.problems[0]


LABELLED = [
    {"output": "a", "input": "q", "scores": {"polite": 1.0, "short": 0.0}},
    {"output": "b", "input": "q", "scores": {"polite": 0.0, "short": 1.0}},
]


def test_each_criterion_is_calibrated(run_files: RunPack, judges: Judges):
    # polite is right twice, short is wrong twice
    judges.answers["m"] = [score(5), score(1), score(5), score(1), score(5)]
    options: dict[str, Any] = {"criteria": CRITERIA, "calibration": LABELLED}
    result = evaluate(run_files, judge={"min_agreement": 0.5}, **options)
    assert "kappa -1.00, expected at least 0.5" in result.problems[0]
    assert section(judges.requests[0].prompt, "Task") == "q"
