"""Twenty-two agents, each wrong in its own way: one ordinary test fails for each of them.

`check_agent` is the test that a user would write. It passes for `correct`, and for every other
agent it fails with a message that names what the agent did.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from offbook import Command, call, drive, say, when
from offbook.errors import OffbookError

JSON = dict[str, Any]
SCRIPT = when(
    "Refund order 7",
    [
        [call("find_order", {"number": 7}), call("find_order", {"number": 8})],
        call("refund", {"number": 7}),
        say("Refunded."),
    ],
)
EXECUTED = [
    ("find_order", {"number": 7}, "order 7: one lamp"),
    ("find_order", {"number": 8}, "order 8: one lamp"),
    ("refund", {"number": 7}, "refunded order 7"),
]
SYSTEM = "You refund orders."


class Shop:
    """The tools, and what they changed."""

    def __init__(self) -> None:
        self.refunded: list[int] = []
        self.trace = Path()

    def run(self, name: str, arguments: JSON) -> str:
        number = arguments["number"]
        if name == "refund":
            self.refunded.append(number)
            return f"refunded order {number}"
        return f"order {number}: one lamp"


def check_agent(agent: Callable[[str, Shop], object]) -> None:
    """Rehearse an agent: the test that a user would write."""
    shop = Shop()

    def start(prompt: str) -> object:
        return agent(prompt, shop)

    with drive(start) as rehearsal:
        shop.trace = rehearsal.trace
        run = rehearsal.run(SCRIPT)
        executed = [(tool.name, tool.input, tool.result.text) for tool in run.executed]
        assert executed == EXECUTED
        assert run.output == "Refunded."
        assert shop.refunded == [7]
        assert {request.system for request in run.requests} == {SYSTEM}


# --------------------------------------------------------------------------- the parts of an agent


def ask(messages: list[Any], *, system: str = SYSTEM, tools: tuple[str, ...] | None = None) -> Any:
    """Send a request; return the message of the model."""
    offered = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
        for name in (("find_order", "refund") if tools is None else tools)
    ]
    client = openai.OpenAI(api_key="none", max_retries=0)
    sent: Any = [{"role": "system", "content": system}, *messages]
    reply = client.chat.completions.create(model="m", messages=sent, tools=offered or openai.omit)  # pyright: ignore[reportArgumentType] - a plain dict
    return reply.choices[0].message


def prompt_message(prompt: str) -> JSON:
    return {"role": "user", "content": prompt}


def result_message(made: Any, text: str) -> JSON:
    return {"role": "tool", "tool_call_id": made.id, "content": text}


def run_call(made: Any, shop: Shop) -> str:
    return shop.run(made.function.name, json.loads(made.function.arguments))


def correct(prompt: str, shop: Shop) -> object:
    """The working agent, and the beginning of most of the others."""
    messages: list[Any] = [prompt_message(prompt)]
    while True:
        reply = ask(messages)
        messages.append(reply.to_dict())
        if not reply.tool_calls:
            return reply.content
        messages += [result_message(made, run_call(made, shop)) for made in reply.tool_calls]


# ---------------------------------------------------------------------------- agents that are wrong


def runs_no_tool(prompt: str, _: Shop) -> object:
    return ask([prompt_message(prompt)]).content or "Refunded."


def drops_a_result(prompt: str, shop: Shop) -> object:
    messages: list[Any] = [prompt_message(prompt)]
    while True:
        reply = ask(messages)
        messages.append(reply.to_dict())
        if not reply.tool_calls:
            return reply.content
        messages += [result_message(made, run_call(made, shop)) for made in reply.tool_calls[:1]]


def forgets_the_conversation(prompt: str, shop: Shop) -> object:
    while True:
        reply = ask([prompt_message(prompt)])
        if not reply.tool_calls:
            return reply.content
        for made in reply.tool_calls:
            run_call(made, shop)


def swaps_two_results(prompt: str, shop: Shop) -> object:
    messages: list[Any] = [prompt_message(prompt)]
    while True:
        reply = ask(messages)
        messages.append(reply.to_dict())
        if not reply.tool_calls:
            return reply.content
        texts = [run_call(made, shop) for made in reply.tool_calls]
        messages += map(result_message, reply.tool_calls, reversed(texts))


def answers_before_the_tool_ran(prompt: str, shop: Shop) -> object:
    messages: list[Any] = [prompt_message(prompt)]
    waiting: list[Any] = []
    while True:
        reply = ask(messages)
        messages.append(reply.to_dict())
        for made in waiting:
            run_call(made, shop)
        if not reply.tool_calls:
            return reply.content
        waiting = reply.tool_calls
        messages += [result_message(made, "started") for made in waiting]


def swallows_the_error_of_a_tool(prompt: str, shop: Shop) -> object:
    def broken(name: str, arguments: JSON) -> str:
        if name == "refund":
            raise RuntimeError("the till is closed")
        return Shop().run(name, arguments)

    shop.run = broken
    messages: list[Any] = [prompt_message(prompt)]
    while True:
        reply = ask(messages)
        messages.append(reply.to_dict())
        if not reply.tool_calls:
            return reply.content
        for made in reply.tool_calls:
            try:
                text = run_call(made, shop)
            except RuntimeError:
                text = "ok"
            messages.append(result_message(made, text))


def asks_twice(prompt: str, shop: Shop) -> object:
    answer = correct(prompt, shop)
    return correct(prompt, shop) or answer


def never_stops(prompt: str, shop: Shop) -> object:
    messages: list[Any] = [prompt_message(prompt)]
    while True:
        reply = ask(messages)
        messages.append(reply.to_dict())
        messages += [result_message(made, run_call(made, shop)) for made in reply.tool_calls or ()]


def edits_the_evidence(prompt: str, shop: Shop) -> object:
    answer = correct(prompt, shop)
    shop.trace.write_text(shop.trace.read_text().replace("lamp", "gold"))
    return answer


def leaves_a_thread_running(prompt: str, shop: Shop) -> object:
    threading.Thread(target=correct, args=(prompt, shop), daemon=True)
    return "Refunded."


async def leaves_a_task_running(prompt: str, shop: Shop) -> object:
    task = asyncio.create_task(asyncio.to_thread(correct, prompt, shop))
    task.cancel()
    return "Refunded."


def returns_nothing(prompt: str, shop: Shop) -> None:
    correct(prompt, shop)


def invents_an_answer(prompt: str, shop: Shop) -> object:
    correct(prompt, shop)
    return "Refunded, and here is a voucher."


def invents_a_result(prompt: str, shop: Shop) -> object:
    invented = {"role": "tool", "tool_call_id": "call_invented", "content": "order 9: gold"}
    ask([prompt_message(prompt), invented])
    return correct(prompt, shop)


def renames_a_call(prompt: str, shop: Shop) -> object:
    messages: list[Any] = [prompt_message(prompt)]
    while True:
        reply = ask(messages)
        sent = reply.to_dict()
        for made in sent.get("tool_calls") or ():
            made["function"]["name"] = "refund"
        messages.append(sent)
        if not reply.tool_calls:
            return reply.content
        messages += [result_message(made, run_call(made, shop)) for made in reply.tool_calls]


def changes_an_id(prompt: str, shop: Shop) -> object:
    messages: list[Any] = [prompt_message(prompt)]
    while True:
        reply = ask(messages)
        messages.append(reply.to_dict())
        if not reply.tool_calls:
            return reply.content
        for number, made in enumerate(reply.tool_calls):
            messages.append({**result_message(made, run_call(made, shop)), "tool_call_id": f"c{number}"})


def changes_an_argument(prompt: str, shop: Shop) -> object:
    shop.run, run = lambda name, arguments: run(name, {"number": arguments["number"] + 1}), shop.run
    return correct(prompt, shop)


def repeats_a_tool(prompt: str, shop: Shop) -> object:
    shop.run, run = lambda name, arguments: run(name, arguments) and run(name, arguments), shop.run
    return correct(prompt, shop)


def prompts_itself(prompt: str, shop: Shop) -> object:
    answer = correct(prompt, shop)
    ask([prompt_message("Was this right?")])
    return answer


def catches_the_error_of_the_script(prompt: str, shop: Shop) -> object:
    try:
        return asks_twice(prompt, shop)
    except Exception:  # noqa: BLE001 - that is what is wrong with it
        return "Refunded."


def offers_other_tools(prompt: str, _: Shop) -> object:
    return ask([prompt_message(prompt)], tools=("find_orders",)).content


def loses_its_system_prompt(prompt: str, shop: Shop) -> object:
    messages: list[Any] = [prompt_message(prompt)]
    while True:
        reply = ask(messages, system=SYSTEM if len(messages) == 1 else "Be brief.")
        messages.append(reply.to_dict())
        if not reply.tool_calls:
            return reply.content
        messages += [result_message(made, run_call(made, shop)) for made in reply.tool_calls]


def reaches_the_network(prompt: str, shop: Shop) -> object:
    answer = correct(prompt, shop)
    httpx.get("https://shop.example/refunds")
    return answer


BROKEN: dict[Callable[[str, Shop], object], list[str]] = {
    runs_no_tool: ["2 steps"],
    drops_a_result: ["§"],
    forgets_the_conversation: ["§"],
    swaps_two_results: ["§"],
    answers_before_the_tool_ran: ["§"],
    swallows_the_error_of_a_tool: ["§"],
    asks_twice: ["§"],
    never_stops: ["§"],
    edits_the_evidence: ["§"],
    leaves_a_thread_running: ["§"],
    leaves_a_task_running: ["§"],
    returns_nothing: ["§"],
    invents_an_answer: ["§"],
    invents_a_result: ["§"],
    renames_a_call: ["§"],
    changes_an_id: ["§"],
    changes_an_argument: ["§"],
    repeats_a_tool: ["§"],
    prompts_itself: ["§"],
    catches_the_error_of_the_script: ["§"],
    offers_other_tools: ["§"],
    loses_its_system_prompt: ["§"],
    reaches_the_network: ["§"],
}


def test_the_test_passes_for_the_correct_agent():
    check_agent(correct)


@pytest.mark.parametrize("agent", BROKEN, ids=lambda agent: agent.__name__)
def test_the_test_names_what_the_agent_did(agent: Callable[[str, Shop], object]):
    with pytest.raises((OffbookError, AssertionError)) as failure:
        check_agent(agent)
    message = str(failure.value)
    print(type(failure.value).__name__, message)
    assert [part for part in BROKEN[agent] if part not in message] == []
