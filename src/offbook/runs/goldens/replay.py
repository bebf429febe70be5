"""Plays scenarios on real components, and tells what is not as it was."""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from offbook.determinism.clock import FrozenClock
from offbook.errors import RunError, UsageError, nearest
from offbook.runs.goldens.components.component import Component, bind_step
from offbook.runs.goldens.matching import compare_events, show
from offbook.trace.hub import Hub, envelope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from offbook.runs.goldens.fixture import Rule, Scenario
    from offbook.trace.events import Event

    Find = Callable[[str], type[Component]]


class Observed(NamedTuple):
    """What came of a scenario: its events, and what the component tells of itself."""

    events: list[dict[str, Any]]
    state: dict[str, Any]


class Replayed(NamedTuple):
    """A scenario that was replayed, and all that was not as expected."""

    scenario: Scenario
    differences: list[str]

    @property
    def ok(self) -> bool:
        """Whether it is as it was."""
        return not self.differences

    def tell(self) -> str:
        """What was found, with the file and the line."""
        if self.ok:
            return f"{self.scenario.name}: as recorded"
        found = "\n".join(f"  {difference}" for difference in self.differences)
        return f"{self.scenario.where}: {self.scenario.name}\n{found}"


class Performance:
    """One component on a hub of its own while a scenario is played; time stands still."""

    def __init__(self, kind: type[Component], session_id: str, scenario: str, rule: Rule) -> None:
        self.hub = Hub(FrozenClock(), session_id=session_id)
        self.component = kind(self.hub, scenario)
        self._rule = rule
        self._heard: list[Event] = []
        self._stop = self.hub.subscribe(self._heard.append, rule.filter)
        self._steps = 0
        self._begun: list[str] = []

    def begin(self, method: str, arguments: dict[str, Any]) -> Any:
        """Do one step; one that takes time has to be awaited."""
        self._begun.append(method)
        answer = getattr(self.component, method)(**arguments)
        if isawaitable(answer):
            return self._complete(method, answer)
        self._count(method)
        return answer

    async def _complete(self, method: str, work: Awaitable[Any]) -> Any:
        answer = await work
        self._count(method)
        return answer

    def _count(self, method: str) -> None:
        self._begun.remove(method)
        self._steps += 1
        if self._steps == self._rule.unsubscribe_after_step:
            self._stop()

    async def finish(self) -> Observed:
        """What came of it, when all is quiet."""
        if self._begun:
            raise UsageError(
                f"the step {self._begun[0]!r} did not come to its end",
                hint=f"write `await ….{self._begun[0]}(…)`",
            )
        await self.hub.idle()
        self.hub.raise_errors()
        return Observed([plain(event) for event in self._heard], self.component.observe())

    async def play(self, work: Awaitable[object]) -> Observed:
        """Open the component, do this work on it, and close it whatever happens."""
        try:
            await self.component.open()
            await work
            return await self.finish()
        finally:
            await self.component.close()
            self.hub.close()


def plain(event: Event) -> dict[str, Any]:
    """An event as a fixture expects it: without id and time, which are only looked at."""
    whole = envelope(event)
    if not whole["id"] or whole["timestamp"].tzinfo is None:
        raise RunError(f"the envelope of {event.event} has no id or no time")
    return msgspec.to_builtins({"event": whole["event"], "context": whole["context"]})


async def replay(scenario: Scenario, kind: type[Component]) -> Replayed:
    """Play a scenario, and compare what comes of it with what it expects."""
    fixture = scenario.fixture
    stage = Performance(kind, fixture.session_id, fixture.scenario, scenario.rule)
    observed = await stage.play(_take_steps(scenario, kind, stage))
    return Replayed(scenario, find_differences(scenario, observed))


async def _take_steps(scenario: Scenario, kind: type[Component], stage: Performance) -> None:
    for number, one in enumerate(scenario.fixture.steps, start=1):
        where = f"{scenario.where}, step {number}"
        try:
            method, arguments = bind_step(kind, one)
        except UsageError as error:
            raise UsageError(error.what, where=where, hint=error.hint) from error
        try:
            answer = stage.begin(method, arguments)
            if isawaitable(answer):
                await answer
        except Exception as error:
            raise RunError(
                f"{one['type']} raised {type(error).__name__}: {error}", where=where
            ) from error


def find_differences(scenario: Scenario, observed: Observed) -> list[str]:
    """All that was not as expected. What is absent or null is not expected."""
    found: list[str] = []
    expected = {k: v for k, v in scenario.fixture.expect.items() if v is not None}
    if not expected:
        found.append("it expects nothing, so it proves nothing")
    for key, value in expected.items():
        if key == "events":
            found += compare_events(value, observed.events, scenario.rule.match)
        elif key not in observed.state:
            hint = nearest(key, {*observed.state, "events"})
            found.append(f"nothing tells {key!r}: {hint}")
        else:
            actual = msgspec.to_builtins(observed.state[key], enc_hook=repr)
            if show(actual) != show(value):
                found.append(f"{key}: expected {show(value)}, got {show(actual)}")
    return found


async def replay_all(scenarios: Iterable[Scenario], find: Find) -> list[Replayed]:
    """Replay these, one after another; what cannot be replayed is a difference as well."""
    done: list[Replayed] = []
    for scenario in scenarios:
        try:
            done.append(await replay(scenario, find(scenario.component)))
        except (UsageError, RunError) as error:
            done.append(Replayed(scenario, [str(error)]))
    return done
