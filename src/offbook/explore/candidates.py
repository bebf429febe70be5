"""What can be driven in a project, ranked: the list that `offbook init` shows.

Sources are parsed, never imported: a project whose modules need a key or a network while they are
imported can be listed, too. A function is listed if it reaches a model, itself or through other
functions of the project.
"""

from __future__ import annotations

import ast
import json
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from offbook.exchange.providers import all_providers

if TYPE_CHECKING:
    from collections.abc import Iterator

SKIPPED_FOLDERS = frozenset(
    "build dist docs examples node_modules site-packages test tests venv".split()  # noqa: SIM905
)
LARGEST_SOURCE = 1_000_000  # bytes: larger files are generated, and slow to parse

# The calls that make an agent, by import path, and the framework that they belong to.
AGENT_CALLS = {
    "pydantic_ai.Agent": "pydantic-ai",
    "agents.Agent": "OpenAI Agents",
    "langchain.agents.create_agent": "LangChain",
    "langgraph.prebuilt.create_react_agent": "LangGraph",
    "smolagents.ToolCallingAgent": "smolagents",
    "smolagents.CodeAgent": "smolagents",
    "claude_agent_sdk.ClaudeAgentOptions": "claude-agent-sdk",
    "inspect_ai.Task": "Inspect",
}
GRAPH_CLASSES = {"langgraph.graph.StateGraph", "langgraph.graph.MessageGraph"}
# The SDKs whose clients are answered in process, and the libraries on top of them.
SDKS = {name: title for p in all_providers().values() for name, title in p.sdks.items()}
LIBRARIES = {
    **SDKS,
    "langchain_openai": "LangChain",
    "langchain_anthropic": "LangChain",
    "langchain_google_genai": "LangChain",
    "langchain.chat_models": "LangChain",
    "litellm": "LiteLLM",
    "instructor": "instructor",
    **{name.rpartition(".")[0]: title for name, title in AGENT_CALLS.items()},
    "langgraph": "LangGraph",
}
MODEL_HOSTS = re.compile(
    r"api\.(openai|anthropic|groq|mistral|deepseek|x)\.\w+|generativelanguage\.googleapis"
    r"|openrouter\.ai|/v1/(chat/completions|messages|responses)\b"
)
PROMPT_PARAMETERS = frozenset(
    """
    prompt message question query task text user_input input user_message user_query user_prompt
    request instruction instructions goal content msg q topic input_text user_text
    """.split()  # noqa: SIM905 - a table of words reads better than a list of strings
)
RUNS = re.compile(r"\b(print|main|run\w*|a?invoke|stream|create|input)\(")  # at the top level
MESSAGE_PARAMETERS = frozenset({"messages", "history", "conversation"})
ROUTES = frozenset({"post", "get", "put", "route", "api_route"})
COMMANDS = frozenset({"click.command", "typer.Typer", "click.group"})

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

