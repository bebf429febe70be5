"""The rules for tests that prove nothing: no assertion, or none that can fail.

Each rule reads the syntax tree of a test file. A finding is certain: what may be an assertion is
taken for one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, cast

# Calls that fail a test by themselves: a run of a rehearsal asserts that the script was followed.
CHECKS = re.compile(
    r"(assert|expect|explore|check|verify|validate|replay|raises|warns|deprecated_call|fail|run|xfail|skip|wait)"
)
ANY_EXCEPTION = {"Exception", "BaseException"}
Function = ast.FunctionDef | ast.AsyncFunctionDef
NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
LEAVES = {ast.Name, ast.Constant, ast.alias, ast.Pass, ast.Break, ast.Continue}  # most nodes
Position = tuple[int, int]  # the line from 1, the byte in it from 0
Replacement = tuple[Position, Position, str]


class Found(NamedTuple):
    """A finding in Python code, and the text that replaces a part of it."""

    start: Position
    code: str
    message: str
    fix: Replacement | None = None


class Scope(NamedTuple):
    """A function with its nodes; `own` is without those of the functions and classes in it."""

    function: Function
    nodes: list[ast.AST]
    own: list[ast.AST]


def find_empty_tests(tree: ast.Module, scopes: list[Scope]) -> Iterator[Found]:
    """Yield what proves nothing in a file of tests."""
    tests = {*_tests_in(tree.body, set())}
    yield from _tests_without_assertion(tests, scopes)
    for scope in scopes:
        yield from _assertions_that_are_always_true(scope)
        yield from _assertions_that_never_run(scope)
        yield from _swallowed_assertions(scope)
        yield from _any_exception(scope)
        if scope.function in tests:
            yield from _script_compared_with_itself(scope)
            yield from _run_that_only_talks(scope)


def scopes_in(tree: ast.AST) -> list[Scope]:
    """Return all functions, also nested ones."""
    functions = [node for node in _walk([tree]) if isinstance(node, Function)]
    return [Scope(node, _walk([node]), _walk(node.body, nested=False)) for node in functions]


def call_name(node: ast.expr) -> str:
    """Return the last part of the name of a called function, or ""."""
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _check_name(node: ast.AST) -> str:
    """Return the name of a called function that may fail a test, or ""."""
    name = call_name(node).lstrip("_") if isinstance(node, ast.Call) else ""
    return name if CHECKS.match(name) else ""


def start_of(node: ast.stmt | ast.expr) -> Position:
    """Return where a node begins."""
    return node.lineno, node.col_offset


def _walk(roots: Sequence[ast.AST], *, nested: bool = True) -> list[ast.AST]:
    """Return these nodes and all in them, or only those outside of nested functions and classes.

    It takes two thirds of the time of `ast.walk`, as it leaves out whether a name is read or
    written, and does not look into leaves.
    """
    nodes = [*roots]
    for node in nodes:  # it grows
        if type(node) not in LEAVES and (nested or not isinstance(node, NESTED)):
            for value in vars(node).values():
                if isinstance(value, list):
                    items = cast("list[object]", value)
                    nodes += [each for each in items if isinstance(each, ast.AST)]
                elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                    nodes.append(value)
    return nodes


def _tests_in(body: Sequence[ast.stmt], cases: set[str]) -> Iterator[Function]:
    """Yield the tests that pytest collects, also under a condition and in nested classes.

    `cases` are the classes of unittest: they may have any name.
    """
    for node in _walk(body, nested=False):
        if isinstance(node, Function) and node.name.startswith("test"):
            yield node
        elif isinstance(node, ast.ClassDef):
            bases = [call_name(base) for base in node.bases]
            if any(base.endswith("TestCase") or base in cases for base in bases):
                cases.add(node.name)
            if node.name.startswith("Test") or node.name in cases:
                yield from _tests_in(node.body, cases)


# --- OB101


def _tests_without_assertion(tests: set[Function], scopes: list[Scope]) -> Iterator[Found]:
    """Yield the tests in which nothing can fail but an exception of the code under test."""
    functions: dict[str, list[Scope]] = {}  # classes may have methods of the same name
    for scope in scopes:
        functions.setdefault(scope.function.name.lstrip("_"), []).append(scope)
    checking: dict[Function, bool] = {}

    def checks(scope: Scope) -> bool:
        # Functions of the same file may assert for the test; one that calls itself does not.
        function = scope.function
        if function not in checking:
            checking[function] = False
            checking[function] = any(
                isinstance(node, (ast.Assert, ast.Raise))
                or (isinstance(node, ast.Call) and may_check(node))
                for node in scope.nodes
            )
        return checking[function]

    def may_check(node: ast.Call) -> bool:
        if isinstance(node.func, (ast.Subscript, ast.Call)):  # a function from a table
            return True
        name = call_name(node).lstrip("_")
        return bool(_check_name(node)) or any(map(checks, functions.get(name, ())))

    for scope in scopes:
        if scope.function in tests and not checks(scope):
            message = f"{scope.function.name} has no assertion: it passes whatever happens"
            yield Found(start_of(scope.function), "OB101", message)


# --- OB106


def _assertions_that_are_always_true(scope: Scope) -> Iterator[Found]:
    """Yield assertions of a constant, a tuple, a whole run, or of a value with itself."""
    runs = _names_of_runs(scope)
    for node in scope.own:
        if not isinstance(node, ast.Assert):
            continue
        test = node.test
        reason = ""
        if isinstance(test, ast.Tuple) and test.elts:
            reason = "a tuple is always true: write `assert condition, message`"
        elif _is_true(test):
            reason = f"`assert {ast.unparse(test)}` is always true"
        elif _is_run(test, runs):
            reason = "a run is always true: assert on its output, tools or results"
        elif isinstance(test, ast.Compare) and len(test.ops) == 1:
            left, operator, right = test.left, test.ops[0], test.comparators[0]
            is_none = isinstance(right, ast.Constant) and right.value is None
            if isinstance(operator, (ast.IsNot, ast.NotEq)) and is_none:
                if _is_run(left, runs):
                    reason = "a run is never None: assert on its output, tools or results"
            elif isinstance(operator, (ast.Eq, ast.Is, ast.LtE, ast.GtE)) and _is_same(left, right):
                reason = f"`{ast.unparse(left)}` is compared with itself"
        if reason:
            yield Found(start_of(node), "OB106", reason)


def _is_true(node: ast.expr) -> bool:
    """Return whether a literal is true; a text, a number, a display that is not empty."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, (ast.List, ast.Set)):
        return any(not isinstance(one, ast.Starred) for one in node.elts)
    if isinstance(node, ast.Dict):
        return any(key is not None for key in node.keys)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        return any(map(_is_true, node.values))
    return isinstance(node, (ast.Lambda, ast.GeneratorExp))


