"""Live scripts: scenarios as code, the components they run on, and their recording.

The calls of a scenario are recorded as the steps of a fixture while they run:

    # scripts/live/hub_live.py
    @scenario(filter="agent:*")
    async def subscribe_filter(hub):
        hub.emit({"type": "agent:start"})
        hub.emit({"type": "harness:start"})
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isawaitable, isclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec

from offbook.errors import DeadlineExceeded, RunError, UsageError, did_you_mean, require_known
from offbook.files import import_object, locate_error, run_source, write_atomic
from offbook.goldens.components import bind_step, steps_of, write_step
from offbook.goldens.fixture_store import (
    FIXTURE_VERSION,
    FixtureStore,
    GoldenFixture,
    MatchMode,
    MatchRule,
    Problem,
    StepDict,
    read_files,
    read_scenarios,
    sidecar_path,
    write_fixture,
)
from offbook.goldens.golden_replay import (
    VOLATILE_MARKS,
    Observation,
    ScenarioPlayer,
    canonical_json,
    replay_all,
)
from offbook.options import require_some
from offbook.secrets import hide_secrets, is_secret_name
from offbook.trace.components import BaseComponent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from offbook.determinism.run_context import Clock
    from offbook.goldens.fixture_store import GoldenScenario
    from offbook.goldens.golden_replay import FindComponent


F = TypeVar("F", bound=Callable[..., object])
SCENARIO_ATTRIBUTE = "offbook_scenario"
SCRIPT_SUFFIX = "_live.py"
ENTRY_POINT_GROUP = "offbook.components"
# named as text, so that the agent session is imported only if a scenario needs it
BUILTIN_COMPONENTS = {
    "hub": "offbook.goldens.components:Component",
    "harness": "offbook.goldens.components:Harness",
    "session": "offbook.goldens.components:SessionComponent",
}


class ScenarioDef(NamedTuple):
    """A scenario of a live script: its function and its options."""

    name: str
    function: Callable[[Any], object]
    rule: MatchRule
    description: str
    needs: tuple[str, ...]
    timeout: float

    def missing_variables(self, environment: Mapping[str, str]) -> list[str]:
        """Return the environment variables that the scenario needs and that are not set."""
        return [name for name in self.needs if not environment.get(name)]


def scenario(
    name: str = "",
    *,
    match: MatchMode = "exact",
    filter: str | list[str] = "*",  # noqa: A002 - the key's name in sidecars
    unsubscribe_after_step: int | None = None,
    volatile: Sequence[str] = (),
    needs: Sequence[str] = (),
    timeout: float = 30.0,
) -> Callable[[F], F]:
    """Make a function a scenario. Its default name is the function's, with `-` for `_`.

    `volatile` are the fields of events and of the state whose value changes with every run: only
    their type is recorded and compared. `needs` are the environment variables without which it
    cannot run.
    """

    def mark(function: F) -> F:
        definition = ScenarioDef(
            name or function.__name__.replace("_", "-"),
            function,
            MatchRule(match, filter, unsubscribe_after_step, volatile=list(volatile)),
            (function.__doc__ or "").partition("\n")[0],
            tuple(needs),
            timeout,
        )
        setattr(function, SCENARIO_ATTRIBUTE, definition)
        return function

    return mark


class StepRecorder:
    """A stand-in for the component that a scenario calls: it records each call as a step.

    Attributes that are not steps raise, because a replay could not repeat them.
    """

    def __init__(self, component_class: type[BaseComponent], player: ScenarioPlayer) -> None:
        self._component_class = component_class
        self._player = player
        self.steps: list[StepDict] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        methods = {handler.method for handler in steps_of(self._component_class).values()}
        require_known("a replay can repeat steps only; no step", name, methods)

        def call(*args: Any, **kwargs: Any) -> Any:
            step = write_step(self._component_class, name, args, kwargs)
            self.steps.append(step)
            # the call goes through the recorded step, so that recording and replay are the same
            return self._player.start_step(*bind_step(self._component_class, step))

        return call


async def play_scenario(
    component_class: type[BaseComponent], definition: ScenarioDef
) -> tuple[list[StepDict], Observation]:
    """Run a scenario on a real component. Return its steps and the result."""
    name = definition.name
    player = ScenarioPlayer(component_class, f"record-{name}", name, definition.rule)
    recorder = StepRecorder(component_class, player)

    async def run_function() -> None:
        result = definition.function(recorder)
        if not isawaitable(result):
            return  # a plain function cannot be interrupted, so it has no timeout
        try:
            async with asyncio.timeout(definition.timeout):
                await result
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"the scenario {name!r} took longer than {definition.timeout:g} s",
                hint="set a longer one: @scenario(timeout=…)",
            ) from error

    observation = await player.play(run_function)
    return recorder.steps, observation


class ComponentRegistry:
    """The components of a project by name.

    A live script `scripts/live/<component>_live.py` has the scenarios of a component and may define
    its class. Other classes are built in or come from the entry point group `offbook.components`.
    A name may also be an import path: `shop.testing:Till`.
    """

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self._folder = folder
        self._root = root
        self._modules: dict[str, ModuleType] = {}

    def script_names(self) -> list[str]:
        """Return the components that have a live script."""
        paths = self._folder.glob(f"*{SCRIPT_SUFFIX}")
        return sorted(path.name.removesuffix(SCRIPT_SUFFIX) for path in paths)

    def script_path(self, component: str) -> Path:
        """Return the path of a component's live script, whether it exists or not."""
        return self._folder / f"{component}{SCRIPT_SUFFIX}"

    def names(self) -> list[str]:
        """Return all known components."""
        packaged = {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}
        return sorted({*BUILTIN_COMPONENTS, *packaged, *self.script_names()})

    def find(self, name: str) -> type[BaseComponent]:
        """Return the class of a component: from its live script first, then by its name."""
        if name in self.script_names():
            module = self._load_script(name)
            classes: list[type[BaseComponent]] = [
                value
                for value in vars(module).values()
                if isclass(value)
                and issubclass(value, BaseComponent)
                and value.__module__ == module.__name__  # not an imported base class
            ]
            if classes:
                return classes[-1]  # base classes are defined before it
        if name in BUILTIN_COMPONENTS:
            return _import_component(BUILTIN_COMPONENTS[name])
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            if entry.name == name:
                return _import_component(f"{entry.module}:{entry.attr}")
        if ":" in name:
            return _import_component(name)
        raise UsageError(f"unknown component {name!r}", hint=did_you_mean(name, self.names()))

    def scenarios(self, component: str) -> dict[str, ScenarioDef]:
        """Return the scenarios of a live script by name."""
        values = vars(self._load_script(component)).values()
        definitions = (
            getattr(value, SCENARIO_ATTRIBUTE, None) for value in values if callable(value)
        )
        return {each.name: each for each in definitions if isinstance(each, ScenarioDef)}

    def scenario(self, component: str, name: str) -> ScenarioDef:
        """Return one scenario of a live script."""
        scenarios = self.scenarios(component)
        where = str(self.script_path(component))
        require_known(f"{component!r} has no scenario", name, scenarios, where=where)
        return scenarios[name]

    def _load_script(self, component: str) -> ModuleType:
        if component in self._modules:
            return self._modules[component]
        path = self.script_path(component)
        spec = spec_from_file_location(f"offbook_live_{component}", path)
        if not path.is_file() or spec is None:
            raise UsageError(
                f"{component!r} has no live script, so it has no scenarios",
                where=str(path),
                hint=f"write it with @scenario; {did_you_mean(component, self.script_names())}",
            )
        # the script can import the project, under pytest and in commands; last, so that it hides
        # no installed package
        if self._root is not None and str(self._root) not in sys.path:
            sys.path.append(str(self._root))
        module = module_from_spec(spec)
        # annotations and pickles of the script are resolved through sys.modules
        sys.modules[module.__name__] = module
        try:
            run_source(module, path)
        except Exception as error:
            raise UsageError(
                f"the live script raised {type(error).__name__}: {error}",
                where=locate_error(error, path),
            ) from error
        self._modules[component] = module
        return module


