"""The first commands of a new user: `offbook demo`, `offbook init` and `offbook doctor`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from offbook.cli_options import json_option, print_json, use_colour
from offbook.errors import RunError, ScriptExhausted, ToolBlocked, UsageError
from offbook.secrets import excerpt

if TYPE_CHECKING:
    from offbook.exchange.messages import ToolResult
    from offbook.runs.rehearsal import Rehearsal
    from offbook.sources.playbook.actions import Turn
    from offbook.subjects.session.extensions import Api
    from offbook.subjects.session.tools import Context, HookEvent

DEMO_EXTENSION = f"{__name__}:demo_extension"

DEMO_PASSING = """\
A playbook scripts the model. The extension, its tools, its hook and the shell are real.
This is the trace of a run:
"""
DEMO_FAILING = """
The tool made the order's id while the agent ran. The playbook read it with .then(), and passed it
to the next call with a function.

The next run fails. Its script ends before the model has answered:
"""
DEMO_NEXT = """
A test with this script fails with the same message: the step, expected, got, remaining, fix.

Next steps:
  write a first test   offbook init
  run it               pytest
  show its trace       offbook show TRACE
"""

INIT_EXAMPLE = """\b
Example:
  offbook init
  offbook init path/to/project --no-run

\b
Exit codes:
  0  the test was written and passes (or --no-run was given)
  1  the test was written and fails: the output shows why
  2  a file of that name exists
"""

DOCTOR_EXAMPLE = """\b
Example:
  offbook doctor
  offbook doctor --json

