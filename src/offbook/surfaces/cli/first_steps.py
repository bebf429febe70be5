"""The first commands of a new user: `offbook demo` and `offbook doctor`.

`doctor` lists the installed clients. `offbook init` is in `explore/init_cli.py`.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from offbook.cli_options import echo, json_option, print_json, use_colour
from offbook.errors import RunError, ScriptExhausted, ToolBlocked
from offbook.secrets import excerpt
from offbook.subjects.clis.cli import ClientPackage
from offbook.subjects.clis.clients import ClaudeCode, Codex, Continue, GeminiCli, OpenCode, QwenCode
from offbook.subjects.clis.pi import Pi
from offbook.subjects.process import isolated_env, run_process

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

DOCTOR_EXAMPLE = """\b
Example:
  offbook doctor
  offbook doctor --completion
  offbook doctor --schemas .vscode/offbook

\b
Clients are searched in the folder that OFFBOOK_CLIENTS names, then on the PATH.

\b
Exit codes:
  0  nothing is wrong; a missing client or extra is not an error
  1  something is wrong: settings that cannot be read, a cassette with a secret
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
            echo(DEMO_PASSING)
            print_trace(passing)
            echo(DEMO_FAILING)
            print_trace(failing)
            echo(DEMO_NEXT, nl=False)
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
    def guard(event: HookEvent, _: Context) -> None:
        if event.tool == "bash" and "rm -rf" in event.input["command"]:
            raise ToolBlocked("this would delete more than you think")


@click.command("doctor", epilog=DOCTOR_EXAMPLE)
@click.option(
    "--schemas",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write the JSON schemas of all files, and a catalogue, for an editor.",
)
@click.option("--completion", is_flag=True, help="Install the completion of your shell.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, *, schemas: Path | None, completion: bool, as_json: bool) -> int:
    """Check the environment and the project, and say what to do.

    Lists the clients and SDKs that are installed, with the versions that were tested.
    """
    if schemas is not None:
        from offbook.surfaces.cli.schemas import write_schemas

        for path in write_schemas(schemas):
            echo(f"wrote {path}")
        return 0
    from offbook.surfaces.cli import doctor_checks

    if completion:
        shell = Path(os.environ.get("SHELL", "")).name
        file, note = doctor_checks.install_completion(ctx.find_root().command, shell, Path.home())
        echo(f"wrote {file}" + (f"\n{note}" if note else ""))
        return 0
    checks = [*doctor_checks.check_environment(), *doctor_checks.check_project(Path.cwd())]
    wrong = sum(check.state == "wrong" for check in checks)
    tools = find_installed()
    if as_json:
        print_json([*checks, *tools])
        return int(wrong > 0)
    width = max(len(check.name) for check in checks)
    marks = {"ok": " ", "missing": "-", "wrong": "!"}
    for check in checks:
        echo(f"{marks[check.state]} {check.name:<{width}}  {excerpt(str(check), 300)}")
    echo()
    _print_tools(tools)
    echo("nothing is wrong" if not wrong else f"{wrong} wrong: see the lines with !")
    return int(wrong > 0)


def _print_tools(tools: list[InstalledTool]) -> None:
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
        echo(f"{tool.name:<{width}}  {status}")


# --- The installed agents and SDKs, with the versions that Offbook is tested with

# Offbook does not drive it: `offbook sandbox` installs packages of pi with it.
NPM = ClientPackage("npm", "npm", "", "")
AGENTS = (Codex, ClaudeCode, GeminiCli, Pi, OpenCode, QwenCode, Continue)
CLIENTS = tuple(agent.client for agent in AGENTS)
# The versions in requirements.lock; a test compares them.
PACKAGES = {
    "anthropic": "2.8.0",
    "google-genai": "3.1.0",
    "openai": "3.49.0",
    "openai-agents": "0.24.0",
    "pydantic-ai-slim": "2.66.0",
}
DEADLINE = 30.0
VERSION = re.compile(r"\d+\.\d+[\w.]*")


class InstalledTool(msgspec.Struct, frozen=True):
    """A client or package: its tested version, and the installed one if there is any.

    `error` is the last line that a client printed which is installed and does not run.
    """

    name: str
    kind: str
    tested: str
    installed: str | None = None
    path: str | None = None
    fix: str | None = None
    error: str | None = None


def find_installed() -> list[InstalledTool]:
    """Find every client and package that Offbook is tested with."""
    tools = asyncio.run(_find_clients())
    for name, tested in PACKAGES.items():
        try:
            tools.append(InstalledTool(name, "package", tested, version(name)))
        except PackageNotFoundError:
            fix = f"pip install {name}=={tested}"
            tools.append(InstalledTool(name, "package", tested, fix=fix))
    return tools


async def _find_clients() -> list[InstalledTool]:
    # A client writes to its home even for --version; all are asked at once, they take seconds.
    with tempfile.TemporaryDirectory(prefix="offbook-home-") as home:
        wanted = [client for client in (*CLIENTS, NPM) if client is not None]
        clients = [_find_client(client, Path(home)) for client in wanted]
        return list(await asyncio.gather(*clients))


async def _find_client(client: ClientPackage, home: Path) -> InstalledTool:
    path = client.find()
    fix = client.install_command
    tool = InstalledTool(client.title, "client", client.tested_version, None, path, fix)
    if path is None:
        return tool
    env = isolated_env(home / client.program)
    result = await run_process([path, "--version"], cwd=home, env=env, deadline=DEADLINE)
    match = VERSION.search(result.stdout) or VERSION.search(result.stderr)  # pi uses stderr
    # A client that is installed but broken, for example without its Node.
    if result.timed_out or result.code or match is None:
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
        error = f"no answer in {DEADLINE:g} s" if result.timed_out else (lines or [None])[-1]
        return msgspec.structs.replace(tool, fix=f"reinstall it: {fix}", error=error)
    return msgspec.structs.replace(tool, installed=match[0], fix=None)
