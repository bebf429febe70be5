"""A call of the OpenAI SDK, answered in process: against its mock transport with the same bytes.

Budget: at most 10 % more CPU, with everything enabled (network guard, dialect, playbook, trace on
disk), for 200 and for 10,000 scripted replies. All prompts differ.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import openai

from offbook.determinism.network_guard import block_network
from offbook.exchange.model import Reply, Request
from offbook.exchange.providers import detect_dialect
from offbook.sources.inprocess.patching import intercept
from offbook.sources.playbook.actions import say, when
from offbook.sources.playbook.playbook import Playbook
from offbook.sources.server.endpoint import Endpoint
from offbook.trace.hub import Hub
from offbook.trace.recorder import Recorder

CALLS, ROUNDS, BUDGET = 200, 9, 1.10
_numbers = count()


def ask(client: openai.OpenAI) -> None:
    """Make one call."""
    messages: Any = [{"role": "user", "content": f"What is the capital of state {next(_numbers)}?"}]
    client.chat.completions.create(model="gpt-5", messages=messages)


def cost(client: openai.OpenAI) -> float:
    """Return the CPU microseconds of one call."""
    gc.collect()
    start = time.process_time()
    for _ in range(CALLS):
        ask(client)
    return (time.process_time() - start) / CALLS * 1e6


class Turns:
    """A playbook that opens a turn for each request."""

    def __init__(self, number: int) -> None:
        self._playbook = Playbook()
        self._turns = [when("What?", [say("Paris.")]) for _ in range(number)]
        self._playbook.load(*self._turns)

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply of the next turn."""
        self._playbook.open(self._turns[self._playbook.consumed])
        return await self._playbook.reply(request)


def ours(client: openai.OpenAI, number: int) -> float:
    """Measure our answers in process, with everything enabled."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        hub = Hub()
        recorder = Recorder(Path(folder) / "trace.jsonl", ts=0, subject="bench")
        stack.callback(recorder.close)
        hub.subscribe(recorder.record)
        endpoint = Endpoint(Turns(number), url="", detect_dialect=detect_dialect, hub=hub)
        stack.enter_context(block_network())
        stack.enter_context(intercept(endpoint.answer))
        return cost(client)


def main() -> int:
    """Measure in turns, so that other load on the machine affects both."""
    plain = openai.OpenAI(api_key="none")
    raw = _record_response(plain)
    mock = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=raw[0], content=raw[1]))
    mocked = openai.OpenAI(api_key="none", http_client=httpx2.Client(transport=mock))
    few: list[float] = []
    many: list[float] = []
    base = [cost(mocked) for _ in range(ROUNDS)]  # before the network guard, whose audit hook stays
    for _ in range(ROUNDS):
        base.append(cost(mocked))
        few.append(ours(plain, CALLS))
        many.append(ours(plain, 10_000))
    floor = min(base)
    print(f"the SDK over its mock transport   {floor:7.0f} µs")
    print(f"in process                        {min(few):7.0f} µs   {min(few) / floor:.3f}")
    print(f"in process, 10,000 replies        {min(many):7.0f} µs   {min(many) / floor:.3f}")
    return int(max(min(few), min(many)) / floor > BUDGET)


def _record_response(client: openai.OpenAI) -> tuple[dict[str, str], bytes]:
    """Return our dialect's response, for the mock transport to send too."""
    endpoint = Endpoint(Turns(1), url="", detect_dialect=detect_dialect)
    with intercept(endpoint.answer):
        messages: Any = [{"role": "user", "content": "What is the capital of France?"}]
        raw = client.chat.completions.with_raw_response.create(model="gpt-5", messages=messages)
    return dict(raw.headers), raw.content


if __name__ == "__main__":
    sys.exit(main())