\b
Clients are searched in the folder that OFFBOOK_CLIENTS names, then on the PATH.
A missing client is not an error: the exit code is 0.
"""


@click.command("demo", epilog="\b\nExample:\n  offbook demo")
@json_option
def demo(*, as_json: bool) -> int:
    """Show two runs of a scripted model: one that passes and one that fails."""
    from offbook.reports.json_report import count_events
    from offbook.reports.styled_lines import print_lines
    from offbook.reports.terminal import TraceTree
    from offbook.runs.api import session
    from offbook.trace.reader import Trace

    def print_trace(rehearsal: Rehearsal) -> None:
        sys.stdout.flush()
        lines = TraceTree().render(Trace(rehearsal.trace))
        print_lines(lines, sys.stdout, colour=use_colour())

    with (
        session(extensions=[DEMO_EXTENSION], mock_ui={"confirm": True}) as passing,
        session(extensions=[DEMO_EXTENSION]) as failing,
    ):
        passing.run(*demo_script())
        _run_failing(failing)
        if as_json:
            runs = {"passing": passing, "failing": failing}
            print_json({name: count_events(Trace(run.trace)) for name, run in runs.items()})
        else:
            click.echo(DEMO_PASSING)
            print_trace(passing)
            click.echo(DEMO_FAILING)
            print_trace(failing)
            click.echo(DEMO_NEXT, nl=False)
    return 0


def demo_script() -> list[Turn]:
    """Return a script whose second turn uses an id that a tool returned in the first."""
    from offbook.sources.playbook.actions import call, say, think, when

    captured: dict[str, str] = {}

    def capture_id(result: ToolResult) -> None:
        captured["id"] = result.text.partition(":")[0]

    return [
        when(
            "Order a kettle, and tidy up",
            [
                think("The order first."),
                call("place_order", {"item": "kettle"}).then(capture_id),
                call("bash", {"command": "rm -rf ./*"}),
                call("bash", {"command": "echo tidy > notes.txt && cat notes.txt"}),
                say("Ordered. I was not allowed to delete everything."),
            ],
        ),
        when(
            "Ship it",
            [call("ship_order", lambda: {"id": captured["id"]}), say("It is on its way.")],
        ),
    ]


def _run_failing(rehearsal: Rehearsal) -> None:
    """Run a script that ends before its agent does."""
    from offbook.sources.playbook.actions import call, when

    try:
        rehearsal.run(when("Order a kettle", [call("place_order", {"item": "kettle"})]))
    except ScriptExhausted:
        return
    raise RunError("the failing run of the demo did not fail")


ITEM = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
ORDER = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}


def demo_extension(api: Api) -> None:
    """A small shop: two tools, and a hook that looks at every command before it runs."""
    orders: dict[str, str] = {}

    @api.tool("place_order", "Order something.", ITEM)
    def place_order(params: dict[str, Any], ctx: Context) -> str:
        digest = blake2b(params["item"].encode(), digest_size=3).hexdigest()
        orders[f"ORDER-{digest}"] = params["item"]
        ctx.ui.notify(f"{len(orders)} open order")
        return f"ORDER-{digest}: one {params['item']}"

    @api.tool("ship_order", "Send an order off.", ORDER)
    async def ship_order(params: dict[str, Any], ctx: Context) -> str:
        item = orders[params["id"]]
        if not await ctx.ui.confirm("Ship it?", f"one {item}"):
            return "the customer changed their mind"
        return f"shipped {params['id']}: one {item}"

    @api.on("tool_call")
    def guard(moment: HookEvent, _: Context) -> None:
        if moment.tool == "bash" and "rm -rf" in moment.input["command"]:
            raise ToolBlocked("this would delete more than you think")


@click.command("init", epilog=INIT_EXAMPLE)
@click.argument(
    "folder", type=click.Path(path_type=Path, file_okay=False, exists=True), default="."
)
@click.option("--no-run", is_flag=True, help="Write the test without running it.")
@json_option
def init(folder: Path, *, no_run: bool, as_json: bool) -> int:
    """Write a first test for the agent of a project.

    Finds agents of pydantic-ai, OpenAI Agents, LangGraph, smolagents, claude-agent-sdk and
    Inspect, and functions that use a provider's SDK. A folder without an agent gets an example.
    """
    from offbook.files import write_atomic
    from offbook.runs.first_test import scan_project, write_first_test

    root = folder.resolve()
    scan = scan_project(root)
    files = write_first_test(scan)
    names = [str(path.relative_to(root)) for path in files]
    for path, name in zip(files, names, strict=True):
        if path.exists():
            raise UsageError("file exists already", where=name, hint="run it: pytest")
    for path, text in files.items():
        write_atomic(path, text)
    if not as_json:
        for number, agent in enumerate(scan.agents):
            found = "also found" if number else "found"
            place = f"{agent.file.relative_to(root)}:{agent.line}"
            click.echo(f"{found} {agent.name}, {agent.framework}: {place}")
        if not scan.agents:
            click.echo("no agent found: writing an example")
        for client in scan.clients:
            click.echo(f"also possible here: offbook.drive({client}())")
        for name in names:
            click.echo(f"wrote {name}")
    test = next(path for path in files if path.name.startswith("test_"))
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
    """Run the new test and return whether it passed, or None if pytest is not installed."""
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


@click.command("doctor", epilog=DOCTOR_EXAMPLE)
@json_option
def doctor(*, as_json: bool) -> None:
    """Show which clients and SDKs are installed, and which versions were tested."""
    from offbook.runs.first_test import find_installed

    tools = find_installed()
    if as_json:
        print_json(tools)
        return
    width = max(len(tool.name) for tool in tools)
    for tool in tools:
        if tool.installed is None:
            state = "does not run" if tool.path else "not installed"
            state += f": {excerpt(tool.error, 120)}" if tool.error else ""
            tested = f"; tested with {tool.tested}" if tool.tested else ""
            status = f"{state}{tested}; fix: {tool.fix}"
        elif tool.installed == tool.tested:
            status = f"{tool.installed} (tested)"
        elif not tool.tested:
            status = tool.installed
        else:
            status = f"{tool.installed}; tested with {tool.tested}"
        click.echo(f"{tool.name:<{width}}  {status}")
