"""Replay: run the steps of a golden scenario on a real component and compare the results."""

from __future__ import annotations

from inspect import isawaitable
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast

import msgspec

from offbook.determinism.run_context import FrozenClock
from offbook.errors import OffbookError, RunError, UsageError, did_you_mean
from offbook.goldens.components import bind_step
from offbook.goldens.session_hub import SessionHub, event_data
from offbook.trace.components import BaseComponent
from offbook.trace.events import TOOL_CALL, TOOL_END, TOOL_START
from offbook.trace.hub import check_name_filter, name_matches
from offbook.trace.matching import MISSING, Note, align, find_mismatches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from offbook.goldens.fixture_store import GoldenFixture, GoldenScenario, MatchMode, MatchRule
    from offbook.trace.events import Event, EventData, Verdict
    from offbook.trace.hub import NameFilter

    FindComponent = Callable[[str], type[BaseComponent]]

JsonObject = dict[str, Any]
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


class Observation(NamedTuple):
    """The result of a scenario: its events, and the state that the component reports."""

    events: list[JsonObject]
    state: JsonObject


class GoldenReplay(NamedTuple):
    """A replayed scenario and its differences from the expected result."""

    scenario: GoldenScenario
    differences: list[str]

    @property
    def ok(self) -> bool:
        """True if there is no difference."""
        return not self.differences

    def render(self) -> str:
        """Return the differences as text, with the file and the line of the scenario."""
        lines = [f"{self.scenario.location}: {self.scenario.name}", *self.differences]
        return "\n  ".join(lines)


class _RecordedHub(SessionHub):
    """A hub that keeps the events of a scenario, each as it was when it was emitted.

    Not a listener: a component may change the data of an event before the event is delivered.
    """

    def __init__(self, session_id: str, names: NameFilter) -> None:
        # timestamps and durations are the same in every run
        super().__init__(FrozenClock(), session_id=session_id)
        check_name_filter(names)
        self._names = names
        self.recording = True
        self.recorded: list[JsonObject] = []

    def emit(
        self,
        event: str,
        data: dict[str, Any] | None = None,
        *,
        parent: str = "",
        context: dict[str, Any] | None = None,
    ) -> Event:
        if self.recording and name_matches(event, self._names):
            # id and timestamp differ between runs, so fixtures do not contain them
            kept = {
                "event": event_data(event, data or {}),
                "context": {**self.current(), **(context or {})},
            }
            try:
                self.recorded.append(msgspec.to_builtins(kept))
            except TypeError as error:
                raise RunError(
                    f"JSON cannot represent the event {event!r}: {error}",
                    hint="emit text, numbers, lists and dicts",
                ) from error
        return super().emit(event, data, parent=parent, context=context)

    def emit_data(self, data: EventData | Verdict) -> None:
        self.emit(data.event_name, data.as_dict())


class ScenarioPlayer:
    """A new component on its own hub, with a frozen clock, that runs one scenario."""

    def __init__(
        self, component_class: type[BaseComponent], session_id: str, scenario: str, rule: MatchRule
    ) -> None:
        self.hub = _RecordedHub(session_id, rule.filter)
        self.component = component_class(self.hub, scenario)
        self._rule = rule
        self._finished_steps = 0
        self._running_steps: list[str] = []

    def start_step(self, method: str, arguments: dict[str, Any]) -> Any:
        """Call the method of a step. The caller awaits the result if it is awaitable."""
        self._running_steps.append(method)
        result = getattr(self.component, method)(**arguments)
        if not isawaitable(result):  # steps may be plain or async methods
            self._finish_step(method)
            return result

        async def wait() -> Any:
            value = await result
            self._finish_step(method)
            return value

        return wait()

    def _finish_step(self, method: str) -> None:
        self._running_steps.remove(method)
        self._finished_steps += 1
        if self._finished_steps == self._rule.unsubscribe_after_step:
            self.hub.recording = False

    async def play(self, run_steps: Callable[[], Awaitable[object]]) -> Observation:
        """Open the component, run the steps, observe it, and close it in any case."""
        try:
            await self.component.open()
            await run_steps()
            if self._running_steps:
                method = self._running_steps[0]
                raise UsageError(
                    f"the step {method!r} was not awaited", hint=f"write `await ….{method}(…)`"
                )
            # asynchronous listeners may still emit, and an error of a listener fails the scenario
            await self.hub.idle()
            self.hub.raise_errors()
            # a copy, since close() may change it; it may contain objects that JSON cannot represent
            state = msgspec.to_builtins(self.component.observe(), enc_hook=repr)
            return Observation(
                mask_volatile(self.hub.recorded, self._rule.volatile),
                mask_volatile(state, self._rule.volatile),
            )
        finally:
            await self.component.close()
            self.hub.close()


