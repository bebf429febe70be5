"""The mutants of a source file: each differs from it in one expression or statement.

A mutant has no line number in its identity. It is named by its function, the statement, and the
change, so that a review of it stays valid while other lines move.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
FUNCTIONS = {
    "any": "all", "all": "any", "min": "max", "max": "min",
    "startswith": "endswith", "endswith": "startswith",
    "removeprefix": "removesuffix", "removesuffix": "removeprefix",
    "popleft": "pop", "fullmatch": "match", "match": "search",
}  # fmt: skip
COMPOUND = (ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Try, ast.Match)
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITION = (*FUNCTION, ast.ClassDef)
MAX_TEXT = 120
WHOLE_FILE = range(1, 1_000_000)


@dataclass(frozen=True)
class Mutant:
    """One change of one file; `lines` are those of the statement in the rewritten file."""

    file: str
    function: str  # "" at the top of a module
    statement: str
    change: str
    line: int  # in the file of the checkout
    lines: range
    make_source: Callable[[], str]  # the whole file with the change

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.file, self.function, self.statement, self.change)

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}"
        return f"{where}  {self.function or 'module'}\n    {self.statement}\n      {self.change}"


def rewrite(source: str) -> str:
    """Return the source as mutants write it: without comments, one statement a line."""
    return ast.unparse(ast.parse(source)) + "\n"


def list_mutants(file: str, source: str) -> list[Mutant]:
    """Return all mutants of a file, in the order of its lines."""
    original, tree = ast.parse(source), ast.parse(rewrite(source))
    # Both trees have the same nodes: one has the lines that people see, one those that tests run.
    pairs = list(zip(ast.walk(original), ast.walk(tree), strict=True))
    shown_lines = {id(b): _line(a) for a, b in pairs}
    mutants: list[Mutant] = []
    seen: Counter[tuple[str, str, str]] = Counter()
    for place in _Walk().places(tree):
        for replacement in _replacements(place.node):
            change = f"{_text(place.node)} → {_text(replacement)}"
            identity = (place.function, place.statement, change)
            seen[identity] += 1
            if seen[identity] > 1:  # the same text twice in one function
                change += f" ({seen[identity]})"
            mutants.append(
                Mutant(
                    file=file,
                    function=place.function,
                    statement=place.statement,
                    change=change,
                    line=shown_lines[id(place.node)],
                    lines=place.lines,
                    make_source=partial(_swap, tree, place, replacement),
                )
            )
    return mutants


@dataclass(frozen=True)
class _Place:
    """A node that can be replaced, and where it is."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    function: str
    statement: str
    lines: range


