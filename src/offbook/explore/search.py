"""The search for a behaviour of the model that makes the agent break an invariant."""

from __future__ import annotations

import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import (
    CheckFailed,
    InvariantBroken,
    OffbookError,
    OffbookWarning,
    RunError,
    UnknownOutcome,
    UsageError,
    counted,
    explain_call,
    require_known,
)
from offbook.explore.generated_model import ArgumentValues, GeneratedModel
from offbook.explore.moves import (
    END,
    GeneratedCall,
    Move,
    build_turn,
    find_values,
    render_script,
    resolve,
    run_rendered,
    shrink,
    uses_results,
)
from offbook.explore.playing import (
    CRASH,
    Behaviour,
    BrokenInvariant,
    Invariant,
    Stage,
    World,
    check_invariant,
    name_of,
)
from offbook.runs.run import in_event_loop
from offbook.secrets import hide_secrets
from offbook.trace.events import REQUEST

if TYPE_CHECKING:
    from offbook.exchange.model import Tool
    from offbook.runs.run import Run
    from offbook.sources.playbook.actions import Turn
    from offbook.trace.query import ExecutedTool


def never_before(tool: str, first: str) -> Invariant:
    """Return an invariant: `tool` never succeeds before `first` has succeeded."""

    def check(run: Run, _: Any) -> None:
        for executed in _known_or_decisive(run, tool):
            if executed.result.failed is True:
                continue
            if executed.name == first:
                return
            if executed.name == tool:
                raise CheckFailed(f"{tool} succeeded with {executed.input} before {first}")

    return _named(check, f"never {tool} before {first}", tool, first)


def at_most(count: int, tool: str, *parameters: str) -> Invariant:
    """Return an invariant: `tool` succeeds at most `count` times with equal `parameters`."""
    _check_limit(count)

    def check(run: Run, _: Any) -> None:
        counts: dict[str, int] = {}
        for executed in _known_or_decisive(run, tool):
            if executed.name != tool or executed.result.failed is True:
                continue
            key = repr([executed.input.get(parameter) for parameter in parameters])
            counts[key] = counts.get(key, 0) + 1
            if counts[key] > count:
                raise CheckFailed(f"{tool} succeeded {counts[key]} times with {executed.input}")

    per = f" per {', '.join(parameters)}" if parameters else ""
    return _named(check, f"at most {count} {tool}{per}", tool)


def _known_or_decisive(run: Run, tool: str) -> Iterator[ExecutedTool]:
    """Yield the tools that ran; raise at the end if it is unknown whether this one did, too."""
    yield from run.executed.known()
    if tool in run.executed.unknown:
        yield from run.executed


def ends_within(requests: int) -> Invariant:
    """Return an invariant: a run sends at most this many requests."""
    _check_limit(requests)

    def check(run: Run, _: Any) -> None:
        count = len(run.events.named(REQUEST))
        if count > requests:
            raise CheckFailed(f"the agent sent {count} requests")

    return _named(check, f"ends within {requests} requests")


def no_secret_in_answer(run: Run, _: Any) -> None:
    """The answer of the agent contains no secret: no known value, and no token."""
    text = str(run.output or "")
    if hide_secrets(text) != text:
        raise CheckFailed("the answer contains a secret")


def _check_limit(limit: object) -> None:
    if type(limit) is not int or limit < 0:
        raise UsageError(f"expected a number of 0 or more, got {limit!r}")


def _named(check: Invariant, name: str, *tools: str) -> Invariant:
    check.__name__ = name
    vars(check)["tools"] = tools  # without them it would check nothing
    return check


# ------------------------------------------------------------------------------- search

Progress = Callable[["Exploration"], object]
ARGUMENTS_PER_TOOL = 3  # that an exhaustive search tries


class Counterexample(msgspec.Struct, frozen=True):
    """A broken invariant, and the smallest script that breaks it.

    `repeats` is false if the same script did not break it again: then it was not made smaller.
    """

    invariant: str
    message: str
    script: str
    run: int
    moves: tuple[Move, ...]
    found_with: int
    repeats: bool = True


