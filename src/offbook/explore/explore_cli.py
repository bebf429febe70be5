"""The command `offbook explore`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from offbook.cli_options import FILE_PATH, deadline_option, json_option, print_json
from offbook.errors import InvariantBroken, UsageError
from offbook.explore.python_targets import load_target
from offbook.files import write_atomic

if TYPE_CHECKING:
    from offbook.explore.search import Counterexample, Exploration

EXAMPLE = """\b
Example:
  offbook explore shop:world "Refund order 7" --invariant shop:never_twice
  offbook explore shop:world "Refund order 7" --runs 2000 --save tests/test_found.py
  offbook explore shop:world "Refund order 7" --depth 3
  offbook explore "Refund order 7" -- python agent.py {prompt}

\b
shop:world is a function that returns drive(agent), or drive(agent) and a state.
Each invariant is a function of the run and the state.

\b
Exit codes:
  0  no behaviour broke an invariant
  1  one did; the smallest script is printed
  2  wrong usage, or a module that cannot be imported
"""


@click.command("explore", epilog=EXAMPLE)
@click.argument("arguments", metavar="[WORLD] PROMPT [-- COMMAND…]", nargs=-1)
@click.option("--invariant", "-i", multiple=True, metavar="MODULE:NAME", help="Repeatable.")
@click.option("--runs", default=500, show_default=True, type=click.IntRange(1))
@click.option("--steps", default=5, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True)
@click.option("--depth", default=0, type=click.IntRange(0), help="Try all scripts of this length.")
@click.option("--gives-up", multiple=True, metavar="MODULE:NAME", help="An exception to allow.")
@click.option("--save", type=FILE_PATH, metavar="FILE", help="Write a test for what is found.")
@click.option("--trace", type=FILE_PATH, metavar="FILE", help="Write the trace of what is found.")
@deadline_option
@json_option
def explore_command(  # noqa: PLR0913 - the options of the command
    arguments: tuple[str, ...],
    *,
    invariant: tuple[str, ...],
    runs: int,
    steps: int,
    seed: int,
    depth: int,
    gives_up: tuple[str, ...],
    save: Path | None,
    trace: Path | None,
    deadline: float,
    as_json: bool,
) -> int:
    """Play generated models against an agent, and print the smallest script that breaks it."""
    from offbook.explore.search import explore

    sys.path.insert(0, "")
    world, prompt, source = _read_target(arguments, deadline)
    exceptions = [load_target(name) for name in gives_up]
    live = sys.stderr.isatty() and not as_json
    try:
        found = explore(
            world,
            prompt,
            *(load_target(name) for name in invariant),
            runs=runs,
            steps=steps,
            seed=seed,
            depth=depth,
            gives_up=exceptions,
            trace=trace,
            progress=_show_progress if live else None,
        )
    except InvariantBroken as error:
        found = cast("Exploration", error.exploration)
        if save is not None:
            # One test: the others are found again when this one is fixed.
            _save(save, found.findings[0], source, invariant, gives_up)
        if as_json:
            print_json(_as_json(found))
        else:
            click.echo(str(error))
            if save is not None:
                click.echo(f"saved: {save}; run it with: pytest {save}")
            if trace is not None:
                click.echo(f"trace: {trace}; show it with: offbook view {trace}")
        return 1
    finally:
        if live:
            click.echo("\r\x1b[K", nl=False, err=True)
    if as_json:
        print_json(_as_json(found))
        return 0
    click.echo(f"no behaviour broke an invariant: {found.summary}")
    for what, instead in found.notes.items():
        click.echo(f"offbook: {what}: {instead}", err=True)
    return 0


def _read_target(arguments: tuple[str, ...], deadline: float) -> tuple[Any, str, str]:
    """Return the world, the prompt, and the source text of the world for a saved test."""
    separator = sys.argv.index("--") if "--" in sys.argv else 0
    command = sys.argv[separator + 1 :] if separator else []
    words = list(arguments[: len(arguments) - len(command)])
    if command and len(words) == 1:
        from offbook.explore.scripts import literal
        from offbook.runs.api import drive
        from offbook.subjects.clis.command import Command

        # Each behaviour runs in an empty folder; the files of the command stay where they are.
        found = [str(Path(word).absolute()) if Path(word).is_file() else word for word in command]
        shown = ", ".join(
            literal(word) if word == path else f"str(Path({literal(word)}).absolute())"
            for word, path in zip(command, found, strict=True)
        )
        source = f"drive(Command([{shown}], deadline={deadline:g}))"
        return (lambda: drive(Command(found, deadline=deadline))), words[0], source
    if command or len(words) != 2:  # noqa: PLR2004 - the world and the prompt
        raise UsageError(
            "expected a world and a prompt, or a prompt and a command",
            hint='offbook explore shop:world "Refund order 7"',
        )
    return load_target(words[0]), words[1], words[0]


def _save(
    path: Path,
    finding: Counterexample,
    source: str,
    invariants: tuple[str, ...],
    gives_up: tuple[str, ...],
) -> None:
    """Write the test for a finding."""
    from offbook.explore.scripts import render_test

    is_command = source.startswith("drive(")
    targets = [*invariants, *gives_up, *([] if is_command else [source])]
    imports = [f"from {t.partition(':')[0]} import {t.partition(':')[2]}" for t in targets]
    if is_command:
        imports += ["", "", "def world():", f"    return {source}"]
    text = render_test(
        finding.invariant,
        finding.script,
        imports=imports,
        uses=("Command", "drive") if is_command else (),
        world="world" if is_command else source.partition(":")[2],
        invariants=[target.partition(":")[2] for target in invariants],
        gives_up=[target.partition(":")[2] for target in gives_up],
    )
    write_atomic(path, text)


def _show_progress(found: Exploration) -> None:
    click.echo(f"\r\x1b[K{found.summary}", nl=False, err=True)


def _as_json(found: Exploration) -> dict[str, Any]:
    return {
        "prompt": found.prompt,
        "seed": found.seed,
        "behaviours": found.behaviours,
        "states": len(found.states),
        "offered": sorted(found.offered),
        "never_called": found.never_called,
        "gave_up": dict(found.gave_up),
        "notes": found.notes,
        "findings": [
            {
                "invariant": finding.invariant,
                "message": finding.message,
                "script": finding.script,
                "run": finding.run,
                "repeats": finding.repeats,
            }
            for finding in found.findings
        ],
    }
