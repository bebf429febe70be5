"""The agent session as a component: what its steps refuse."""

from pathlib import Path
from typing import Any

import pytest

from offbook.goldens.fixture_store import GoldenFixture, GoldenScenario, MatchRule
from offbook.goldens.golden_replay import replay_all
from offbook.goldens.session_component import SessionComponent

CREATE: dict[str, Any] = {"type": "create", "mockTools": {"bash": "ok"}}


def prompt(*script: dict[str, Any]) -> dict[str, Any]:
    return {"type": "prompt", "text": "Hello", "script": list(script)}


BROKEN: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no session yet": ([prompt({"say": "Hi."})], "the step create comes first"),
    "neither said nor called": ([CREATE, prompt({})], "either says something or calls a tool"),
    "both": ([CREATE, prompt({"say": "x", "call": "bash"})], "either says something or calls"),
    "an unknown action": ([CREATE, prompt({"sya": "x"})], "did you mean 'say'"),
    "more than the agent asks for": (
        [CREATE, prompt({"say": "Hi."}, {"say": "Never said."})],
        "ScriptUnfinished",
    ),
    "less than it asks for": ([CREATE, prompt({"call": "bash"})], "ScriptExhausted"),
}


@pytest.mark.parametrize("steps, message", BROKEN.values(), ids=BROKEN)
async def test_what_a_step_refuses_is_told_with_its_number(
    steps: list[dict[str, Any]], message: str
):
    fixture = GoldenFixture("s", "x", steps, {"events": []})
    scenario = GoldenScenario(fixture, Path("golden/session/x.jsonl"), 1, MatchRule())
    (done,) = await replay_all([scenario], lambda _: SessionComponent)
    assert message in done.tell()
    assert f"step {len(steps)}" in done.tell()
