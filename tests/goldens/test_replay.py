"""Replay runs the steps on a real component and compares the result."""

from pathlib import Path
from typing import Any

import pytest

from offbook.goldens import (
    Component,
    GoldenFixture,
    GoldenReplay,
    GoldenScenario,
    Harness,
    Inbox,
    MatchRule,
    replay,
    replay_all,
    step,
    steps_of,
)
from offbook.trace import Event

START = {"type": "startSession"}
RUN: list[dict[str, Any]] = [{"type": "create", "name": "h", "input": {}}, {"type": "run"}]


def make_scenario(
    steps: list[dict[str, Any]],
    expect: dict[str, Any],
    rule: MatchRule | None = None,
    metadata: dict[str, Any] | None = None,
    version: int = 1,
) -> GoldenScenario:
    fixture = GoldenFixture("s", "basic", steps, expect, metadata or {}, version)
    return GoldenScenario(fixture, Path("golden/hub/basic.jsonl"), 3, rule or MatchRule())


async def replay_one(
    scenario: GoldenScenario, component_class: type[Component] = Component
) -> GoldenReplay:
    (result,) = await replay_all([scenario], lambda _: component_class)
    return result


def event(kind: str, **data: Any) -> dict[str, Any]:
    return {"event": {"type": kind, **data}, "context": {"sessionId": "s"}}


STEPS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "emit": (
        [{"type": "emit", "event": {"type": "harness:start", "name": "test"}}],
        {"events": [event("harness:start", name="test")]},
    ),
    "emit with an override": (
        [{"type": "emit", "event": {"type": "a"}, "contextOverride": {"phase": {"name": "P"}}}],
        {"events": [{**event("a"), "context": {"sessionId": "s", "phase": {"name": "P"}}}]},
    ),
    "emit with a null override": (
        [{"type": "emit", "event": {"type": "a"}, "contextOverride": None}],
        {"events": [event("a")]},
    ),
    "startSession": ([START], {"events": [], "sessionActive": True}),
    "send": (
        [START, {"type": "send", "message": ""}],
        {"events": [event("session:message", content="")]},
    ),
    "sendTo": (
        [START, {"type": "sendTo", "agent": "a", "message": "m"}],
        {"events": [event("session:message", content="m", agentName="a")]},
    ),
    "sendToRun": (
        [START, {"type": "sendToRun", "runId": "r", "message": "m"}],
        {"events": [event("session:message", content="m", runId="r")]},
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
        {"events": [event("session:reply", promptId="p", content="yes", choice="y")]},
    ),
    "abort": (
        [START, {"type": "abort", "reason": "enough"}],
        {"events": [event("session:abort", reason="enough")], "status": "aborted"},
    ),
    "setStatus": ([{"type": "setStatus", "status": "running"}], {"status": "running"}),
    "commands before startSession": (
        [{"type": "send", "message": "m"}, {"type": "abort"}],
        {"events": [], "status": "idle", "sessionActive": False},
    ),
    "null is not compared": (
        [START],
        {"events": [], "status": None, "sessionActive": None},
    ),
}


@pytest.mark.parametrize("steps, expect", STEPS.values(), ids=STEPS)
async def test_step_has_its_effect(steps: list[dict[str, Any]], expect: dict[str, Any]):
    assert (await replay_one(make_scenario(steps, expect))).differences == []


BROKEN: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "unknown step": (
        [{"type": "sned", "message": "m"}],
        {"events": []},
        "golden/hub/basic.jsonl:3, step 1: unknown step 'sned'\ndid you mean 'send'",
    ),
    "missing field": (
        [START, {"type": "send"}],
        {"events": []},
        "step 2: missing key 'message'",
    ),
    "unknown field": (
        [{"type": "send", "mesage": "m", "message": "m"}],
        {"events": []},
        "did you mean 'message'",
    ),
    "wrong type of a field": (
        [{"type": "send", "message": 3}],
        {"events": []},
        "expected a text, got an integer",
    ),
    "event without type": (
        [{"type": "emit", "event": {"typ": "a"}}],
        {"events": []},
        "the event has no type",
    ),
    "step raises": (
        [{"type": "resume", "sessionId": "s", "message": "m"}],
        {"events": []},
        "resume raised UsageError: no paused session 's'",
    ),
    "other status": ([START], {"status": "running"}, 'status: expected "running", got "idle"'),
    "inactive session": ([], {"sessionActive": True}, "sessionActive: expected true, got false"),
    "false is compared": ([START], {"sessionActive": False}, "expected false, got true"),
    "unknown state": ([START], {"statu": "idle"}, "did you mean 'status'"),
    "nothing expected": ([START], {"status": None}, "the fixture expects nothing"),
    "one event more": (
        [{"type": "emit", "event": {"type": "a"}}],
        {"events": []},
        "expected no such event",
    ),
    "no open scope": ([{"type": "leaveScope"}], {"events": []}, "no open scope to leave"),
}


