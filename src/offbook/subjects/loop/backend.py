"""Who does the work of an iteration: a script, the model of the stage, or a real command."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast

import msgspec

from offbook.errors import ScriptExhausted, ScriptMismatch, UsageError
from offbook.exchange.history import History
from offbook.exchange.messages import user
from offbook.exchange.request import Request
from offbook.subjects.process import isolate, run_process
from offbook.trace.patterns import Literal, Pattern, compile_pattern

if TYPE_CHECKING:
    from offbook.exchange.source import ModelSource
    from offbook.trace.hub import Hub

SHOWN = 80


class Acted(msgspec.Struct, frozen=True):
    """What an agent said in one iteration, and how it ended."""

    output: str
    exit_code: int = 0
    stderr: str = ""
    cost_usd: float | None = None
    tokens: int = 0
    told: frozenset[str] = frozenset()
    timed_out: bool = False


class Backend(Protocol):
    """Does the work of an iteration."""

    async def act(self, hat: str, prompt: str, seconds: float) -> Acted:
        """What comes of this prompt, under this hat; a TimeoutError after these seconds.

        What the backend told the hub itself it names in `told`: `output`, `cost`. An agent that was
        ended because its time was over has `timed_out`, and what it had said until then.
        """
        ...


class MockResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One scripted answer, for any iteration or only for those that fit."""

    output: str
    hat: str | None = None
    trigger_pattern: str | None = None
    exit_code: int = 0
    delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 0


class MockBackend:
    """Scripted answers: each iteration takes the first that fits and is not used."""

    def __init__(self, responses: Sequence[MockResponse | Mapping[str, Any] | str]) -> None:
        self._left = {at: _read(raw, at) for at, raw in enumerate(_listed(responses), 1)}
        self._patterns: dict[str, Pattern | Literal] = {}
        for at, response in self._left.items():
            if response.trigger_pattern is not None:
                source = response.trigger_pattern
                where = f"mock_responses[{at}].trigger_pattern"
                self._patterns[source] = compile_pattern(source, where)
        self.consumed = 0

    @property
    def remaining(self) -> int:
        """How many were not used."""
        return len(self._left)

    async def act(self, hat: str, prompt: str, seconds: float) -> Acted:
        """The next answer that fits."""
        for at, response in self._left.items():
            if self._fits(response, hat, prompt):
                del self._left[at]
                self.consumed += 1
                if response.delay_ms:
                    await asyncio.wait_for(asyncio.sleep(response.delay_ms / 1000), seconds)
                return Acted(response.output, response.exit_code)
        if not self._left:
            raise ScriptExhausted(
                f"mock_exhausted: all {self.consumed} mock responses are used",
                where=f"hat {hat!r}",
                hint="add a response, or let the last one keep the completion promise",
            )
        numbers = ", ".join(
            f"{at}{f' (hat {r.hat})' if r.hat else ''}" for at, r in self._left.items()
        )
        raise ScriptMismatch(
            f"no mock response fits: {len(self._left)} left, numbers {numbers}",
            where=f"hat {hat!r}",
            hint=f'the prompt begins "{prompt[:SHOWN]}"',
        )

    def _fits(self, response: MockResponse, hat: str, prompt: str) -> bool:
        if response.hat is not None and response.hat != hat:
            return False
        source = response.trigger_pattern
        return source is None or self._patterns[source].search(prompt) is not None


def _listed(responses: Any) -> Sequence[Any]:
    if isinstance(responses, (str, Mapping)) or not isinstance(responses, Sequence):
        raise UsageError("mock_responses is a list", hint='[{"output": "…\\nLOOP_COMPLETE"}]')
    return cast("Sequence[Any]", responses)


def _read(raw: MockResponse | Mapping[str, Any] | str, number: int) -> MockResponse:
    if isinstance(raw, str):
        return MockResponse(raw)
    if isinstance(raw, MockResponse):
        return raw
    try:
        return msgspec.convert(raw, MockResponse)
    except msgspec.ValidationError as error:
        known = ", ".join(MockResponse.__struct_fields__)
        raise UsageError(f"mock_responses[{number}]: {error}", hint=f"it takes {known}") from error


class SourceBackend:
    """The stage's own model: a playbook, mocks, a cassette, a live provider."""

    def __init__(self, source: ModelSource) -> None:
        self._source = source

    async def act(self, hat: str, prompt: str, seconds: float) -> Acted:
        """What the model answers."""
        request = Request(History([user(prompt)]), metadata={"hat": hat})
        reply = await asyncio.wait_for(self._source.reply(request), seconds)
        return Acted(reply.text, tokens=reply.usage.input + reply.usage.output)


class CommandBackend:
    """A real command: the prompt comes in at its standard input, or where `{prompt}` stands."""

    def __init__(
        self, command: Sequence[str], cwd: Path, home: Path, env: Mapping[str, str], hub: Hub
    ) -> None:
        self._command = list(command)
        self._cwd = cwd
        self._env = isolate(home, env)
        self._hub = hub

    async def act(self, hat: str, prompt: str, seconds: float) -> Acted:
        """What the command prints."""
        command = [part.replace("{prompt}", prompt) for part in self._command]
        stdin = b"" if command != self._command else prompt.encode()
        env = {**self._env, "OFFBOOK_HAT": hat}
        ended = await run_process(
            command, cwd=self._cwd, env=env, deadline=seconds, stdin=stdin, hub=self._hub
        )
        told = frozenset({"output"})
        return Acted(ended.stdout, ended.code, ended.stderr, told=told, timed_out=ended.timed_out)
