"""The first commands of a new user: `offbook demo`, `offbook init` and `offbook doctor`.

`init` finds the agent of a project and writes a test that runs it. The source is parsed, never
imported: a project whose modules need a key or a network while they are imported can be inspected
too. `doctor` lists the installed clients.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from offbook.cli_options import json_option, print_json, use_colour
from offbook.errors import RunError, ScriptExhausted, ToolBlocked, UsageError
from offbook.exchange.providers import all_providers
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
            click.echo(f"wrote {path}")
        return 0
    from offbook.surfaces.cli import doctor_checks

    if completion:
        shell = Path(os.environ.get("SHELL", "")).name
        file, note = doctor_checks.install_completion(ctx.find_root().command, shell, Path.home())
        click.echo(f"wrote {file}" + (f"\n{note}" if note else ""))
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
        click.echo(f"{marks[check.state]} {check.name:<{width}}  {excerpt(str(check), 300)}")
    click.echo()
    _print_tools(tools)
    click.echo("nothing is wrong" if not wrong else f"{wrong} wrong: see the lines with !")
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
        click.echo(f"{tool.name:<{width}}  {status}")


SKIPPED_FOLDERS = {
    "build",
    "dist",
    "node_modules",
    "site-packages",
    "tests",
    "test",
    "docs",
    "venv",
}
LARGEST_SOURCE = 1_000_000  # bytes: larger files are generated, and slow to parse

# The calls that make an agent, by import path, and the framework that they belong to.
AGENT_CALLS = {
    "pydantic_ai.Agent": "pydantic-ai",
    "agents.Agent": "OpenAI Agents",
    "langchain.agents.create_agent": "LangGraph",
    "langgraph.prebuilt.create_react_agent": "LangGraph",
    "smolagents.ToolCallingAgent": "smolagents",
    "smolagents.CodeAgent": "smolagents",
    "claude_agent_sdk.ClaudeAgentOptions": "claude-agent-sdk",
    "inspect_ai.Task": "Inspect",
}
GRAPH_CLASSES = {"langgraph.graph.StateGraph", "langgraph.graph.MessageGraph"}

# The SDKs whose clients are answered in process. A function that takes a prompt and whose module
# imports one of them is an agent.
SDKS = {name: title for p in all_providers().values() for name, title in p.sdks.items()}
PROMPT_PARAMETERS = {
    "prompt",
    "message",
    "question",
    "query",
    "task",
    "text",
    "user_input",
    "input",
}

# Files that show which command-line agents a project is used with.
CLIENT_FILES = {
    "CLAUDE.md": "ClaudeCode",
    ".claude": "ClaudeCode",
    "AGENTS.md": "Codex",
    ".codex": "Codex",
    "GEMINI.md": "GeminiCli",
    ".gemini": "GeminiCli",
    ".pi": "Pi",
}


class FoundAgent(NamedTuple):
    """An agent in the source: its framework, its file and line, and how to import it."""

    framework: str
    file: Path
    line: int
    module: str
    name: str


class ProjectScan(NamedTuple):
    """The agents and clients of a project."""

    root: Path
    agents: list[FoundAgent]
    clients: list[str]
    unreadable: list[str]


def scan_project(root: Path) -> ProjectScan:
    """Find the agents in the Python files below a folder, frameworks before plain functions."""
    agents: list[FoundAgent] = []
    functions: list[FoundAgent] = []
    unreadable: list[str] = []
    for path in _source_files(root):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError) as error:
            unreadable.append(f"{path.relative_to(root)}: {error}")
            continue
        imports = _imported_names(tree)
        agents += _find_agents(tree, path, root, imports)
        functions += _find_functions(tree, path, root, imports)
    clients = [client for file, client in CLIENT_FILES.items() if (root / file).exists()]
    return ProjectScan(root, agents + functions, sorted(set(clients)), unreadable)


def _source_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")) and path.name != "__main__.py":
            continue
        if path.is_dir():
            # a virtual environment has this file, whatever its folder is called
            if path.name not in SKIPPED_FOLDERS and not (path / "pyvenv.cfg").exists():
                yield from _source_files(path)
        elif (
            path.suffix == ".py"
            and not path.name.startswith("test_")
            and path.stat().st_size <= LARGEST_SOURCE
        ):
            yield path


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Map imported names to import paths: `from agents import Agent as A` gives A: agents.Agent."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name] = alias.name
    return names


def _call_path(call: ast.expr, imports: dict[str, str]) -> str:
    """Return the import path of the function that an expression calls, or ""."""
    if not isinstance(call, ast.Call):
        return ""
    function = call.func
    if isinstance(function, ast.Subscript):  # Agent[Deps, Output](…)
        function = function.value
    head, _, rest = ast.unparse(function).partition(".")
    path = imports.get(head, "")
    return f"{path}.{rest}" if rest else path


def _find_agents(
    tree: ast.Module, path: Path, root: Path, imports: dict[str, str]
) -> Iterator[FoundAgent]:
    """Yield the agents that a module assigns at its top level."""
    graphs: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if not isinstance(target, ast.Name):
            continue
        called = _call_path(value, imports)
        framework = AGENT_CALLS.get(called)
        if called in GRAPH_CLASSES:
            graphs.add(target.id)
        elif isinstance(value, ast.Call) and ast.unparse(value.func) in {
            f"{g}.compile" for g in graphs
        }:
            framework = "LangGraph"
        if framework:
            yield FoundAgent(framework, path, node.lineno, _module_name(path, root), target.id)


def _find_functions(
    tree: ast.Module, path: Path, root: Path, imports: dict[str, str]
) -> Iterator[FoundAgent]:
    """Yield the public functions of one prompt in a module that imports a provider's SDK."""
    sdk = next(
        (
            title
            for name, title in SDKS.items()
            if any(_is_in(path_, name) for path_ in imports.values())
        ),
        None,
    )
    if sdk is None:
        return
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith(
            "_"
        ):
            continue
        required = node.args.posonlyargs + node.args.args
        required = required[: len(required) - len(node.args.defaults)]
        if len(required) == 1 and required[0].arg in PROMPT_PARAMETERS:
            yield FoundAgent(sdk, path, node.lineno, _module_name(path, root), node.name)


