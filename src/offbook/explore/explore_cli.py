"""The commands `offbook explore` and `offbook bench`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import click
import msgspec

from offbook.cli_options import (
    FILE_PATH,
    FiniteFloat,
    address_option,
    deadline_option,
    echo,
    engine_option,
    jobs_option,
    json_option,
    print_json,
    script_option,
    show_progress,
)
from offbook.errors import InvariantBroken, RunError, UsageError, counted
from offbook.exchange.python_source import literal
from offbook.files import (
    import_object,
    make_temp_folder,
    parse_yaml,
    read_text,
    remove_temp_folder,
    write_atomic,
)
from offbook.secrets.masks import ending

if TYPE_CHECKING:
    from offbook.explore.search import Counterexample, Exploration
    from offbook.explore.tool_policy import ToolPolicy
    from offbook.runs.rehearsal import Rehearsal

COMMAND_DEADLINE = 60.0  # seconds: a program starts first

EXPLORE_EXAMPLE = """\b
Example:
  offbook explore shop:agent "Refund order 7"
  offbook explore shop:world "Refund order 7" --invariant shop:never_twice
  offbook explore shop:world "Refund order 7" --runs 2000 --save tests/test_found.py
  offbook explore shop:world "Refund order 7" --depth 3
  offbook explore shop:world "Refund order 7" --minutes 30 --jobs 8 --corpus tests/corpus
  offbook explore shop:world "Refund order 7" --minutes 30 --engine ray --address 10.0.0.5:6379
  offbook explore "Refund order 7" -- python agent.py {prompt}

\b
shop:agent is an agent or a function of the prompt; all behaviours use it.
shop:world is a function that returns a new drive(agent), or drive(agent) and a state.
Each invariant is a function of the run and the state.

\b
Exit codes:
  0  no behaviour broke an invariant
  1  some did; the smallest script for each cause is printed
  2  wrong usage, or a module that cannot be imported