def _import_component(reference: str) -> type[BaseComponent]:
    """Import a component class by its path, `module:name`."""
    value = import_object(reference)
    if not (isclass(value) and issubclass(value, BaseComponent)):
        raise UsageError(
            f"{reference} is not a component",
            hint="a component is a subclass of offbook.goldens.Component",
        )
    return value


# --- Recording


PYTEST_VARIABLES = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION")
HOME_PATH = re.compile(r"(/home/|/Users/|[A-Za-z]:\\Users\\)[\w.-]+")


class GoldenRecording(NamedTuple):
    """A recorded fixture and the files that were written."""

    fixture: GoldenFixture
    written: list[Path]


async def record(
    store: FixtureStore,
    registry: ComponentRegistry,
    component: str,
    name: str,
    clock: Clock,
    environment: Mapping[str, str] = os.environ,
) -> GoldenRecording:
    """Run a scenario of a live script for real and write its steps and result to scratch."""
    for variable in PYTEST_VARIABLES:
        if variable in environment:
            # a test that records its own expectation can never fail
            raise UsageError(
                f"cannot record in a test run ({variable} is set)",
                hint="record from a shell: offbook golden record COMPONENT/NAME",
            )
    path = store.fixture_path("scratch", component, name)
    definition = registry.scenario(component, name)
    missing = definition.missing_variables(environment)
    if missing:
        raise UsageError(f"the scenario {name!r} needs {', '.join(missing)}, which is not set")
    steps, observation = await play_scenario(registry.find(component), definition)
    require_some(steps, f"the scenario {name!r} has no steps to record")
    # a volatile field is a string now; a name that no field has is a mistake
    paths = (path for path, _ in _strings([*observation], "$"))
    fields = {re.sub(r"\[\d+\]", "", path) for path in paths}
    for field in definition.rule.volatile:
        if not any(path.endswith(f".{field}") for path in fields):
            known = {path.rpartition(".")[2] for path in fields}
            raise UsageError(
                f"the volatile field {field!r} is in no event and not in the state",
                where=str(registry.script_path(component)),
                hint=did_you_mean(field, known),
            )
    expect = {"events": observation.events, **observation.state}
    now = datetime.fromtimestamp(clock.millis() / 1000, UTC)
    metadata = {
        "recordedAt": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "component": component,
        "description": definition.description,
    }
    fixture = GoldenFixture(f"record-{name}", name, steps, expect, metadata, FIXTURE_VERSION)
    # the hash reveals later edits: see find_problems
    metadata = {**metadata, "provenance": provenance_digest(fixture, definition.rule)}
    fixture = msgspec.structs.replace(fixture, metadata=metadata)
    ignore = store.root / "scratch" / ".gitignore"
    if not ignore.exists():
        write_atomic(ignore, "*\n")
    return GoldenRecording(fixture, write_fixture(path, fixture, definition.rule))


