"""Twelve agents with a bug, each with the long script that shows it, and its shortest length.

A test of the table takes a source, runs the agent, and raises if the bug shows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import openai
import pydantic_ai
from langchain_core.tools import tool as langchain_tool
from pydantic_ai.exceptions import UsageLimitExceeded

from offbook import Playbook, Recording, call, drive, say, session, when
from offbook.people import allow, deny, person
from tests.people.test_people import pydantic_agent
from tests.subjects.frameworks.test_tool_runners import openai_loop

DRIVE, SESSION = cast("Any", drive), cast("Any", session)
LENGTH = 30


class Failure(NamedTuple):
    """A test that fails, the script of its recording, and the shortest tape."""

    test: Callable[[Any], object]
    script: list[Any]
    shortest: int


def find(number: int) -> Any:
    return call("find", {"number": number})


def refund(number: int, amount: int = 1) -> Any:
    return call("refund", {"number": number, "amount": amount})


class Shop:
    """The tools of an agent, and what they did."""

    def __init__(self) -> None:
        self.found: list[int] = []
        self.refunded: list[tuple[int, int]] = []
        self.notes: list[str] = []

    def extension(self, api: Any) -> None:
        @api.tool("find")
        def find_order(params: Any, _: Any) -> str:  # pyright: ignore[reportUnusedFunction]
            self.found.append(params["number"])
            return f"order {params['number']}"

        @api.tool("refund")
        def refund_order(params: Any, _: Any) -> str:  # pyright: ignore[reportUnusedFunction]
            if params["number"] == 13:
                raise ZeroDivisionError("no amount")
            self.refunded.append((params["number"], params["amount"]))
            return "refunded"

        @api.tool("note")
        def write_note(params: Any, _: Any) -> str:  # pyright: ignore[reportUnusedFunction]
            self.notes.append(params["text"])
            return "noted"


def in_session(check: Callable[[Shop, Any], object]) -> Callable[[Any], None]:
    """Return a test that runs a session and checks what the tools did."""

    def test(source: Any) -> None:
        shop = Shop()
        with SESSION(extension_factories=[shop.extension], source=source) as rehearsal:
            run = rehearsal.run("Go")
        check(shop, run)

    return test


def refunded_once(shop: Shop, _: Any) -> None:
    numbers = [number for number, _ in shop.refunded]
    assert len(numbers) == len(set(numbers))


def found_before(shop: Shop, _: Any) -> None:
    assert {number for number, _ in shop.refunded} <= {*shop.found}


def within_limit(shop: Shop, _: Any) -> None:
    assert sum(amount for _, amount in shop.refunded) < 100


def without_card(shop: Shop, _: Any) -> None:
    assert not any("4242" in note for note in shop.notes)


def answers_json(_: Shop, run: Any) -> None:
    json.loads(run.output)


def in_loop(run_tool: Callable[[dict[str, Any]], str]) -> Callable[[Any], None]:
    """Return a test of a loop around the OpenAI SDK."""

    def test(source: Any) -> None:
        def agent(prompt: str) -> str:
            return openai_loop(prompt, run_tool)

        with DRIVE(agent, source=source) as rehearsal:
            rehearsal.run("Go")

    return test


def short_memory(source: Any) -> None:
    """An agent that forgets the first result when the third one comes."""
    results: list[str] = []

    def keep(given: dict[str, Any]) -> str:
        results.append(f"order {given['number']}")
        if given["number"] == 5 and "order 3" not in results[-3:]:
            raise LookupError("order 3 is forgotten")
        return results[-1]

    in_loop(keep)(source)


def empty_reply(source: Any) -> None:
    """An agent that reads the first word of each text, also of an empty one."""

    def agent(prompt: str) -> str:
        messages: list[Any] = [{"role": "user", "content": prompt}]
        client = openai.OpenAI()
        while True:
            reply: Any = client.chat.completions.create(model="m", messages=messages)
            text = reply.choices[0].message.content
            if text.split()[0] == "Done.":
                return text
            messages += [
                {"role": "assistant", "content": text},
                {"role": "user", "content": "Go on"},
            ]

    with DRIVE(agent, source=source) as rehearsal:
        rehearsal.run("Go")


def two_at_once(source: Any) -> None:
    """A pydantic-ai agent whose tools share a balance."""
    agent, balance = pydantic_ai.Agent("openai-chat:m"), [10]

    @agent.tool_plain
    def refund(number: int, amount: int) -> str:  # pyright: ignore[reportUnusedFunction]
        balance[0] -= amount
        if balance[0] < 0:
            raise OverflowError(f"order {number}: no balance")
        return "refunded"

    with DRIVE(agent, source=source) as rehearsal:
        rehearsal.run("Go")


def limited(source: Any) -> None:
    """A pydantic-ai agent with a limit of requests, which is the failure."""
    agent = pydantic_ai.Agent("openai-chat:m")

    @agent.tool_plain
    def find(number: int) -> str:  # pyright: ignore[reportUnusedFunction]
        return f"order {number}"

    async def run(prompt: str) -> str:
        limits = pydantic_ai.UsageLimits(request_limit=4)
        return (await agent.run(prompt, usage_limits=limits)).output

    try:
        with DRIVE(run, source=source) as rehearsal:
            rehearsal.run("Go")
    except UsageLimitExceeded as error:
        raise TimeoutError("the agent makes too many requests") from error


def langchain_tools(source: Any) -> None:
    """A tool of LangChain that accepts one order only."""

    def find_order(number: int) -> str:
        """Find an order."""
        return {n: f"order {n}" for n in range(20)}[number]

    look = cast("Any", langchain_tool)(find_order)
    in_loop(look.run)(source)


def approved(source: Any) -> None:
    """An agent that fails after an approval of a certain amount."""

    class Till:
        def pay(self, amount: int) -> str:
            if amount == 5:
                raise ValueError("no coins for 5")
            return f"paid {amount}"

    with DRIVE(pydantic_agent(cast("Any", Till())), source=source) as rehearsal:
        rehearsal.run("Go")


def no_check(*_: Any) -> None:
    """Hold nothing: the tool itself fails."""


def steps(*last: Any, at: dict[int, Any] | None = None) -> list[Any]:
    """Return the script of a long run: most steps have nothing to do with the bug."""
    planted = at or {}
    middle = [planted.get(number) or find(number) for number in range(100, 100 + LENGTH)]
    return [when("Go", [*middle, *last])]


FAILURES: dict[str, Failure] = {
    "a tool that raises": Failure(
        in_session(no_check), steps(say("Done."), at={117: refund(13)}), 1
    ),
    "a refund twice": Failure(
        in_session(refunded_once),
        steps(say("Done."), at={103: refund(7), 109: refund(8), 121: refund(7)}),
        3,
    ),
    "a refund of an unknown order": Failure(
        in_session(found_before),
        steps(say("Done."), at={110: refund(110), 111: find(110), 115: refund(5)}),
        2,
    ),
    "refunds above a limit": Failure(
        in_session(within_limit),
        steps(
            say("Done."), at={n: refund(n, 20) for n in range(101, 129, 4)} | {120: refund(5, 90)}
        ),
        3,
    ),
    "a card number in a note": Failure(
        in_session(without_card),
        steps(
            say("Done."),
            at={119: [find(1), call("note", {"text": "card 4242"}), find(2), find(3)]},
        ),
        2,
    ),
    "an answer that is not JSON": Failure(in_session(answers_json), steps(say("All done.")), 1),
    "a result that was forgotten": Failure(
        short_memory,
        [when("Go", [*(call("find_order", {"number": n}) for n in (3, 8, 9, 4, 7, 5))])],
        1,
    ),
    "an empty reply": Failure(
        empty_reply, [when("Go", [*(say(f"Step {n}") for n in range(LENGTH)), say(" ")])], 1
    ),
    "two refunds at once": Failure(
        two_at_once,
        [
            when(
                "Go",
                [
                    *(refund(n, 0) for n in range(6)),
                    [refund(1, 2), refund(2, 6), refund(3, 1), refund(4, 7)],
                ],
            )
        ],
        1,
    ),
    "too many requests": Failure(limited, [when("Go", [find(n) for n in range(4)])], 4),
    "a tool of LangChain that raises": Failure(
        langchain_tools,
        [when("Go", [*(call("find_order", {"number": n}) for n in range(21))])],
        1,
    ),
    "a payment after an approval": Failure(
        approved,
        [
            when(
                "Go",
                [
                    step
                    for amount in range(8)
                    for step in (
                        call("pay", {"amount": amount}),
                        person("pay", deny("no") if amount % 2 == 0 else allow),
                    )
                ],
            )
        ],
        1,
    ),
}


def record_failure(failure: Failure, path: Path) -> None:
    """Record a run that fails."""
    playbook = Playbook()
    playbook.load(*failure.script)
    with suppress(Exception), Recording(playbook, path, tracks="all") as source:
        failure.test(source)