"""


@click.command("explore", epilog=EXPLORE_EXAMPLE)
@click.argument("arguments", metavar="[AGENT|WORLD] PROMPT… [-- COMMAND…]", nargs=-1)
@click.option("--invariant", "-i", multiple=True, metavar="MODULE:NAME", help="Repeatable.")
@click.option(
    "--runs",
    type=click.IntRange(1),
    help="Behaviours to try.  [default: 500, 150 for a process; with --minutes, no limit]",
)
@click.option("--steps", default=5, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True)
@click.option("--depth", default=0, type=click.IntRange(0), help="Try all scripts of this length.")
@jobs_option
@engine_option
@address_option
@click.option(
    "--minutes", type=FiniteFloat(min=0, min_open=True), help="How long to search at most."
)
@click.option(
    "--corpus",
    type=FILE_PATH,
    metavar="FOLDER",
    help="Begin with the scripts of a folder, and keep those there that reach something new.",
)
@click.option("--gives-up", multiple=True, metavar="MODULE:NAME", help="An exception to allow.")
@click.option("--values", multiple=True, metavar="NAME=VALUE|FILE", help="Arguments to try.")
@click.option("--without", multiple=True, metavar="ORACLE", help="Leave out an oracle.")
@click.option("--untrusted", multiple=True, metavar="TOOL", help="A tool with untrusted text.")
@click.option("--powerful", multiple=True, metavar="TOOL", help="A tool that no text may steer.")
@click.option("--save", type=FILE_PATH, metavar="FILE", help="Write a test for what is found.")
@click.option("--trace", type=FILE_PATH, metavar="FILE", help="Write the trace of what is found.")
@click.option(
    "--deadline",
    default=None,
    type=FiniteFloat(min=0, min_open=True),
    help="Seconds for one behaviour before it counts as a hang.  [default: 20, 60 for a command]",
)
@json_option
def explore_command(  # noqa: PLR0913 - the options of the command
    arguments: tuple[str, ...],
    *,
    invariant: tuple[str, ...],
    runs: int | None,
    steps: int,
    seed: int,
    depth: int,
    jobs: int,
    engine: Literal["local", "ray"],
    address: str,
    minutes: float | None,
    corpus: Path | None,
    gives_up: tuple[str, ...],
    values: tuple[str, ...],
    without: tuple[str, ...],
    untrusted: tuple[str, ...],
    powerful: tuple[str, ...],
    save: Path | None,
    trace: Path | None,
    deadline: float | None,
    as_json: bool,
) -> int:
    """Play generated models against an agent, and print the smallest scripts that break it."""
    from offbook.explore.search import DEADLINE, describe, explore

    sys.path.insert(0, "")
    target = _read_target(arguments, save)
    if deadline is None:
        deadline = DEADLINE if target.name else COMMAND_DEADLINE
    from offbook.explore.tool_policy import ToolPolicy

    policies = [ToolPolicy(untrusted, powerful)] if untrusted or powerful else []
    exceptions = [import_object(name) for name in gives_up]
    live = sys.stderr.isatty() and not as_json
    show = _show_progress if live else _MinuteLines() if minutes else None
    unfinished: list[Exploration] = []

    def note(found: Exploration) -> None:
        unfinished[:] = [found]
        if show is not None:
            show(found)

    def report(found: Exploration, *, complete: bool) -> None:
        saved = [finding for finding in found.findings if finding.repeats]
        if save is not None and saved:
            _save(save, saved, target, invariant, policies, gives_up, without, deadline)
        if as_json:
            print_json(_as_json(found, complete=complete))
            return
        # No terminal takes half a character.
        echo(describe(found))
        if not complete:
            echo("the search did not end: what it did not try may break")
        if save is not None and saved:
            echo(f"saved: {save}; run it with: pytest {save}")
        if save is not None and len(saved) < len(found.findings):
            count = counted(len(found.findings) - len(saved), "finding")
            echo(f"not saved: {count} whose script alone does not repeat it")
        _show_trace(trace)
        _show_corpus(found, corpus)

    try:
        found = explore(
            target.world,
            target.prompts,
            *(import_object(name) for name in invariant),
            *policies,
            runs=runs,
            steps=steps,
            seed=seed,
            depth=depth,
            jobs=jobs,
            engine=engine,
            address=address,
            minutes=minutes,
            corpus=corpus,
            gives_up=exceptions,
            values=_read_values(values),
            without=without,
            deadline=deadline,
            trace=trace,
            progress=note,
        )
    except InvariantBroken as error:
        report(cast("Exploration", error.exploration), complete=True)
        return 1
    except BaseException as error:
        _note_early_end(error, unfinished)
        for found in unfinished:  # what was found so far is not lost
            report(found, complete=False)
        raise
    finally:
        if live:
            show_progress("")
    if as_json:
        print_json(_as_json(found, complete=True))
        return 0
    echo(f"no behaviour broke an invariant: {found.summary}")
    _show_details(found)
    _show_corpus(found, corpus)
    return 0


def _note_early_end(error: BaseException, unfinished: Sequence[Exploration]) -> None:
    if not unfinished and isinstance(error, KeyboardInterrupt):
        echo("nothing was explored yet: the first behaviour had not ended", err=True)


def _show_details(found: Exploration) -> None:
    for line in found.attack_lines:
        echo(line)
    for what, instead in found.notes.items():
        echo(f"offbook: {what}: {instead}", err=True)


def _show_trace(trace: Path | None) -> None:
    if trace is None:
        return
    if trace.is_file() and trace.stat().st_size:
        echo(f"trace: {trace}; show it with: offbook view {trace}")
    else:
        echo("trace: nothing to write: the agent was ended before it did anything")


def _show_corpus(found: Exploration, corpus: Path | None) -> None:
    if corpus is not None:
        scripts = counted(found.kept, "script")
        echo(f"corpus: {scripts}; what was reached and never reached: offbook view {corpus}")


class CommandWorld(NamedTuple):
    """A world that runs a command. Unlike a lambda, it can be sent to another machine."""

    words: list[str]

    def __call__(self) -> Rehearsal:
        from offbook.runs.api import drive
        from offbook.subjects.clis.clients import Command

        return drive(Command(self.words))


class AgentWorld:
    """A world that drives an agent, which another machine imports by its name."""

    def __init__(self, name: str) -> None:
        from offbook.runs.wiring import set_missing_keys

        self._name = name
        with set_missing_keys():  # on another machine, this is the first import
            self.__wrapped__: Any = import_object(name)  # its code has values worth a try

    def __reduce__(self) -> tuple[type[AgentWorld], tuple[str]]:
        return type(self), (self._name,)

    def __call__(self) -> Rehearsal:
        from offbook.runs.api import drive

        return drive(self.__wrapped__)


class Target(NamedTuple):
    """What is explored, and how a saved test writes it.

    `name` is the object to import, empty for a command; `source` is the text of the world, empty
    where the object is one.
    """

    world: Callable[[], Any]
    prompts: list[str]
    name: str
    source: str


def _read_target(arguments: tuple[str, ...], save: Path | None) -> Target:
    separator = sys.argv.index("--") if "--" in sys.argv else 0
    command = sys.argv[separator + 1 :] if separator else []
    words = list(arguments[: len(arguments) - len(command)])
    if command and words:
        # Each behaviour runs in an empty folder; the files of the command stay where they are.
        found = [str(Path(word).absolute()) if Path(word).is_file() else word for word in command]
        # A saved test finds them in its own folder, wherever it is started.
        shown = ", ".join(
            literal(word)
            if word == path
            else f"str(HERE / {literal(_relative(word, save or Path()))})"
            for word, path in zip(command, found, strict=True)
        )
        return Target(CommandWorld(found), words, name="", source=f"drive(Command([{shown}]))")
    if command or len(words) < 2:  # noqa: PLR2004 - the world and the prompt
        raise UsageError(
            "expected an agent or a world and a prompt, or a prompt and a command",
            hint='offbook explore shop:agent "Refund order 7"',
        )
    from offbook.runs.wiring import set_missing_keys

    name, *prompts = words
    with set_missing_keys():
        found = import_object(name)
    if callable(found) and all(
        p.default is not p.empty for p in signature(found).parameters.values()
    ):
        return Target(found, prompts, name, source="")
    world = AgentWorld(name)
    world().dispose(failed=True)  # an object that cannot be driven is an error here
    return Target(world, prompts, name, f"drive({name.partition(':')[2]})")


def _read_values(given: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return the values by parameter: `number=7`, or a file with an object of lists."""
    values: dict[str, list[Any]] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if equals and not Path(text).is_file():
            values.setdefault(name, []).append(_parse_value(value))
            continue
        content = parse_yaml(read_text(Path(text)), text)  # JSON is YAML, too
        if not isinstance(content, dict):
            raise UsageError(
                "expected an object with a list of values for each parameter",
                where=text,
                hint='write {"refund.number": [7, 8]}',
            )
        for key, items in cast("dict[str, Any]", content).items():
            own = cast("list[Any]", items) if isinstance(items, list) else [items]
            values.setdefault(str(key), []).extend(own)
    return values


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _relative(path: str, save: Path) -> str:
    """Return a path as it is seen from the folder of a saved test."""
    return os.path.relpath(Path(path).absolute(), save.absolute().parent)


