"""The command `offbook bench`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from offbook.cli_options import FILE_PATH, deadline_option, json_option, print_json
from offbook.errors import RunError, UsageError
from offbook.files import import_object, make_temp_folder, remove_temp_folder

EXAMPLE = """\b
Example:
  offbook bench shop:refund_once --repeat 20
  offbook bench tests/flow.yaml --save flow.json
  offbook bench tests/flow.yaml --baseline flow.json
  offbook bench --playbook shop.yaml -- python agent.py
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


@click.command("bench", epilog=EXAMPLE)
@click.argument("arguments", metavar="TARGET | -- COMMAND…", nargs=-1)
@click.option("--repeat", default=10, show_default=True, type=click.IntRange(1))
@click.option("--playbook", type=FILE_PATH, metavar="FILE", help="The model of a command.")
@click.option("--save", type=FILE_PATH, metavar="FILE", help="Store the runs as a baseline.")
@click.option("--baseline", type=FILE_PATH, metavar="FILE", help="Compare with a stored baseline.")
@click.option("--against", metavar="TARGET", help="Compare with another target, in turns.")
@click.option(
    "--min-effect",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Percent that a figure must grow to be worse.",
)
@deadline_option
@json_option
def bench_command(  # noqa: PLR0913 - the options of the command
    arguments: tuple[str, ...],
    *,
    repeat: int,
    playbook: Path | None,
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
    target, run, in_process = _read_target(arguments, playbook, deadline)
    runs = [run]
    if against is not None:
        _, other, other_in_process = _read_target((against,), playbook, deadline)
        if in_process != other_in_process:
            raise UsageError(
                "a function and a command cannot be compared: CPU is measured differently",
                hint="give two functions, or two scenario files",
            )
        runs.append(other)
    if stored is not None and stored.target != target:
        click.echo(f"offbook: the baseline is of another target: {stored.target}", err=True)
    folder = make_temp_folder()
    live = sys.stderr.isatty() and not as_json
    try:
        samples, *others = benchmark.measure(
            *runs,
            repeat=repeat,
            own_cpu=in_process,
            folder=folder,
            progress=(lambda done: _show_progress(done, repeat)) if live else None,
        )
    finally:
        remove_temp_folder(folder)
        if live:
            click.echo("\r\x1b[K", nl=False, err=True)
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
        click.echo(f"{target}: {repeat} runs, mean (95 % interval)")
        click.echo("\n".join(benchmark.render(benchmark.summarize(samples), compared)))
    if save is not None and not worse:
        benchmark.save_baseline(save, target, samples)
        click.echo(f"saved: {save}", err=True)
    return int(bool(worse))


def _read_target(
    arguments: tuple[str, ...], playbook: Path | None, deadline: float
) -> tuple[str, Callable[[Path], None], bool]:
    """Return the name of a target, a function that runs it once, and whether it is in process."""
    is_command = "--" in sys.argv
    first = next(iter(arguments), "")
    if not first or (len(arguments) > 1 and not is_command):
        raise UsageError("expected one target", hint="offbook bench shop:refund_once")
    if is_command:
        return " ".join(arguments), _command_runner(arguments, playbook, deadline), False
    if playbook is not None:
        raise UsageError("--playbook is the model of a command", hint="give the command after --")
    if Path(first).suffix in {".yaml", ".yml", ".json"}:
        if not Path(first).is_file():
            raise UsageError("no such scenario file", where=first)
        command = (sys.executable, "-m", "offbook", "scenario", "run", first)
        return first, _command_runner(command, None, deadline), False
    function: Any = import_object(first)

    def run(_folder: Path) -> None:
        function()

    return first, run, True


def _command_runner(
    command: tuple[str, ...], playbook: Path | None, deadline: float
) -> Callable[[Path], None]:
    """Return a function that runs a command once, with a fresh source if there is a playbook."""
    from offbook.runs.commands import run_with_source
    from offbook.sources.loading import open_source
    from offbook.subjects.process import run_foreground
    from offbook.trace.recorder import COLLECT_TRACES, record_trace

    make_source = None if playbook is None else open_source(playbook)

    def run(folder: Path) -> None:
        if make_source is None:
            env = {**os.environ, COLLECT_TRACES: str(folder)}
            ended = run_foreground(command, env, deadline, keep=64 * 1024, echo=False)
            code, output = ended.code, ended.stdout
        else:
            source = make_source()
            with record_trace(folder / "unread" / "trace") as hub:
                result = run_with_source(source, command, hub=hub, deadline=deadline, echo=False)
            result.raise_interrupt()
            unfinished = getattr(source, "unfinished", lambda: None)()
            for failure in (*result.failures, *([unfinished] if unfinished else [])):
                raise failure
            code, output = result.exit_code, result.output
        if code:
            raise RunError(
                f"the command exited with {code}, so it was not measured",
                where=command[0],
                hint=output[-500:],
            )

    return run


def _show_progress(done: int, repeat: int) -> None:
    click.echo(f"\r\x1b[Krun {done} of {repeat}", nl=False, err=True)
