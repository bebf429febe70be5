"""Scripted answers in place of an agent: `mock_responses`.

    MockBackend([{"hat": "planner", "output": "…"}, {"output": "LOOP_COMPLETE"}])

A response is used once. One with a `hat` or a `trigger_pattern` waits for a matching prompt.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from offbook.errors import ModelError, ScriptExhausted, ScriptMismatch, UsageError
from offbook.exchange.messages import Text
from offbook.exchange.model import Reply
from offbook.runs.backends import BackendResult
from offbook.secrets import excerpt
from offbook.trace.text_patterns import LiteralPattern, UserPattern, compile_pattern

if TYPE_CHECKING:
    from offbook.exchange.model import Request

PROMPT_PREVIEW = 80
EXAMPLE = '[{"output": "…\\nLOOP_COMPLETE"}]'


class MockResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One scripted answer; `hat` and `trigger_pattern` restrict the prompts that it matches."""

    output: str
    hat: str | None = None
    trigger_pattern: str | None = None
    exit_code: int = 0
    delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 0


class MockBackend:
    """Answers each prompt with the first unused response that matches it."""

    def __init__(self, responses: Sequence[MockResponse | Mapping[str, Any] | str] | None) -> None:
        if not responses:
            raise UsageError("the mock backend needs mock_responses", hint=EXAMPLE)
        if isinstance(responses, (str, Mapping)) or not isinstance(responses, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("mock_responses is a list", hint=EXAMPLE)
        self._unused: dict[int, MockResponse] = {}
        self._patterns: dict[str, UserPattern | LiteralPattern] = {}
        for number, raw in enumerate(responses, 1):
            try:
                fields = {"output": raw} if isinstance(raw, str) else raw
                response = msgspec.convert(fields, MockResponse)
            except msgspec.ValidationError as error:
                known = ", ".join(MockResponse.__struct_fields__)
                raise UsageError(
                    f"mock_responses[{number}]: {error}", hint=f"expected fields: {known}"
                ) from error
            self._unused[number] = response
            # Compiled here, so that an invalid pattern is reported before the run starts.
            if (source := response.trigger_pattern) is not None:
                field = f"mock_responses[{number}].trigger_pattern"
                self._patterns[source] = compile_pattern(source, field)
        self.consumed = 0

    @property
    def remaining(self) -> int:
        """The number of unused responses."""
        return len(self._unused)

    async def run_turn(self, hat: str, prompt: str, deadline: float) -> BackendResult:
        """Return the next response that matches, or raise a ScriptError."""
        for number, response in self._unused.items():
            if response.hat is not None and response.hat != hat:
                continue
            pattern = response.trigger_pattern
            if pattern is not None and self._patterns[pattern].search(prompt) is None:
                continue
            # Removed before the delay: a response that comes too late is used all the same.
            del self._unused[number]
            self.consumed += 1
            if response.delay_ms:
                await asyncio.wait_for(asyncio.sleep(response.delay_ms / 1000), deadline)
            return BackendResult(response.output, response.exit_code)
        if not self._unused:
            raise ScriptExhausted(
                f"mock_exhausted: all {self.consumed} mock responses are used",
                where=f"hat {hat!r}",
                hint="fix: add a response, or end the last one with the completion promise",
            )
        numbers = ", ".join(
            f"{number} (hat {response.hat})" if response.hat else str(number)
            for number, response in self._unused.items()
        )
        raise ScriptMismatch(
            f"no mock response matches: {len(self._unused)} remaining, numbers {numbers}",
            where=f"hat {hat!r}",
            hint=f'the prompt begins "{excerpt(prompt, PROMPT_PREVIEW)}"',
        )


class MockSource:
    """Mock responses as the model of the agent that an external orchestrator calls."""

    def __init__(self, mock: MockBackend, hat: str) -> None:
        self._mock = mock
        self._hat = hat

    async def reply(self, request: Request, /) -> Reply:
        """Return the next response that matches; one with an exit code becomes a model error."""
        result = await self._mock.run_turn(self._hat, request.prompt, math.inf)
        if result.exit_code:
            raise ModelError(result.output or f"exit code {result.exit_code}", status=500)
        return Reply((Text(result.output),))
