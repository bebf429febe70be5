"""The command `offbook checkup`."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from offbook.checkup.checkup_run import Checkup, run_checkup
from offbook.checkup.outcomes import OUTCOMES
from offbook.checkup.scenarios import BY_ID, GROUPS, SCENARIOS, select
from offbook.cli_options import (
    FILE_PATH,
    FiniteFloat,
    ProgressLine,
    echo,
    json_option,
    print_json,
    use_colour,
)
from offbook.errors import UsageError, counted
from offbook.exchange.python_source import literal
from offbook.files import import_object, write_atomic

if TYPE_CHECKING:
    from offbook.checkup.checkup_run import CheckupResult

FOLDER = Path(".offbook/checkup")
DEADLINE, COMMAND_DEADLINE = 20.0, 60.0  # seconds: a program starts first
COLOURS = {"survived": "green", "degraded": "yellow", "broke": "red", "unknown": "bright_black"}
TARGET = re.compile(r"[\w.]+:[\w.]+")

EXAMPLE = """\b
Example:
  offbook checkup shop:agent "Refund order 7"
  offbook checkup shop:agent "Refund order 7" --only provider --only calls/unknown-tool
  offbook checkup "Refund order 7" -- python agent.py {prompt}
  offbook checkup shop:agent "Refund order 7" --write-test tests/test_checkup.py

\b
shop:agent is an agent of a framework, a function of the prompt, or a function without
parameters that returns one of them or drive(agent). Its tools run for real.

\b
Exit codes:
  0  nothing broke
  1  the agent broke in a scenario
  2  wrong usage, or nothing could be checked
"""


@click.command("checkup", epilog=EXAMPLE)
@click.argument("arguments", metavar="[AGENT] PROMPT [-- COMMAND…]", nargs=-1)
@click.option("--only", multiple=True, metavar="GROUP|SCENARIO", help="Play only these.")
@click.option("--list", "lists", is_flag=True, help="List the scenarios.")
@click.option(
    "-o",
    "--output",
    type=FILE_PATH,
    default=FOLDER,
    show_default=True,
    metavar="FOLDER",
    help="Folder of the traces.",
)
@click.option("--write-test", type=FILE_PATH, metavar="FILE", help="Write a test for what broke.")
@click.option(
    "--deadline",
    default=None,
    type=FiniteFloat(min=0, min_open=True),
    help="Seconds for one scenario before it counts as a hang.  [default: 20, 60 for a command]",
)
@json_option
def checkup_command(
    arguments: tuple[str, ...],
    *,
    only: tuple[str, ...],
    lists: bool,
    output: Path,
    write_test: Path | None,
    deadline: float | None,
    as_json: bool,
) -> int:
    """Play a list of unusual replies, errors and faults against an agent, without a written test.

    Each scenario has an outcome: survived, degraded, broke or unknown, and a trace.
    """
    scenarios = select(only)
    if lists:
        _print_list(as_json=as_json)
        return 0
    sys.path.insert(0, str(Path.cwd()))
    target, prompt, name, is_command = _read_target(arguments, deadline or COMMAND_DEADLINE)
    seconds = deadline or DEADLINE
    if is_command:
        from offbook.checkup.checkup_run import GRACE

        seconds = (deadline or COMMAND_DEADLINE) + GRACE
    line = ProgressLine(wanted=not as_json)

    def show(done: int, of: int) -> None:
        line.show(lambda: f"{done} of {counted(of, 'scenario')}")

    try:
        found = run_checkup(
            target,
            prompt,
            scenarios,
            name=name,
            folder=output,
            deadline=seconds,
            progress=show,
        )
    finally:
        line.clear()
    if write_test is not None:
        _write_test(write_test, found, arguments, deadline)
    if as_json:
        print_json(as_data(found))
    else:
        echo("\n".join(render(found, colour=use_colour())))
        echo(f"traces: {output}/SCENARIO.jsonl; the page of all: offbook view {output}")
        if write_test is not None and found.broken:
            echo(f"test: {write_test}; run it with: pytest {write_test}")
    return int(bool(found.broken))


def _read_target(arguments: tuple[str, ...], deadline: float) -> tuple[Any, str, str, bool]:
    """Return the agent, the prompt, the agent's name, and whether it is a command."""
    if len(arguments) == 2 and TARGET.fullmatch(arguments[0]):  # noqa: PLR2004 - agent and prompt
        from offbook.runs.wiring import set_missing_keys

        with set_missing_keys():
            return import_object(arguments[0]), arguments[1], arguments[0], False
    if len(arguments) < 2 or TARGET.fullmatch(arguments[0]):  # noqa: PLR2004 - prompt and command
        raise UsageError(
            "expected an agent and a prompt, or a prompt and a command",
            hint='offbook checkup shop:agent "Refund order 7"',
        )
    from offbook.subjects.clis.clients import Command

    prompt, *words = arguments
    # Each scenario runs in an empty folder; the files of the command stay where they are.
    found = [str(Path(word).absolute()) if Path(word).is_file() else word for word in words]
    return Command(found, deadline=deadline), prompt, " ".join(words), True


