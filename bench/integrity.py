"""The cost of conversation integrity: the same work with and without the comparison of requests.

Budget: a prompt in a session and a served request take at most 3 % more CPU with it, by the lowest
of the rounds. With and without take turns, so both meet the same machine.
"""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

from offbook import Playbook, Server, call, say, session, when
from offbook.exchange.model import Request
from offbook.trace.hub import Hub
from offbook.trace.instrument import TracedSource

LIMIT = 1.03
ROUNDS = 15
PROMPTS = 100
TURNS = 20
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "read", "parameters": PARAMETERS}}


@contextmanager
def without_integrity() -> Generator[None]:
    """Switch the comparison off, with all that it keeps for later requests."""

    def find_none(_: Any, request: Request, known: int, *__: Any, **___: Any) -> str:
        return request.messages.digest(known)

    def do_nothing(*_: Any) -> bool:
        return False

    with (
        patch.object(TracedSource, "_note_said", do_nothing),
        patch.object(TracedSource, "_has_result", do_nothing),
        patch.object(TracedSource, "_find_changes", find_none),
    ):
        yield


def session_prompts() -> float:
    """Return the CPU microseconds of a prompt with one tool call in a session."""
    steps = [call("bash", {"command": "true"}), say("Done.")]

    async def measure() -> float:
        async with session(mock_tools={"bash": "ok"}) as rehearsal:
            await rehearsal.run(when("Go", steps))
            start = time.process_time()
            for _ in range(PROMPTS):
                await rehearsal.run(when("Go", steps))
            return (time.process_time() - start) / PROMPTS * 1e6

    return asyncio.run(measure())


def send_conversation(url: str) -> None:
    """Send a conversation that grows by a tool call and its result with each request."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go"}]
    for _ in range(TURNS):
        body = json.dumps({"model": "m", "messages": messages, "tools": [TOOL]})
        connection.request("POST", f"{address.path}/v1/chat/completions", body)
        message = json.load(connection.getresponse())["choices"][0]["message"]
        messages.append(message)
        messages += [
            {"role": "tool", "tool_call_id": made["id"], "content": "ok"}
            for made in message["tool_calls"]
        ]
    connection.close()


def served_requests() -> float:
    """Return the CPU microseconds of the server for a request; the client is another process."""
    playbook = Playbook()
    steps = [call("read", {"path": f"/a/{turn}.py"}) for turn in range(TURNS)]
    playbook.load(when("Go", [*steps, say("Done.")]))
    with Server() as server:
        url = server.mount(playbook, hub=Hub()).url
        client = get_context("forkserver").Process(target=send_conversation, args=(url,))
        client.start()
        start = time.process_time()
        client.join()
        used = time.process_time() - start
    if client.exitcode:
        sys.exit(f"the client failed with exit code {client.exitcode}")
    return used / TURNS * 1e6


def compare(work: Callable[[], float]) -> tuple[float, float]:
    """Return the lowest cost with and without integrity."""
    work()
    costs: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        gc.collect()
        costs[0].append(work())
        with without_integrity():
            gc.collect()
            costs[1].append(work())
    return min(costs[0]), min(costs[1])


def main() -> int:
    """Measure, print, and return 1 if the budget is exceeded."""
    failed = False
    for name, work in (
        ("prompt in a session", session_prompts),
        ("served request", served_requests),
    ):
        cost, floor = compare(work)
        holds = cost / floor <= LIMIT
        failed = failed or not holds
        print(
            f"{name:22} {cost:6.0f} µs with integrity, {floor:6.0f} µs without: "
            f"{cost / floor:.3f} x  {'ok' if holds else 'OVER BUDGET'}"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