async def replay(scenario: GoldenScenario, component_class: type[BaseComponent]) -> GoldenReplay:
    """Run the steps of a scenario and compare the result with the expected one."""
    fixture = scenario.fixture
    player = ScenarioPlayer(component_class, fixture.session_id, fixture.scenario, scenario.rule)

    async def run_steps() -> None:
        for number, step in enumerate(fixture.steps, start=1):
            location = f"{scenario.location}, step {number}"
            try:
                method, arguments = bind_step(component_class, step)
            except UsageError as error:
                raise UsageError(error.what, where=location, hint=error.hint) from error
            try:
                result = player.start_step(method, arguments)
                if isawaitable(result):
                    await result
            except Exception as error:
                raise RunError(
                    f"{step['type']} raised {type(error).__name__}: {error}", where=location
                ) from error

    observation = await player.play(run_steps)
    return GoldenReplay(scenario, diff_scenario(scenario, observation))


async def replay_all(
    scenarios: Iterable[GoldenScenario], find_component: FindComponent
) -> list[GoldenReplay]:
    """Replay scenarios one after another. An exception of a replay counts as its difference."""
    replays: list[GoldenReplay] = []
    for scenario in scenarios:
        try:
            replays.append(await replay(scenario, find_component(scenario.component)))
        except Exception as error:  # noqa: BLE001 - a component may raise anything
            replays.append(GoldenReplay(scenario, [describe_exception(error)]))
    return replays


def describe_exception(error: Exception) -> str:
    """Return an exception of a scenario as one text, with the line that raised it."""
    if isinstance(error, OffbookError):
        return str(error)
    place = extract_tb(error.__traceback__)[-1]
    return f"raised {type(error).__name__}: {error} (at {place.filename}:{place.lineno})"


def diff_scenario(scenario: GoldenScenario, observation: Observation) -> list[str]:
    """Compare a result with the fixture. An absent field is not compared, nor null in version 1."""
    differences: list[str] = []
    fixture, expected = scenario.fixture, scenario.fixture.expect
    if fixture.version == 1:
        expected = {key: value for key, value in expected.items() if value is not None}
    if not expected:
        differences.append("the fixture expects nothing, so the replay checks nothing")
    for key, value in expected.items():
        if key == "events" and not value and scenario.rule.match != "exact":
            differences.append(
                f"the fixture expects no event, and {scenario.rule.match!r} allows any: its events"
                " check nothing; compare them exactly, or leave them out"
            )
        elif key == "events":
            actual = _as_recorded(fixture, observation.events)
            found = compare_events(value, actual, scenario.rule.match)
            differences += found
            # of another project: the file does not say which events its listener received
            if found and "provenance" not in fixture.metadata:
                modes: tuple[MatchMode, ...] = ("prefix", "subset")
                fitting = [mode for mode in modes if not compare_events(value, actual, mode)]
                rule = f'{{"match": "{fitting[0]}"}}' if fitting else ""
                differences += [f"the events match with {rule} in its sidecar"] if rule else []
        elif key not in observation.state:
            hint = did_you_mean(key, {*observation.state, "events"})
            differences.append(f"the component does not report {key!r}: {hint}")
        else:
            actual = observation.state[key]
            differences += diff_values(value, actual, key)
    return differences


