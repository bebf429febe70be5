"""The steps of the session component check their input."""

from pathlib import Path
from typing import Any

import pytest

from offbook.goldens import GoldenFixture, GoldenScenario, MatchRule, SessionComponent, replay_all

CREATE: dict[str, Any] = {"type": "create", "mockTools": {"bash": "ok"}}


def prompt(*script: dict[str, Any]) -> dict[str, Any]:
    return {"type": "prompt", "text": "Hello", "script": list(script)}


BROKEN: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no session yet": ([prompt({"say": "Hi."})], "add the step create before it"),
    "neither say nor call": ([CREATE, prompt({})], "either 'say' or 'call'"),
    "both": ([CREATE, prompt({"say": "x", "call": "bash"})], "either 'say' or 'call'"),
    "unknown action": ([CREATE, prompt({"sya": "x"})], "did you mean 'say'"),
    "unused action": (
        [CREATE, prompt({"say": "Hi."}, {"say": "Unused."})],
        "ScriptUnfinished",
    ),
    "missing action": ([CREATE, prompt({"call": "bash"})], "ScriptExhausted"),
}


@pytest.mark.parametrize("steps, message", BROKEN.values(), ids=BROKEN)
async def test_invalid_step_is_reported_with_its_number(steps: list[dict[str, Any]], message: str):
    fixture = GoldenFixture("s", "x", steps, {"events": []})
    scenario = GoldenScenario(fixture, Path("golden/session/x.jsonl"), 1, MatchRule())
    (result,) = await replay_all([scenario], lambda _: SessionComponent)
    assert message in result.render()
    assert f"step {len(steps)}" in result.render()