def provenance_digest(fixture: GoldenFixture, rule: MatchRule) -> str:
    """Return the hash of a fixture, except for the hash in it, and of its match rule."""
    metadata = {k: v for k, v in fixture.metadata.items() if k != "provenance"}
    content = [msgspec.structs.replace(fixture, metadata=metadata), msgspec.to_builtins(rule)]
    return f"sha256:{sha256(canonical_json(content).encode()).hexdigest()}"


def find_problems(
    store: FixtureStore, path: Path, registry: ComponentRegistry | None = None
) -> Iterator[Problem]:
    """Return the problems of a golden or scratch file, except for those of its replay.

    The name and the origin of a fixture of another project are not checked. `registry` has the
    scenarios that this project can record; without it, every fixture must be a recording.
    """
    scenarios = read_scenarios(path)
    golden = store.fixture_path("golden", path.parent.name, path.stem)
    readable, _ = read_files(other for other in store.paths() if other != golden)
    others = {_content(other.fixture): other for other in readable}
    for scenario in scenarios:
        fixture, line = scenario.fixture, scenario.line
        copy = others.get(_content(fixture))
        if copy is not None:
            yield Problem(path, line, f"duplicate of {copy.name} ({copy.location})")
        if registry is None or not is_foreign(scenario, registry):
            yield from _find_origin_problems(scenario, single=len(scenarios) == 1)
        for field, text in _strings(msgspec.to_builtins(fixture), "$"):
            if text in VOLATILE_MARKS:
                continue  # the type of a value, not the value
            # the name of a field is enough: a password may look like any word
            if is_secret_name(field.rpartition(".")[2]) or hide_secrets(text) != text:
                yield Problem(path, line, f"contains a secret at {field}")
            elif HOME_PATH.search(text):
                yield Problem(path, line, f"contains a path of a home folder at {field}")