class _Walk:
    """Visits the nodes whose change can alter behaviour."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._functions = 0  # the depth

    def places(self, tree: ast.Module) -> Iterator[_Place]:
        yield from self._children(tree, "", WHOLE_FILE)

    def _children(self, parent: ast.AST, statement: str, lines: range) -> Iterator[_Place]:
        for field, value in ast.iter_fields(parent):
            if _is_ignored(parent, field):
                continue
            items = value if isinstance(value, list) else [value]
            for index, node in enumerate(items):
                if not isinstance(node, ast.AST) or _is_docstring(node):
                    continue
                position = index if isinstance(value, list) else None
                yield from self._visit(node, parent, field, position, statement, lines)

    def _visit(
        self,
        node: ast.AST,
        parent: ast.AST,
        field: str,
        index: int | None,
        statement: str,
        lines: range,
    ) -> Iterator[_Place]:
        if _is_skipped(node) or _is_type(parent, field, index):
            return
        if isinstance(node, ast.stmt):
            statement, lines = _header(node)
        elif isinstance(node, ast.match_case):
            statement, lines = _text(node), range(node.pattern.lineno, node.pattern.lineno + 1)
        elif isinstance(node, ast.ExceptHandler):
            statement, lines = _text(node), range(node.lineno, node.lineno + 1)
        if not self._functions and not isinstance(node, FUNCTION):
            lines = WHOLE_FILE  # it runs at import, for every test
        yield _Place(node, parent, field, index, ".".join(self._names), statement, lines)
        if isinstance(node, DEFINITION):
            self._names.append(node.name)
            self._functions += isinstance(node, FUNCTION)
            yield from self._children(node, statement, lines)
            self._functions -= isinstance(node, FUNCTION)
            self._names.pop()
        else:
            yield from self._children(node, statement, lines)


def _header(node: ast.stmt) -> tuple[str, range]:
    """Return the beginning and the lines of a statement without the statements inside it."""
    text = ast.unparse(node)
    if len(text) > MAX_TEXT and "\n" not in text:
        text = text[:MAX_TEXT] + "…"
    if isinstance(node, FUNCTION):
        # Its defaults are evaluated at import: every test that runs the function may notice them.
        body = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
        return f"def {node.name}", body
    if isinstance(node, (*COMPOUND, ast.ClassDef)):
        return text.splitlines()[0], range(node.lineno, node.lineno + 1)
    return text, range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _is_ignored(parent: ast.AST, field: str) -> bool:
    # Annotations decide nothing, and decorators run at import.
    if field in {"annotation", "returns", "decorator_list", "ctx", "keywords", "bases"}:
        return field != "keywords" or isinstance(parent, ast.ClassDef)
    # Names and formats of f-strings are texts for people; so is the text of an error.
    return isinstance(parent, (ast.JoinedStr, ast.FormattedValue))


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_skipped(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.JoinedStr():
            return True
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return True
        case ast.keyword(arg="hint" | "message" | "where"):  # texts for people
            return True
        case ast.Assign(targets=[ast.Name("__slots__" | "__all__")]):
            return True
        case _:
            return False


def _is_type(parent: ast.AST, field: str, index: int | None) -> bool:
    """Return whether a node is the type in `cast("type", value)`."""
    is_cast = isinstance(parent, ast.Call) and ast.unparse(parent.func) == "cast"
    return is_cast and (field, index) == ("args", 0)


def _replacements(node: ast.AST) -> Iterator[ast.AST]:  # noqa: C901, PLR0912 - the operator table
    match node:
        # --- conditions
        case ast.Compare(ops=ops):
            for index, operator in enumerate(ops):
                changed = copy.deepcopy(node)
                changed.ops[index] = COMPARISONS[type(operator)]()
                yield changed
        case ast.BoolOp(op=operator, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if not isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
                changed = copy.deepcopy(node)
                changed.test = ast.UnaryOp(ast.Not(), test)
                yield changed
        case ast.comprehension(ifs=[_, *_]):
            changed = copy.deepcopy(node)
            changed.ifs = []  # nothing is filtered out
            yield changed
        case ast.match_case(guard=ast.expr()):
            changed = copy.deepcopy(node)
            changed.guard = None
            yield changed
        # --- values
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(value + 1.0)
        case ast.Constant(value=str(value)):
            # Names, keys and states. A text with a space is a message.
            if " " not in value.strip():
                yield ast.Constant(value + "mutated")
        case ast.BinOp(left, operator, right):
            texts = any(_is_text(side) for side in (left, right))
            if (other := ARITHMETIC.get(type(operator))) is not None and not texts:
                yield ast.BinOp(left, other(), right)
        case ast.Name(id=name, ctx=ast.Load()):
            if name in FUNCTIONS:
                yield ast.Name(FUNCTIONS[name], ast.Load())
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in FUNCTIONS:
            changed = copy.deepcopy(node)
            changed.func = ast.Attribute(owner, FUNCTIONS[name], ast.Load())
            yield changed
        # --- statements
        case ast.Return(value=ast.expr() as value):
            if not isinstance(value, ast.Constant):
                yield ast.Return(ast.Constant(None))
        case ast.AugAssign(target, operator, value):
            if (other := ARITHMETIC.get(type(operator))) is not None and not _is_text(value):
                yield ast.AugAssign(target, other(), value)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise() | ast.Delete():
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()
        case _:
            pass


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _line(node: ast.AST) -> int:
    """Return the line of a node; a comprehension and a case have it in their first child."""
    first = getattr(node, "target", None) or getattr(node, "pattern", None)
    return getattr(node, "lineno", None) or getattr(first, "lineno", 0)


def _swap(tree: ast.Module, place: _Place, replacement: ast.AST) -> str:
    """Return the text of the tree with one node replaced; the tree is as before afterwards."""
    if place.index is None:
        setattr(place.parent, place.field, replacement)
    else:
        getattr(place.parent, place.field)[place.index] = replacement
    try:
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    finally:
        if place.index is None:
            setattr(place.parent, place.field, place.node)
        else:
            getattr(place.parent, place.field)[place.index] = place.node


def _text(node: ast.AST) -> str:
    """Return the first line of a node's text."""
    if isinstance(node, ast.match_case):
        guard = f" if {ast.unparse(node.guard)}" if node.guard else ""
        return f"case {ast.unparse(node.pattern)}{guard}"
    text = ast.unparse(node).strip().splitlines()[0]
    return text[:MAX_TEXT] + "…" if len(text) > MAX_TEXT else text