def _is_in(path: str, package: str) -> bool:
    return path == package or path.startswith(f"{package}.")


def _module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[1:] if parts[0] == "src" else parts)


EXAMPLE_AGENT = '''\
"""An example agent: an extension with two tools and a rule. Replace it with your own."""

ORDER = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


class Shop:
    """Refunds an order only after it was looked up."""

    def __init__(self):
        self.found = set()
        self.refunded = []

    def __call__(self, api):
        """Register the tools. Offbook calls this when a session starts."""

        @api.tool("find_order", "Look up an order.", ORDER)
        def find_order(params, ctx):
            self.found.add(params["id"])
            return f"order {params['id']}: one kettle, 30 EUR"

        @api.tool("refund", "Refund an order.", ORDER)
        def refund(params, ctx):
            if params["id"] not in self.found:
                return {"content": "look up the order first", "is_error": True}
            self.refunded.append(params["id"])
            return f"refunded order {params['id']}"
'''

EXAMPLE_TEST = '''\
"""The model is scripted here; the agent and its tools run for real."""

from offbook import call, say, when
from shop import Shop


def test_an_order_is_not_refunded_before_it_is_found(offbook):
    shop = Shop()
    run = offbook.session(extensions=[shop]).run(
        when("Refund order 7", [
            call("refund", {"id": 7}),  # the model forgets to look up the order
            say("I have to look it up first."),
        ]),
    )
    assert shop.refunded == []
    assert run.results("refund")[0].text == "look up the order first"
'''

AGENT_TEST = '''\
"""The model is scripted here; {name} and its tools run for real."""

from offbook import say, when
from {module} import {name}


def test_{test}_answers(offbook):
    run = offbook.drive({name}).run(
        when("Hello", [
            say("Hello, how can I help?"),  # script a tool call before it: call("tool", {{…}})
        ]),
    )
    assert run.output == "Hello, how can I help?"
'''

CONFTEST = '''\
"""Settings of all tests. pytest also puts this folder on sys.path."""

import os

# The model is scripted, but SDKs ask for a key when their client is made.
for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"):
    os.environ.setdefault(name, "not-used-in-tests")
'''


def write_first_test(scan: ProjectScan) -> dict[Path, str]:
    """Return the texts of the files to write, by path, for the first agent of a project."""
    root = scan.root
    if not scan.agents:
        return {root / "shop.py": EXAMPLE_AGENT, root / "test_shop.py": EXAMPLE_TEST}
    agent = scan.agents[0]
    test = re.sub(r"\W+", "_", agent.name.lower()).strip("_") or "agent"
    text = AGENT_TEST.format(name=agent.name, module=agent.module, test=test)
    base = root / "src" if agent.file.is_relative_to(root / "src") else root
    folder = root / "tests" if (root / "tests").is_dir() else base
    files = {folder / f"test_{test}.py": text}
    if not (base / "conftest.py").exists():
        files[base / "conftest.py"] = CONFTEST
    return files


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