def _is_same(left: ast.expr, right: ast.expr) -> bool:
    """Return whether both sides read the same name, attribute or item; a call may differ."""
    plain = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.expr_context)
    nodes = ast.walk(left)
    return all(isinstance(node, plain) for node in nodes) and ast.dump(left) == ast.dump(right)


def _names_of_runs(scope: Scope) -> set[str]:
    """Return the names that have nothing but runs of rehearsals in this function."""
    runs: set[str] = set()
    others: set[str] = set()
    for node in scope.own:
        for name, value in _assigned(node):
            (runs if _is_rehearsed(value) else others).add(name)
    return runs - others


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that a statement assigns, each with its value if that is known."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    yield name.id, node.value if name is target else None
    elif isinstance(node, (ast.NamedExpr, ast.AnnAssign)) and isinstance(node.target, ast.Name):
        yield node.target.id, node.value


def _is_run(node: ast.expr, runs: set[str]) -> bool:
    return (isinstance(node, ast.Name) and node.id in runs) or _is_rehearsed(node)


def _is_rehearsed(node: ast.expr | None) -> bool:
    """Return whether this is a run of a script: `….run(when(…))`."""
    if isinstance(node, ast.Await):
        node = node.value
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "run"
        and any(call_name(a) in {"when", "role"} for a in node.args if isinstance(a, ast.Call))
    )


# --- OB107