class Exploration(msgspec.Struct):
    """The result of a search: what was tried, and what was found.

    `states` are the different states of the world that were reached, and `never_called` the tools
    that the agent offered and no behaviour called. `notes` are keywords of schemas that could not
    be generated from, with what was done instead.
    """

    prompt: str
    seed: int
    behaviours: int = 0
    requests: int = 0
    states: set[str] = msgspec.field(default_factory=set)
    offered: set[str] = msgspec.field(default_factory=set)
    called: set[str] = msgspec.field(default_factory=set)
    gave_up: Counter[str] = msgspec.field(default_factory=Counter)
    notes: dict[str, str] = msgspec.field(default_factory=dict)
    findings: list[Counterexample] = msgspec.field(default_factory=list)
    broken: dict[str, Exception] = msgspec.field(default_factory=dict)

    @property
    def never_called(self) -> list[str]:
        """The tools that were offered and never called."""
        return sorted(self.offered - self.called)

    @property
    def summary(self) -> str:
        """One line: how much was tried."""
        parts = [counted(self.behaviours, "behaviour"), counted(len(self.states), "state")]
        if self.never_called:
            parts.append(f"never called: {', '.join(self.never_called)}")
        parts += [
            f"{kind} {counted(count, 'time')}" for kind, count in sorted(self.gave_up.items())
        ]
        return ", ".join(parts)


@explain_call
def explore(  # noqa: PLR0913 - the options of a search
    world: World,
    prompt: str,
    *invariants: Invariant,
    runs: int = 500,
    steps: int = 5,
    seed: int = 0,
    depth: int = 0,
    gives_up: type[BaseException] | Sequence[type[BaseException]] = (),
    values: Mapping[str, Sequence[Any]] | None = None,
    trace: Path | str | None = None,
    progress: Progress | None = None,
) -> Exploration:
    """Play generated models against an agent, and fail with the smallest script that breaks it.

        def world():
            shop = Shop()
            return drive(shop.agent), shop

        explore(world, "Refund order 7", lambda run, shop: len(shop.refunds) <= 1)

    Each of `runs` behaviours has up to `steps` messages of the model, chosen by `seed`. With
    `depth`, all scripts of that many messages are tried instead, except those that lead to a state
    which was reached before. That the agent raises no exception is an invariant of every search,
    except for those in `gives_up`. `values` are arguments to try, by parameter. `trace` is the file
    for the trace of the smallest script; without a violation, for that of the last behaviour.
    """
    _check_arguments(world, prompt, invariants, runs, steps, values)
    kinds = (gives_up,) if isinstance(gives_up, type) else tuple(gives_up)
    found = Exploration(prompt, seed)
    arguments = ArgumentValues(values or {}, prompt)
    path = None if trace is None else Path(trace)
    with Stage(world, prompt, invariants, kinds, path) as stage:
        if depth:
            _enumerate(stage, found, arguments, depth, runs, progress)
        else:
            for number in range(runs):
                model = GeneratedModel(arguments, seed=f"{seed}:{number}", steps=steps)
                stage.records = number == runs - 1
                behaviour = stage.play(model, lambda model=model: model.moves)
                found.offered |= set(model.tools)
                _note(stage, found, behaviour, number)
                if progress is not None:
                    progress(found)
                # One bug at a time: it may be behind what other behaviours do wrong.
                if found.findings:
                    break
    found.notes = dict(arguments.notes)
    if found.findings:
        error = InvariantBroken(_describe(found))
        error.exploration = found
        raise error
    if found.broken:
        name, error = next(iter(found.broken.items()))
        raise _not_decided(name, error) from error
    _check_tools(invariants, found.offered)
    if not found.offered:
        warnings.warn(
            "the agent offers no tools: only its reactions to texts and errors were explored",
            OffbookWarning,
            stacklevel=2,
        )
    return found