def is_foreign(scenario: GoldenScenario, registry: ComponentRegistry) -> bool:
    """Return True for a fixture of another project: no mark of Offbook, and no scenario here."""
    if "provenance" in scenario.fixture.metadata:
        return False
    component = scenario.component
    try:
        known = registry.scenarios(component) if component in registry.script_names() else {}
    except UsageError:  # a broken script, which the replay reports
        return False
    return scenario.fixture.scenario not in known and scenario.path.stem not in known


def _find_origin_problems(scenario: GoldenScenario, *, single: bool) -> Iterator[Problem]:
    """Return the signs that a scenario was not recorded under its name, or was edited."""
    fixture, path, line = scenario.fixture, scenario.path, scenario.line
    name, stem = fixture.scenario, path.stem
    # one of several scenarios of a file may add to the name: open-drawer, open-drawer-2
    if name != stem and (single or not name.startswith(f"{stem}-")):
        yield Problem(path, line, f"the scenario is named {name!r}, but the file {stem!r}")
    recorded = fixture.metadata.get("component", path.parent.name)
    if recorded != path.parent.name:
        yield Problem(path, line, f"recorded from the component {recorded!r}")
    if not fixture.metadata.get("recordedAt"):
        yield Problem(path, line, "not recorded: metadata.recordedAt is missing")
    if "provenance" not in fixture.metadata:
        yield Problem(path, line, "not recorded: metadata.provenance is missing")
    elif fixture.metadata["provenance"] != provenance_digest(fixture, scenario.rule):
        yield Problem(path, line, "edited after it was recorded")


def _content(fixture: GoldenFixture) -> str:
    """Return steps and expectation without the session id, to find copies."""
    content = canonical_json([fixture.steps, fixture.expect])
    return content.replace(canonical_json(fixture.session_id), '"…"')


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Return all strings of a JSON value with their paths."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _strings(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(cast("list[Any]", value)):
            yield from _strings(inner, f"{path}[{number}]")


async def check_promotion(store: FixtureStore, name: str, find_component: FindComponent) -> None:
    """Raise unless a scratch fixture may become golden: a recording, unedited, that replays."""
    scratch = store.find("scratch", name)
    problems = [str(problem) for problem in find_problems(store, scratch)]
    replays = await replay_all(read_scenarios(scratch), find_component)
    problems += [replay.render() for replay in replays if not replay.ok]
    if not problems:
        return
    hint = f"record it again: offbook golden record {name}"
    differences = [each for replay in replays for each in replay.differences]
    paths = [each.partition(": expected ")[0] for each in differences if ": expected " in each]
    fields = sorted({path.rpartition(".")[2] for path in paths if not path.endswith("]")})
    if fields:
        listed = ", ".join(f'"{field}"' for field in fields)
        hint += f"; if a value changes with every run: @scenario(volatile=[{listed}])"
    raise RunError(
        f"cannot promote {name}:\n" + "\n".join(f"  {problem}" for problem in problems),
        hint=hint,
    )


async def promote(
    store: FixtureStore, name: str, find_component: FindComponent, *, replace: bool = False
) -> list[Path]:
    """Make a scratch fixture golden and return the written files."""
    await check_promotion(store, name, find_component)
    scratch = store.find("scratch", name)
    golden = store.fixture_path("golden", scratch.parent.name, scratch.stem)
    # the same content is the same recording, which needs no --replace
    if golden.is_file() and not replace and golden.read_bytes() != scratch.read_bytes():
        raise UsageError(
            f"a different golden {name} exists",
            where=str(golden),
            hint=f"compare: offbook review {name}; then: promote {name} --replace",
        )
    written: list[Path] = []
    # the sidecar first: after an interruption, no fixture is compared by the rule of another
    for source, target in ((sidecar_path(scratch), sidecar_path(golden)), (scratch, golden)):
        if source.is_file():
            write_atomic(target, source.read_bytes())
            written.append(target)
            source.unlink()
        elif target.is_file():
            target.unlink()
    return written