def _assertions_that_never_run(scope: Scope) -> Iterator[Found]:
    """Yield assertions behind an end, under a false condition, or in unused functions."""
    for block in _blocks(scope):
        ended = ""
        for statement in block:
            if ended:
                yield from _never_runs(statement, f"it is after `{ended}`")
            elif isinstance(statement, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
                ended = type(statement).__name__.lower()
            elif isinstance(statement, (ast.If, ast.While)) and _is_false(statement.test):
                for one in statement.body:
                    yield from _never_runs(one, "its condition is never true")
            elif isinstance(statement, (ast.For, ast.AsyncFor)) and _is_false(statement.iter):
                for one in statement.body:
                    yield from _never_runs(one, "there is nothing to loop over")
    used = {
        node.id
        for node in scope.nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    for inner in scope.own:
        if isinstance(inner, Function) and not inner.decorator_list and inner.name not in used:
            for statement in inner.body:
                yield from _never_runs(statement, f"{inner.name}() is never called")


def _is_false(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return not node.value
    return isinstance(node, (ast.List, ast.Tuple)) and not node.elts


def _never_runs(statement: ast.stmt, reason: str) -> Iterator[Found]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Assert):
            yield Found(start_of(node), "OB107", f"this assertion never runs: {reason}")


def _blocks(scope: Scope) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements of a function, without those of the functions in it."""
    yield scope.function.body
    for node in scope.own:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for field in ("body", "orelse", "finalbody"):
                block = getattr(node, field, None)
                if isinstance(block, list):
                    yield block  # pyright: ignore[reportUnknownVariableType] - of statements


# --- OB108


def _swallowed_assertions(scope: Scope) -> Iterator[Found]:
    """Yield assertions, and runs of scripts, whose failure is caught and dropped."""
    for node in scope.own:
        if isinstance(node, (ast.Try, ast.TryStar)):
            handlers = [one for one in node.handlers if _drops_failures(one)]
            if handlers:
                line = f"`except {ast.unparse(kind) if (kind := handlers[0].type) else ''}".strip()
                yield from _dropped(node.body, f"{line}:` drops its failure")
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                call = item.context_expr
                if (
                    isinstance(call, ast.Call)
                    and call_name(call) == "suppress"
                    and any(map(_is_failure, call.args))
                ):
                    yield from _dropped(node.body, "`suppress` drops its failure")


def _drops_failures(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler catches failed assertions, and does nothing with them."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if not any(kind is None or _is_failure(kind) for kind in kinds):
        return False
    for statement in handler.body:
        for node in ast.walk(statement):
            noted = (ast.Assign, ast.AugAssign, ast.NamedExpr)  # and perhaps asserted later
            if isinstance(node, (ast.Raise, ast.Assert, *noted)) or _check_name(node):
                return False
            if isinstance(node, ast.Name) and node.id == handler.name:
                return False
    return True


def _is_failure(node: ast.expr) -> bool:
    return call_name(node) in {"AssertionError", *ANY_EXCEPTION}


def _dropped(body: Iterable[ast.stmt], reason: str) -> Iterator[Found]:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Assert):
                yield Found(start_of(node), "OB108", f"this assertion cannot fail: {reason}")
            elif isinstance(node, ast.expr) and _is_rehearsed(node):
                yield Found(start_of(node), "OB108", f"this run cannot fail: {reason}")


# --- OB109, OB110 and OB111


def _script_compared_with_itself(scope: Scope) -> Iterator[Found]:
    """Yield the first assertion of a test that reads `scripted` in all of them."""
    assertions = [node for node in scope.nodes if isinstance(node, ast.Assert)]
    if not assertions or any(_check_name(node) not in {"", "run"} for node in scope.nodes):
        return
    if all(_reads_script(node.test) for node in assertions):
        message = "`scripted` is the script itself: assert on what the agent did"
        yield Found(start_of(assertions[0]), "OB109", message)


def _reads_script(node: ast.expr) -> bool:
    return any(isinstance(one, ast.Attribute) and one.attr == "scripted" for one in ast.walk(node))


def _any_exception(scope: Scope) -> Iterator[Found]:
    """Yield `pytest.raises(Exception)`: a misspelt name satisfies it, if the error is not read."""
    for node in scope.own:
        for item in node.items if isinstance(node, (ast.With, ast.AsyncWith)) else ():
            raises = item.context_expr
            if (
                isinstance(raises, ast.Call)
                and call_name(raises) == "raises"
                and [call_name(kind) in ANY_EXCEPTION for kind in raises.args] == [True]
                and not raises.keywords
                and item.optional_vars is None
            ):
                name = call_name(raises.args[0])
                message = f"any error satisfies `raises({name})`: name its class, or add `match=`"
                yield Found(start_of(raises), "OB110", message)


def _run_that_only_talks(scope: Scope) -> Iterator[Found]:
    """Yield a test that only runs scripts in which the model talks."""
    test = scope.function
    checks = [
        node
        for node in scope.nodes
        if isinstance(node, (ast.Assert, ast.Raise)) or _check_name(node)
    ]
    if not checks or not all(isinstance(node, ast.Call) and _only_talks(node) for node in checks):
        return
    message = f"{test.name} checks nothing but that the agent asks: the model only talks"
    yield Found(start_of(test), "OB111", message)


def _only_talks(run: ast.Call) -> bool:
    if not _is_rehearsed(run) or run.keywords:
        return False
    for turn in run.args:
        if not isinstance(turn, ast.Call) or call_name(turn) != "when" or len(turn.args) != 2:  # noqa: PLR2004 - the prompt and the actions
            return False
        actions = turn.args[1]
        if not isinstance(actions, ast.List):
            return False
        if any(call_name(action) not in {"say", "think"} for action in actions.elts):
            return False
    return True
