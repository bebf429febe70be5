"""One behaviour of the model, played against a new world, and its result."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from hashlib import blake2b
from inspect import (
    isasyncgenfunction,
    iscoroutinefunction,
    isgeneratorfunction,
)
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from uuid import UUID

import msgspec

from offbook.determinism.faults import Faults
from offbook.determinism.run_context import is_library, snapshot_variables
from offbook.errors import (
    InjectedFault,
    OffbookError,
    PlaybookError,
    RunError,
    UnknownOutcome,
    UsageError,
)
from offbook.exchange.messages import RAW_ARGUMENTS
from offbook.exchange.model import Tool
from offbook.explore.argument_values import ArgumentValues
from offbook.explore.attack import Attack, AttackWatch, list_own_tools
from offbook.explore.authority import (
    FAULT_KIND,
    AttackOutcome,
    is_error,
    read_instruction,
    read_outcome,
)
from offbook.explore.code_constants import CodeTexts, find_constants, find_texts
from offbook.explore.corpus import list_reached
from offbook.explore.generated_model import NO_END, GeneratedModel, PatientPlaybook
from offbook.explore.moves import (
    Move,
    build_turns,
    find_values,
    list_faults,
    list_turns,
    run_rendered,
)
from offbook.explore.oracles import (
    CRASH,
    ENDLESS,
    LOST,
    REASONS,
    REFUSED,
    BrokenInvariant,
    RunEvidence,
    check_run,
    list_verdicts,
)
from offbook.explore.plain_tools import LoopWatch
from offbook.explore.sdk_conversions import SdkConversions, share_ssl_contexts
from offbook.explore.side_by_side import SideBySide, load_turns
from offbook.explore.tool_policy import ToolPolicy, join_policies
from offbook.files import ReusedFolder
from offbook.options import decide
from offbook.runs.api import drive
from offbook.runs.rehearsal import Rehearsal, RehearsalDefaults, use_defaults
from offbook.runs.run import Run, SyncBridge, watch_termination
from offbook.runs.wiring import is_process, set_missing_keys
from offbook.subjects.frameworks.framework import is_documented_end
from offbook.trace.events import ERROR, FAULT, REPLY, TOOL_CALL, TOOL_END

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from offbook.exchange.model import ModelSource
    from offbook.explore.moves import Script
    from offbook.sources.playbook.actions import Turn
    from offbook.trace.events import Event
    from offbook.trace.query import ToolResultRecord

_EXCEPTION = re.compile(r"^\s*([\w.]+(?:Error|Exception|Exit|Interrupt))\b", re.MULTILINE)
_HALF = re.compile(r"\\ud[89a-f][0-9a-f]{2}")  # of a character, as a trace has it

T = TypeVar("T")
World = Callable[[], object]
Invariant = Callable[[Run, Any], object]

SECOND_PROMPTS = 0.3  # of the behaviours: the user has another prompt
SIDE_BY_SIDE = 0.4  # of those with another user: both at the same time
FOLDER = Path(__file__).parent
# The values of a state that are written as Python shows them.
VALUES = (str, int, float, bytes, date, time, timedelta, Decimal, Fraction, UUID)
MAX_FILES = 100  # of a folder that is the state of a world
MAX_STATE = 64  # characters of a state that is kept as it is
# Frameworks that read the replies of a model; of a client, the user's loop does.
CALLED_FRAMEWORKS = {
    *("pydantic_ai", "agents", "langgraph", "langchain", "langchain_core"),
    *("langchain_openai", "langchain_anthropic", "smolagents"),
}
FRAMEWORK_TOOLS = "langchain_core.tools"
REFUSED_REQUEST = "the provider refused the request"  # so begins the error of such a run
OUTDATED = "OutdatedScript"  # a script of a corpus that does not fit the agent any more
ATTACKS = 0.2  # of the behaviours: the model obeys the text of a tool
FAULTS = 0.12  # of the behaviours: a tool or the provider fails
# A fault for one of the first requests or calls. A timeout over a socket would take long.
FAULT_KINDS = (
    *("tool_error", "tool_lost", "tool_lost", "tool_empty", "tool_odd"),
    *("reset", "truncate", "content_type"),
)


class Job(msgspec.Struct, frozen=True):
    """A behaviour to play: that of a seed, the moves of a script, or its text as it is pasted.

    `prompt` is the first one of a script. With a seed, `moves` are the first ones. Only with
    `records`, a trace is written, to the file `trace` if it is given. `announces` is the file to
    which each move is written when it is made: of a behaviour that hangs, this is all that is
    known. With `observes`, it is noted what was reached, and a script that the agent outgrew is no
    error.
    """

    seed: str = ""
    steps: int = 0
    prompt: str = ""
    moves: tuple[Move, ...] = ()
    text: str = ""
    records: bool = False
    announces: str = ""
    observes: bool = False
    trace: str = ""


class Behaviour(msgspec.Struct, frozen=True):
    """A played behaviour: the moves of the model, what the agent did, and the violations.

    It is plain data, so that it can come from another process. `gave_up` is the error with which
    the agent ended in a documented way. `undecided` are the invariants that gave no verdict, each
    with the error. `state` is a text that is equal for equal states of the world, and `seen` are
    the values in the results of the tools. `reached` are the outcomes of the agent's parts, and
    `succeeded` the tools that did what they were asked for the first time in this process. With
    `is_process`, the agent was a process of its own. `attack` is how the model obeyed a text.
    """

    moves: tuple[Move, ...]
    violations: tuple[BrokenInvariant, ...] = ()
    gave_up: str = ""
    undecided: tuple[tuple[str, UsageError], ...] = ()
    state: str = ""
    requests: int = 0
    tools: tuple[Tool, ...] = ()
    seen: tuple[Any, ...] = ()
    notes: Mapping[str, str] = {}
    trace: str = ""
    prompt: str = ""
    reached: tuple[str, ...] = ()
    succeeded: tuple[str, ...] = ()
    is_process: bool = False
    attack: AttackOutcome | None = None


class _SharedLoop(SyncBridge):
    """One event loop for all runs: frameworks keep connections and certificates with the loop."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = asyncio.Runner()
        self._loop = self._owner.get_loop()
        self._variables = copy_context()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, without a new handler of Ctrl-C each time."""
        self._variables.run(snapshot_variables())
        task = self._loop.create_task(work, context=self._variables)
        return self._loop.run_until_complete(task)

    def close(self) -> None:
        """End what the agent left running; the loop stays open for the next run."""
        self._variables = copy_context()
        if tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(_wait_for(tasks))

    def end(self) -> None:
        """Close the loop."""
        self._owner.close()


async def _wait_for(tasks: Iterable[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


class Stage:
    """Plays behaviours against new worlds, in one event loop. Close it at the end.

    `world` returns a rehearsal or an agent to drive, and the state that the invariants read:
    `(rehearsal, state)`. An exception of `gives_up` is a documented way to end. `trace` is the file
    of worlds that name none. `last_run` is the run of the last behaviour.
    """

    def __init__(
        self,
        world: World,
        prompts: Sequence[str],
        invariants: Iterable[Invariant | ToolPolicy],
        gives_up: tuple[type[BaseException], ...] = (),
        values: Mapping[str, Sequence[Any]] | None = None,
        trace: Path | None = None,
        without: Sequence[str] = (),
    ) -> None:
        invariants = [*invariants]
        self._policy = join_policies(i for i in invariants if isinstance(i, ToolPolicy))
        self._prompts = prompts
        self.script: Script | None = None  # what a job without moves plays
        self.faults: tuple[str, ...] = ()
        self.last_run: Run | None = None
        self._attacks = False
        self._code: CodeTexts | None = None
        self._invariants = {
            name_of(invariant): invariant
            for invariant in invariants
            if not isinstance(invariant, ToolPolicy)
        }
        self._arguments = ArgumentValues(values or {}, "\n".join(prompts), find_constants(world))
        self._world = world
        self._gives_up = gives_up
        self._without = without
        self._bridge = _SharedLoop()
        self._folder = ReusedFolder()
        self._trace = trace
        self._stop_watching = watch_termination()
        self._keys = ExitStack()  # a world may make a client that wants one
        self._keys.enter_context(set_missing_keys())
        self._stop_sharing = share_ssl_contexts()
        self._conversions = SdkConversions()
        self._succeeded: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bridge.end()
        self._folder.remove()
        self._stop_watching()
        self._keys.close()
        self._stop_sharing()
        self._conversions.stop()

    def play(self, job: Job, announce: Callable[[Move], object] | None = None) -> Behaviour:
        """Play a behaviour; `announce` gets each move that a generated model makes."""
        if job.seed:
            model = GeneratedModel(
                self._arguments, seed=job.seed, steps=job.steps, opening=job.moves
            )
            model.announce = announce
            return self.play_model(model, job)
        script = run_rendered(job.text) if job.text else self.script
        prompt = job.prompt or self._prompts[0]
        script = build_turns(prompt, job.moves, []) if script is None else script
        turns, fresh = list_turns(script)
        faults = list_faults(job.moves) or self.faults
        # Without the automatic assertions of a test.
        source = load_turns(script) if isinstance(script, tuple) else PatientPlaybook()
        return self._play(source, turns, fresh, faults, job, lambda: job.moves)

    def play_model(self, model: GeneratedModel, job: Job) -> Behaviour:
        """Play a model that makes its own moves; the seed also decides on prompts and faults."""
        random = Random(f"{job.seed}:world")  # noqa: S311 - not for secrets
        prompts = [random.choice(self._prompts)]
        fresh: set[int] = set()
        faults: tuple[str, ...] = ()
        beside = False
        if random.random() < SECOND_PROMPTS:
            other = random.choice(self._prompts)
            prompts.append(_say_again(other, job.seed) if other == prompts[0] else other)
            fresh = {1} if random.random() < 0.7 else set()  # noqa: PLR2004 - most are of another user
            beside = bool(fresh) and random.random() < SIDE_BY_SIDE
        elif random.random() < FAULTS:
            kind, number = random.choice(FAULT_KINDS), random.choice([1, 1, 2, 3])
            # In half of them every result is lost: few calls have an effect that could be repeated.
            faults = (kind if kind == "tool_lost" and number > 1 else f"{kind}@{number}",)
            model.moves.append(Move(fault=faults[0]))
        # A separate generator: an agent without such tools has the same behaviours as ever.
        chance = Random(f"{job.seed}:authority").random()  # noqa: S311 - not for secrets
        self._attacks = not (faults or job.moves) and job.steps > 1 and chance < ATTACKS
        if beside:
            other = GeneratedModel(self._arguments, seed=f"{job.seed}:beside", steps=job.steps)
            other.follow(model)
            source = SideBySide(model, other, (prompts[0], prompts[1]))
            behaviour = self._play(source, prompts, fresh, faults, job, lambda: source.moves)
        else:
            behaviour = self._play(model, prompts, fresh, faults, job, lambda: model.moves)
        return msgspec.structs.replace(behaviour, prompt=prompts[0])

    def _play(
        self,
        source: GeneratedModel | PatientPlaybook | SideBySide,
        script: Sequence[Turn | str],
        fresh: set[int],
        faults: tuple[str, ...],
        job: Job,
        moves: Callable[[], Iterable[Move]],
    ) -> Behaviour:
        trace = Path(job.trace) if job.trace else self._trace
        defaults = RehearsalDefaults(
            source,
            self._bridge,
            auto_assert=False,
            folder=self._folder,
            in_memory=not job.records,
            trace=trace if job.records else None,
            faults=Faults(faults, rate=1) if faults else None,
        )
        with use_defaults(defaults):
            rehearsal, state = _open(self._world)
        self._conversions.start()  # the world may have loaded an SDK
        sessions: list[int] = []
        beside = ()
        turns = script
        if isinstance(source, SideBySide):
            turns = script[:1]  # an attack is in the first conversation
            if source.begin(rehearsal):
                beside = source.prompts
                script = script[:1]
            script = [item if isinstance(item, str) else item.text for item in script]
        model = source.first if isinstance(source, SideBySide) else source
        if isinstance(model, GeneratedModel):
            model.own = list_own_tools(rehearsal)
        if len(script) > 1:
            _watch_prompts(rehearsal, model, fresh, sessions)
        watch = self._watch_attack(rehearsal, model, script, turns, faults, state)
        plain = None if watch is not None else _watch_loop(rehearsal, model, state)
        loses = any(fault.startswith(LOST) for fault in faults)
        states = _watch_states(rehearsal, state) if loses and plain is None else None
        error: BaseException | None = None
        try:
            try:
                run = rehearsal.run(*script)
            # Errors of the test end the search; those of the agent are what it looks for.
            except (UsageError, PlaybookError):
                if job.observes and not job.seed:
                    return Behaviour(job.moves, gave_up=OUTDATED, requests=1, prompt=job.prompt)
                raise
            except (Exception, SystemExit) as raised:  # noqa: BLE001 - whatever the agent does wrong
                error = _error_of_agent(raised)
                run = cast("Run", rehearsal.latest_run)
            self.last_run = run
            authority = None if watch is None else watch.finish()
            if watch is not None:
                watch.close()  # the invariants read the texts of the user, not an attacker's
            violations, undecided = self._check(run, state)
            evidence = RunEvidence(run, sessions, authority, beside, plain, states)
            broken, failed = check_run(evidence, self._without)
            violations += broken
            undecided += [(name, _oracle_failed(name, cause)) for name, cause in failed]
            gave_up = error is not None and self._is_end(error, run)
            if plain is not None:  # a loop without a `try` ends with the error of its tool
                gave_up = gave_up or isinstance(error, InjectedFault)
            if error is not None and not gave_up:
                crash = _crash(error)
                if REASONS[crash.invariant][0] not in self._without:
                    violations.append(crash)
            if job.records:
                for verdict in list_verdicts(violations, [*self._invariants], self._without):
                    rehearsal.hub.emit_verdict(verdict)
            results = run.events.tool_results
            described = describe_state(state, results)
            return Behaviour(
                tuple(moves()),
                tuple(violations),
                type(error).__name__ if gave_up else "",
                tuple(undecided),
                _shorten(described),
                len(run.events.new_messages),
                # Only what is asked for: it is sent to another process.
                _list_tools(run, model),
                () if job.seed else tuple(v for result in results for v in find_values(result)),
                self._arguments.notes,
                str(rehearsal.trace) if job.records else "",
                job.prompt,
                list_reached(run.events.all, described) if job.observes else (),
                self._list_succeeded(run, results, ended=error is None),
                is_process(rehearsal.subject),
                _read_attack(model, run),
            )
        finally:
            for opened in (watch, plain):
                if opened is not None:
                    opened.close()
            rehearsal.dispose(failed=True)

    def _watch_attack(
        self,
        rehearsal: Rehearsal,
        source: GeneratedModel | PatientPlaybook,
        script: Sequence[Turn | str],
        turns: Sequence[Turn | str],
        faults: tuple[str, ...],
        state: object,
    ) -> AttackWatch | None:
        """Watch a run in which a model may obey the text of a tool; None of any other."""
        injected = [fault for fault in faults if fault.startswith(FAULT_KIND)]
        attacks = isinstance(source, GeneratedModel) and self._attacks
        if "authority" in self._without or not (injected or attacks):
            return None
        if getattr(rehearsal.subject, "obeys_model", False):  # no agent that could refuse
            return None
        prompts = [item if isinstance(item, str) else item.text for item in script]
        home = type(state).__module__.partition(".")[0]
        watch = AttackWatch(rehearsal, self._policy, prompts, lambda: _describe(state, home, set()))
        source.before_reply = watch.note_request
        if injected:
            watch.inject(injected[0], read_instruction(turns, injected[0]))
        if isinstance(source, GeneratedModel):
            self._code = self._code or find_texts(self._world)
            source.attack = Attack(
                self._policy,
                self._arguments,
                watch.inject,
                watch.own,
                watch.has_changed,
                watch.last_state,
                self._code,
                "\n".join(prompts),
            )
        return watch

    def _list_succeeded(
        self, run: Run, results: Sequence[ToolResultRecord], *, ended: bool
    ) -> tuple[str, ...]:
        """Return the tools that succeeded in this behaviour, and in none before it.

        A call that `ended` a run has no result, such as that of a structured answer.
        """
        others = [result for result in results if result.tool_name not in self._succeeded]
        new = {
            result.tool_name
            for result in others
            if not (result.failed or is_error(result.text, result.tool_name))
        }
        if ended:
            new |= _list_last_calls(run, results) - self._succeeded
        self._succeeded |= new
        return tuple(sorted(new))

    def _is_end(self, error: BaseException, run: Run) -> bool:
        """Return whether an error is a documented way to end, or follows from a fault."""
        if isinstance(error, self._gives_up) or is_documented_end(error):
            return True
        in_library = is_library("".join(_list_places(error.__traceback__)[-1:]))
        if isinstance(error, UnicodeEncodeError):  # a client sends no half of a character
            return in_library
        # Or its provider refuses it, or another library. One that the agent made is its own fault.
        refused = isinstance(error, RunError) and error.what.startswith(REFUSED_REQUEST)
        if "surrogate" in str(error) and (refused or in_library):
            written = str([call.arguments for call in run.scripted.calls])
            if _HALF.search(written):
                return True
        # A framework alone: it refuses arguments that are not an object.
        if not isinstance(error, RunError) and _is_of_framework(error.__traceback__):
            # Any call of the run: a conversation side by side may have gone on after it.
            return any(RAW_ARGUMENTS in call.arguments for call in run.scripted.calls)
        # A command may exit with an error after one of the provider.
        last = run.events.named(REPLY, ERROR)[-1:]
        failed = bool(last) and last[0].event == ERROR
        return (
            (failed or bool(run.events.named(FAULT)))
            and isinstance(error, RunError)
            and (getattr(error, "exit_code", None) or "exit code" in str(error))
        )

    def _check(
        self, run: Run, state: object
    ) -> tuple[list[BrokenInvariant], list[tuple[str, UsageError]]]:
        violations: list[BrokenInvariant] = []
        undecided: list[tuple[str, UsageError]] = []
        for name, invariant in [*self._invariants.items()]:
            try:
                holds = invariant(run, state)
            except AssertionError as error:
                message = str(error).strip() or "the assertion failed"
                violations.append(BrokenInvariant(name, message, name))
            except Exception as error:  # noqa: BLE001 - an error of the test, reported as one
                undecided.append((name, _not_decided(name, error)))
                del self._invariants[name]  # the others go on
            else:
                if message := _read_result(name, holds):
                    violations.append(BrokenInvariant(name, message, name))
        return violations, undecided


def _list_last_calls(run: Run, results: Sequence[ToolResultRecord]) -> set[str]:
    """Return the tools whose call has no result, except in replies that were cut short."""
    answered = {result.tool_call_id for result in results}
    calls = [call for call in run.events.named(TOOL_CALL) if call.data["call_id"] not in answered]
    if not calls:
        return set()
    replies = run.events.named(REPLY)
    ids = {
        block.get("id")
        for reply in replies
        if reply.data.get("stop", "stop") in {"stop", "tool_use"}
        for block in msgspec.to_builtins(reply.data["blocks"])
    }
    return {call.data["tool"] for call in calls if call.data["call_id"] in ids}


def _read_attack(model: object, run: Run) -> AttackOutcome | None:
    """Return how an attack ended; None of a behaviour without one."""
    attack = model.attack if isinstance(model, GeneratedModel) else None
    if attack is None or attack.tools is None:
        return None
    return read_outcome(run, *attack.tools)


def _open(world: World) -> tuple[Rehearsal, object]:
    """Return the rehearsal and the state of a new world."""
    try:
        made = world()
    except OffbookError:
        raise
    except Exception as error:
        places = [*traceback.walk_tb(error.__traceback__)][1:]
        frame, line = next((p for p in reversed(places) if not _is_of_library(p[0])), (None, 0))
        raise UsageError(
            f"the world raised {type(error).__name__}: {error}",
            where=f"{frame.f_code.co_filename}:{line}" if frame is not None else "",
            hint="call it alone first: it makes the agent, without a model",
        ) from error
    pair = cast("tuple[object, ...]", made) if isinstance(made, tuple) else (made, None)
    if len(pair) != 2:  # noqa: PLR2004 - the rehearsal and the state
        raise UsageError(
            f"the world has {len(pair)} parts, not two",
            hint="return drive(agent), or (drive(agent), state)",
        )
    subject, state = pair
    return (subject if isinstance(subject, Rehearsal) else drive(subject)), state


def _watch_loop(
    rehearsal: Rehearsal,
    source: GeneratedModel | PatientPlaybook,
    state: object,
) -> LoopWatch | None:
    """Watch the tools of a loop; None of any other agent."""
    loop = getattr(getattr(rehearsal.subject, "adapter", None), "function", None)
    if loop is None:
        return None
    home = type(state).__module__.partition(".")[0]
    plain = LoopWatch(loop, None if state is None else lambda: _describe(state, home, set()))
    source.before_reply = plain.note_request
    return plain


def _say_again(prompt: str, seed: str) -> str:
    """Return the prompt of another user who wants the same: an equal request would be a retry.

    What an agent keeps by a part of the prompt may be found by its beginning or by its end.
    """
    ends_differently = Random(f"{seed}:again").random() < 0.5  # noqa: S311, PLR2004 - not for secrets
    return f"{prompt} (once more)" if ends_differently else f"Once more: {prompt}"


def _watch_states(rehearsal: Rehearsal, state: object) -> dict[tuple[str, int], str] | None:
    """Collect the state of the world after each execution of a tool; None without a state."""
    if state is None:
        return None
    home = type(state).__module__.partition(".")[0]
    states: dict[tuple[str, int], str] = {}

    def note_state(event: Event) -> None:
        key = (event.data["call_id"], event.data.get("number", 1))
        states[key] = _describe(state, home, set())

    rehearsal.hub.subscribe(note_state, TOOL_END)
    return states


def _watch_prompts(
    rehearsal: Rehearsal,
    source: GeneratedModel | PatientPlaybook,
    fresh: set[int],
    sessions: list[int],
) -> None:
    """Begin a new conversation before these prompts, and note where they begin."""
    subject: Any = rehearsal.subject
    prompt, numbers = subject.prompt, count()

    async def prompt_in_conversation(text: str) -> object:
        number = next(numbers)
        restart = getattr(subject, "start_conversation", None)  # of an agent of a framework
        is_fresh = number in fresh and restart is not None and bool(restart())
        if is_fresh:
            sessions.append(rehearsal.hub.seq)
        if number and isinstance(source, GeneratedModel):
            source.begin(text, fresh=is_fresh)
        return await prompt(text)

    subject.prompt = prompt_in_conversation


def _list_tools(run: Run, source: ModelSource) -> tuple[Tool, ...]:
    """Return the tools that the agent offered."""
    if isinstance(source, GeneratedModel):
        return tuple(source.tools.values())
    return tuple({tool.name: tool for request in run.requests for tool in request.tools}.values())


def _innermost(error: BaseException) -> BaseException:
    """Return the error, or the first one of a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _error_of_agent(raised: BaseException) -> BaseException:
    """Return the error that ended an agent; raise one of the search itself."""
    error = _innermost(raised)
    frames = [*traceback.walk_tb(error.__traceback__)]
    is_ours = bool(frames) and Path(frames[-1][0].f_code.co_filename).parent == FOLDER
    if is_ours and not isinstance(error, OffbookError):
        raise error
    return error