@pytest.mark.parametrize("steps, expect, message", BROKEN.values(), ids=BROKEN)
async def test_difference_is_reported_with_file_and_line(
    steps: list[dict[str, Any]], expect: dict[str, Any], message: str
):
    result = await replay_one(make_scenario(steps, expect))
    assert not result.ok
    assert message in result.render()
    assert "golden/hub/basic.jsonl:3" in result.render()


class Shop(Component):
    """Calls a tool and executes it."""

    @step
    def sell(self, executed: str):
        self.hub.emit("tool.call", {"call_id": "c1", "observed": True})
        self.hub.emit("tool.start", {"call_id": executed})
        self.hub.emit("tool.end", {"call_id": executed})

    @step
    def count(self):
        self.hub.emit("shop:count", {"observed": 5})


SELL, CALL = {"type": "sell", "executed": "c1"}, event("tool.call", call_id="c1")
COUNT = event("shop:count")
RECORDED = {"provenance": "sha256:…"}
ALL = ["events[0].event.observed", "events[1]", "events[2]"]
EARLIER: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str], int, list[str]]] = {
    "an execution of a recorded call": (SELL, CALL, RECORDED, 1, []),
    "another execution": (
        {**SELL, "executed": "c2"},
        CALL,
        RECORDED,
        1,
        ["events[1]", "events[2]"],
    ),
    "`observed` of another event": ({"type": "count"}, COUNT, RECORDED, 1, ALL[:1]),
    "another project": (SELL, CALL, {}, 1, ALL),
    "version 2": (SELL, CALL, RECORDED, 2, ALL),
}


@pytest.mark.parametrize(
    "step_data, expected, metadata, version, places", EARLIER.values(), ids=EARLIER
)
async def test_only_recordings_of_version_1_may_lack_the_executions_of_their_calls(
    step_data: dict[str, Any],
    expected: dict[str, Any],
    metadata: dict[str, str],
    version: int,
    places: list[str],
):
    scenario = make_scenario([step_data], {"events": [expected]}, None, metadata, version)
    differences = (await replay_one(scenario, Shop)).differences
    assert [each.partition(":")[0] for each in differences if ": expected" in each] == places


async def test_null_is_compared_in_version_2():
    scenario = make_scenario([START], {"sessionActive": None}, version=2)
    assert (await replay_one(scenario)).differences == ["sessionActive: expected null, got true"]


async def test_exception_of_a_listener_fails_the_replay():
    class WithBrokenListener(Component):
        async def open(self) -> None:
            self.hub.subscribe(fail)

    def fail(event: Event) -> None:
        raise ValueError("broken listener")

    scenario = make_scenario([{"type": "emit", "event": {"type": "a"}}], {"events": []})
    with pytest.raises(ValueError, match="broken listener"):
        await replay(scenario, WithBrokenListener)


async def test_component_is_closed_after_an_exception():
    closed: list[str] = []

    class Exploding(Component):
        @step
        def explode(self) -> None:
            raise ValueError("boom")

        async def close(self) -> None:
            closed.append("closed")

    result = await replay_one(make_scenario([{"type": "explode"}], {"events": []}), Exploding)
    assert "explode raised ValueError: boom" in result.render()
    assert closed == ["closed"]


async def test_clock_is_frozen_during_a_scenario():
    class Timed(Harness):
        async def execute(self) -> Any:
            return {"result": "success"}

    steps = [{"type": "create", "name": "h", "input": {"value": 1}}, {"type": "run"}]
    expect = {
        "events": [
            event("harness:start", name="h"),
            event("harness:complete", success=True, durationMs=0),
        ],
        "status": "complete",
        "state": {"value": 1},
        "result": {"result": "success"},
    }
    assert (await replay_one(make_scenario(steps, expect), Timed)).differences == []


async def test_start_and_end_of_phases_and_tasks_are_outside_of_their_context():
    class Phased(Harness):
        async def execute(self) -> Any:
            async def build() -> str:
                return await self.task("t1", lambda: self.hub.emit("inside").event)

            return await self.phase("Plan", build)

    inside = {"sessionId": "s", "phase": {"name": "Plan"}, "task": {"id": "t1"}}
    phase = {"sessionId": "s", "phase": {"name": "Plan"}}
    expect = {
        "events": [
            event("phase:start", name="Plan"),
            {"event": {"type": "task:start", "taskId": "t1"}, "context": phase},
            {"event": {"type": "inside"}, "context": inside},
            {
                "event": {"type": "task:complete", "taskId": "t1", "result": "inside"},
                "context": phase,
            },
            event("phase:complete", name="Plan"),
        ]
    }
    rule = MatchRule(filter=["phase:*", "task:*", "inside"])
    assert (await replay_one(make_scenario(RUN, expect, rule), Phased)).differences == []


