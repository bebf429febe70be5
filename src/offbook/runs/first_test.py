"""The first steps in a project: its agent, a test that runs it, and the installed clients.

The source is parsed, never imported: a project whose modules need a key or a network while they
are imported can be inspected too.
"""

from __future__ import annotations

import ast
import asyncio
import re
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import msgspec

from offbook.exchange.providers import all_providers
from offbook.subjects.clis.cli import ClientPackage
from offbook.subjects.clis.clients import ClaudeCode, Codex, Continue, GeminiCli, OpenCode, QwenCode
from offbook.subjects.clis.pi import Pi
from offbook.subjects.process import isolated_env, run_process

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