Kind = Literal["agent", "factory", "function", "method", "route", "cli", "command"]
# How well a kind is driven: the tools of an agent can be seen and replaced, those of a command not.
RANKS: dict[Kind, int] = {
    "agent": 100,
    "factory": 95,
    "function": 70,
    "method": 65,
    "route": 50,
    "cli": 45,
    "command": 40,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Candidate(msgspec.Struct, frozen=True):
    """Something that can be driven: how to reach it, why it is listed, and where it is.

    `target` is MODULE:NAME, or a command with `{prompt}`. `fields` are those of the body of a
    route without a schema.
    """

    kind: Kind
    target: str
    reason: str
    file: str = ""
    line: int = 0
    score: int = 0
    route: tuple[str, str] = ("", "")  # the method and the path
    fields: tuple[str, ...] = ()
    form: str = "json"  # how a route receives its fields: json, data or query_string

    @property
    def words(self) -> list[str]:
        """The words of a command."""
        return self.target.split("\x1f")

    @property
    def shown(self) -> str:
        """The target as a user writes it."""
        return "-- " + " ".join(self.words) if self.kind == "command" else self.target


class ProjectScan(msgspec.Struct, frozen=True):
    """The candidates of a project, best first, its clients, and the files that are not Python."""

    root: Path
    candidates: list[Candidate]
    clients: list[str]
    unreadable: list[str]
    modules: list[Module]

    @property
    def empty(self) -> bool:
        """True for a folder without files, except for hidden ones."""
        return not any(not path.name.startswith(".") for path in self.root.iterdir())


class Module(msgspec.Struct, frozen=True):
    """A parsed file: its import path, and what its names were imported from."""

    path: Path
    name: str
    tree: ast.Module
    imports: dict[str, str]
    text: str


def scan_project(root: Path) -> ProjectScan:
    """Find what can be driven below a folder."""
    modules: list[Module] = []
    unreadable: list[str] = []
    for path in source_files(root, ".py"):
        try:
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (SyntaxError, ValueError) as error:
            unreadable.append(f"{path.relative_to(root)}: {error}")
            continue
        name = module_name(path, root)
        modules.append(Module(path, name, tree, imported_names(tree, name), text))
    found = [*_PythonScan(root, modules).candidates(), *_find_programs(root)]
    found.sort(key=lambda candidate: -candidate.score)
    clients = {client for file, client in CLIENT_FILES.items() if (root / file).exists()}
    return ProjectScan(root, found, sorted(clients), unreadable, modules)


def source_files(folder: Path, *suffixes: str) -> Iterator[Path]:
    """Yield the files of a project with these suffixes, without tests and installed packages."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")) and path.name not in {"__main__.py", "__init__.py"}:
            continue
        if path.is_dir():
            # a virtual environment has this file, whatever its folder is called
            if path.name not in SKIPPED_FOLDERS and not (path / "pyvenv.cfg").exists():
                yield from source_files(path, *suffixes)
        elif (
            path.suffix in suffixes
            and not path.name.startswith("test_")
            and path.name not in {"conftest.py", "setup.py"}
            and path.stat().st_size <= LARGEST_SOURCE
        ):
            yield path


def module_name(path: Path, root: Path) -> str:
    """Return the import path of a file; `src` is not a part of it."""
    parts = [*path.relative_to(root).with_suffix("").parts]
    parts = parts[1:] if parts[0] == "src" and len(parts) > 1 else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def imported_names(tree: ast.Module, module: str = "") -> dict[str, str]:
    """Map imported names to import paths: `from agents import Agent as A` gives A: agents.Agent."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            path = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                names[alias.asname or alias.name] = f"{path}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
    return names


def call_path(call: ast.AST | None, imports: dict[str, str]) -> str:
    """Return the import path of the function that an expression calls, or ""."""
    if isinstance(call, ast.Await):
        call = call.value
    if not isinstance(call, ast.Call):
        return ""
    function = call.func
    if isinstance(function, ast.Subscript):  # Agent[Deps, Output](…)
        function = function.value
    head, _, rest = ast.unparse(function).partition(".")
    path = imports.get(head, "")
    return f"{path}.{rest}" if rest and path else path


def _is_in(path: str, packages: dict[str, str]) -> str:
    """Return the title of the package that an import path belongs to, or ""."""
    return next(
        (title for name, title in packages.items() if path == name or path.startswith(f"{name}.")),
        "",
    )


class _Code(msgspec.Struct):
    """A function or method of the project, and what is known about it so far."""

    module: Module
    node: Function
    owner: ast.ClassDef | None
    names: set[str]  # that it uses
    library: str = ""  # by which it reaches a model
    tools: bool = False
    called: bool = False  # by another one that reaches a model
    nested: bool = False  # in another function: only a route can be reached there

    @property
    def label(self) -> str:
        return f"{self.owner.name}.{self.node.name}" if self.owner else self.node.name


class _PythonScan:
    """The candidates in the Python files of a project."""

    def __init__(self, root: Path, modules: list[Module]) -> None:
        self._root = root
        self._modules = modules
        self._codes = [code for module in modules for code in _functions(module)]
        self._factories: dict[str, tuple[str, int, int]] = {}
        self._find_libraries()
        for code in self._codes:
            if (made := self._returned_agent(code, code.module)) is not None:
                self._factories[code.node.name] = made

    def candidates(self) -> Iterator[Candidate]:
        """Yield every candidate once."""
        for module in self._modules:
            yield from self._agents(module)
            yield from self._scripts(module)
        for code in self._codes:
            if code.library:
                yield from self._code(code)

    def _candidate(
        self, kind: Kind, module: Module, name: str, line: int, **more: Any
    ) -> Candidate:
        score = RANKS[kind] + more.pop("bonus", 0)
        file = str(module.path.relative_to(self._root))
        return Candidate(kind, f"{module.name}:{name}", file=file, line=line, score=score, **more)

    def _find_libraries(self) -> None:
        """Note by which library each function reaches a model, until nothing changes."""
        globals_ = {
            module.name: {
                name: title
                for node in module.tree.body
                for name, value in _assigned(node)
                if (title := self._library_in(value, module, {}))
            }
            for module in self._modules
        }
        changed = True
        while changed:
            changed = False
            reaching = {
                (code.owner or code.node).name: code for code in self._codes if code.library
            }
            for code in self._codes:
                used = [reaching[name] for name in code.names & reaching.keys() if name in reaching]
                used = [other for other in used if other is not code]
                # A class reaches a model in all its methods if it does so in one: `self.client`.
                if code.owner is not None and code.node.name != "__init__":
                    used += [
                        other
                        for other in self._codes
                        if other.library
                        and other.owner is code.owner
                        and other is not code
                        and (other.node.name == "__init__" or other.node.name in code.names)
                    ]
                known = globals_[code.module.name]
                imported = {
                    name: globals_[module].get(attribute, "")
                    for name, path in code.module.imports.items()
                    for module, _, attribute in [path.rpartition(".")]
                    if module in globals_
                }
                library = (
                    code.library
                    or self._library_in(code.node, code.module, {**imported, **known})
                    or next((other.library for other in used), "")
                )
                tools = code.tools or _uses_tools(code.node) or any(o.tools for o in used)
                if (library, tools) != (code.library, code.tools):
                    code.library, code.tools, changed = library, tools, True
                for other in used if code.library else ():
                    # The methods that a constructor prepares are not called by it.
                    other.called = other.called or other.node.name in code.names

    @staticmethod
    def _library_in(node: ast.AST | None, module: Module, known: dict[str, str]) -> str:
        if node is None:
            return ""
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                path = module.imports.get(part.id, "")
                if title := known.get(part.id, "") or _is_in(path, LIBRARIES):
                    return title
            elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                if MODEL_HOSTS.search(part.value):
                    return "HTTP"
            elif isinstance(part, (ast.ImportFrom, ast.Import)):
                names = [alias.name for alias in part.names]
                paths = [part.module or ""] if isinstance(part, ast.ImportFrom) else names
                if title := next(filter(None, (_is_in(path, LIBRARIES) for path in paths)), ""):
                    return title
        return ""

    # --- Agents of frameworks

    def _agents(self, module: Module) -> Iterator[Candidate]:
        """Yield the agents at the top level of a module, and the functions that return one."""
        decorated = _count_decorators(module.tree)
        inner = {  # agents that another one uses: a handoff, or a tool of it
            part.id
            for other in self._modules
            for call in ast.walk(other.tree)
            if call_path(call, other.imports) in AGENT_CALLS or _is_method(call, "add_node")
            for part in ast.walk(call)
            if isinstance(part, ast.Name)
        }
        for name, value, line in _top_level(module.tree):
            made = self._made_agent(value, module, module.tree)
            if made is None:
                continue
            framework, tools, handoffs = made
            tools += decorated.get(name, 0)
            yield self._candidate(
                "agent",
                module,
                name,
                line,
                reason=_describe(f"{framework} agent", tools, handoffs),
                bonus=10 * min(tools, 5) + 15 * handoffs - 40 * (name in inner),
            )
        for code in _functions(module):
            if code.nested:
                continue
            returned = self._returned_agent(code, module)
            if returned is not None:
                framework, tools, handoffs = returned
                tools += sum(_count_decorators(code.node).values())
                yield self._candidate(
                    "factory",
                    module,
                    code.label,
                    code.node.lineno,
                    reason=_describe(f"returns a {framework} agent", tools, handoffs),
                    bonus=10 * min(tools, 5)
                    + 15 * handoffs
                    - 30 * code.node.name.startswith("_")
                    - 10 * (code.owner is not None),
                )

    def _returned_agent(self, code: _Code, module: Module) -> tuple[str, int, int] | None:
        """Return what a function returns if it is an agent that it made."""
        values = {
            name: value for part in ast.walk(code.node) for name, value in _assigned(part) if value
        }
        for part in _own_nodes(code.node):
            if isinstance(part, ast.Return) and part.value is not None:
                value = part.value
                if isinstance(value, ast.Name):
                    value = values.get(value.id, value)
                made = self._made_agent(value, module, code.node)
                if made is not None:
                    return made
        return None

    def _made_agent(
        self, value: ast.AST | None, module: Module, scope: ast.AST
    ) -> tuple[str, int, int] | None:
        """Return the framework of an agent that an expression makes, its tools and handoffs."""
        if not isinstance(value, ast.Call):
            return None
        name = ast.unparse(value.func).rpartition(".")[2]
        if (made := self._factories.get(name)) is not None:
            return made
        called = call_path(value, module.imports)
        if framework := AGENT_CALLS.get(called):
            tools = _count_items(value, ("tools", "toolsets"), scope)
            if (
                called.startswith(("langchain.", "langgraph."))
                and not tools
                and len(value.args) > 1
            ):
                tools = _length(value.args[1], scope)
            return framework, tools, _count_items(value, ("handoffs", "managed_agents"), scope)
        if _is_method(value, "compile"):
            # The builder is a variable, or the graph is built in one chain of calls.
            text = ast.unparse(value)
            builders = {
                name
                for part in ast.walk(scope)
                for name, made in _assigned(part)
                if call_path(made, module.imports) in GRAPH_CLASSES
            }
            head = re.match(r"\w+", text)
            if (head and head[0] in builders) or "StateGraph(" in text:
                nodes = sum(_is_method(part, "add_node") for part in ast.walk(scope))
                subgraphs = max(0, len(builders) - 1)
                return "LangGraph", max(1, nodes // 2), subgraphs
        return None

    # --- Functions, methods, routes, commands

    def _code(self, code: _Code) -> Iterator[Candidate]:
        node, module = code.node, code.module
        bonus = 15 * code.tools - 20 * code.called
        with_tools = f"uses {code.library}" + (" with tools" if code.tools else "")
        for decorator in node.decorator_list:
            if (route := _route(decorator)) is not None:
                fields, form = _body_fields(node)
                yield self._candidate(
                    "route",
                    module,
                    code.label,
                    node.lineno,
                    reason=f"route {route[0].upper()} {route[1]}, {with_tools}",
                    route=route,
                    fields=fields,
                    form=form,
                    bonus=bonus,
                )
                return
            text = ast.unparse(decorator).partition("(")[0]
            head, _, rest = text.partition(".")
            path = ".".join(filter(None, (module.imports.get(head, head), rest)))
            if path in COMMANDS or (rest in {"command", "callback"} and _makes_cli(module, head)):
                yield self._candidate(
                    "cli",
                    module,
                    # A Typer application is invoked, not its function.
                    head if rest == "command" and _makes_cli(module, head) else code.label,
                    node.lineno,
                    reason=f"command line, {with_tools}",
                    fields=(node.name,),
                    bonus=bonus,
                )
                return
        if code.nested:
            return
        public = not node.name.startswith("_") or node.name == "__call__"
        if not public or _is_decorated_tool(node) or self._returned_agent(code, module):
            return
        if code.owner is not None and (
            code.owner.name.startswith("_") or code.node.name == "__init__"
        ):
            return
        if prompt_parameter(node) is None:
            return
        yield self._candidate(
            "method" if code.owner else "function",
            module,
            code.label,
            node.lineno,
            reason=f"{'method' if code.owner else 'function'} that {with_tools}",
            bonus=bonus,
        )

    def _scripts(self, module: Module) -> Iterator[Candidate]:
        """Yield a module that reaches a model when it is run, as a command."""
        guard = any(
            isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
            for node in module.tree.body
        )
        runs = any(
            isinstance(node, (ast.Expr, ast.For, ast.While, ast.With, ast.Try))
            and RUNS.search(ast.unparse(node))
            for node in module.tree.body
        )
        library = self._library_in(module.tree, module, {}) or next(
            (code.library for code in self._codes if code.module is module and code.library), ""
        )
        if not library or not (guard or runs or module.path.name == "__main__.py"):
            return
        file = str(module.path.relative_to(self._root))
        words = ["python", file, "{prompt}"]
        if len(module.path.relative_to(self._root).parts) > 1:
            package = module.name.removesuffix(".__main__")
            words = ["python", "-m", package, "{prompt}"]
        reason = f"Python program, uses {library}"
        yield Candidate("command", "\x1f".join(words), reason, file, 1, RANKS["command"])


def _functions(module: Module) -> Iterator[_Code]:
    """Yield the functions of a module and the methods of its classes."""
    for node in module.tree.body:
        if isinstance(node, Function):
            yield _Code(module, node, None, _used_names(node))
            for inner in ast.walk(node):
                if isinstance(inner, Function) and inner is not node and inner.decorator_list:
                    yield _Code(module, inner, None, _used_names(inner), nested=True)
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, Function):
                    yield _Code(module, inner, node, _used_names(inner))


def _used_names(node: ast.AST) -> set[str]:
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a function, without those of functions inside of it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield child
            yield from _own_nodes(child)


def _assigned(node: ast.AST) -> list[tuple[str, ast.expr | None]]:
    """Return the names that a statement assigns, with the value."""
    if isinstance(node, ast.Assign):
        return [(t.id, node.value) for t in node.targets if isinstance(t, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [(node.target.id, node.value)]
    return []


def _top_level(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None, int]]:
    for node in tree.body:
        for name, value in _assigned(node):
            yield name, value, node.lineno


def _is_method(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == name
    )


def _count_decorators(tree: ast.AST) -> dict[str, int]:
    """Count the tools of each agent that are functions with `@agent.tool`."""
    counts: dict[str, int] = {}
    for node in ast.walk(tree):
        for decorator in node.decorator_list if isinstance(node, Function) else ():
            head, _, rest = ast.unparse(decorator).partition("(")[0].partition(".")
            if rest.startswith("tool"):
                counts[head] = counts.get(head, 0) + 1
    return counts


def _count_items(call: ast.Call, keywords: tuple[str, ...], scope: ast.AST) -> int:
    return sum(_length(k.value, scope) for k in call.keywords if k.arg in keywords)


def _length(value: ast.AST, scope: ast.AST) -> int:
    """Return the length of a list, also of one that has a name in this scope."""
    if isinstance(value, ast.Name):
        values = [v for part in ast.walk(scope) for n, v in _assigned(part) if n == value.id]
        return _length(values[0], ast.Module([], [])) if values and values[0] else 1
    return len(value.elts) if isinstance(value, (ast.List, ast.Tuple)) else 1


def _describe(what: str, tools: int, handoffs: int) -> str:
    parts = [f"{tools} tool{'s' * (tools != 1)}"] if tools else []
    parts += [f"{handoffs} handoff{'s' * (handoffs != 1)}"] if handoffs else []
    return what + (f" with {' and '.join(parts)}" if parts else " without tools")


def _uses_tools(node: ast.AST) -> bool:
    """Return whether code offers tools to a model, or runs those that it called."""
    for part in ast.walk(node):
        if isinstance(part, ast.keyword) and part.arg in {"tools", "functions"}:
            return True
        if isinstance(part, ast.Attribute) and part.attr in {"tool_calls", "bind_tools"}:
            return True
        if isinstance(part, ast.Constant) and part.value in {"tools", "tool_use", "tool_calls"}:
            return True
    return False


def _is_decorated_tool(node: Function) -> bool:
    return any("tool" in ast.unparse(d).lower() for d in node.decorator_list)


def prompt_parameter(node: Function) -> str | None:
    """Return the parameter of a function that takes the prompt, or None."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    if arguments and arguments[0].arg in {"self", "cls"}:
        arguments = arguments[1:]
    for argument in [*arguments, *node.args.kwonlyargs]:
        if argument.arg in PROMPT_PARAMETERS | MESSAGE_PARAMETERS:
            return argument.arg
    required = arguments[: len(arguments) - len(node.args.defaults)]
    texts = [a for a in required if a.annotation and ast.unparse(a.annotation) == "str"]
    return texts[0].arg if len(texts) == 1 and len(required) == 1 else None


def _route(decorator: ast.expr) -> tuple[str, str] | None:
    """Return the method and the path of a route's decorator, or None."""
    if not isinstance(decorator, ast.Call) or not isinstance(decorator.func, ast.Attribute):
        return None
    if decorator.func.attr not in ROUTES or not decorator.args:
        return None
    path = decorator.args[0]
    if not isinstance(path, ast.Constant) or not str(path.value).startswith("/"):
        return None
    method = decorator.func.attr
    if method in {"route", "api_route"}:
        methods = next((k.value for k in decorator.keywords if k.arg == "methods"), None)
        method = "post" if methods is not None and "POST" in ast.unparse(methods) else "get"
    return method, str(path.value)


def _body_fields(node: Function) -> tuple[tuple[str, ...], str]:
    """Return the fields that a route reads from its request, and how they are sent."""
    text = ast.unparse(node)
    form = "json"
    if "request.form" in text:
        form = "data"
    elif "request.args" in text and "json" not in text:
        form = "query_string"
    # Such as the subscript or `get` of `request.json`, `data` or `body`.
    sources = (
        r"(?:request\.(?:json|form|args|get_json\(.*?\))|data|body|payload|content|req|params)"
    )
    pattern = rf"""{sources}(?:\.get\(|\[)\s*['"](\w+)['"]"""
    return tuple(dict.fromkeys(re.findall(pattern, text))), form


def _makes_cli(module: Module, name: str) -> bool:
    """Return whether a name of the module is a Typer application or a click group."""
    for node in module.tree.body:
        if isinstance(node, Function) and node.name == name:
            return True
        if any(n == name for n, _ in _assigned(node)):
            return call_path(cast("Any", node).value, module.imports) in COMMANDS
    return False


# --- Programs in any language

PROGRAMS = {
    ".js": ["node"],
    ".mjs": ["node"],
    ".cjs": ["node"],
    ".ts": ["npx", "tsx"],
    ".mts": ["npx", "tsx"],
    ".sh": ["bash"],
    ".rb": ["ruby"],
    ".php": ["php"],
    ".go": ["go", "run"],
}
PROGRAM_MODEL = re.compile(
    r"""["'](openai|@openai/agents|@anthropic-ai/[\w-]+|ai|@ai-sdk/[\w-]+|@google/genai|"""
    r"""@langchain/[\w-]+|langchain|@mastra/[\w-]+|groq-sdk)["'/]|"""
    r"""(OPENAI|ANTHROPIC|GEMINI|GOOGLE|GROQ|MISTRAL)_(API_KEY|BASE_URL)|""" + MODEL_HOSTS.pattern
)


def _find_programs(root: Path) -> Iterator[Candidate]:
    """Yield the programs of package.json, of pyproject.toml, and scripts that call a model."""
    entries = dict(_package_entries(root))
    for path in [*source_files(root, *PROGRAMS), *_executables(root)]:
        text = path.read_text(encoding="utf-8", errors="replace")
        name = str(path.relative_to(root))
        found = PROGRAM_MODEL.search(text)
        if not found and name not in entries:
            continue
        tools = bool(re.search(r"\btools\b|tool_calls|tool_use", text))
        where = entries.get(name, "")
        run = PROGRAMS.get(path.suffix, [f"./{name}"] if os.access(path, os.X_OK) else ["sh"])
        words = [*run, *([name] if run != [f"./{name}"] else []), "{prompt}"]
        if path.suffix in {".ts", ".mts"}:
            words = _typescript_command(root, name, where)
        reads = bool(re.search(r"argv|\$1|\$@|\$\*|ARGV|os\.Args|stdin|\bread\b|readline", text))
        uses = "calls a model" if found else "its modules may call a model"
        yield Candidate(
            "command",
            "\x1f".join(words),
            ", ".join(filter(None, [where or "program", uses + (" with tools" if tools else "")])),
            name,
            1,
            RANKS["command"] + 15 * tools + 15 * bool(where) + 5 * reads + 5 * bool(found),
        )
    yield from _entry_points(root)


def _typescript_command(root: Path, file: str, where: str) -> list[str]:
    """Return the command that runs TypeScript in this project: its own script, if it has one."""
    if script := re.match(r"script '(.+)' of", where):
        return ["npm", "run", "--silent", script[1], "--", "{prompt}"]
    for name in ("tsx", "ts-node"):
        if (root / "node_modules" / ".bin" / name).exists():
            return [f"node_modules/.bin/{name}", file, "{prompt}"]
    return ["npx", "tsx", file, "{prompt}"]


def _package_entries(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the files that package.json names, with where it does."""
    try:
        package: dict[str, Any] = json.loads((root / "package.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    scripts: dict[str, Any] = package.get("scripts") or {}
    for name, script in scripts.items():
        for word in str(script).split():
            runs = not re.match(r"(pre|post)?(test|build|lint|format|compile|type)", name)
            if Path(word).suffix in PROGRAMS and (root / word).is_file() and runs:
                yield os.path.normpath(word), f"script {name!r} of package.json"
    if isinstance(package.get("main"), str):
        yield os.path.normpath(package["main"]), "main of package.json"
    given: Any = package.get("bin") or {}
    bins = cast("dict[str, Any]", given) if isinstance(given, dict) else {"": given}
    for name, file in bins.items():
        yield os.path.normpath(str(file)), f"bin {name!r} of package.json"


def _executables(root: Path) -> Iterator[Path]:
    """Yield the executable text files without a suffix that we know."""
    folders = [root, root / "bin", root / "scripts"]
    for path in (
        path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())
    ):
        if path.is_file() and path.suffix not in {*PROGRAMS, ".py"} and os.access(path, os.X_OK):
            with path.open("rb") as file:
                if file.read(2) == b"#!":
                    yield path


def _entry_points(root: Path) -> Iterator[Candidate]:
    """Yield the scripts of pyproject.toml."""
    try:
        document = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    for name, target in document.get("project", {}).get("scripts", {}).items():
        module, _, function = str(target).partition(":")
        code = f"import sys; from {module} import {function}; sys.exit({function}())"
        words = ["python", "-c", code, "{prompt}"]
        reason = f"script {name!r} of pyproject.toml"
        yield Candidate(
            "command", "\x1f".join(words), reason, "pyproject.toml", 1, RANKS["command"] - 5
        )
