"""What a judge says of a run is scored, reported, and in the trace."""

import sys
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.exchange.messages import Text
from offbook.exchange.reply import Reply
from offbook.exchange.request import Request
from offbook.runs.tools.evaluate import evaluate, judge_with
from offbook.runs.tools.report import report
from offbook.runs.tools.run import run
from offbook.runs.tools.setup import setup
from offbook.sources.cassette.replay import Replay
from offbook.sources.recording import Recording
from offbook.trace.reader import Trace

PLAN = {"criterion": "plan_quality", "target": "scratchpad"}
SAFE = {"criterion": "safety", "target": "output"}


class Judge:
    """Gives this score, always."""

    def __init__(self, score: object = 4) -> None:
        self._answer = f'{{"reasoning": "it is so", "score": {score}}}'
        self.asked = 0

    async def reply(self, request: Request, /) -> Reply:  # noqa: ARG002 - whatever is asked
        self.asked += 1
        return Reply((Text(self._answer),))


@pytest.fixture(autouse=True)
async def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = setup("run", scratchpad="1. do it", fixtures={"src/a.py": "print()"})
    await run("run", "Do it", mock_responses=[{"output": "did it\nLOOP_COMPLETE"}])
    return made.workspace_path


async def test_the_threshold_decides_and_the_score_that_equals_it_passes():
    found = await judge_with(Judge(3), "run", [PLAN, SAFE])
    assert [(one.score, one.passed) for one in found.evaluations] == [(3, True), (3, False)]
    assert (found.overall_score, found.all_passed) == (3.0, False)
    told = report("run", "json", "quality")
    assert (told.tests, told.passed, told.failed) == (2, 1, 1)


async def test_the_judges_exchanges_are_in_the_trace(ran: str):
    await judge_with(Judge(), "run", [PLAN])
    names = [event.event for event in Trace(Path(ran) / "session.jsonl")]
    assert names[-3:] == ["model.request", "model.reply", "check.verdict"]


async def test_a_judge_is_recorded_and_replayed(tmp_path: Path):
    judge = Judge()
    recording = Recording(judge, tmp_path / "judge.yaml")
    first = await judge_with(recording, "run", [PLAN, SAFE])
    recording.close()
    again = await judge_with(Replay(tmp_path / "judge.yaml"), "run", [PLAN, SAFE])
    assert (again, judge.asked) == (first, 2)
    from_file = await evaluate("run", [PLAN, SAFE], judge=str(tmp_path / "judge.yaml"))
    assert (from_file, judge.asked) == (first, 2)


@pytest.mark.parametrize(
    "evaluation, told",
    [
        ({"target": "file:src/gone.py"}, "src/gone.py cannot be judged"),
        ({"target": "file:../../etc/passwd"}, "leads out"),
        ({"target": "stdout"}, "there is no target 'stdout'"),
    ],
)
async def test_what_is_not_there_is_an_error_and_no_score(evaluation: dict[str, Any], told: str):
    judge = Judge()
    found = await judge_with(judge, "run", [{"criterion": "code_quality", **evaluation}])
    [one] = found.evaluations
    assert (one.score, one.passed, judge.asked, found.overall_score) == (None, False, 0, None)
    assert told in one.error


@pytest.mark.parametrize("target", ["scratchpad", "file:src/a.py", "session", "output"])
async def test_each_target_is_judged(target: str):
    found = await judge_with(Judge(5), "run", [{"criterion": "safety", "target": target}])
    assert found.all_passed, found


async def test_a_judge_that_gives_no_score_is_an_error():
    found = await judge_with(Judge('"five"'), "run", [PLAN])
    assert (found.all_passed, found.overall_score) == (False, None)
    assert "gave no score" in found.evaluations[0].error


async def test_a_command_can_be_the_judge():
    code = """import sys; assert "do it" in sys.stdin.read()
print('{"reasoning": "level 4", "score": 4}')"""
    found = await evaluate("run", [PLAN], judge_command=[sys.executable, "-c", code])
    assert found.evaluations[0].score == 4, found
    failed = await evaluate("run", [PLAN], judge_command=[sys.executable, "-c", "exit(3)"])
    assert "failed with 3" in failed.evaluations[0].error


async def test_wrong_calls_are_refused():
    with pytest.raises(UsageError, match="needs a judge"):
        await evaluate("run", [PLAN])
    with pytest.raises(UsageError, match="no evaluations"):
        await judge_with(Judge(), "run", [])
    same: Any = {"judge_model": "m", "tested_model": "m"}
    with pytest.raises(UsageError, match="is the model that is tested"):
        await judge_with(Judge(), "run", [PLAN], **same)
    assert (await judge_with(Judge(), "run", [PLAN], **same, force=True)).all_passed
