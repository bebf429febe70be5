"""Two dozen agents, each wrong in its own way: one ordinary test fails for each of them.

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
        self.task: object = None
        self.closed = threading.Event()

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


def leaves_the_work_to_a_thread(_prompt: str, shop: Shop) -> object:
    threading.Thread(target=shop.closed.wait, name="till clerk", daemon=True).start()
    return "Refunded."


async def leaves_the_work_to_a_task(_prompt: str, shop: Shop) -> object:
    shop.task = asyncio.create_task(asyncio.Event().wait(), name="till clerk")
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
            messages.append(
                {**result_message(made, run_call(made, shop)), "tool_call_id": f"c{number}"}
            )


def changes_an_argument(prompt: str, shop: Shop) -> object:
    run = shop.run

    def run_next(name: str, arguments: JSON) -> str:
        return run(name, {"number": arguments["number"] + 1})

    shop.run = run_next
    return correct(prompt, shop)


def repeats_a_tool(prompt: str, shop: Shop) -> object:
    run = shop.run

    def run_twice(name: str, arguments: JSON) -> str:
        run(name, arguments)
        return run(name, arguments)

    shop.run = run_twice
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


STOPPED = "got: the agent stopped after step 1."
NOT_STARTED = "got: the agent stopped before the first step"
LOST = "the result of call find_order never came back"
REFUSED = "the provider refused the request"
ORPHAN = "messages with role 'tool' must be a response to a preceeding message"
ANOTHER_REQUEST = "playbook exhausted: the turn ended with step 3."
BROKEN: dict[Callable[[str, Shop], object], list[str]] = {
    runs_no_tool: ["2 actions remaining", STOPPED, "and sent no result of find_order"],
    drops_a_result: [REFUSED, "tool_call_ids did not have response messages"],
    forgets_the_conversation: [LOST, "got: no request has it"],
    swaps_two_results: ["('find_order', {'number': 7}, 'order 8: one lamp')"],
    answers_before_the_tool_ran: ["('find_order', {'number': 7}, 'started')"],
    swallows_the_error_of_a_tool: ["('refund', {'number': 7}, 'ok')"],
    asks_twice: [ANOTHER_REQUEST, 'got: a user message: "Refund order 7"'],
    never_stops: [ANOTHER_REQUEST, "got: a request with nothing new in it"],
    edits_the_evidence: ["trace.jsonl: the trace was changed while the agent ran"],
    leaves_the_work_to_a_thread: [NOT_STARTED, "left running: the thread till clerk"],
    leaves_the_work_to_a_task: [NOT_STARTED, "left running: the task till clerk"],
    returns_nothing: ["assert None == 'Refunded.'"],
    invents_an_answer: ["+ Refunded, and here is a voucher."],
    invents_a_result: [REFUSED, ORPHAN],
    renames_a_call: ["a call that the model never made", "expected: find_order(", "got: refund("],
    changes_an_id: [REFUSED, ORPHAN],
    changes_an_argument: ["('find_order', {'number': 7}, 'order 8: one lamp')"],
    repeats_a_tool: ["assert [7, 7] == [7]"],
    prompts_itself: [ANOTHER_REQUEST, 'got: a user message: "Was this right?"'],
    catches_the_error_of_the_script: [ANOTHER_REQUEST],
    offers_other_tools: ["the agent does not offer 'find_order'"],
    loses_its_system_prompt: ["'Be brief.'"],
    reaches_the_network: ["in reaches_the_network: tried to look up shop.example:443"],
}

# Programs: one that works in a process that left, one that fails, one that does not end.
COMMANDS = {
    "forks away": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)",
        [NOT_STARTED, "left running: 1 process in the background, now ended"],
    ),
    "exits with an error": (
        "import sys\nsys.exit('no till')",
        ["failed with exit code 1", "no till"],
    ),
    "hangs": (
        "import time\ntime.sleep(60)",
        ["was still running after 1 s and was killed"],
    ),
}


def test_the_test_passes_for_the_correct_agent():
    check_agent(correct)


@pytest.mark.parametrize("agent", BROKEN, ids=lambda agent: agent.__name__)
def test_the_test_names_what_the_agent_did(agent: Callable[[str, Shop], object]):
    with pytest.raises((OffbookError, AssertionError)) as failure:
        check_agent(agent)
    message = str(failure.value)
    assert [part for part in BROKEN[agent] if part not in message] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_fails_that(name: str):
    program, expected = COMMANDS[name]
    command = Command([sys.executable, "-c", program], deadline=1 if name == "hangs" else 60)
    with pytest.raises(OffbookError) as failure, drive(command) as rehearsal:
        rehearsal.run(SCRIPT)
    message = str(failure.value)
    assert [part for part in expected if part not in message] == []
