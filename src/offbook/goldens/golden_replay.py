"""Compares events with those that were expected: exactly, as a beginning, or as a part."""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from offbook.determinism.clock import FrozenClock
from offbook.errors import RunError, UsageError, did_you_mean
from offbook.goldens.components import Component, bind_step
from offbook.goldens.session_hub import SessionHub, event_envelope

if TYPE_CHECKING:
    from offbook.goldens.fixture_store import MatchMode


# --- Compares events with those that were expected: exactly, as a beginning, or as a part.

JsonObject = dict[str, Any]
_encode = msgspec.json.Encoder(order="deterministic").encode


def canonical_json(value: object) -> str:
    """A value as JSON, whose order of keys never matters; 1, 1.0 and true are different."""
    return _encode(value).decode()


def compare_events(
    expected: list[JsonObject], actual: list[JsonObject], match: MatchMode
) -> list[str]:
    """What is not as expected, under this way of comparing."""
    if match == "subset":
        return _compare_parts(expected, actual)
    found = [
        f"events[{number}]{difference}"
        for number, (want, got) in enumerate(zip(expected, actual, strict=False))
        for difference in diff_values(want, got)
    ]
    found += [
        f"events[{number}]: expected {canonical_json(expected[number])}, but nothing more came"
        for number in range(len(actual), len(expected))
    ]
    if match == "exact":
        found += [
            f"events[{number}]: expected nothing more, got {canonical_json(actual[number])}"
            for number in range(len(expected), len(actual))
        ]
    return found


def diff_values(want: Any, got: Any) -> list[str]:
    """The paths at which two values differ, each with both sides."""
    if _are_objects(want, got):
        wanted, came = cast("JsonObject", want), cast("JsonObject", got)
        found: list[str] = []
        for key in {**wanted, **came}:
            if key not in came:
                found.append(f".{key}: expected {canonical_json(wanted[key])}, but it is not there")
            elif key not in wanted:
                found.append(f".{key}: expected nothing, got {canonical_json(came[key])}")
            else:
                found += [f".{key}{deeper}" for deeper in diff_values(wanted[key], came[key])]
        return found
    return (
        []
        if canonical_json(want) == canonical_json(got)
        else [f": expected {canonical_json(want)}, got {canonical_json(got)}"]
    )


def _compare_parts(expected: list[JsonObject], actual: list[JsonObject]) -> list[str]:
    rest = iter(actual)
    for number, want in enumerate(expected):
        if not any(is_part(want, got) for got in rest):
            names = [got.get("event", {}).get("type") for got in actual]
            return [
                f"events[{number}]: nothing like {canonical_json(want)} among {canonical_json(names)}, in order"
            ]
    return []


def is_part(want: Any, got: Any) -> bool:
    """Whether all that is wanted is there; objects may have more keys."""
    if _are_objects(want, got):
        wanted, came = cast("JsonObject", want), cast("JsonObject", got)
        return all(key in came and is_part(value, came[key]) for key, value in wanted.items())
    return canonical_json(want) == canonical_json(got)


def _are_objects(*values: object) -> bool:
    return all(isinstance(value, dict) for value in values)


# --- Plays scenarios on real components, and tells what is not as it was.

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from offbook.goldens.fixture_store import GoldenScenario, MatchRule
    from offbook.trace.events import Event

    Find = Callable[[str], type[Component]]


class Observation(NamedTuple):
    """What came of a scenario: its events, and what the component tells of itself."""

    events: list[dict[str, Any]]
    state: dict[str, Any]


class GoldenReplay(NamedTuple):
    """A scenario that was replayed, and all that was not as expected."""

    scenario: GoldenScenario
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


class ScenarioPlayer:
    """One component on a hub of its own while a scenario is played; time stands still."""

    def __init__(
        self, kind: type[Component], session_id: str, scenario: str, rule: MatchRule
    ) -> None:
        self.hub = SessionHub(FrozenClock(), session_id=session_id)
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

    async def finish(self) -> Observation:
        """What came of it, when all is quiet."""
        if self._begun:
            raise UsageError(
                f"the step {self._begun[0]!r} did not come to its end",
                hint=f"write `await ….{self._begun[0]}(…)`",
            )
        await self.hub.idle()
        self.hub.raise_errors()
        return Observation([plain(event) for event in self._heard], self.component.observe())

    async def play(self, work: Awaitable[object]) -> Observation:
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
    whole = event_envelope(event)
    if not whole["id"] or whole["timestamp"].tzinfo is None:
        raise RunError(f"the envelope of {event.event} has no id or no time")
    return msgspec.to_builtins({"event": whole["event"], "context": whole["context"]})


async def replay(scenario: GoldenScenario, kind: type[Component]) -> GoldenReplay:
    """Play a scenario, and compare what comes of it with what it expects."""
    fixture = scenario.fixture
    stage = ScenarioPlayer(kind, fixture.session_id, fixture.scenario, scenario.rule)
    observed = await stage.play(_take_steps(scenario, kind, stage))
    return GoldenReplay(scenario, diff_scenario(scenario, observed))


async def _take_steps(
    scenario: GoldenScenario, kind: type[Component], stage: ScenarioPlayer
) -> None:
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


def diff_scenario(scenario: GoldenScenario, observed: Observation) -> list[str]:
    """All that was not as expected. What is absent or null is not expected."""
    found: list[str] = []
    expected = {k: v for k, v in scenario.fixture.expect.items() if v is not None}
    if not expected:
        found.append("it expects nothing, so it proves nothing")
    for key, value in expected.items():
        if key == "events":
            found += compare_events(value, observed.events, scenario.rule.match)
        elif key not in observed.state:
            hint = did_you_mean(key, {*observed.state, "events"})
            found.append(f"nothing tells {key!r}: {hint}")
        else:
            actual = msgspec.to_builtins(observed.state[key], enc_hook=repr)
            if canonical_json(actual) != canonical_json(value):
                found.append(
                    f"{key}: expected {canonical_json(value)}, got {canonical_json(actual)}"
                )
    return found


async def replay_all(scenarios: Iterable[GoldenScenario], find: Find) -> list[GoldenReplay]:
    """Replay these, one after another; what cannot be replayed is a difference as well."""
    done: list[GoldenReplay] = []
    for scenario in scenarios:
        try:
            done.append(await replay(scenario, find(scenario.component)))
        except (UsageError, RunError) as error:
            done.append(GoldenReplay(scenario, [str(error)]))
    return done
