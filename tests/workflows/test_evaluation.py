"""A judge's scores of a run are returned, reported and recorded in the trace."""

import sys
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.exchange import Reply, Request, Text
from offbook.sources.cassette import Cassette, Recording
from offbook.sources.server import Server
from offbook.trace import Trace, join_output
from offbook.workflows import Workspaces, evaluate, evaluate_with_source, report, run, setup
from tests.clients import CODEX, Shell, installed

PLAN = {"criterion": "plan_quality", "target": "scratchpad"}
SAFE = {"criterion": "safety", "target": "output"}


class Judge:
    """Gives this score, or these in turn, and stores the prompts."""

    def __init__(self, score: object = 4) -> None:
        self._scores: list[Any] = score if isinstance(score, list) else [score]
        self.prompts: list[str] = []
        self.models: list[str] = []

    @property
    def asked(self) -> int:
        return len(self.prompts)

    async def reply(self, request: Request, /) -> Reply:
        score = self._scores[min(self.asked, len(self._scores) - 1)]
        self.prompts.append(request.prompt)
        self.models.append(request.model)
        return Reply((Text(f'{{"reasoning": "it is so", "score": {score}}}'),))


def session() -> Path:
    return Workspaces().find("run").session


@pytest.fixture(autouse=True)
async def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = setup("run", scratchpad="1. do it", fixtures={"src/a.py": "print()"})
    await run("run", "Do it", mock_responses=[{"output": "did it\nLOOP_COMPLETE"}])
    return made.workspace_path


async def test_a_score_equal_to_the_threshold_passes():
    result = await evaluate_with_source(Judge(3), "run", [PLAN, SAFE])
    assert [(score.score, score.passed) for score in result.evaluations] == [(3, True), (3, False)]
    assert (result.overall_score, result.all_passed) == (3.0, False)
    summary = report("run", "json", "quality")
    assert (summary.tests, summary.passed, summary.failed) == (2, 1, 1)


async def test_the_judges_exchanges_are_in_the_trace(ran: str):
    await evaluate_with_source(Judge(), "run", [PLAN])
    names = [event.event for event in Trace(Path(ran).parent / "session.jsonl")]
    assert names[-3:] == ["model.request", "model.reply", "check.verdict"]


async def test_a_judge_is_recorded_and_replayed(tmp_path: Path):
    judge = Judge()
    recording = Recording(judge, tmp_path / "judge.yaml")
    first = await evaluate_with_source(recording, "run", [PLAN, SAFE])
    recording.close()
    again = await evaluate_with_source(Cassette(tmp_path / "judge.yaml"), "run", [PLAN, SAFE])
    assert (again, judge.asked) == (first, 2)
    from_file = await evaluate("run", [PLAN, SAFE], judge=str(tmp_path / "judge.yaml"))
    assert (from_file, judge.asked) == (first, 2)


@pytest.mark.parametrize(
    "evaluation, message",
    [
        ({"target": "file:src/gone.py"}, "src/gone.py cannot be judged"),
        ({"target": "file:../../etc/passwd"}, "leads out"),
        ({"target": "stdout"}, "unknown target 'stdout'"),
    ],
)
async def test_a_missing_target_is_an_error_without_a_score(
    evaluation: dict[str, Any], message: str
):
    judge = Judge()
    result = await evaluate_with_source(judge, "run", [{"criterion": "code_quality", **evaluation}])
    [score] = result.evaluations
    assert (score.score, score.passed, judge.asked, result.overall_score) == (None, False, 0, None)
    assert message in score.error


@pytest.mark.parametrize("target", ["scratchpad", "file:src/a.py", "session", "output"])
async def test_each_target_is_judged(target: str):
    result = await evaluate_with_source(
        Judge(5), "run", [{"criterion": "safety", "target": target}]
    )
    assert result.all_passed, result


async def test_a_judge_that_gives_no_score_is_an_error():
    result = await evaluate_with_source(Judge('"five"'), "run", [PLAN])
    assert (result.all_passed, result.overall_score) == (False, None)
    assert "gave no valid score" in result.evaluations[0].error


async def test_a_command_can_be_the_judge():
    code = """import sys; assert "do it" in sys.stdin.read()
print('{"reasoning": "level 4", "score": 4}')"""
    result = await evaluate("run", [PLAN], judge_command=[sys.executable, "-c", code])
    assert result.evaluations[0].score == 4, result
    failed = await evaluate("run", [PLAN], judge_command=[sys.executable, "-c", "exit(3)"])
    assert "exit code 3" in failed.evaluations[0].error
    assert "score" not in join_output(Trace(session()))  # the judge's output is not the run's


async def test_a_criterion_can_be_decomposed_into_questions():
    judge = Judge([4, 3, 5, 2])
    questions = {"tone": "Is it polite?", "length": "Is it short?"}
    evaluations = [{**PLAN, "decompose": True}, {**PLAN, "parts": questions}]
    result = await evaluate_with_source(judge, "run", evaluations)
    first, second = result.evaluations
    assert [(part.name, part.score) for part in first.parts] == [
        ("clarity", 4),
        ("actionability", 3),
    ]
    assert [(part.name, part.score) for part in second.parts] == [("tone", 5), ("length", 2)]
    assert (first.score, second.score, judge.asked) == (3, 3, 4)  # the mean, rounded down
    assert "Is it polite?" in judge.prompts[2]
    assert "Is it short?" not in judge.prompts[2]