def _print_list(*, as_json: bool) -> None:
    if as_json:
        rows = [{"id": s.id, "does": s.does, "expected": s.expected} for s in SCENARIOS]
        print_json(rows)
        return
    for group, about in GROUPS.items():
        echo(f"{group}: {about}")
        for scenario in SCENARIOS:
            if scenario.group == group:
                echo(f"  {scenario.id:34} {scenario.does}")


def render(found: Checkup, *, colour: bool = False) -> list[str]:
    """Return the table: the numbers of each group, then what did not survive, with its reason."""

    def paint(text: str, outcome: str) -> str:
        return click.style(text, fg=COLOURS[outcome]) if colour else text

    groups = [group for group in GROUPS if any(r.id.startswith(f"{group}/") for r in found.results)]
    lines = [f"{'':14}" + "".join(f"{outcome:>10}" for outcome in OUTCOMES)]
    for group in groups:
        counts = Counter(r.outcome for r in found.results if r.id.startswith(f"{group}/"))
        cells = (paint(f"{counts[o] or '·':>10}", o if counts[o] else "unknown") for o in OUTCOMES)
        lines.append(f"{group:14}" + "".join(cells))
    totals = found.counts
    lines.append(f"{'all':14}" + "".join(paint(f"{totals[o]:>10}", o) for o in OUTCOMES))
    for outcome in ("broke", "degraded"):
        rows = [result for result in found.results if result.outcome == outcome]
        lines += [""] if rows else []
        for row in rows:
            lines.append(f"{paint(outcome, outcome)}  {row.id}: {row.reason}")
            if outcome == "broke":
                lines.append(f"  {BY_ID[row.id].does}; expected: {BY_ID[row.id].expected}")
    reasons: dict[str, list[CheckupResult]] = {}
    for row in found.results:
        if row.outcome == "unknown":
            reasons.setdefault(row.reason, []).append(row)
    lines += [""] if reasons else []
    for reason, rows in reasons.items():
        lines.append(f"{paint('unknown', 'unknown')}  {counted(len(rows), 'scenario')}: {reason}")
    return lines


def as_data(found: Checkup) -> dict[str, Any]:
    """Return a check-up as JSON data."""
    return {
        "agent": found.agent,
        "prompt": found.prompt,
        "counts": found.counts,
        "scenarios": [
            {
                "id": row.id,
                "outcome": row.outcome,
                "rule": row.rule,
                "reason": row.reason,
                "does": BY_ID[row.id].does,
                "expected": BY_ID[row.id].expected,
                "requests": row.requests,
                "seconds": row.seconds,
                "trace": _relative(row.trace) if row.trace else None,
            }
            for row in found.results
        ],
    }


def _relative(path: str) -> str:
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path


TEST = '''\
"""Written by `offbook checkup`: the scenarios in which the agent broke."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / {folder}
AGENT = {agent}
BROKEN = {{
{broken}}}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    traces = tmp_path_factory.mktemp("checkup")
    only = [word for scenario in BROKEN for word in ("--only", scenario)]
    command = [sys.executable, "-m", "offbook", "checkup", "--json", "-o", str(traces), *only]
    done = subprocess.run(command + AGENT, cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode != 2, done.stderr
    return {{row["id"]: row for row in json.loads(done.stdout)["scenarios"]}}


@pytest.mark.parametrize("scenario", BROKEN)
def test_the_agent_does_not_break(scenario, outcomes):
    assert outcomes[scenario]["outcome"] in ("survived", "degraded"), outcomes[scenario]
'''


def _write_test(
    path: Path, found: Checkup, arguments: tuple[str, ...], deadline: float | None
) -> None:
    """Write a test of the scenarios in which the agent broke; without any, none."""
    if not found.broken:
        echo(f"offbook: nothing broke, so {path} is not written", err=True)
        return
    is_agent = bool(TARGET.fullmatch(arguments[0]))
    words = [*([f"--deadline={deadline:g}"] if deadline else []), arguments[0]]
    words += arguments[1:] if is_agent else ["--", *arguments[1:]]
    text = TEST.format(
        folder=literal(os.path.relpath(Path.cwd(), path.absolute().parent)),
        agent=f"[{', '.join(map(literal, words))}]",
        broken="".join(f"    {literal(r.id)}: {literal(r.reason)},\n" for r in found.broken),
    )
    write_atomic(path, text)
