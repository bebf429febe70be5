"""A prompt with one tool call in bare Python: what a prompt in a session costs without Offbook.

It does what the work requires, with the same libraries, and nothing else: the loop with its awaits,
the messages with their digests, the tool, both checks of its arguments against the schema, and the
lines of the trace: encoded, searched for the words of secrets, kept, written and hashed, before the
tool runs and at the end. It compares no conversation, checks no script, guards nothing, and has no
hooks, faults, mocks or tapes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import jsonschema_rs
import msgspec

from offbook.secrets import _rules_by_word, word_finder  # pyright: ignore[reportPrivateUsage] - the same words

Search = Callable[[bytes], object]
STEPS = [
    {"type": "tool_call", "id": "call_1", "name": "weather", "arguments": {"city": "Rome"}},
    {"type": "text", "text": "It is sunny."},
]


def search_secrets() -> Search:
    """Return a search for the words of secrets, in one pass, as that of a trace."""
    find = word_finder(_rules_by_word()[0], table=True)
    return lambda text: find(text.lower())


class Prompts:
    """Prompts of one conversation, and their trace in a file."""

    def __init__(self, schema: dict[str, Any], file: int, search: Search | None) -> None:
        self._validator = jsonschema_rs.validator_for(schema)
        self._encode = msgspec.json.Encoder(order="sorted").encode
        self._encode_lines = msgspec.json.Encoder().encode_lines
        self._file, self._search = file, search
        self._written, self._kept = blake2b(), bytearray()
        self._messages: list[dict[str, Any]] = []
        self._digests = [""]
        self._lines: list[dict[str, Any]] = []

    async def run(self) -> None:
        """Send one prompt, and run the call that the model answers with."""
        self._emit("_meta.run_start", subject="session", turns=1)
        self._emit("agent.start", prompt="Weather?")
        self._add("user", type="text", text="Weather?")
        for step in STEPS:
            made = await self._reply(step)
            if made["type"] == "tool_call":
                await self._call(made)
        self._emit("agent.end", stop="stop")
        self._emit("check.verdict", check="playbook consumed", status="pass", actual=2)
        self._emit("_meta.run_end", ok=True, output="It is sunny.")
        self._write()

    async def _reply(self, step: dict[str, Any]) -> dict[str, Any]:
        digests = self._digests
        new = self._messages[-1:]
        self._emit("model.request", before=digests[-2], after=digests[-1], new=new, head="h")
        assert "arguments" not in step or self._validator.is_valid(step["arguments"])
        self._add("assistant", **step)
        usage = {"input": 331, "output": 4}
        self._emit("model.reply", after=digests[-1], blocks=[step], stop="stop", usage=usage)
        return step

    async def _call(self, call: dict[str, Any]) -> None:
        call_id, name, given = call["id"], call["name"], call["arguments"]
        self._emit("tool.call", call_id=call_id, tool=name, input=given, step=1)
        assert self._validator.is_valid(given)
        self._emit("tool.start", call_id=call_id, tool=name, input=given, number=1)
        self._write()
        began = time.perf_counter_ns()
        result = f"sunny in {given['city']}"
        took = (time.perf_counter_ns() - began) / 1_000_000
        self._emit("tool.end", call_id=call_id, tool=name, ms=took, is_error=False)
        self._emit("tool.result", call_id=call_id, tool=name, content=result, step=1)
        self._add("tool", type="tool_result", call_id=call_id, content=result)

    def _emit(self, event: str, **data: Any) -> None:
        self._lines.append({"ts": time.time_ns() // 1_000_000, "event": event, "data": data})

    def _write(self) -> None:
        text = self._encode_lines(self._lines)
        self._lines.clear()
        self._kept.extend(text)
        if self._search is not None:
            self._search(text)
        self._written.update(text)
        os.write(self._file, text)

    def _add(self, role: str, **block: Any) -> None:
        self._messages.append({"role": role, "blocks": [block]})
        raw = self._digests[-1].encode() + self._encode(self._messages[-1])
        self._digests.append(blake2b(raw, digest_size=12).hexdigest())