async def test_failing_harness_emits_its_end_and_becomes_idle():
    class Failing(Harness):
        async def execute(self) -> Any:
            async def fail(run_id: str, inbox: Inbox) -> None:
                raise ValueError("no luck")

            return await self.phase("Plan", lambda: self.agent("a", fail))

    names: list[str] = []

    class Observed(Failing):
        async def open(self) -> None:
            self.hub.subscribe(lambda event: names.append(event.event))

        async def close(self) -> None:
            names.append(self.hub.status)

    result = await replay_one(make_scenario(RUN, {"events": []}), Observed)
    assert "ValueError: no luck" in result.render()
    assert names == [
        "harness:start",
        "phase:start",
        "agent:start",
        "agent:complete",
        "agent:failed",
        "phase:failed",
        "harness:complete",
        "idle",
    ]


async def test_run_needs_create_before_it():
    result = await replay_one(make_scenario([{"type": "run"}], {"events": []}), Harness)
    assert "add the step create before it" in result.render()


def test_component_inherits_the_steps_of_the_hub():
    class Door(Component):
        @step
        def shut_door(self, slowly: bool = False) -> None:  # noqa: FBT001, FBT002 - a step's field
            """Shut the door."""

    assert {"shutDoor", "sendTo", "emit", "enterScope"} <= steps_of(Door).keys()
    assert "shutDoor" not in steps_of(Component)


class Parcels(Component):
    """Emits events whose data it changes afterwards."""

    @step
    def ship(self, name: str, kind: str):
        self.hub.emit(name, {"type": kind})

    @step
    def pack(self, *, early: bool):
        items: list[str] = []
        if early:
            self.hub.emit("parcel:packed", {"items": items})
        items.append("book")
        if not early:
            self.hub.emit("parcel:packed", {"items": items})

    @step
    def confirm(self):
        def answer(_: Event) -> None:
            data = {"state": "open"}
            self.hub.emit("parcel:confirmed", data)  # delivered after this listener
            data["state"] = "closed"

        self.hub.subscribe(answer, "parcel:asked")
        self.hub.emit("parcel:asked")


@pytest.mark.parametrize(
    "steps, expected, difference",
    [
        (
            [{"type": "ship", "name": "parcel:LOST", "kind": "express"}],
            [event("parcel:sent", **{"data.type": "express"})],
            ['events[0].event.type: expected "parcel:sent", got "parcel:LOST"'],
        ),
        (
            [{"type": "ship", "name": "parcel:sent", "kind": "slow"}],
            [event("parcel:sent", **{"data.type": "express"})],
            ['events[0].event.data.type: expected "express", got "slow"'],
        ),
    ],
)
async def test_event_name_and_a_type_in_its_data_are_both_compared(
    steps: list[dict[str, Any]], expected: list[dict[str, Any]], difference: list[str]
):
    scenario = make_scenario(steps, {"events": expected})
    assert (await replay_one(scenario, Parcels)).differences == difference


@pytest.mark.parametrize(
    "step_data, expected",
    [
        ({"type": "pack", "early": True}, [event("parcel:packed", items=[])]),
        ({"type": "pack", "early": False}, [event("parcel:packed", items=["book"])]),
        ({"type": "confirm"}, [event("parcel:asked"), event("parcel:confirmed", state="open")]),
    ],
)
async def test_event_is_kept_as_it_was_when_it_was_emitted(
    step_data: dict[str, Any], expected: list[dict[str, Any]]
):
    scenario = make_scenario([step_data], {"events": expected})
    assert (await replay_one(scenario, Parcels)).differences == []


class Opaque(Component):
    @step
    def show(self):
        self.hub.emit("opaque:shown", {"value": object()})


async def test_event_that_json_cannot_represent_is_an_error_that_names_it():
    scenario = make_scenario([{"type": "show"}], {"events": []})
    (difference,) = (await replay_one(scenario, Opaque)).differences
    assert "JSON cannot represent the event 'opaque:shown'" in difference


class Closing(Component):
    """Empties its state when it is closed."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.items = ["book"]

    async def close(self):
        self.items.clear()

    def observe(self):
        return {"items": self.items}


async def test_state_is_kept_as_it_was_before_the_component_was_closed():
    scenario = make_scenario([START], {"items": ["book"]})
    assert (await replay_one(scenario, Closing)).differences == []