def replay(
    world: World,
    script: Turn,
    *invariants: Invariant,
    gives_up: type[BaseException] | Sequence[type[BaseException]] = (),
) -> Run:
    """Play one script against a new world and check the invariants: a saved finding is such a test.

    Unlike a test of a script, it does not fail if the agent ends before the script does.
    """
    kinds = (gives_up,) if isinstance(gives_up, type) else tuple(gives_up)
    for invariant in invariants:
        check_invariant(invariant)
    with Stage(world, script.text, invariants, kinds) as stage:
        behaviour = stage.play_script(script)
    for name, error in behaviour.broken:
        raise _not_decided(name, error) from error
    if not behaviour.run.events.named(REQUEST):
        raise _never_asked(behaviour)
    for violation in behaviour.violations:
        raise InvariantBroken(f"{violation.invariant}: {violation.message}")
    _check_tools(invariants, {t.name for r in behaviour.run.requests for t in r.tools})
    return behaviour.run


def _check_arguments(
    world: object,
    prompt: object,
    invariants: Sequence[object],
    runs: int,
    steps: int,
    values: Mapping[str, Sequence[Any]] | None,
) -> None:
    if in_event_loop():
        raise UsageError("explore() cannot be used in an `async def`", hint="write a plain `def`")
    if not callable(world):
        raise UsageError(
            f"the world must be a function, not {type(world).__name__}",
            hint="write def world(): return drive(agent), state",
        )
    if not isinstance(prompt, str) or not prompt:
        raise UsageError("explore() takes the prompt second, a string")
    for invariant in invariants:
        check_invariant(invariant)
    if runs < 1 or steps < 1:
        raise UsageError("runs and steps must be 1 or more")
    for name, choices in (values or {}).items():
        if isinstance(choices, str) or not choices:
            raise UsageError(
                f"values[{name!r}] must be a list of values, not {choices!r}",
                hint=f"write values={{{name!r}: [{choices!r}]}}",
            )


def _note(stage: Stage, found: Exploration, behaviour: Behaviour, number: int) -> None:
    """Add a behaviour to what was tried; make a new violation small and keep it."""
    found.requests += len(behaviour.run.events.named(REQUEST))
    if not found.requests:
        raise _never_asked(behaviour)
    found.behaviours += 1
    found.states.add(behaviour.state)
    found.called |= {made.tool for move in behaviour.moves for made in move.calls}
    if behaviour.gave_up:
        found.gave_up[behaviour.gave_up] += 1
    for name, error in behaviour.broken:
        found.broken[name] = error
        # The others go on.
        stage.invariants.pop(name, None)
    for violation in behaviour.violations:
        found.findings.append(_minimize(stage, behaviour, violation, number))


def _never_asked(behaviour: Behaviour) -> OffbookError:
    """Return the error for an agent that sent no request: no model can be the cause of anything."""
    hint = "run the agent alone first; each behaviour begins in an empty folder"
    for violation in behaviour.violations:
        if violation.invariant == CRASH:
            what = "nothing was explored: the agent failed before it called the model"
            return UsageError(f"{what}\n  {violation.message}", hint=hint)
    return RunError("nothing was explored: the agent never called the model", hint=hint)


def _not_decided(name: str, error: Exception) -> UsageError:
    """Return the error for an invariant that gave no verdict."""
    if isinstance(error, UnknownOutcome):
        return UsageError(
            f"the invariant {name} cannot be decided: {error.what}",
            hint="check what the tool did: let the world return (drive(agent), state); or read"
            " run.executed.known(), the tools that certainly ran",
        )
    return UsageError(
        f"the invariant {name} raised {type(error).__name__}: {error}",
        hint="an invariant fails by an assertion, or by returning False",
    )


def _check_tools(invariants: Iterable[Invariant], offered: set[str]) -> None:
    """Raise for an invariant about a tool that the agent never offered: it checked nothing."""
    for invariant in invariants:
        for tool in getattr(invariant, "tools", ()):
            require_known(
                "the agent never offered the tool",
                tool,
                offered,
                where=f"the invariant {name_of(invariant)!r}",
            )


