"""Replaying: steps are done on a real component, and what comes is compared."""

from pathlib import Path
from typing import Any

import pytest

from offbook.goldens.components import Component, Harness, step, steps_of
from offbook.goldens.fixture_store import GoldenFixture, GoldenScenario, MatchRule
from offbook.goldens.golden_replay import GoldenReplay, replay, replay_all
from offbook.goldens.session_hub import Inbox
from offbook.trace.events import Event

START = {"type": "startSession"}
RUN: list[dict[str, Any]] = [{"type": "create", "name": "h", "input": {}}, {"type": "run"}]


def make(
    steps: list[dict[str, Any]], expect: dict[str, Any], rule: MatchRule | None = None
) -> GoldenScenario:
    fixture = GoldenFixture("s", "basic", steps, expect)
    return GoldenScenario(fixture, Path("golden/hub/basic.jsonl"), 3, rule or MatchRule())


async def play(scenario: GoldenScenario, kind: type[Component] = Component) -> GoldenReplay:
    (done,) = await replay_all([scenario], lambda _: kind)
    return done


def told(kind: str, **data: Any) -> dict[str, Any]:
    return {"event": {"type": kind, **data}, "context": {"sessionId": "s"}}


STEPS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "emit": (
        [{"type": "emit", "event": {"type": "harness:start", "name": "test"}}],
        {"events": [told("harness:start", name="test")]},
    ),
    "emit with an override": (
        [{"type": "emit", "event": {"type": "a"}, "contextOverride": {"phase": {"name": "P"}}}],
        {"events": [{**told("a"), "context": {"sessionId": "s", "phase": {"name": "P"}}}]},
    ),
    "emit with a null override": (
        [{"type": "emit", "event": {"type": "a"}, "contextOverride": None}],
        {"events": [told("a")]},
    ),
    "startSession": ([START], {"events": [], "sessionActive": True}),
    "send": (
        [START, {"type": "send", "message": ""}],
        {"events": [told("session:message", content="")]},
    ),
    "sendTo": (
        [START, {"type": "sendTo", "agent": "a", "message": "m"}],
        {"events": [told("session:message", content="m", agentName="a")]},
    ),
    "sendToRun": (
        [START, {"type": "sendToRun", "runId": "r", "message": "m"}],
        {"events": [told("session:message", content="m", runId="r")]},
    ),
    "reply": (
        [
            START,
            {
                "type": "reply",
                "promptId": "p",
                "response": {"content": "yes", "choice": "y", "timestamp": "now"},
            },
        ],
        {"events": [told("session:reply", promptId="p", content="yes", choice="y")]},
    ),
    "abort": (
        [START, {"type": "abort", "reason": "enough"}],
        {"events": [told("session:abort", reason="enough")], "status": "aborted"},
    ),
    "setStatus": ([{"type": "setStatus", "status": "running"}], {"status": "running"}),
    "nothing while inactive": (
        [{"type": "send", "message": "m"}, {"type": "abort"}],
        {"events": [], "status": "idle", "sessionActive": False},
    ),
    "null asserts nothing": (
        [START],
        {"events": [], "status": None, "sessionActive": None},
    ),
}


@pytest.mark.parametrize("steps, expect", STEPS.values(), ids=STEPS)
async def test_every_step_does_what_it_says(steps: list[dict[str, Any]], expect: dict[str, Any]):
    assert (await play(make(steps, expect))).differences == []


BROKEN: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "an unknown step": (
        [{"type": "sned", "message": "m"}],
        {"events": []},
        "golden/hub/basic.jsonl:3, step 1: there is no step 'sned'\ndid you mean 'send'",
    ),
    "a missing field": (
        [START, {"type": "send"}],
        {"events": []},
        "step 2: the step 'send' missing required field `message`",
    ),
    "an unknown field": (
        [{"type": "send", "mesage": "m", "message": "m"}],
        {"events": []},
        "did you mean 'message'",
    ),
    "a field of another type": (
        [{"type": "send", "message": 3}],
        {"events": []},
        "Expected `str`, got `int`",
    ),
    "an event without a type": (
        [{"type": "emit", "event": {"typ": "a"}}],
        {"events": []},
        "an event needs a type",
    ),
    "a step that raises": (
        [{"type": "resume", "sessionId": "s", "message": "m"}],
        {"events": []},
        "resume raised UsageError: no session 's' is paused",
    ),
    "another status": ([START], {"status": "running"}, 'status: expected "running", got "idle"'),
    "an inactive session": ([], {"sessionActive": True}, "sessionActive: expected true, got false"),
    "false is asserted": ([START], {"sessionActive": False}, "expected false, got true"),
    "something that nobody tells": ([START], {"statu": "idle"}, "did you mean 'status'"),
    "nothing expected": ([START], {"status": None}, "it proves nothing"),
    "an event too many": (
        [{"type": "emit", "event": {"type": "a"}}],
        {"events": []},
        "expected nothing more",
    ),
    "a scope that is not open": ([{"type": "leaveScope"}], {"events": []}, "no scope is open"),
}