def _crash(error: BaseException) -> BrokenInvariant:
    """Return the violation for an exception.

    The function of the user in which it was raised identifies the bug: the message and the line may
    change.
    """
    kind = type(error).__name__
    if isinstance(error, RunError) and error.what.startswith(NO_END):
        return BrokenInvariant(ENDLESS, error.what, f"{ENDLESS}: ")
    # The agent may have caught the error of its client: it raised nothing then.
    if isinstance(error, RunError) and error.what.startswith(REFUSED_REQUEST):
        return BrokenInvariant(REFUSED, error.what, f"{REFUSED}: ")
    # Of a command, only the last words are known.
    named = _EXCEPTION.findall(str(error)) if isinstance(error, RunError) else []
    trace = error.__traceback__
    place = named[-1] if named else _user_place(trace) or "".join(_list_places(trace)[-1:])
    return BrokenInvariant(CRASH, f"the agent raised {kind}: {error}", f"{CRASH}: {kind} {place}")


def _is_of_library(frame: FrameType) -> bool:
    return is_library(frame.f_code.co_filename)


def _user_place(trace: TracebackType | None) -> str:
    """Return the innermost function of the user in a traceback, or ""."""
    places = [place for place in _list_places(trace) if not is_library(place.rpartition(":")[0])]
    return places[-1] if places else ""


