"""Finds the code of a tool in the source of a project, and breaks it while it is imported.

A first test is worth something if it fails for a broken tool. So each tool is broken in turn: it
raises, it returns something else, or its code does not run. Files are not changed.
"""

from __future__ import annotations

import ast
import re
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.determinism.run_context import apply_patch
from offbook.exchange.messages import Text, ToolResult
from offbook.sources.playbook.playbook import Playbook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from offbook.exchange.model import Reply, Request
    from offbook.explore.candidates import Module

METHODS = frozenset("forward _run _arun run __call__ execute invoke call".split())  # noqa: SIM905
BREAKS = {
    "raises": 'raise RuntimeError("broken by offbook init")',
    "returns something else": 'return "something else"',
    "does not run": "return None",
}
OTHER_RESULTS = {
    "raises": "RuntimeError: broken by offbook init",
    "returns something else": "something else",
    "does not run": "",
}
OTHER_PROMPT = "You are a pirate."
Function = ast.FunctionDef | ast.AsyncFunctionDef


class ToolCode(msgspec.Struct, frozen=True):
    """Where the code of a tool is: functions, classes with a method, or branches on its name."""

    tool: str
    functions: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    inline: bool = False  # a lambda in a table, or a branch

    @property
    def found(self) -> bool:
        """True if there is something to break."""
        return bool(self.functions or self.classes or self.inline)


