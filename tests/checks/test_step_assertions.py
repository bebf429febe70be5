"""Steps are recorded with their payloads, and assertions read them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from offbook import call, say, session, when
from offbook.errors import CheckFailed, UsageError
from offbook.testing import (
    assert_handoff_emitted,
    assert_receipt_field,
    assert_step_emitted,
    assert_step_received,
    assert_steps_ran,
    persona,
    step,
    step_assertions,
    step_assertions_begin,
    step_assertions_end,
    step_events,
    step_events_clear,
)


@persona("merge_captain")
class Captain:
    @step
    def plan(self, number: int, *, dry: bool = False) -> dict[str, Any]:
        return {"number": number, "dry": dry}

    @step(name="verify_checks")
    async def verify(self, order: dict[str, Any]) -> bool:
        await asyncio.sleep(0)
        order["verified"] = True
        return True

    @step
    def merge(self) -> None:
        raise TimeoutError("no answer")


@step
def note(text: str) -> str:
    return text


async def test_a_step_is_recorded_before_and_after():
    with step_assertions():
        captain = Captain()
        assert captain.plan(42, dry=True) == {"number": 42, "dry": True}
        assert await captain.verify({"number": 42}) is True
    target = {"target": "merge_captain.plan", "persona": "merge_captain", "step_name": "plan"}
    payload = {**target, "function": "Captain.plan", "args": [42], "kwargs": {"dry": True}}
    assert step_events()[:2] == [
        {"event": "step.pre", **payload},
        {"event": "step.post", **payload, "output": {"number": 42, "dry": True}},
    ]
    assert_steps_ran(["plan", "verify_checks"])
    # The record is of the time of the call, though the step changed its argument.
    assert_step_received("verify_checks", {"args": [{"number": 42}]})


def test_the_error_of_a_step_is_raised_and_recorded():
    with step_assertions(), pytest.raises(TimeoutError):
        Captain().merge()
    assert assert_step_emitted("merge")["error"] == "TimeoutError: no answer"


def test_repeats_count():
    with step_assertions():
        for text in "abb":
            note(text)
    assert_steps_ran(["note"] * 3)
    with pytest.raises(CheckFailed, match="the steps ran in another order"):
        assert_steps_ran(["note", "note"])


def test_only_the_personas_of_the_pattern_are_recorded():
    with step_assertions("merge_*"):
        Captain().plan(1)
        with persona("scribe"):
            note("x")
        note("y")
    assert_steps_ran(["plan"])


def test_the_persona_of_a_function_applies_to_its_steps():
    @persona("scribe")
    def write() -> None:
        note("x")

    @persona("scribe")
    async def write_async() -> None:
        note("y")

    with step_assertions("scribe"):
        write()
        asyncio.run(write_async())
        note("z")
    assert [record["args"] for record in step_events() if record["event"] == "step.pre"] == [
        ["x"],
        ["y"],
    ]


def test_after_the_end_the_steps_remain_and_no_more_are_recorded():
    step_assertions_begin()
    note("a")
    step_assertions_end()
    note("b")
    assert_steps_ran(["note"])
    step_events_clear()
    assert step_events() == []


def test_a_new_beginning_forgets_the_steps_before():
    step_assertions_begin()
    note("a")
    step_assertions_begin()
    assert step_events() == []


def test_an_inner_block_has_its_own_steps():
    with step_assertions():
        note("outer")
        with step_assertions():
            assert step_events() == []
        note("outer")
        assert_steps_ran(["note", "note"])


async def test_two_tasks_do_not_see_the_steps_of_each_other():
    async def work(text: str) -> None:
        with step_assertions():
            note(text)
            await asyncio.sleep(0)
            note(text)
            assert [r["args"] for r in step_events() if r["event"] == "step.pre"] == [[text]] * 2

    await asyncio.gather(*(work(str(number)) for number in range(20)))


def test_a_step_in_a_run_is_in_its_trace():
    def plan(_params: object, _ctx: object) -> str:
        return note("planned")

    def extension(api: Any) -> None:
        api.tool("plan", "Plan.", {"type": "object"})(plan)

    with session(extensions=[extension]) as rehearsal:
        run = rehearsal.run(when("Go", [call("plan"), say("Done.")]))
        assert_steps_ran(["note"], run.events)
        assert_step_emitted("note", {"output": "planned"}, run.events)


PREDICATES: dict[str, tuple[Any, bool]] = {
    "none": (None, True),
    "a function": (lambda record: record["args"] == [{"number": 42, "kind": "pr"}], True),  # pyright: ignore[reportUnknownLambdaType] - any record
    "a function that is not satisfied": (lambda record: False, False),  # pyright: ignore[reportUnknownLambdaType] - any record  # noqa: ARG005 - as above
    "a subset of the record": ({"args": [{"number": 42, "kind": "pr"}]}, True),
    "a subset of an argument": ({"args": [{"number": 42}]}, False),
    "another value": ("pr", False),
}


@pytest.mark.parametrize("predicate, found", PREDICATES.values(), ids=PREDICATES)
def test_a_payload_is_matched_by_a_function_a_subset_or_a_value(predicate: Any, found: bool):  # noqa: FBT001 - a column
    with step_assertions():
        note({"number": 42, "kind": "pr"})  # pyright: ignore[reportArgumentType] - any argument
    if found:
        assert assert_step_received("note", predicate)["step_name"] == "note"
    else:
        with pytest.raises(CheckFailed, match="step 'note' never began with"):
            assert_step_received("note", predicate)


def test_a_whole_record_is_a_value():
    with step_assertions():
        note("a")
    assert assert_step_emitted("note", dict(step_events()[1]))["output"] == "a"


def test_a_failure_shows_both_sides():
    with step_assertions():
        note("a")
        Captain().plan(1)
    with pytest.raises(CheckFailed) as caught:
        assert_steps_ran(["note", "paln"])
    assert str(caught.value).splitlines() == [
        "step 'paln' did not run",
        "  expected | actual",
        "= note     | note",
        "+          | plan",
        "- paln     |",
        "did you mean 'plan'?",
        "a step needs @step",
    ]
    with pytest.raises(CheckFailed) as caught:
        assert_step_emitted("note", {"output": "b"})
    assert '.output: expected "b", got "a"' in str(caught.value)
    with pytest.raises(CheckFailed, match="step 'ntoe' never began\ndid you mean 'note'"):
        assert_step_received("ntoe")


PERSON = {"kind": "human", "id": "h1", "label": "maintainer"}
HANDOFFS = [
    {"kind": "review", "target_persona_or_human": PERSON},
    {"kind": "deploy", "target": "ops"},
]


@pytest.mark.parametrize("target", [None, "h1", "maintainer", "human"])
@pytest.mark.parametrize("source", [HANDOFFS, {"handoffs": HANDOFFS}])
def test_a_handoff_is_found_by_any_name_of_its_target(source: Any, target: str | None):
    assert assert_handoff_emitted(source, "review", target) == HANDOFFS[0]


WRONG_HANDOFFS: list[tuple[str, str | None, str]] = [
    ("reviw", None, "handoff 'reviw' was not emitted\nhandoffs:"),
    ("review", "ops", "handoff 'review' to ops was not emitted"),
]


@pytest.mark.parametrize("kind, target, message", WRONG_HANDOFFS)
def test_a_handoff_that_was_not_made_fails(kind: str, target: str | None, message: str):
    with pytest.raises(CheckFailed) as caught:
        assert_handoff_emitted(HANDOFFS, kind, target)
    assert message in str(caught.value)


RECEIPT = {"status": "ok", "a/b": {"~": None}, "items": [{"n": 1, "m": 2}]}
FIELDS: list[tuple[str, Any]] = [
    ("/status", "ok"),
    ("/a~1b/~0", None),
    ("/items/0/n", 1),
    ("/items/0", {"n": 1, "m": 2}),
    ("", RECEIPT),
]


@pytest.mark.parametrize("pointer, value", FIELDS)
def test_a_field_of_a_receipt_has_its_value(pointer: str, value: Any):
    assert assert_receipt_field(RECEIPT, pointer, value) == value


WRONG_FIELDS: list[tuple[str, Any, str]] = [
    ("/staus", None, "the receipt has no field /staus, expected null\ndid you mean 'status'"),
    ("/items/1", None, "has no field /items/1"),
    ("/status", "failed", '/status: expected "failed", got "ok"'),
    ("/items/0", {"n": 1}, ".m: expected nothing, got 2"),
]


@pytest.mark.parametrize("pointer, value, message", WRONG_FIELDS)
def test_a_missing_field_differs_from_null_and_from_any_value(
    pointer: str, value: Any, message: str
):
    with pytest.raises(CheckFailed) as caught:
        assert_receipt_field(RECEIPT, pointer, value)
    assert message in str(caught.value)


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "a bad escape": (lambda: assert_receipt_field(RECEIPT, "/a~2", 1), "invalid escape '~2'"),
    "no steps": (lambda: assert_steps_ran([]), "nothing would be checked"),
    "a predicate of nothing": (lambda: assert_step_emitted("plan", {}), "matches every record"),
    "a text of names": (lambda: assert_steps_ran("plan"), "write ['plan']"),
    "a step that is no function": (lambda: step(7), "step: expected a function, got int"),  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownLambdaType] - wrong on purpose
    "a persona without a name": (
        lambda: persona(""),
        "name of a persona: expected a text of length >= 1, got ''",
    ),
    "an empty pattern": (
        lambda: step_assertions_begin(""),
        "pattern of personas: expected a text of length >= 1",
    ),
}


@pytest.mark.parametrize("wrong, message", BAD.values(), ids=BAD)
def test_bad_input_is_refused(wrong: Callable[[], object], message: str):
    with pytest.raises(UsageError) as caught:
        wrong()
    assert message in str(caught.value)


async def test_without_a_recording_there_is_nothing_to_assert():
    async def elsewhere() -> None:
        with pytest.raises(UsageError, match="steps are not recorded here"):
            assert_steps_ran(["plan"])

    from contextvars import Context

    await asyncio.get_running_loop().create_task(elsewhere(), context=Context())