def _is_of_framework(trace: TracebackType | None) -> bool:
    """Return whether a framework raised an exception: it called no function of the user then.

    The user's own node of a graph asks a model of the framework, for example. A tool of a framework
    that the user runs is the user's: its arguments are those of the call.
    """
    called: str | None = None  # what the innermost function of the user called
    own = False
    for frame, _ in traceback.walk_tb(trace):
        if not _is_of_library(frame):
            called, own = None, True
        elif called is None:
            called = str(frame.f_globals.get("__name__"))
    if not own:
        return True
    package = (called or "").partition(".")[0]
    return package in CALLED_FRAMEWORKS and not (called or "").startswith(FRAMEWORK_TOOLS)


def _list_places(trace: TracebackType | None) -> list[str]:
    """Return the file and the function of each frame, the innermost last."""
    places: list[str] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename}:{code.co_name}")
        trace = trace.tb_next
    return places


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


def _oracle_failed(name: str, error: Exception) -> UsageError:
    """Return the error for an oracle that raised one: a bug of Offbook."""
    return UsageError(
        f"the oracle {name} raised {type(error).__name__}: {error}",
        where="".join(_list_places(error.__traceback__)[-1:]),
        hint=f"this is a bug of Offbook: please report it; to leave it out: --without {name}",
    )


