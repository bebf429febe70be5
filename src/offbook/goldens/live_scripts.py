"""Scenarios as code: what is done is recorded as steps while it is being done.

@scenario(filter="agent:*")
async def subscribe_filter(hub):
    hub.emit({"type": "agent:start"})
    hub.emit({"type": "harness:start"})
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isawaitable, isclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from offbook.errors import DeadlineExceeded, UsageError, did_you_mean
from offbook.files import run_source
from offbook.goldens.components import Component, bind_step, steps_of, write_step
from offbook.goldens.fixture_store import MatchMode, MatchRule, StepDict
from offbook.goldens.golden_replay import Observation, ScenarioPlayer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import ModuleType


# --- Scenarios as code: what is done is recorded as steps while it is being done.

F = TypeVar("F", bound=Callable[..., object])
SCENARIO_ATTRIBUTE = "offbook_scenario"


class ScenarioDef(NamedTuple):
    """A scenario that can be played: its function, and how what comes of it is compared."""

    name: str
    play: Callable[[Any], object]
    rule: MatchRule
    description: str
    needs: tuple[str, ...]
    timeout: float


def scenario(
    name: str = "",
    *,
    match: MatchMode = "exact",
    filter: str | list[str] = "*",  # noqa: A002 - as the sidecar calls it
    unsubscribe_after_step: int | None = None,
    needs: Sequence[str] = (),
    timeout: float = 30.0,
) -> Callable[[F], F]:
    """Make a function of a component a scenario, called like it, with `-` for `_`.

    `needs` are the environment variables without which it cannot run for real.
    """

    def mark(function: F) -> F:
        rule = MatchRule(match, filter, unsubscribe_after_step)
        about = (function.__doc__ or "").partition("\n")[0]
        own = name or function.__name__.replace("_", "-")
        setattr(
            function,
            SCENARIO_ATTRIBUTE,
            ScenarioDef(own, function, rule, about, tuple(needs), timeout),
        )
        return function

    return mark


def scenario_of(value: object) -> ScenarioDef | None:
    """What makes a function a scenario, if it is one."""
    return getattr(value, SCENARIO_ATTRIBUTE, None) if callable(value) else None


class StepRecorder:
    """A component whose steps are written down as they are done; what is no step is refused."""

    def __init__(self, kind: type[Component], stage: ScenarioPlayer) -> None:
        self._kind = kind
        self._stage = stage
        self.steps: list[StepDict] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        known = {handler.method for handler in steps_of(self._kind).values()}
        if name not in known:
            raise UsageError(
                f"{name!r} is no step, so a replay could not repeat it",
                hint=did_you_mean(name, known),
            )

        def perform(*args: Any, **named: Any) -> Any:
            one = write_step(self._kind, name, args, named)
            self.steps.append(one)
            return self._stage.begin(*bind_step(self._kind, one))

        return perform


async def play_scenario(
    kind: type[Component], take: ScenarioDef
) -> tuple[list[StepDict], Observation]:
    """Play a scenario on a real component: what was done, and what came of it."""
    stage = ScenarioPlayer(kind, f"record-{take.name}", take.name, take.rule)
    recording = StepRecorder(kind, stage)

    async def play() -> None:
        answer = take.play(recording)
        if isawaitable(answer):
            await _within(answer, take)

    observed = await stage.play(play())
    return recording.steps, observed


async def _within(work: Awaitable[object], take: ScenarioDef) -> None:
    try:
        async with asyncio.timeout(take.timeout):
            await work
    except TimeoutError as error:
        raise DeadlineExceeded(
            f"the scenario {take.name!r} took longer than {take.timeout:g} s",
            hint="give it more: @scenario(timeout=…)",
        ) from error


# --- Which components there are: ours, those of live scripts, and those that packages bring.

ENTRY_POINT_GROUP = "offbook.components"
SCRIPT_SUFFIX = "_live.py"
BUILTIN_COMPONENTS = {
    "hub": "offbook.goldens.components:Component",
    "harness": "offbook.goldens.components:Harness",
    "session": "offbook.goldens.session_component:SessionComponent",
}


class ComponentRegistry:
    """The components of a project, by name.

    A live script `scripts/live/<component>_live.py` holds the scenarios of a component, and may
    bring its class as well. A name may also be an import path: `shop.testing:Till`.
    """

    def __init__(self, live: Path) -> None:
        self._live = live
        self._scripts: dict[str, ModuleType] = {}

    def names(self) -> list[str]:
        """All that is known."""
        brought = {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}
        return sorted({*BUILTIN_COMPONENTS, *brought, *self.scripts()})

    def scripts(self) -> list[str]:
        """The components that have a live script."""
        return sorted(
            path.name.removesuffix(SCRIPT_SUFFIX) for path in self._live.glob(f"*{SCRIPT_SUFFIX}")
        )

    def script_path(self, name: str) -> Path:
        """Where the live script of a component stands, or would."""
        return self._live / f"{name}{SCRIPT_SUFFIX}"

    def find(self, name: str) -> type[Component]:
        """The class of a component."""
        if name in self.scripts():
            own = self._own_class(name)
            if own is not None:
                return own
        if name in BUILTIN_COMPONENTS:
            return _import(BUILTIN_COMPONENTS[name])
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            if entry.name == name:
                return _checked(entry.load(), entry.value)
        if ":" in name:
            return _import(name)
        raise UsageError(f"there is no component {name!r}", hint=did_you_mean(name, self.names()))

    def takes(self, name: str) -> dict[str, ScenarioDef]:
        """The scenarios of a live script, by name."""
        found: dict[str, ScenarioDef] = {}
        for value in vars(self._load(name)).values():
            take = scenario_of(value)
            if take is not None:
                found[take.name] = take
        return found

    def take(self, name: str, scenario: str) -> ScenarioDef:
        """One scenario of a live script."""
        takes = self.takes(name)
        if scenario not in takes:
            raise UsageError(
                f"there is no scenario {scenario!r} of {name!r}",
                where=str(self.script_path(name)),
                hint=did_you_mean(scenario, takes),
            )
        return takes[scenario]

    def _own_class(self, name: str) -> type[Component] | None:
        module = self._load(name)
        own: list[type[Component]] = [
            value
            for value in vars(module).values()
            if isclass(value)
            and issubclass(value, Component)
            and value.__module__ == module.__name__
        ]
        return own[-1] if own else None

    def _load(self, name: str) -> ModuleType:
        if name in self._scripts:
            return self._scripts[name]
        path = self.script_path(name)
        spec = spec_from_file_location(f"offbook_live_{name}", path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise UsageError(
                f"{name!r} has no live script, so nothing can be recorded or proved",
                where=str(path),
                hint=f"write it with @scenario functions; {did_you_mean(name, self.scripts())}",
            )
        module = module_from_spec(spec)
        sys.modules[module.__name__] = module
        try:
            run_source(module, path)
        except Exception as error:
            raise UsageError(
                f"the live script raised {type(error).__name__}: {error}", where=_line(error, path)
            ) from error
        self._scripts[name] = module
        return module


def _line(error: Exception, path: Path) -> str:
    """The line of the script at which it failed."""
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    line = line or getattr(error, "lineno", None) or 1
    return f"{path}:{line}"


def _import(reference: str) -> type[Component]:
    module, _, name = reference.partition(":")
    try:
        home = import_module(module)
    except ImportError as error:
        raise UsageError(f"cannot import {module}: {error}", where=reference) from error
    if not hasattr(home, name):
        raise UsageError(f"{module} has no {name!r}", hint=did_you_mean(name, vars(home)))
    return _checked(getattr(home, name), reference)


def _checked(value: Any, reference: str) -> type[Component]:
    if not (isclass(value) and issubclass(value, Component)):
        raise UsageError(
            f"{reference} is not a component", hint="a component is a subclass of offbook.Component"
        )
    return value