def find_tool_code(tool: str, modules: Iterable[Module]) -> ToolCode:
    """Find the code that runs when the model calls a tool."""
    defined: set[str] = set()
    named: set[str] = set()
    classes: set[str] = set()
    inline = False
    for node in (node for module in modules for node in ast.walk(module.tree)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                defined.add(name)
                if any(_names(decorator, tool) for decorator in node.decorator_list):
                    named.add(name)
            case ast.ClassDef(name=name, body=body):
                if any(_sets_name(part, tool) for part in body):
                    classes.add(name)
            case ast.Call() if any(_names_keyword(k, tool) for k in node.keywords):
                named |= {p.id for p in ast.walk(node) if isinstance(p, ast.Name)}
                named |= {p.attr for p in ast.walk(node) if isinstance(p, ast.Attribute)}
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if _is_text(key, tool):
                        inline = inline or isinstance(value, ast.Lambda)
                        named |= {p.id for p in ast.walk(value) if isinstance(p, ast.Name)}
                        named |= {p.attr for p in ast.walk(value) if isinstance(p, ast.Attribute)}
            case ast.If(test=test):
                inline = inline or _compares(test, tool)
            case ast.match_case(pattern=ast.MatchValue(value=value)):
                inline = inline or _is_text(value, tool)
            case _:
                pass
    if tool in defined:
        return ToolCode(tool, frozenset({tool}))
    functions = frozenset(named & defined)
    if functions or classes:
        return ToolCode(tool, functions, frozenset(classes))
    return ToolCode(tool, inline=inline)


def _is_text(node: ast.AST | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _names(decorator: ast.expr, tool: str) -> bool:
    """Return whether a decorator gives its function the name of a tool: `@tool("find")`."""
    if not isinstance(decorator, ast.Call):
        return False
    return any(_is_text(a, tool) for a in decorator.args) or any(
        _is_text(k.value, tool) for k in decorator.keywords
    )


def _names_keyword(keyword: ast.keyword, tool: str) -> bool:
    return keyword.arg in {"name", "name_override"} and _is_text(keyword.value, tool)


def _sets_name(node: ast.AST, tool: str) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(t, ast.Name) and t.id == "name" for t in node.targets) and _is_text(
            node.value, tool
        )
    return (
        isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "name"
        and _is_text(node.value, tool)
    )


def _compares(test: ast.expr, tool: str) -> bool:
    return any(
        isinstance(part, ast.Compare)
        and isinstance(part.ops[0], ast.Eq)
        and any(_is_text(side, tool) for side in (part.left, *part.comparators))
        for part in ast.walk(test)
    )


class _ToolBreaker(ast.NodeTransformer):
    """Replaces the code of a tool."""

    def __init__(self, code: ToolCode, how: str) -> None:
        self._code = code
        self._how = how
        self._class = ""
        self.count = 0

    def _body(self) -> list[ast.stmt]:
        self.count += 1
        return ast.parse(f"def f():\n    {BREAKS[self._how]}").body[0].body  # type: ignore[attr-defined]

    def _function(self, node: Any) -> Any:
        in_class = self._class in self._code.classes and node.name in METHODS
        if node.name in self._code.functions or in_class:
            # The docstring is the description of the tool.
            described = ast.get_docstring(node) is not None
            node.body = [*node.body[:described], *self._body()]
            return node
        return self.generic_visit(node)

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815 - the names of ast

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        outer, self._class = self._class, node.name
        self.generic_visit(node)
        self._class = outer
        return node

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        if self._code.inline and _compares(node.test, self._code.tool):
            node.body = self._branch(node.body)
        return node

    def visit_match_case(self, node: ast.match_case) -> Any:
        self.generic_visit(node)
        pattern = node.pattern
        value = pattern.value if isinstance(pattern, ast.MatchValue) else None
        if self._code.inline and _is_text(value, self._code.tool):
            node.body = self._branch(node.body)
        return node

    def visit_Dict(self, node: ast.Dict) -> Any:
        self.generic_visit(node)
        for number, key in enumerate(node.keys):
            value = node.values[number]
            if (
                self._code.inline
                and _is_text(key, self._code.tool)
                and isinstance(value, ast.Lambda)
            ):
                self.count += 1
                texts = {"raises": "1 / 0", "does not run": "None"}
                text = texts.get(self._how, '"something else"')
                value.body = ast.parse(text, mode="eval").body
        return node

    def _branch(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return the broken body of a branch: it assigns what it assigned, or returns."""
        assigned = [p for p in body if isinstance(p, ast.Assign)]
        if self._how == "raises" or not assigned:
            return self._body()
        self.count += 1
        value = ast.Constant("something else" if self._how != "does not run" else "")
        return [ast.Assign(targets=assigned[-1].targets, value=value)]


class _PromptBreaker(ast.NodeTransformer):
    """Replaces the texts that contain a part of the system prompt."""

    def __init__(self, part: str) -> None:
        self._part = part
        self.count = 0

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and self._part in node.value:
            self.count += 1
            return ast.copy_location(ast.Constant(OTHER_PROMPT), node)
        return node


def break_imports(
    root: Path, make: Callable[[], _ToolBreaker | _PromptBreaker]
) -> Callable[[], int]:
    """Break the modules of a project that are imported from now on; return their count."""
    changed: list[int] = []

    def get_code(original: Callable[..., Any], loader: SourceFileLoader, name: str) -> Any:
        path = Path(loader.get_filename(name))
        if not path.is_relative_to(root) or "site-packages" in path.parts:
            return original(loader, name)
        breaker = make()
        tree = breaker.visit(ast.parse(loader.get_data(str(path))))
        if not breaker.count:
            return original(loader, name)
        changed.append(breaker.count)
        return compile(ast.fix_missing_locations(tree), str(path), "exec")

    apply_patch(SourceFileLoader, "get_code", get_code)
    return lambda: sum(changed)


def tool_breaker(code: ToolCode, how: str) -> Callable[[], _ToolBreaker]:
    """Return a function that makes the breaker of a tool."""
    return lambda: _ToolBreaker(code, how)


def prompt_breaker(part: str) -> Callable[[], _PromptBreaker]:
    """Return a function that makes the breaker of a system prompt."""
    return lambda: _PromptBreaker(part)


class BrokenPlaybook(Playbook):
    """A playbook that receives other results of one tool: for programs whose code is not Python."""

    def __init__(self, tool: str, how: str) -> None:
        super().__init__()
        self._tool = tool
        self._other = (Text(OTHER_RESULTS[how]),)

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply to the request with the other result."""
        names = {block.id: block.name for message in request.messages for block in message.calls}
        messages = [
            msgspec.structs.replace(
                message,
                blocks=tuple(
                    msgspec.structs.replace(block, content=self._other)
                    if isinstance(block, ToolResult)
                    and (block.name or names.get(block.call_id)) == self._tool
                    else block
                    for block in message.blocks
                ),
            )
            for message in request.messages
        ]
        history = type(request.messages)(messages)
        return await super().reply(msgspec.structs.replace(request, messages=history))


# --- Literals of the project that may be arguments of a tool


def find_tool_values(  # noqa: C901 - one branch for each place of a literal
    tool: str, modules: Iterable[Module]
) -> dict[str, list[Any]]:
    """Return values for the parameters of a tool: what its code compares and looks up.

    The key "" has those that may belong to any parameter.
    """
    modules = [*modules]
    code = find_tool_code(tool, modules)
    nodes: list[ast.AST] = []
    tables: dict[str, ast.AST] = {}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                tables[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                tables[node.target.id] = node.value or ast.Constant(None)
        for node in ast.walk(module.tree):
            if isinstance(node, Function) and node.name in code.functions:
                nodes.append(node)
            elif isinstance(node, ast.ClassDef) and node.name in code.classes:
                nodes += [part for part in node.body if getattr(part, "name", "") in METHODS]
            elif code.inline:
                nodes += _branch_of(node, tool)
    found: dict[str, list[Any]] = {}
    for node in [*nodes, *_called_functions(nodes, modules)]:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in tables:
                _collect(tables[part.id], found)
            elif isinstance(part, (ast.Assign, ast.Subscript, ast.Attribute)) and isinstance(
                part.value, (ast.Dict, ast.List)
            ):  # orders = {…}, {…}[key], {…}.get(key)
                _collect(part.value, found)
            elif isinstance(part, ast.Attribute):  # self.orders, ctx.deps.orders, store.ORDERS
                for value in (*_attributes(part.attr, modules), ast.Name(part.attr)):
                    table = tables.get(value.id) if isinstance(value, ast.Name) else value
                    _collect(table or value, found)
            elif isinstance(part, ast.Compare):
                for side in (part.left, *part.comparators):
                    if isinstance(side, ast.Constant) and isinstance(side.value, (str, int)):
                        found.setdefault("", []).append(side.value)
    return {name: list(dict.fromkeys(values)) for name, values in found.items()}


def _branch_of(node: ast.AST, tool: str) -> list[ast.stmt]:
    """Return the statements of a branch on the name of a tool, or none."""
    if isinstance(node, ast.If) and _compares(node.test, tool):
        return node.body
    if isinstance(node, ast.match_case) and isinstance(node.pattern, ast.MatchValue):
        return node.body if _is_text(node.pattern.value, tool) else []
    return []


def _called_functions(nodes: list[ast.AST], modules: Iterable[Module]) -> Iterator[ast.AST]:
    """Yield the functions and methods of the project that some code calls."""
    calls = [part.func for node in nodes for part in ast.walk(node) if isinstance(part, ast.Call)]
    names = {getattr(call, "attr", getattr(call, "id", "")) for call in calls}
    for node in (node for module in modules for node in ast.walk(module.tree)):
        if isinstance(node, Function) and node.name in names and node not in nodes:
            yield node


def _attributes(name: str, modules: Iterable[Module]) -> Iterator[ast.AST]:
    """Yield the tables that are assigned to an attribute of this name."""
    nodes = [node for module in modules for node in ast.walk(module.tree)]
    classes = {
        node.name
        for node in nodes
        if isinstance(node, ast.ClassDef)
        and any(isinstance(p, ast.AnnAssign) and ast.unparse(p.target) == name for p in node.body)
    }
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in classes:
            yield from (k.value for k in node.keywords if k.arg == name)  # Shop(orders={…})
            yield from (value for value in node.args if isinstance(value, (ast.Dict, ast.List)))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            if node.targets[0].attr == name:  # also self.orders = orders or ORDERS
                parts = ast.walk(node.value)
                yield from (p for p in parts if isinstance(p, (ast.Dict, ast.List, ast.Name)))
        elif isinstance(node, ast.AnnAssign) and isinstance(
            node.value, (ast.Dict, ast.List, ast.Call)
        ):
            target: Any = node.target
            if getattr(target, "attr", getattr(target, "id", "")) == name:
                yield node.value


def _collect(table: ast.AST, found: dict[str, list[Any]]) -> None:
    """Add the keys of a table, and the fields of its rows under their names."""
    for part in ast.walk(table):
        if not isinstance(part, ast.Dict):
            continue
        for key, value in zip(part.keys, part.values, strict=True):
            if not isinstance(key, ast.Constant):
                continue
            if part is table or isinstance(value, (ast.Dict, ast.List, ast.Call)):
                found.setdefault("", []).append(key.value)
            if isinstance(value, ast.Constant) and part is not table:
                field = str(key.value)
                found.setdefault(field, []).append(value.value)
                if field == "id":
                    found.setdefault("", []).append(value.value)
    if isinstance(table, (ast.List, ast.Set, ast.Tuple)):
        values = [item.value for item in table.elts if isinstance(item, ast.Constant)]
        found.setdefault("", []).extend(values)


NOT_FOUND = re.compile(
    r"not found|no such|unknown|does ?n[o']t exist|no \w+ (?:found|with)|could ?n[o']t|cannot"
    r"|invalid|\berror\b|unavailable|\bnone\b|\bnull\b|no data|no results",
    re.IGNORECASE,
)


def looks_useless(text: str) -> bool:
    """Return whether a result says that the arguments were wrong."""
    return not text.strip() or bool(NOT_FOUND.search(text[:300]))
