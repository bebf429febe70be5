"""The search for the behaviours of a model that make an agent break an invariant."""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import msgspec

from offbook.determinism.shrinking import MAX_RUNS
from offbook.errors import (
    InvariantBroken,
    OffbookError,
    OffbookWarning,
    RunError,
    UsageError,
    counted,
    explain_call,
    require_known,
)
from offbook.explore.argument_values import ArgumentValues
from offbook.explore.authority import AttackOutcome
from offbook.explore.corpus import Corpus, StoredScript, choose_opening
from offbook.explore.moves import (
    END,
    GeneratedCall,
    Move,
    list_faults,
    render_script,
    resolve,
    uses_results,
)
from offbook.explore.oracles import (
    CRASH,
    HANG,
    ORACLES,
    REASONS,
    REFUSED,
    BrokenInvariant,
    check_names,
)
from offbook.explore.playing import (
    Behaviour,
    Invariant,
    Job,
    World,
    check_invariant,
    name_of,
)
from offbook.explore.shrinking import shrink
from offbook.explore.worker import Limit, Players, StagePlan
from offbook.runs.ray_engine import choose_engine
from offbook.runs.run import in_event_loop
from offbook.secrets.values import is_secret_field

if TYPE_CHECKING:
    from offbook.exchange.model import Tool
    from offbook.explore.moves import Script
    from offbook.explore.tool_policy import ToolPolicy
    from offbook.runs.run import Run

Progress = Callable[["Exploration"], object]
DEADLINE = 20.0  # seconds for one behaviour
ARGUMENTS_PER_TOOL = 3  # that an exhaustive search tries
LARGEST_CHUNK = 32  # for each process
MAX_FINDINGS = 10  # different ones; then the search ends
MAX_SHRUNK = 4  # of one invariant: most behaviours that break it have the same cause
RUNS = 500
RUNS_OF_PROCESS = 150  # each of an agent that is a process takes long
OF_CORPUS = -1  # the number of a script of the corpus
SIDE_BY_SIDE_PLAYS = 3  # of a script that must fail each time
LONG = 60  # seconds of a search whose states are counted by the minute
MAX_HANGS = 60  # tries to shorten a script that hangs
HANG_SECONDS = 60  # for these tries: each that hangs takes seconds
MAX_FRESH = 60  # tries in a new process each
SHARE = 0.5  # of the rest of a search with `minutes`, in which a script is made smaller


class Chunk(NamedTuple):
    """How many behaviours are played before the next look at them: as many as take this time."""

    first: int
    largest: int
    seconds: float


RAY_CHUNK = Chunk(64, 2048, 5.0)  # a task of a cluster begins with a new process


class Counterexample(msgspec.Struct, frozen=True):
    """A broken invariant, and the smallest script that breaks it.

    `repeats` is false if the same script did not break it again: then it was not made smaller.
    Without `smallest`, the time or the tries to make it smaller were over. If `keeps_state`, it
    broke it again only where other behaviours had been played before.
    """

    invariant: str
    message: str
    script: str
    run: int
    moves: tuple[Move, ...]
    found_with: int
    repeats: bool = True
    key: str = ""
    keeps_state: bool = False
    smallest: bool = True

    @property
    def cause(self) -> tuple[str, frozenset[str]]:
        """The invariant with the tools of the script: equal for equal bugs."""
        tools = {made.tool for move in self.moves for made in move.calls}
        return self.key, frozenset() if _names_place(self.key) else frozenset(tools)


def _names_place(key: str) -> bool:
    return key.partition(":")[0] in REASONS


