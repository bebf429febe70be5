"""`offbook init`: write a first test for the agent of a project."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import click

from offbook.cli_options import json_option, print_json
from offbook.errors import UsageError
from offbook.files import write_atomic
from offbook.runs.first_test import scan_project, write_first_test

EXAMPLE = """\b
Example:
  offbook init
  offbook init path/to/project --no-run

\b
Exit codes:
  0  the test was written and passes (or --no-run was given)
  1  the test was written and fails: the output shows why
  2  a file of that name exists already
"""


@click.command("init", epilog=EXAMPLE)
@click.argument(
    "folder", type=click.Path(path_type=Path, file_okay=False, exists=True), default="."
)
@click.option("--no-run", is_flag=True, help="Write the test without running it.")
@json_option
def command(folder: Path, *, no_run: bool, as_json: bool) -> int:
    """Write a first test for the agent of a project.

    Finds agents of pydantic-ai, OpenAI Agents, LangGraph, smolagents, claude-agent-sdk and
    Inspect, and functions that use a provider's SDK. A folder without an agent gets an example.
    """
    root = folder.resolve()
    scan = scan_project(root)
    files = write_first_test(scan)
    for path in files:
        if path.exists():
            raise UsageError(
                "file exists already", where=str(path.relative_to(root)), hint="run it: pytest"
            )
    for path, text in files.items():
        write_atomic(path, text)
    test = next(path for path in files if path.name.startswith("test_"))
    names = [str(path.relative_to(root)) for path in files]
    if not as_json:
        if scan.agents:
            agent = scan.agents[0]
            place = f"{agent.file.relative_to(root)}:{agent.line}"
            click.echo(f"found {agent.name}, {agent.framework}: {place}")
            for other in scan.agents[1:]:
                click.echo(f"also found {other.name}: {other.file.relative_to(root)}:{other.line}")
        else:
            click.echo("no agent found: writing an example")
        for client in scan.clients:
            click.echo(f"also possible here: offbook.drive({client}())")
        for name in names:
            click.echo(f"wrote {name}")
    passed = None if no_run else _run_pytest(root, test, quiet=as_json)
    if as_json:
        agents = [
            agent._asdict() | {"file": str(agent.file.relative_to(root))} for agent in scan.agents
        ]
        print_json({"agents": agents, "clients": scan.clients, "wrote": names, "passed": passed})
    elif passed is not False:
        click.echo(f"next: pytest {test.relative_to(root)}")
    return int(passed is False)


def _run_pytest(root: Path, test: Path, *, quiet: bool) -> bool | None:
    """Run the new test, and return whether it passed; None where pytest is not installed."""
    if importlib.util.find_spec("pytest") is None:
        click.echo("pytest is not installed: pip install pytest", err=True)
        return None
    result = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-m", "pytest", "-q", "--no-header", str(test)],
        cwd=root,
        capture_output=quiet,
        check=False,
    )
    return result.returncode == 0