JSON_TYPES = {
    bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object",
    type(None): "null",
}  # fmt: skip
VOLATILE_MARKS = {f"[{name}]" for name in JSON_TYPES.values()}


def mask_volatile(value: Any, names: list[str], path: str = "") -> Any:
    """Return a JSON value with the type of each volatile field in place of its value.

    A field is named by the end of its path: `id`, or `order.id`.
    """
    if any(f".{path}".endswith(f".{name}") for name in names):
        return f"[{JSON_TYPES[type(value)]}]"
    if _is_object(value):
        return {
            key: mask_volatile(inner, names, f"{path}.{key}" if path else key)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [mask_volatile(inner, names, path) for inner in cast("list[Any]", value)]
    return value


def _as_recorded(fixture: GoldenFixture, actual: list[JsonObject]) -> list[JsonObject]:
    """Return the events without what the first recordings of version 1 do not have.

    These are the executions of their tool calls, and the field `observed` of the calls.
    """
    if fixture.version > 1 or "provenance" not in fixture.metadata:  # of another project
        return actual
    recorded = [event.get("event", {}) for event in fixture.expect["events"]]
    executions = {TOOL_START, TOOL_END}
    if any(event.get("type") in executions for event in recorded):
        return actual
    calls = [event.get("call_id") for event in recorded if event.get("type") == TOOL_CALL]
    kept: list[JsonObject] = []
    for event in actual:
        data = event["event"]
        if data["type"] == TOOL_CALL:
            data = {key: value for key, value in data.items() if key != "observed"}
        if data["type"] not in executions or data.get("call_id") not in calls:
            kept.append({**event, "event": data})
    return kept


def compare_events(
    expected: list[JsonObject], actual: list[JsonObject], match: MatchMode
) -> list[str]:
    """Return the differences between two lists of events under a match mode."""
    if match == "subset":
        remaining = iter(actual)
        for number, event in enumerate(expected):
            # any() consumes the iterator up to the match, which keeps the order
            if not any(is_subset(event, candidate) for candidate in remaining):
                names = canonical_json([got.get("event", {}).get("type") for got in actual])
                return [f"events[{number}]: expected {canonical_json(event)} in order, got {names}"]
        return []
    wanted, found = ([canonical_json(event) for event in side] for side in (expected, actual))
    if wanted == (found[: len(wanted)] if match == "prefix" else found):
        return []
    differences: list[str] = []
    pairs = list(align(expected, actual, canonical_json, lambda _: "event"))
    if match == "prefix":  # further events at the end are permitted
        while pairs and pairs[-1][0] is None:
            pairs.pop()
    for want, got in pairs:
        if want is None and got is not None:
            differences.append(f"events[{got}]: expected no such event, got {found[got]}")
        elif got is None and want is not None:
            differences.append(f"events[{want}]: expected {wanted[want]}, got no such event")
        elif want is not None and got is not None:
            differences += diff_values(expected[want], actual[got], f"events[{got}]")
    return differences


def diff_values(expected: Any, actual: Any, path: str) -> list[str]:
    """Return the places at which two JSON values differ, each with both values."""
    found = find_mismatches(actual, expected, matches=_same_json, subset="none", path=path)
    return [f"{at}: expected {_render(want)}, got {_render(got)}" for at, want, got in found]


def _same_json(actual: Any, expected: Any) -> bool:
    return canonical_json(actual) == canonical_json(expected)


def _render(value: Any) -> str:
    if value is MISSING:
        return "no such field"
    return str(value) if isinstance(value, Note) else canonical_json(value)


def is_subset(expected: Any, actual: Any) -> bool:
    """Return True if a JSON value has all expected fields; objects may have more."""
    if _is_object(expected) and _is_object(actual):
        return all(key in actual and is_subset(expected[key], actual[key]) for key in expected)
    return canonical_json(expected) == canonical_json(actual)


def _is_object(value: Any) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)


def canonical_json(value: object) -> str:
    """Return a value as JSON with sorted keys. In it 1, 1.0 and true differ, unlike in Python."""
    return _encode_sorted(value).decode()