class Exploration(msgspec.Struct):
    """The result of a search: what was tried, and what was found.

    `states` are the different states of the world that were reached. `never_called` are the tools
    that the agent offered and no behaviour called, and `never_succeeded` those of which each result
    was an error: more behaviours, or other `values`, may get further. `notes` are keywords of
    schemas that could not be generated from, with what was done instead. `findings` have different
    causes; `broken_by` counts the behaviours that broke each invariant. `trace` is the file of the
    first finding, or of the last behaviour. `slow` counts the behaviours that did not end within
    the deadline, and did when they were played again: the machine was busy. `reached` are the
    outcomes of the agent's parts, in a search with a corpus; `kept` is the number of scripts in its
    folder. `attacks` counts how those with the text of an untrusted tool ended.
    """

    prompt: str
    seed: int
    behaviours: int = 0
    requests: int = 0
    states: set[str] = msgspec.field(default_factory=set)
    offered: set[str] = msgspec.field(default_factory=set)
    called: set[str] = msgspec.field(default_factory=set)
    succeeded: set[str] = msgspec.field(default_factory=set)
    gave_up: Counter[str] = msgspec.field(default_factory=Counter)
    notes: dict[str, str] = msgspec.field(default_factory=dict)
    findings: list[Counterexample] = msgspec.field(default_factory=list)
    broken_by: Counter[str] = msgspec.field(default_factory=Counter)
    undecided: dict[str, UsageError] = msgspec.field(default_factory=dict)
    trace: str = ""
    slow: int = 0
    seconds: float = 0
    new_states: Counter[int] = msgspec.field(default_factory=Counter)
    reached: set[str] = msgspec.field(default_factory=set)
    corpus: str = ""
    kept: int = 0
    attacks: Counter[AttackOutcome] = msgspec.field(default_factory=Counter)

    @property
    def never_called(self) -> list[str]:
        """The tools that were offered and never called."""
        return sorted(self.offered - self.called)

    @property
    def never_succeeded(self) -> list[str]:
        """The tools that were called, and whose every result was an error or a refusal."""
        return sorted((self.offered & self.called) - self.succeeded)

    @property
    def states_per_minute(self) -> list[int]:
        """The number of new states in each minute of the search."""
        return [self.new_states[minute] for minute in range(int(self.seconds // 60) + 1)]

    @property
    def attack_lines(self) -> list[str]:
        """One line for each untrusted tool and powerful one: how the attacks ended."""
        pairs = dict.fromkeys((one.untrusted, one.powerful) for one in self.attacks)
        return [self._describe_attacks(*pair) for pair in sorted(pairs)]

    def _describe_attacks(self, untrusted: str, powerful: str) -> str:
        ends = {
            end: self.attacks[AttackOutcome(untrusted, powerful, end)]
            for end in ("refused", "ran", "unmade")
        }
        begun = f"{counted(sum(ends.values()), 'attack')} with a text of {untrusted} on {powerful}"
        if not ends["refused"] + ends["ran"]:
            return f"{begun}: no data, the model never got to call it"
        said = {"refused": "refused", "ran": "ran", "unmade": "not made"}
        return f"{begun}: " + ", ".join(f"{n} {said[end]}" for end, n in ends.items() if n)

    @property
    def summary(self) -> str:
        """One line: how much was tried."""
        parts = [counted(self.behaviours, "behaviour"), counted(len(self.states), "state")]
        if self.seconds >= LONG:
            parts.append(f"{self.states_per_minute[-1]} of them new in this minute")
        if self.never_called:
            parts.append(f"never called: {', '.join(self.never_called)}")
        if self.never_succeeded:
            parts.append(f"never succeeded: {', '.join(self.never_succeeded)}")
        parts += [
            f"{kind} {counted(count, 'time')}" for kind, count in sorted(self.gave_up.items())
        ]
        if self.slow:
            parts.append(f"late once, and not again: {counted(self.slow, 'behaviour')}")
        return ", ".join(parts)


@explain_call
def explore(  # noqa: PLR0913 - the options of a search
    world: World,
    prompt: str | Sequence[str],
    *invariants: Invariant | ToolPolicy,
    runs: int | None = None,
    steps: int = 5,
    seed: int = 0,
    depth: int = 0,
    gives_up: type[BaseException] | Sequence[type[BaseException]] = (),
    values: Mapping[str, Sequence[Any]] | None = None,
    without: Sequence[str] = (),
    deadline: float | None = DEADLINE,
    jobs: int = 1,
    engine: Literal["local", "ray"] = "local",
    address: str = "",
    minutes: float | None = None,
    corpus: Path | str | None = None,
    trace: Path | str | None = None,
    progress: Progress | None = None,
) -> Exploration:
    """Play generated models against an agent, and fail with the smallest scripts that break it.

        def world():
            shop = Shop()
            return drive(shop.agent), shop

        explore(world, "Refund order 7", lambda run, shop: len(shop.refunds) <= 1)

    Each of `runs` behaviours has up to `steps` messages of the model, chosen by `seed`. By default
    there are 500, 150 if the agent is a process, or as many as there are in `minutes`. They are
    played by `jobs` processes, or with `engine="ray"` by the machines of a cluster, which import
    the world: it is a function at the top level of a module. Scripts that reached something new are
    kept in the folder `corpus`, and a later search begins with those that are there. With `depth`,
    all scripts of that many messages are tried instead, except those that lead to a state
    which was reached before. Several prompts are those of several users. In every search some
    things always hold, such as that the agent raises no exception, except for those in `gives_up`,
    and that it ends: `without` names the oracles to leave out. `values` are arguments to try, by
    parameter. Marks of tools, such as `untrusted("fetch_page")` and `powerful("send_mail")`, are
    given with the invariants. The world runs in a separate process, which is killed if a
    behaviour takes longer than `deadline` seconds: that is a finding, too. With `deadline=None` it
    runs in this process, for a debugger. `trace` is the file for the trace of the smallest script;
    without a violation, for that of the last behaviour.
    """
    prompts = (prompt,) if isinstance(prompt, str) else tuple(prompt)
    _check_arguments(world, prompts, invariants, runs, steps, values, deadline)
    _check_engine(depth, deadline, jobs, engine, minutes, corpus)
    if runs is None and minutes is not None:
        runs = sys.maxsize
    check_names(without)
    path = None if trace is None else Path(trace).absolute()
    kinds = (gives_up,) if isinstance(gives_up, type) else tuple(gives_up)
    plan = StagePlan(world, prompts, invariants, kinds, values, path, without)
    found = Exploration(prompts[0], seed)
    stored = None if corpus is None else Corpus(Path(corpus))
    with Players(plan, deadline, choose_engine(engine, address, jobs)) as players:
        halves = _is_half(values)  # of the user: then they are meant
        search = Search(players, found, without, stored, progress, ignores_halves=not halves)
        if depth:
            arguments = ArgumentValues(values or {}, "\n".join(prompts))
            search.enumerate(arguments, depth, runs or RUNS)
        else:
            chunk = RAY_CHUNK if engine == "ray" else Chunk(jobs, LARGEST_CHUNK * jobs, 0.2)
            search.draw(seed, runs, steps, math.inf if minutes is None else 60 * minutes, chunk)
    if found.findings:
        error = InvariantBroken(describe(found))
        error.exploration = found
        raise error
    for undecided in found.undecided.values():
        raise undecided
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
    script: Script,
    *invariants: Invariant | ToolPolicy,
    gives_up: type[BaseException] | Sequence[type[BaseException]] = (),
    without: Sequence[str] = (),
    faults: Sequence[str] = (),
    deadline: float | None = None,
) -> Run:
    """Play one script against a new world and check the invariants: a saved finding is such a test.

    A list has several conversations with the same agent: each is a turn, or a list of turns. Unlike
    a test of a script, it does not fail if the agent ends before the script does. With `deadline`,
    it is played in another process first, which is killed after so many seconds.
    """
    kinds = (gives_up,) if isinstance(gives_up, type) else tuple(gives_up)
    for invariant in invariants:
        check_invariant(invariant)
    check_names(without)
    plan = StagePlan(
        world,
        ("",),
        invariants,
        kinds,
        without=without,
        script=script,
        faults=tuple(faults),
    )
    if deadline is not None:
        with Players(plan, deadline) as players:
            _raise_violation(players.play_one(Job(records=False)))
    with plan.open() as stage:
        behaviour = stage.play(Job())
        run = stage.last_run
    _raise_violation(behaviour)
    _check_tools(invariants, {tool.name for tool in behaviour.tools})
    return cast("Run", run)


def _raise_violation(behaviour: Behaviour) -> None:
    for _, error in behaviour.undecided:
        raise error
    if not behaviour.requests:
        raise _never_asked(behaviour)
    for violation in behaviour.violations:
        raise InvariantBroken(f"{violation.invariant}: {violation.message}")


def _check_arguments(
    world: object,
    prompts: Sequence[object],
    invariants: Sequence[object],
    runs: int | None,
    steps: int,
    values: Mapping[str, Sequence[Any]] | None,
    deadline: float | None,
) -> None:
    if in_event_loop():
        raise UsageError("explore() cannot be used in an `async def`", hint="write a plain `def`")
    if not callable(world):
        raise UsageError(
            f"the world must be a function, not {type(world).__name__}",
            hint="write def world(): return drive(agent), state",
        )
    if not prompts or not all(isinstance(prompt, str) and prompt for prompt in prompts):
        raise UsageError("explore() takes the prompt second, a string or a list of them")
    for invariant in invariants:
        check_invariant(invariant)
    if (runs is not None and runs < 1) or steps < 1:
        raise UsageError("runs and steps must be 1 or more")
    if deadline is not None and not deadline > 0:
        raise UsageError(f"the deadline must be more than 0 seconds, not {deadline!r}")
    for name, choices in (values or {}).items():
        if isinstance(choices, str) or not choices:
            raise UsageError(
                f"values[{name!r}] must be a list of values, not {choices!r}",
                hint=f"write values={{{name!r}: [{choices!r}]}}",
            )


def _check_engine(
    depth: int,
    deadline: float | None,
    jobs: int,
    engine: str,
    minutes: float | None,
    corpus: object,
) -> None:
    require_known("no such engine", engine, ("local", "ray"))
    if jobs < 1 or (minutes is not None and not minutes > 0):
        raise UsageError("jobs must be 1 or more, and minutes more than 0")
    many = jobs > 1 or engine == "ray"
    if depth and (many or minutes is not None or corpus is not None):
        raise UsageError(
            "depth excludes jobs, engine, minutes and corpus",
            hint="all scripts are tried in their order",
        )
    if many and deadline is None:
        raise UsageError(
            f"{'jobs' if jobs > 1 else 'engine'} needs a deadline: without one, the world runs in"
            " this process",
            hint="leave out deadline=None",
        )


def _never_asked(behaviour: Behaviour) -> OffbookError:
    """Return the error for an agent that sent no request: no model can be the cause of anything."""
    hint = "run the agent alone first; each behaviour begins in an empty folder"
    for violation in behaviour.violations:
        if violation.invariant in {CRASH, REFUSED}:
            what = "nothing was explored: the agent failed before it called the model"
            return UsageError(f"{what}\n  {violation.message}", hint=hint)
    return RunError("nothing was explored: the agent never called the model", hint=hint)


def _check_tools(invariants: Iterable[Invariant | ToolPolicy], offered: set[str]) -> None:
    """Raise for an invariant about a tool that the agent never offered: it checked nothing."""
    for invariant in invariants:
        for tool in getattr(invariant, "tools", ()):
            require_known(
                "the agent never offered the tool",
                tool,
                offered,
                where=f"the invariant {name_of(invariant)!r}",
            )


class Search:
    """Plays behaviours, and makes the violations of each cause small once."""

    def __init__(
        self,
        players: Players,
        found: Exploration,
        without: Sequence[str] = (),
        corpus: Corpus | None = None,
        progress: Progress | None = None,
        *,
        ignores_halves: bool = False,
    ) -> None:
        self._players = players
        self._found = found
        self._without = {ORACLES[name].title for name in without}
        self._ignores_halves = ignores_halves
        self._corpus = corpus
        self._progress = progress
        self._shrunk: Counter[str] = Counter()
        self._is_process = False  # known from the first behaviour
        self._began = time.monotonic()
        self._ends = math.inf
        self._tools: dict[str, Tool] = {}
        if corpus is not None:
            found.corpus, found.kept = str(corpus.folder), len(corpus.scripts)

    def draw(self, seed: int, runs: int | None, steps: int, seconds: float, size: Chunk) -> None:
        """Play the scripts of the corpus, and the behaviours of a seed."""
        found = self._found
        self._ends = self._began + seconds
        jobs = self._list_jobs(seed, runs, steps)
        last: Job | None = None
        for chunk in _chunks(jobs, size):
            # All of them before the first look: a violation is played again, many times.
            played = self._players.play([job for _, job in chunk])
            for (number, job), behaviour in zip(chunk, played, strict=True):
                self._note(behaviour, number, job)
                if len(found.findings) >= MAX_FINDINGS:
                    return
                if time.monotonic() >= self._ends:
                    break
            last = chunk[-1][1]
            if time.monotonic() >= self._ends:
                break
        # Which one is the last was not known before.
        if last is not None and not found.findings and not found.trace:
            last = msgspec.structs.replace(last, records=True)
            found.trace = self._players.play_one(last).trace

    def _list_jobs(self, seed: int, runs: int | None, steps: int) -> Iterator[tuple[int, Job]]:
        """Yield the scripts of the corpus, and the behaviours of a seed, each with its number."""
        observes = self._corpus is not None
        stored = [*self._corpus.scripts] if self._corpus is not None else []
        for script in stored:
            yield OF_CORPUS, Job(prompt=script.prompt, moves=script.moves, observes=observes)
        for number in count():
            last = (runs or (RUNS_OF_PROCESS if self._is_process else RUNS)) - 1
            if number > last:
                return
            name = f"{seed}:{number}"
            opening = choose_opening(stored, name) if stored else ()
            # The trace of the last one is kept, unless there is one of a finding.
            records = number == last and not self._found.findings
            yield number, Job(name, steps, moves=opening, observes=observes, records=records)

    def enumerate(self, arguments: ArgumentValues, depth: int, runs: int) -> None:
        """Try all scripts up to a depth, the shortest first; equal states are continued once."""
        found = self._found
        queue: deque[tuple[Move, ...]] = deque([()])
        while queue and found.behaviours < runs and not found.findings:
            moves = queue.popleft()
            job = Job(moves=moves, records=not queue or found.behaviours == runs - 1)
            behaviour = self._players.play_one(job)
            is_new = behaviour.state not in found.states
            self._note(behaviour, found.behaviours, job)
            if not is_new or len(moves) == depth:
                continue
            queue.extend((*moves, move) for move in _list_moves(behaviour, arguments))

    def _note(self, behaviour: Behaviour, number: int, job: Job) -> None:
        """Add a behaviour to what was tried; keep a violation with a new cause."""
        found = self._found
        found.seconds = time.monotonic() - self._began
        found.requests += behaviour.requests
        if not found.requests:
            raise _never_asked(behaviour)
        found.behaviours += 1
        self._is_process |= behaviour.is_process
        if behaviour.state not in found.states:
            found.states.add(behaviour.state)
            found.new_states[int(found.seconds // 60)] += 1
        found.called |= {made.tool for move in behaviour.moves for made in move.calls}
        found.offered |= {tool.name for tool in behaviour.tools}
        self._tools.update({tool.name: tool for tool in behaviour.tools})
        found.succeeded.update(behaviour.succeeded)
        found.notes.update(behaviour.notes)
        if behaviour.attack is not None:
            found.attacks[behaviour.attack] += 1
        found.trace = behaviour.trace or found.trace
        if behaviour.gave_up:
            found.gave_up[behaviour.gave_up] += 1
        found.undecided.update(behaviour.undecided)
        for violation in behaviour.violations:
            if violation.invariant in self._without:
                continue
            found.broken_by[violation.key] += 1
            if self._is_known(violation, behaviour.moves):
                continue
            self._shrunk[violation.key] += 1
            if self._progress is not None:  # it takes long to make a script smaller
                self._progress(found)
            try:
                finding = self._minimize(behaviour, violation, number)
            except (KeyboardInterrupt, SystemExit):
                self._add(self._as_found(behaviour, violation, number))
                raise
            if finding is None:
                found.slow += 1
                continue
            # A trace has half a character in another form than the state of the world.
            if self._ignores_halves and not _names_place(finding.key) and _has_half(finding.moves):
                continue
            if self._add(finding):
                self._keep(Job(prompt=behaviour.prompt, moves=finding.moves), finding)
        if behaviour.reached:
            self._keep(job, None, behaviour)
        if self._progress is not None:
            self._progress(found)

    def _keep(
        self, job: Job, finding: Counterexample | None, behaviour: Behaviour | None = None
    ) -> None:
        """Store the script of a finding, or of a behaviour that reached something new."""
        if self._corpus is None:
            return
        if finding is not None:
            script = StoredScript(
                job.prompt or self._found.prompt, finding.moves, broke=finding.invariant
            )
        else:
            played = cast("Behaviour", behaviour)
            self._found.reached.update(played.reached)
            prompt = played.prompt or self._found.prompt
            script = StoredScript(prompt, played.moves, played.reached)
        path = self._corpus.add(script)
        self._found.kept = len(self._corpus.scripts)
        # A script that hangs would hang again.
        if path and script.broke not in {HANG, CRASH}:
            self._players.play_one(msgspec.structs.replace(job, records=True, trace=path))

    def _add(self, finding: Counterexample) -> bool:
        """Add a new finding and return True. One that repeats replaces one that does not."""
        findings = self._found.findings
        weak = [other for other in findings if other.key == finding.key and not other.repeats]
        if weak and not finding.repeats:
            return False
        for other in weak:
            findings.remove(other)
        if finding.cause in {other.cause for other in findings}:
            return False
        findings.append(finding)
        if finding.invariant == HANG and finding.repeats:
            self._players.found_hangs.add(finding.key)
        return True

    def _is_known(self, violation: BrokenInvariant, moves: tuple[Move, ...]) -> bool:
        """Return whether a violation has the cause of a finding, as far as the moves show it."""
        known = [other for other in self._found.findings if other.key == violation.key]
        if known and self._shrunk[violation.key] >= MAX_SHRUNK:
            return True
        # Another behaviour may have a script that repeats it.
        repeated = [other for other in known if other.repeats]
        if repeated and _names_place(violation.key):
            return True
        return any(_contains(moves, other.moves) for other in repeated)

    def _minimize(
        self, behaviour: Behaviour, violation: BrokenInvariant, number: int
    ) -> Counterexample | None:
        """Return the finding for a violation, with the smallest script that repeats it.

        The script must break a new process, as a test is one. An agent may keep something from one
        behaviour to the next, in a module or in a default argument. Then the behaviour alone, or
        two conversations of it, may show that. If an agent does not hang again, the machine was
        busy: then this returns None.
        """
        prompt = behaviour.prompt or self._found.prompt
        finding = self._shrink(behaviour, violation, number)
        if finding is not None and (
            not finding.repeats or any(move.beside for move in finding.moves)
        ):
            return finding

        limit: Limit = "try" if violation.invariant == HANG else "deadline"

        def play(moves: tuple[Move, ...], text: str = "") -> Behaviour:
            job = Job(prompt=prompt, moves=moves, text=text)
            return self._play_again(job, limit, fresh=True)

        if finding is not None and self._find(violation, play(finding.moves, finding.script)):
            return finding
        once = behaviour.moves
        again = Move(prompt=f"Once more: {prompt}", fresh=True)
        for moves in (once, once if any(m.prompt for m in once) else (*once, again, *once)):
            for other in play(moves).violations:
                longer = msgspec.structs.replace(behaviour, moves=moves)
                found = self._shrink(longer, other, number, fresh=True)
                if found is not None and found.repeats:
                    return found
        if finding is None:
            return None
        return msgspec.structs.replace(finding, repeats=False, keeps_state=True, smallest=True)

    def _as_found(
        self, behaviour: Behaviour, violation: BrokenInvariant, number: int
    ) -> Counterexample:
        """Return the finding for a violation, with its whole script, which was not tried again."""
        return Counterexample(
            violation.invariant,
            violation.message,
            render_script(behaviour.prompt or self._found.prompt, behaviour.moves),
            number,
            behaviour.moves,
            len(behaviour.moves),
            repeats=False,
            key=violation.key,
            smallest=False,
        )

    def _play_again(self, job: Job, limit: Limit, *, fresh: bool) -> Behaviour:
        """Play a part of a script; a process says only once that a tool has succeeded."""
        behaviour = self._players.play_one(job, limit, fresh=fresh)
        self._found.succeeded.update(behaviour.succeeded)
        return behaviour

    def _find(self, violation: BrokenInvariant, behaviour: Behaviour) -> BrokenInvariant | None:
        """Return the same violation in another behaviour; a hang may be in another place."""
        for other in behaviour.violations:
            if other.key == violation.key or other.invariant == violation.invariant == HANG:
                return other
        return None

    def _shrink(
        self,
        behaviour: Behaviour,
        violation: BrokenInvariant,
        number: int,
        *,
        fresh: bool = False,
    ) -> Counterexample | None:
        """Return the finding with the smallest script; if `fresh`, each try has a new process."""
        records = not self._found.findings  # the trace is that of the first one
        prompt = behaviour.prompt or self._found.prompt
        hangs = violation.invariant == HANG
        # The deadline is for a script that does not hang, except in the tries to shorten it.
        whole: Limit = "try" if hangs else "deadline"

        def play(
            moves: tuple[Move, ...], limit: Limit = "try", *, text: str = "", records: bool = False
        ) -> Behaviour:
            job = Job(prompt=prompt, moves=moves, text=text, records=records)
            return self._play_again(job, limit, fresh=fresh)

        now = time.monotonic()
        ends = now + SHARE * (self._ends - now)
        ends = min(ends, now + HANG_SECONDS) if hangs else ends
        tries = MAX_HANGS if hangs else MAX_FRESH if fresh else MAX_RUNS

        def make_smaller(moves: tuple[Move, ...]) -> tuple[Move, ...]:
            nonlocal is_smallest
            smaller, tried = shrink(moves, still_fails, tries, self._tools)
            is_smallest = tried < tries and time.monotonic() < ends
            return smaller

        def still_fails(moves: tuple[Move, ...]) -> bool:
            return time.monotonic() < ends and fails(moves)

        def fails(moves: tuple[Move, ...], limit: Limit = "try") -> bool:
            # Conversations side by side may meet in another order each time.
            times = SIDE_BY_SIDE_PLAYS if any(move.beside for move in moves) else 1
            played = (play(moves, limit) for _ in range(times))
            return all(self._find(violation, behaviour) is not None for behaviour in played)

        moves, length = behaviour.moves, len(behaviour.moves)
        # Twice: what fails only now and then cannot be made smaller, only noise would be left.
        again = fails(moves, "again" if hangs else "deadline")
        if hangs and not again:
            return None
        if not (again and fails(moves, whole)):
            self._found.trace = play(moves, whole, records=records).trace or self._found.trace
            return msgspec.structs.replace(
                self._as_found(behaviour, violation, number), smallest=True
            )
        # Before: a value of a result would be another one without the results that came first.
        # After: a value that is needed may be the same in every run now.
        is_smallest = True
        moves = make_smaller(_fix_values(moves, play, fails))
        if (fixed := _fix_values(moves, play, fails)) != moves:
            moves = make_smaller(fixed)
        script = render_script(prompt, moves)
        # The text itself is what a person pastes, so it is what must fail.
        played = play(moves, whole, text=script, records=records)
        self._found.trace = played.trace or self._found.trace
        same = self._find(violation, played)
        return Counterexample(
            violation.invariant,
            violation.message if same is None or hangs else same.message,
            script,
            number,
            moves,
            length,
            repeats=same is not None,
            key=violation.key,
            smallest=is_smallest,
        )


def _chunks(jobs: Iterator[tuple[int, Job]], chunk: Chunk) -> Iterator[list[tuple[int, Job]]]:
    """Yield the jobs in chunks that take the same time."""
    size = chunk.first
    while part := [*islice(jobs, size)]:
        began = time.monotonic()
        yield part
        seconds = (time.monotonic() - began) / len(part)
        size = min(2 * size, chunk.largest, int(chunk.seconds / max(seconds, 1e-6)))
        size = max(chunk.first, size)


def _contains(moves: Sequence[Move], smaller: Sequence[Move]) -> bool:
    """Return whether moves have those of a script in them, in their order, whatever the values."""
    rest = iter(moves)
    return all(
        any(
            not Counter(made.tool for made in move.calls) - Counter(o.tool for o in other.calls)
            and (move.stop, bool(move.status)) == (other.stop, bool(other.status))
            for other in rest
        )
        for move in smaller
        if move != END
    )


def _has_half(moves: Sequence[Move]) -> bool:
    """Return whether an argument has half of a surrogate pair."""
    return _is_half([made.arguments for move in moves for made in move.calls])


def _is_half(value: object) -> bool:
    try:
        msgspec.json.encode(value, enc_hook=repr)
    except UnicodeEncodeError:
        return True
    return False


def _fix_values(
    moves: tuple[Move, ...],
    play: Callable[[tuple[Move, ...]], Behaviour],
    fails: Callable[[tuple[Move, ...]], bool],
) -> tuple[Move, ...]:
    """Return the moves with the values of results as constants, if they still fail."""
    if not uses_results(moves):
        return moves
    # A behaviour that hangs has none: then they are those of the moves before.
    played = (play(moves[:end]).seen for end in range(len(moves), 0, -1))
    seen = next(filter(None, played), ())
    fixed = tuple(_with_values(move, seen) for move in moves)
    return fixed if fails(fixed) else moves


def _with_values(move: Move, seen: Sequence[Any]) -> Move:
    def fill(name: str, value: Any) -> Any:
        found = resolve(value, seen)
        # A token would be printed as "[API_KEY]"; the script takes it from its result.
        return value if isinstance(found, str) and is_secret_field(name, found) else found

    calls = tuple(
        GeneratedCall(made.tool, {n: fill(n, v) for n, v in made.arguments.items()}, made.unknown)
        for made in move.calls
    )
    return msgspec.structs.replace(move, calls=calls)


def _list_moves(behaviour: Behaviour, arguments: ArgumentValues) -> list[Move]:
    """Return the moves that an exhaustive search tries next."""
    calls = [
        GeneratedCall(tool.name, values)
        for tool in behaviour.tools
        if tool.kind == "function"
        for values in arguments.few_arguments(
            tool.schema, behaviour.seen, tool.name, ARGUMENTS_PER_TOOL
        )
    ]
    pairs = [(one, other) for one in calls for other in calls if one.tool <= other.tool]
    return [*(Move((made,)) for made in calls), *(Move(pair) for pair in pairs)]


def describe(found: Exploration) -> str:
    """Return the message for the findings: the script first, then how to repeat it.

    One that repeats is first: what does not may follow from it, as of an agent that leaks.
    """
    parts: list[str] = []
    for finding in sorted(found.findings, key=lambda finding: not finding.repeats):
        indented = "\n".join(f"    {line}" for line in finding.script.splitlines())
        head = f"{finding.invariant}: {finding.message}"
        if finding.repeats:
            steps = len([move for move in finding.moves if move != END and not move.fault])
            size = f"{steps} of {finding.found_with} messages"
            how = f"the smallest script that breaks it ({size}):"
            if not finding.smallest:
                how = f"a script that breaks it ({size}); there was no time to make it smaller:"
        elif not finding.smallest:
            how = (
                "a script that broke it once; the search was ended before it was tried again and"
                " made smaller:"
            )
        elif finding.keeps_state:
            how = (
                "the agent keeps something from one run to the next: this script broke it after"
                " other behaviours, and not in a new process:"
            )
        else:
            how = (
                "the agent is not deterministic: the same script did not break it again, so it was"
                " not made smaller:"
            )
        times = found.broken_by[finding.key]
        faults = list_faults(finding.moves)
        how += f"\nwith the fault {', '.join(faults)}" if faults else ""
        if known := REASONS.get(finding.invariant):
            head += f"\n{known[1]}; to leave it out: --without {known[0]}"
        often = f"; {counted(times, 'behaviour')} broke it" if times > 1 else ""
        source = (
            "a script of the corpus"
            if finding.run == OF_CORPUS
            else f"run {finding.run}, seed={found.seed}"
        )
        parts.append(f"{head}\n{how}\n\n{indented}\n\nfound by {source}{often}")
    parts += [str(error) for error in found.undecided.values()]
    return "\n\n".join([*parts, f"explored: {found.summary}"])