def _save(
    path: Path,
    findings: Sequence[Counterexample],
    target: Target,
    invariants: tuple[str, ...],
    policies: list[ToolPolicy],
    gives_up: tuple[str, ...],
    without: tuple[str, ...],
    deadline: float,
) -> None:
    """Write a test for each finding."""
    from offbook.explore.moves import render_tests

    targets = [*invariants, *gives_up, *([target.name] if target.name else [])]
    imports = [f"from {t.partition(':')[0]} import {t.partition(':')[2]}" for t in targets]
    # In the world, clients need no key, so the module of an agent is imported there.
    of_agent = [imports.pop()] if target.name and target.source else []
    if targets and (folder := _relative(".", path)) != ".":  # where their modules were found
        imports = [f"sys.path.insert(0, str(HERE / {literal(folder)}))", *imports]
    if target.source:
        lines = [*of_agent, *([""] if of_agent else []), f"return {target.source}"]
        imports += ["", "", "def world():", *(f"    {line}".rstrip() for line in lines)]
    text = render_tests(
        [
            (finding.invariant, finding.script, _replay_options(finding, without, deadline))
            for finding in findings
        ],
        imports=imports,
        uses=(*([] if target.name else ["Command"]), *(["drive"] if target.source else [])),
        world="world" if target.source else target.name.partition(":")[2],
        invariants=[
            *(name.partition(":")[2] for name in invariants),
            *(
                f"{word}({', '.join(map(literal, tools))})"
                for policy in policies
                for word, tools in msgspec.structs.asdict(policy).items()
                if tools
            ),
        ],
        gives_up=[name.partition(":")[2] for name in gives_up],
    )
    write_atomic(path, text)