@pytest.mark.parametrize("steps, expect, message", BROKEN.values(), ids=BROKEN)
async def test_what_is_not_as_expected_is_told(
    steps: list[dict[str, Any]], expect: dict[str, Any], message: str
):
    done = await play(make(steps, expect))
    assert not done.ok
    assert message in done.tell()
    assert "golden/hub/basic.jsonl:3" in done.tell()


async def test_an_error_of_a_listener_fails_the_replay():
    class Fragile(Component):
        async def open(self) -> None:
            self.hub.subscribe(break_down)

    def break_down(event: Event) -> None:
        raise ValueError("broken listener")

    with pytest.raises(ValueError, match="broken listener"):
        await replay(make([{"type": "emit", "event": {"type": "a"}}], {"events": []}), Fragile)


async def test_a_component_is_closed_whatever_happens():
    closed: list[str] = []

    class Careful(Component):
        @step
        def explode(self) -> None:
            raise ValueError("boom")

        async def close(self) -> None:
            closed.append("closed")

    done = await play(make([{"type": "explode"}], {"events": []}), Careful)
    assert "explode raised ValueError: boom" in done.tell()
    assert closed == ["closed"]


async def test_time_stands_still_while_a_scenario_is_played():
    class Timed(Harness):
        async def work(self) -> Any:
            return {"result": "success"}

    steps = [{"type": "create", "name": "h", "input": {"value": 1}}, {"type": "run"}]
    expect = {
        "events": [
            told("harness:start", name="h"),
            told("harness:complete", success=True, durationMs=0),
        ],
        "status": "complete",
        "state": {"value": 1},
        "result": {"result": "success"},
    }
    assert (await play(make(steps, expect), Timed)).differences == []


async def test_a_harness_tells_phases_and_tasks_outside_their_own_context():
    class Phased(Harness):
        async def work(self) -> Any:
            async def build() -> str:
                return await self.task("t1", lambda: self.hub.emit("inside").event)

            return await self.phase("Plan", build)

    steps = RUN
    inside = {"sessionId": "s", "phase": {"name": "Plan"}, "task": {"id": "t1"}}
    phase = {"sessionId": "s", "phase": {"name": "Plan"}}
    expect = {
        "events": [
            told("phase:start", name="Plan"),
            {"event": {"type": "task:start", "taskId": "t1"}, "context": phase},
            {"event": {"type": "inside"}, "context": inside},
            {
                "event": {"type": "task:complete", "taskId": "t1", "result": "inside"},
                "context": phase,
            },
            told("phase:complete", name="Plan"),
        ]
    }
    rule = MatchRule(filter=["phase:*", "task:*", "inside"])
    assert (await play(make(steps, expect, rule), Phased)).differences == []


async def test_a_harness_that_fails_tells_so_and_goes_back_to_idle():
    class Failing(Harness):
        async def work(self) -> Any:
            async def fall(run_id: str, inbox: Inbox) -> None:
                raise ValueError("fell")

            return await self.phase("Plan", lambda: self.agent("a", fall))

    heard: list[str] = []

    class Heard(Failing):
        async def open(self) -> None:
            self.hub.subscribe(lambda event: heard.append(event.event))

        async def close(self) -> None:
            heard.append(self.hub.status)

    steps = RUN
    done = await play(make(steps, {"events": []}), Heard)
    assert "ValueError: fell" in done.tell()
    assert heard == [
        "harness:start",
        "phase:start",
        "agent:start",
        "agent:complete",
        "agent:failed",
        "phase:failed",
        "harness:complete",
        "idle",
    ]


async def test_a_harness_is_created_before_it_runs():
    done = await play(make([{"type": "run"}], {"events": []}), Harness)
    assert "the step create comes first" in done.tell()


def test_a_component_inherits_the_steps_of_the_hub():
    class Own(Component):
        @step
        def shut_door(self, slowly: bool = False) -> None:  # noqa: FBT001, FBT002 - a step's field
            """Shut it."""

    assert {"shutDoor", "sendTo", "emit", "enterScope"} <= steps_of(Own).keys()
    assert "shutDoor" not in steps_of(Component)
