"""What a conversation loses is found: the prompt of its turn, and effects before an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import openai
import pytest

from offbook import call, drive, fail, say, when
from offbook.errors import InvariantBroken
from offbook.explore import Exploration, explore, replay
from tests.thorough import THOROUGH

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"room": {"type": "string", "enum": ["Oak", "Elm"]}},
                "required": ["room"],
            },
        },
    }
    for name in ("book_room", "find_room")
]
CONVERSATION = "no changed conversation"
# With this seed, each flaw is found in the first 20 behaviours.
OPTIONS: Any = {"seed": 5, "runs": 120 if THOROUGH else 40, "without": ["leak", "authority"]}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")


def make_desk(flaw: str = "") -> Callable[[], Any]:  # noqa: C901 - one loop with many flaws
    """Return a world with a desk for rooms, a careful loop over a dispatcher, with one flaw."""

    def world() -> Any:  # noqa: C901 - as above
        booked: list[str] = []

        def run_tool(name: str, given: Any) -> str:
            room = cast("Any", given).get("room") if isinstance(given, dict) else None
            if room not in ("Oak", "Elm"):
                return "error: there is no such room"
            if name == "find_room":
                return f"{room} is on floor {len(room)}"
            if name != "book_room":
                return "error: there is no such tool"
            booked.append(room)
            return f"{room} has booking {len(booked)}"

        def answer_calls(calls: Any) -> list[Any]:
            results = {made.id: run_call(made) for made in calls}
            if flaw == "by name":
                by_name = {made.function.name: results[made.id] for made in calls}
                results = {made.id: by_name[made.function.name] for made in calls}
            return [{"role": "tool", "tool_call_id": i, "content": r} for i, r in results.items()]

        def run_call(made: Any) -> str:
            try:
                given = json.loads(made.function.arguments)
            except ValueError:
                given = None
            return run_tool(made.function.name, given)

        def ask(messages: Any) -> Any:
            window = messages[-2:] if flaw == "window" and len(messages) > 4 else messages
            client = openai.OpenAI(max_retries=0)
            reply = client.chat.completions.create(model="m", messages=window, tools=TOOLS)
            return reply.choices[0].message

        def take_turn(messages: list[Any]) -> str:
            message = None
            for _ in range(4 if flaw == "own words" else 40):
                pending = [] if message is None else answer_calls(message.tool_calls)
                for attempt in range(3):
                    try:
                        message = ask([*messages, *pending])
                        break
                    except openai.OpenAIError:
                        if attempt == 2 or flaw == "begins again":
                            raise
                        if flaw == "runs again" and message is not None:
                            pending = answer_calls(message.tool_calls)
                messages += [*pending, cast("Any", message).model_dump(exclude_none=True)]
                if not cast("Any", message).tool_calls:
                    return cast("Any", message).content or ""
            messages += [*answer_calls(cast("Any", message).tool_calls)]
            messages.append({"role": "assistant", "content": "That takes too many steps."})
            return "That takes too many steps."

        history: list[Any] = []

        def agent(prompt: str) -> str:
            messages = history if flaw == "own words" else []
            messages.append({"role": "user", "content": prompt})
            for _ in range(3):
                try:
                    return take_turn([*messages] if flaw == "begins again" else messages)
                except openai.OpenAIError:
                    continue
            return "the model is not available"

        return drive(agent)

    return world


def find(flaw: str) -> list[str]:
    with pytest.raises(InvariantBroken) as caught:
        explore(make_desk(flaw), "Book a room", **OPTIONS)
    found = cast("Exploration", caught.value.exploration)
    return [one.message for one in found.findings if one.invariant == CONVERSATION]


@pytest.mark.slow
@pytest.mark.parametrize(
    "flaw, message",
    [
        ("window", "the prompt 'Book a room' is left out of its own turn"),
        ("begins again", "after an error the agent begins again and forgets that book_room"),
        ("runs again", "after an error book_room ran again: it returned"),
        ("by name", "and the model got"),
    ],
)
def test_what_a_conversation_loses_is_found(flaw: str, message: str):
    assert any(message in found for found in find(flaw))


@pytest.mark.slow
@pytest.mark.parametrize("flaw", ["", "own words"])
def test_a_desk_that_keeps_everything_has_no_finding(flaw: str):
    assert explore(make_desk(flaw), "Book a room", **OPTIONS).findings == []


BOOKING = when("Book a room", [call("book_room", {"room": "Oak"}), fail(status=500), say("Done.")])


def test_an_effect_before_an_error_may_not_be_forgotten():
    with pytest.raises(InvariantBroken, match="begins again and forgets that book_room"):
        replay(make_desk("begins again"), BOOKING)
    replay(make_desk(), BOOKING)