def check_invariant(invariant: object) -> None:
    """Raise for an invariant that is not a function, or whose call would not run it."""
    if isinstance(invariant, ToolPolicy):
        return
    if not callable(invariant):
        raise UsageError(
            f"an invariant must be a function of the run and the state, not {invariant!r}"
        )
    kinds = (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction)
    if any(is_kind(invariant) for is_kind in kinds):
        raise UsageError(
            f"the invariant {name_of(invariant)} would never run: it is async or a generator",
            hint="write a plain `def` that asserts, or returns True or False",
        )


def _read_result(name: str, result: object) -> str:
    """Return why an invariant is broken, or ""; raise if its result does not say so."""
    holds, reason = decide(result, f"the invariant {name}")
    if holds is None or isinstance(holds, bool):
        return reason
    raise UsageError(
        f"the invariant {name} returned {type(result).__name__}, which is no verdict",
        hint="assert, or return True, False or (False, reason)",
    )


def name_of(invariant: Invariant | ToolPolicy) -> str:
    """Return the name of an invariant in reports."""
    if isinstance(invariant, ToolPolicy):
        return f"policy of {', '.join(invariant.tools)}"
    return getattr(invariant, "__name__", None) or repr(invariant)


def describe_state(state: object, results: Sequence[ToolResultRecord]) -> str:
    """Return a text for the state of the world; without one, for the results of the tools.

    Values that differ from run to run, such as ids, are replaced by their order of appearance.
    """
    home = type(state).__module__.partition(".")[0]
    text = _describe(state, home, set()) if state is not None else repr([r.text for r in results])
    values = dict.fromkeys(value for result in results for value in find_values(result))
    for number, value in enumerate(values):
        if isinstance(value, str):
            text = text.replace(value, f"<{number}>")
    return text


