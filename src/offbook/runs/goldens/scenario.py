"""Scenarios as code: what is done is recorded as steps while it is being done.

@scenario(filter="agent:*")
async def subscribe_filter(hub):
    hub.emit({"type": "agent:start"})
    hub.emit({"type": "harness:start"})
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from offbook.errors import DeadlineExceeded, UsageError, nearest
from offbook.runs.goldens.components.component import Component, bind_step, steps_of, write_step
from offbook.runs.goldens.fixture import Match, Rule, Step
from offbook.runs.goldens.replay import Observed, Performance

if TYPE_CHECKING:
    from collections.abc import Sequence

F = TypeVar("F", bound=Callable[..., object])
TAKE = "offbook_scenario"


class Take(NamedTuple):
    """A scenario that can be played: its function, and how what comes of it is compared."""

    name: str
    play: Callable[[Any], object]
    rule: Rule
    description: str
    needs: tuple[str, ...]
    timeout: float


def scenario(
    name: str = "",
    *,
    match: Match = "exact",
    filter: str | list[str] = "*",  # noqa: A002 - as the sidecar calls it
    unsubscribe_after_step: int | None = None,
    needs: Sequence[str] = (),
    timeout: float = 30.0,
) -> Callable[[F], F]:
    """Make a function of a component a scenario, called like it, with `-` for `_`.

    `needs` are the environment variables without which it cannot run for real.
    """

    def mark(function: F) -> F:
        rule = Rule(match, filter, unsubscribe_after_step)
        about = (function.__doc__ or "").partition("\n")[0]
        own = name or function.__name__.replace("_", "-")
        setattr(function, TAKE, Take(own, function, rule, about, tuple(needs), timeout))
        return function

    return mark


def scenario_of(value: object) -> Take | None:
    """What makes a function a scenario, if it is one."""
    return getattr(value, TAKE, None) if callable(value) else None


class Recording:
    """A component whose steps are written down as they are done; what is no step is refused."""

    def __init__(self, kind: type[Component], stage: Performance) -> None:
        self._kind = kind
        self._stage = stage
        self.steps: list[Step] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        known = {handler.method for handler in steps_of(self._kind).values()}
        if name not in known:
            raise UsageError(
                f"{name!r} is no step, so a replay could not repeat it", hint=nearest(name, known)
            )

        def perform(*args: Any, **named: Any) -> Any:
            one = write_step(self._kind, name, args, named)
            self.steps.append(one)
            return self._stage.begin(*bind_step(self._kind, one))

        return perform


async def play_take(kind: type[Component], take: Take) -> tuple[list[Step], Observed]:
    """Play a scenario on a real component: what was done, and what came of it."""
    stage = Performance(kind, f"record-{take.name}", take.name, take.rule)
    recording = Recording(kind, stage)

    async def play() -> None:
        answer = take.play(recording)
        if isawaitable(answer):
            await _within(answer, take)

    observed = await stage.play(play())
    return recording.steps, observed


async def _within(work: Awaitable[object], take: Take) -> None:
    try:
        async with asyncio.timeout(take.timeout):
            await work
    except TimeoutError as error:
        raise DeadlineExceeded(
            f"the scenario {take.name!r} took longer than {take.timeout:g} s",
            hint="give it more: @scenario(timeout=…)",
        ) from error