def _replay_options(
    finding: Counterexample, without: tuple[str, ...], deadline: float
) -> list[str]:
    """Return the options with which a saved test plays a finding."""
    from offbook.explore.moves import list_faults
    from offbook.explore.oracles import HANG

    faults = list_faults(finding.moves)
    options = [f"without=[{', '.join(map(literal, without))}]"] if without else []
    options += [f"faults=[{', '.join(map(literal, faults))}]"] if faults else []
    return [*options, *([f"deadline={deadline:g}"] if finding.invariant == HANG else [])]


def _show_progress(found: Exploration) -> None:
    show_progress(f"{found.summary}")


class _MinuteLines:
    """Prints a line for each minute of a search without a terminal."""

    def __init__(self) -> None:
        self._minute = 1

    def __call__(self, found: Exploration) -> None:
        if found.seconds >= 60 * self._minute:
            new = found.states_per_minute[self._minute - 1]
            line = (
                f"minute {self._minute}: {found.behaviours} behaviours, {len(found.states)} states"
            )
            echo(f"{line}, {new} of them new, {counted(len(found.findings), 'finding')}", err=True)
            self._minute = int(found.seconds // 60) + 1


def _as_json(found: Exploration, *, complete: bool) -> dict[str, Any]:
    """Return what was found; the search is not complete if a signal or an error ended it."""
    return {
        "complete": complete,
        "prompt": found.prompt,
        "seed": found.seed,
        "behaviours": found.behaviours,
        "states": len(found.states),
        "seconds": round(found.seconds, 3),
        "states_per_minute": found.states_per_minute,
        "reached": sorted(found.reached),
        "offered": sorted(found.offered),
        "never_called": found.never_called,
        "never_succeeded": found.never_succeeded,
        "attacks": [
            {**msgspec.to_builtins(attack), "behaviours": count}
            for attack, count in found.attacks.items()
        ],
        "gave_up": dict(found.gave_up),
        "slow": found.slow,
        "notes": found.notes,
        "undecided": [str(error) for error in found.undecided.values()],
        "findings": [
            {
                "invariant": finding.invariant,
                "message": finding.message,
                "script": finding.script,
                "run": finding.run,
                "broken_by": found.broken_by[finding.key],
                "repeats": finding.repeats,
                "smallest": finding.smallest,
            }
            for finding in found.findings
        ],
    }


# --- offbook bench

BENCH_EXAMPLE = """\b
Example:
  offbook bench shop:refund_once --repeat 20
  offbook bench tests/flow.yaml --save flow.json
  offbook bench tests/flow.yaml --baseline flow.json
  offbook bench --script shop.yaml -- python agent.py
  offbook bench shop:new_agent --against shop:old_agent

\b
A target is MODULE:NAME, a function without parameters that makes its runs; a scenario
file; or a command after --. CPU is that of the whole process tree of a command.

\b
A figure is WORSE if the permutation test of the paired differences has a p-value
below 0.005, and its mean has grown by --min-effect. Times are compared on the same
machine only; --against runs both targets in turns, which is more exact than a baseline.

\b
Exit codes:
  0  measured, and nothing is worse
  1  a figure is worse, or a run failed
  2  wrong usage, or a file that cannot be read
"""


@click.command("bench", epilog=BENCH_EXAMPLE)
@click.argument("arguments", metavar="TARGET | -- COMMAND…", nargs=-1)
@click.option("--repeat", default=10, show_default=True, type=click.IntRange(1))
@script_option
@click.option("--save", type=FILE_PATH, metavar="FILE", help="Store the runs as a baseline.")
@click.option("--baseline", type=FILE_PATH, metavar="FILE", help="Compare with a stored baseline.")
@click.option("--against", metavar="TARGET", help="Compare with another target, in turns.")
@click.option(
    "--min-effect",
    default=5.0,
    show_default=True,
    type=FiniteFloat(0),
    help="Percent that a figure must grow to be worse.",
)
@deadline_option
@json_option
def bench_command(  # noqa: PLR0913 - the options of the command
    arguments: tuple[str, ...],
    *,
    repeat: int,
    script: Path | None,
    save: Path | None,
    baseline: Path | None,
    against: str | None,
    min_effect: float,
    deadline: float,
    as_json: bool,
) -> int:
    """Run a target several times: requests, tokens, cost, wall and CPU time, with intervals."""
    from offbook.runs import benchmark

    if baseline is not None and against is not None:
        raise UsageError("--baseline and --against exclude each other", hint="give one of them")
    if (baseline or against) and repeat < benchmark.MIN_PAIRS:
        raise UsageError(
            f"{repeat} runs cannot show a difference", hint=f"--repeat {benchmark.MIN_PAIRS}"
        )
    stored = None if baseline is None else benchmark.read_baseline(baseline)
    sys.path.insert(0, "")
    target, run, in_process = _read_bench_target(arguments, script, deadline)
    runs = [run]
    if against is not None:
        _, other, other_in_process = _read_bench_target((against,), script, deadline)
        if in_process != other_in_process:
            raise UsageError(
                "a function and a command cannot be compared: CPU is measured differently",
                hint="give two functions, or two scenario files",
            )
        runs.append(other)
    if stored is not None and stored.target != target:
        echo(f"offbook: the baseline is of another target: {stored.target}", err=True)
    folder = make_temp_folder()
    live = sys.stderr.isatty() and not as_json
    try:
        samples, *others = benchmark.measure(
            *runs,
            repeat=repeat,
            own_cpu=in_process,
            folder=folder,
            progress=(lambda done: _show_count(done, repeat)) if live else None,
        )
    finally:
        remove_temp_folder(folder)
        if live:
            show_progress("")
    before = others[0] if others else stored.samples if stored is not None else None
    same = stored is None or stored.machine == benchmark.machine_name()
    compared = (
        []
        if before is None
        else benchmark.compare(before, samples, min_effect=min_effect / 100, same_machine=same)
    )
    worse = [comparison.metric for comparison in compared if comparison.worse]
    if as_json:
        print_json(benchmark.as_json(target, samples, compared))
    else:
        echo(f"{target}: {repeat} runs, mean (95 % interval)")
        echo("\n".join(benchmark.render(benchmark.summarize(samples), compared)))
    if save is not None and not worse:
        benchmark.save_baseline(save, target, samples)
        echo(f"saved: {save}", err=True)
    return int(bool(worse))


def _read_bench_target(
    arguments: tuple[str, ...], script: Path | None, deadline: float
) -> tuple[str, Callable[[Path], None], bool]:
    """Return the name of a target, a function that runs it once, and whether it is in process."""
    is_command = "--" in sys.argv
    first = next(iter(arguments), "")
    if not first or (len(arguments) > 1 and not is_command):
        raise UsageError("expected one target", hint="offbook bench shop:refund_once")
    if is_command:
        return " ".join(arguments), _command_runner(arguments, script, deadline), False
    if script is not None:
        raise UsageError("--script is the model of a command", hint="give the command after --")
    if Path(first).suffix in {".yaml", ".yml", ".json"}:
        if not Path(first).is_file():
            raise UsageError("no such scenario file", where=first)
        command = (sys.executable, "-m", "offbook", "scenario", "run", first)
        return first, _command_runner(command, None, deadline, unreadable=2), False
    function: Any = import_object(first)

    def run(_folder: Path) -> None:
        function()

    return first, run, True


def _command_runner(
    command: tuple[str, ...], script: Path | None, deadline: float, unreadable: int = -1
) -> Callable[[Path], None]:
    """Return a function that runs a command once, with a fresh source if there is a script.

    `unreadable` is the exit code of a command that cannot read its file.
    """
    from offbook.runs.commands import ANY_EXIT_CODE, run_command
    from offbook.sources.loading import open_source
    from offbook.trace.recorder import COLLECT_TRACES

    make_source = None if script is None else open_source(script)

    def run(folder: Path) -> None:
        result = run_command(
            None if make_source is None else make_source(),
            command,
            # A command with its own model writes traces that are read.
            environment={**os.environ, COLLECT_TRACES: str(folder)}
            if make_source is None
            else None,
            deadline=deadline,
            echo=False,
            codes=ANY_EXIT_CODE,
        )
        if result.exit_code:
            failure = UsageError if result.exit_code == unreadable else RunError
            raise failure(
                f"the command exited with {result.exit_code}, so it was not measured",
                where=command[0],
                hint=ending(result.output, 500),
            )
        result.raise_failure()

    return run


def _show_count(done: int, repeat: int) -> None:
    show_progress(f"run {done} of {repeat}")