def _shorten(text: str) -> str:
    """Return a text, or its digest if it is long: a search keeps the states of all behaviours."""
    if len(text) <= MAX_STATE:
        return text
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=MAX_STATE // 4).hexdigest()


def _describe_files(path: Path) -> str:
    """Return the contents of a file, or of the files of a folder; its own name may be random."""
    try:
        if path.is_file():
            return repr(path.read_bytes())
        files = sorted(file for file in path.rglob("*") if file.is_file())[:MAX_FILES]
        return "{" + ", ".join(f"{f.relative_to(path)}: {f.read_bytes()!r}" for f in files) + "}"
    except OSError:
        return "Path"


def _describe(value: object, home: str, inside: set[int]) -> str:
    """Return the contents of a value, without addresses.

    Of objects only those of the user's own package are opened: the inside of a framework's agent or
    of a database connection is not the state of the world.
    """
    if value is None or isinstance(value, VALUES):
        return repr(value)
    if id(value) in inside:  # an object that contains itself
        return "…"
    inside = {*inside, id(value)}
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return "{" + ", ".join(f"{k!r}: {_describe(v, home, inside)}" for k, v in items) + "}"
    if isinstance(value, (list, tuple)):
        parts = cast("list[object]", value)
        return "[" + ", ".join(_describe(part, home, inside) for part in parts) + "]"
    if isinstance(value, (set, frozenset)):
        members = cast("set[object]", value)
        return "{" + ", ".join(sorted(_describe(part, home, inside) for part in members)) + "}"
    if isinstance(value, Path):
        return _describe_files(value)
    kind = type(value)
    if kind.__module__.partition(".")[0] != home:
        return kind.__name__
    fields = getattr(value, "__dict__", None)
    if fields is None and isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value)
    return f"{kind.__name__}{_describe(fields, home, inside) if fields else ''}"