def _minimize(
    stage: Stage, behaviour: Behaviour, violation: BrokenInvariant, number: int
) -> Counterexample:
    """Return the finding for a violation, with the smallest script that repeats it."""

    def fails(moves: tuple[Move, ...]) -> bool:
        played = stage.play_script(build_turn(stage.prompt, moves, []), moves)
        return any(other.key == violation.key for other in played.violations)

    moves, length = behaviour.moves, len(behaviour.moves)
    stage.records = True
    # Twice: what fails only now and then cannot be made smaller, only noise would be left.
    if not (fails(moves) and fails(moves)):
        script = render_script(stage.prompt, moves)
        return Counterexample(
            violation.invariant, violation.message, script, number, moves, length, repeats=False
        )
    stage.records = False
    # Before: a value of a result would be another one without the results that came first.
    # After: a value that is needed may be the same in every run now.
    moves = _fix_values(stage, moves, fails)
    moves, _ = shrink(moves, fails)
    moves = _fix_values(stage, moves, fails)
    script = render_script(stage.prompt, moves)
    # The text itself is what a person pastes, so it is what must fail.
    stage.records = True
    played = stage.play_script(run_rendered(script))
    same = [other for other in played.violations if other.key == violation.key]
    message = same[0].message if same else violation.message
    return Counterexample(
        violation.invariant, message, script, number, moves, length, repeats=bool(same)
    )


def _fix_values(
    stage: Stage, moves: tuple[Move, ...], fails: Callable[[tuple[Move, ...]], bool]
) -> tuple[Move, ...]:
    """Return the moves with the values of results as constants, if they still fail."""
    if not uses_results(moves):
        return moves
    played = stage.play_script(build_turn(stage.prompt, moves, []), moves)
    results = played.run.events.tool_results
    seen = [value for result in results for value in find_values(result)]
    fixed = tuple(_with_values(move, seen) for move in moves)
    return fixed if fails(fixed) else moves


def _with_values(move: Move, seen: list[Any]) -> Move:
    calls = tuple(
        GeneratedCall(made.tool, resolve(made.arguments, seen), made.unknown) for made in move.calls
    )
    return msgspec.structs.replace(move, calls=calls)


def _enumerate(
    stage: Stage,
    found: Exploration,
    arguments: ArgumentValues,
    depth: int,
    runs: int,
    progress: Progress | None,
) -> None:
    """Try all scripts up to a depth, the shortest first; equal states are continued once."""
    queue: deque[tuple[Move, ...]] = deque([()])
    while queue and found.behaviours < runs and not found.findings:
        moves = queue.popleft()
        stage.records = not queue or found.behaviours == runs - 1
        behaviour = stage.play_script(build_turn(stage.prompt, moves, []), moves)
        is_new = behaviour.state not in found.states
        _note(stage, found, behaviour, found.behaviours)
        tools = {tool.name: tool for request in behaviour.run.requests for tool in request.tools}
        found.offered |= set(tools)
        if progress is not None:
            progress(found)
        if not is_new or len(moves) == depth:
            continue
        queue.extend((*moves, move) for move in _list_moves(tools, behaviour, arguments))


def _list_moves(
    tools: Mapping[str, Tool], behaviour: Behaviour, arguments: ArgumentValues
) -> list[Move]:
    """Return the moves that an exhaustive search tries next."""
    results = behaviour.run.events.tool_results
    seen = [value for result in results for value in find_values(result)]
    calls = [
        GeneratedCall(tool.name, values)
        for tool in tools.values()
        if tool.kind == "function"
        for values in arguments.few_arguments(tool.schema, seen, tool.name, ARGUMENTS_PER_TOOL)
    ]
    pairs = [(one, other) for one in calls for other in calls if one.tool <= other.tool]
    return [*(Move((made,)) for made in calls), *(Move(pair) for pair in pairs)]


def _describe(found: Exploration) -> str:
    """Return the message for the findings: the script first, then how to repeat it."""
    parts: list[str] = []
    for finding in found.findings:
        indented = "\n".join(f"    {line}" for line in finding.script.splitlines())
        head = f"{finding.invariant}: {finding.message}"
        if finding.repeats:
            steps = len([move for move in finding.moves if move != END])
            how = f"the smallest script that breaks it ({steps} of {finding.found_with} messages):"
        else:
            how = (
                "the agent is not deterministic: the same script did not break it again, so it was"
                " not made smaller:"
            )
        parts.append(
            f"{head}\n{how}\n\n{indented}\n\nfound by run {finding.run}, seed={found.seed}"
        )
    return "\n\n".join([*parts, f"explored: {found.summary}"])