async def test_a_question_without_a_score_fails_the_evaluation():
    result = await evaluate_with_source(
        Judge([5, "x", "x", "x"]), "run", [{**PLAN, "decompose": True}]
    )
    [score] = result.evaluations
    assert (score.score, score.passed, [part.score for part in score.parts]) == (None, False, [5])


async def test_a_score_without_reasoning_counts_only_without_chain_of_thought(tmp_path: Path):
    mocks = tmp_path / "judge.jsonl"
    mocks.write_text('{"text": "{\\"score\\": 4}"}\n' * 4)
    bare = await evaluate("run", [PLAN], judge=str(mocks), chain_of_thought=False)
    assert bare.evaluations[0].score == 4
    reasoned = await evaluate("run", [PLAN], judge=str(mocks))
    assert "the reasoning is missing" in reasoned.evaluations[0].error


async def test_a_preset_instructs_the_judge(tmp_path: Path):
    preset = tmp_path / "strict.yml"
    preset.write_text("hats:\n  judge:\n    instructions: Be strict.\n")
    code = """import sys; assert sys.stdin.read().startswith("Be strict.")
print('{"reasoning": "strictly", "score": 4}')"""
    words = [sys.executable, "-c", code]
    result = await evaluate("run", [PLAN], judge_command=words, judge_preset=str(preset))
    assert result.evaluations[0].score == 4, result
    preset.write_text("hats:\n  jugde:\n    instructions: Be strict.\n")
    with pytest.raises(UsageError, match="did you mean 'jugde'"):
        await evaluate("run", [PLAN], judge_command=words, judge_preset=str(preset))


async def test_a_provider_judges_with_its_api_key():
    upstream = Judge(5)
    with Server() as server:
        url = server.mount(upstream).url
        env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-ant-" + "x" * 40}
        result = await evaluate("run", [PLAN], judge="anthropic", judge_model="m", env=env)
    assert (result.evaluations[0].score, upstream.asked) == (5, 1)
    assert upstream.models == ["m"]


@pytest.mark.parametrize("shell", [installed(CODEX)])
async def test_a_client_judges_with_a_scripted_model(shell: Shell, tmp_path: Path):
    mocks = tmp_path / "judge.jsonl"
    mocks.write_text('{"text": "{\\"reasoning\\": \\"so\\", \\"score\\": 4}"}\n')
    backend = shell.client.program
    result = await evaluate("run", [PLAN], judge_backend=backend, judge=str(mocks), record="kept")
    assert result.evaluations[0].score == 4, result
    again = await evaluate("run", [PLAN], judge="kept")
    assert again == result


async def test_a_model_does_not_judge_itself(tmp_path: Path):
    mocks = tmp_path / "model.jsonl"
    mocks.write_text('{"text": "LOOP_COMPLETE"}\n')
    code = (
        "import os, json, urllib.request as u\n"
        "url = os.environ['OPENAI_BASE_URL'] + '/chat/completions'\n"
        "body = {'model': 'gpt-9', 'messages': [{'role': 'user', 'content': 'go'}]}\n"
        "head = {'content-type': 'application/json'}\n"
        "answer = json.load(u.urlopen(u.Request(url, json.dumps(body).encode(), head)))\n"
        "print(answer['choices'][0]['message']['content'])\n"
    )
    words = [sys.executable, "-c", code]
    await run("run", "Go", backend="command", command=words, playbook=str(mocks))
    with pytest.raises(UsageError, match="'GPT-9' is also the tested model"):
        await evaluate_with_source(Judge(), "run", [PLAN], judge_model="GPT-9")
    assert (await evaluate_with_source(Judge(), "run", [PLAN], judge_model="another")).all_passed
    assert (await evaluate_with_source(Judge(), "run", [PLAN], judge_model="another")).all_passed


async def test_invalid_options_are_rejected():
    with pytest.raises(UsageError, match="needs a judge"):
        await evaluate("run", [PLAN])
    with pytest.raises(UsageError, match="unknown judge 'anthropc'\ndid you mean 'anthropic'"):
        await evaluate("run", [PLAN], judge="anthropc")
    with pytest.raises(UsageError, match="'anthropic' is a real model"):
        await evaluate("run", [PLAN], judge="anthropic", judge_model="m")
    with pytest.raises(UsageError, match="missing model name of the judge"):
        await evaluate("run", [PLAN], judge="anthropic", env={"ANTHROPIC_API_KEY": "k"})
    with pytest.raises(UsageError, match="did you mean 'codex'"):
        await evaluate("run", [PLAN], judge_backend="codx")
    with pytest.raises(UsageError, match="judge_command requires"):
        await evaluate("run", [PLAN], judge_backend="codex", judge_command=["x"])
    with pytest.raises(UsageError, match="missing evaluations"):
        await evaluate_with_source(Judge(), "run", [])
    same: Any = {"judge_model": "m", "tested_model": "m"}
    with pytest.raises(UsageError, match="is also the tested model"):
        await evaluate_with_source(Judge(), "run", [PLAN], **same)
    assert (await evaluate_with_source(Judge(), "run", [PLAN], **same, force=True)).all_passed
