"""A test of a pattern as data: a list of actions and assertions in a YAML or JSON file.

    pattern: counter.py
    state: {value: 0}
    steps:
      - assert: value == 0
      - send: increment
      - assert: value == 1 and double == 2
      - set: value
        to: 10
      - settle: true
      - assert: double == 20

An action is followed by `idle`, so an assertion sees its consequences. An expression reads the
outputs and the inputs of the pattern by name, and its value is True or False. If it is false, the
values of its operands are shown.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import OffbookError, UsageError, did_you_mean, require_known
from offbook.files import find_line, read_document, read_text
from offbook.options import decode, require_list, require_mapping
from offbook.patterns.definition import load_pattern
from offbook.patterns.graph import Computed
from offbook.patterns.harness import create_harness
from offbook.patterns.runtime import Cell, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from offbook.patterns.definition import LoadedPattern, Names, Pattern
    from offbook.patterns.harness import PatternHarness

__tracebackhide__ = True  # pytest shows the line of the test or the pattern
KINDS = ("send", "set", "push", "assert", "settle")
FIELDS: dict[str, tuple[str, ...]] = {
    "send": ("event",),
    "set": ("to",),
    "push": ("item",),
    "assert": (),
    "settle": (),
}
OPTIONS = ("expect_errors", "expect_non_idempotent", "expect_warnings", "validate_schemas")
FUNCTIONS: dict[str, Any] = {
    function.__name__: function
    for function in (abs, all, any, bool, dict, len, list, max, min, round, set, sorted, str, sum)
}


class StepResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one step; `status` is `passed`, `failed` or `skipped`."""

    name: str
    status: str
    message: str = ""
    operands: dict[str, Any] = {}


class StepsResult(msgspec.Struct, frozen=True):
    """The results of all steps."""

    results: list[StepResult]

    @property
    def passed(self) -> bool:
        """Return whether an assertion was checked and none failed."""
        checked = [r for r in self.results if r.status != "skipped" and r.name.startswith("assert")]
        return bool(checked) and all(result.status != "failed" for result in self.results)


class StepsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a file of steps: the options are those of `create_harness`."""

    pattern: str
    steps: list[Any]
    state: dict[str, Any] | None = None
    expect_errors: int | bool = False
    expect_non_idempotent: bool = False
    expect_warnings: int | bool = False
    validate_schemas: bool = False


def run_steps_file(path: Path) -> StepsResult:
    """Run the steps of a file."""
    file = read_document(path, StepsFile)

    def locate(number: int) -> str:
        at = f"$.steps[{number - 1}]" if number else "$.steps"
        line = find_line(read_text(path), at)
        place = str(path) if line is None else f"{path}:{line}"
        return f"{place}: {name_step(number)}" if number else place

    return run_steps(
        load_pattern(path.parent / file.pattern),
        file.steps,
        file.state,
        locate=locate,
        **{name: getattr(file, name) for name in OPTIONS},
    )


def run_steps(
    pattern: Pattern,
    steps: Sequence[Mapping[str, Any]],
    state: Mapping[str, Any] | None = None,
    *,
    locate: Callable[[int], str] | None = None,
    **options: Any,
) -> StepsResult:
    """Run steps against a new instance of a pattern.

    `locate` returns where the step of a number is written, for messages; 0 is the whole list.
    """
    locate = locate or name_step
    harness = create_harness(**options)
    try:
        loaded = harness.load(pattern, {**require_mapping(state, "state")})
        validate_steps(steps, loaded, locate)
        harness.idle()
        player = StepPlayer(loaded, harness, locate)
        for step in steps:
            if player.settles(step):
                harness.settled()
            player.perform(step)
    except BaseException:
        harness.dispose(check=False)
        raise
    results = player.results
    # The harness fails at its end for errors that no step has checked.
    try:
        harness.dispose()
    except OffbookError as error:
        results.append(StepResult("nothing went wrong unnoticed", "failed", str(error)))
    return StepsResult(results)


def name_step(number: int) -> str:
    """Return the place of a step that is not in a file."""
    return f"step {number}" if number else ""


class StepPlayer:
    """Performs steps on a loaded pattern, one after another, and keeps their results."""

    def __init__(
        self,
        loaded: LoadedPattern,
        harness: PatternHarness,
        locate: Callable[[int], str] = name_step,
    ) -> None:
        self._loaded = loaded
        self._harness = harness
        self._locate = locate
        self._last_action = ""
        self.results: list[StepResult] = []

    @staticmethod
    def settles(step: Mapping[str, Any]) -> bool:
        """Return whether to wait before a step. The caller waits: it knows if it has a loop."""
        return "settle" in step and not step.get("skip")

    def perform(self, step: Mapping[str, Any]) -> StepResult:
        """Perform a step that was validated."""
        kind = next(kind for kind in KINDS if kind in step)
        name = f"{kind} {step[kind]}" if kind != "settle" else "settle"
        if kind == "assert" and self._last_action:
            name += f" (after {self._last_action})"
        result = StepResult(name, "passed")
        number = len(self.results) + 1
        runtime = self._harness.runtime
        actor, runtime.actor = runtime.actor, name_step(number)  # the author of its writes
        try:
            if step.get("skip"):
                result = StepResult(name, "skipped")
            elif kind == "assert":
                holds, operands = evaluate(str(step[kind]), self._loaded)
                if not holds:
                    shown = ", ".join(f"{text} is {value!r}" for text, value in operands.items())
                    result = StepResult(name, "failed", shown or "false", operands)
            else:
                self._act(kind, step)
                self._last_action = name
        except OffbookError as error:
            where = self._locate(number)
            raise UsageError(error.what, where=where, hint=error.hint) from error
        finally:
            runtime.actor = actor
        self.results.append(result)
        return result

    def _act(self, kind: str, step: Mapping[str, Any]) -> None:
        target = str(step[kind])
        if kind == "settle":
            return
        if kind == "send":
            stream = find_output(self._loaded.outputs, target)
            if not isinstance(stream, Stream):
                raise UsageError(
                    f"{target!r} is not a stream", hint="send to a handler of the pattern"
                )
            stream.send(step.get("event"))
        else:
            name, *keys = target.split(".")
            cell = self._loaded.cells[name]
            cell = cell.key(*(int(key) if key.isdigit() else key for key in keys))
            cell.set(step["to"]) if kind == "set" else cell.push(step["item"])
        self._harness.idle()


def find_output(outputs: Names, path: str) -> Any:
    """Return an output by its name, or one of a pattern inside: `rows.0.toggle`."""
    found: Any = outputs
    for part in path.split("."):
        if isinstance(found, (Cell, Computed)):
            found = cast("Any", found).get()
        try:
            found = found[int(part) if isinstance(found, list) else part]
        except (IndexError, KeyError, TypeError, ValueError):
            raise UsageError(f"no output {path!r}: {part!r} does not exist") from None
    return found


def validate_steps(
    steps: Sequence[Mapping[str, Any]],
    loaded: LoadedPattern,
    locate: Callable[[int], str] = name_step,
) -> None:
    """Raise an error if a step cannot run or cannot fail, or if none of them asserts anything."""
    names = {*loaded.cells, *loaded.outputs}
    for number, step in enumerate(require_list(steps, "steps"), 1):
        try:
            _validate(step, names)
        except UsageError as error:
            raise UsageError(error.what, where=locate(number), hint=error.hint) from None
    if not any("assert" in step for step in steps):
        raise UsageError(
            "no step asserts anything", where=locate(0), hint="add one: {assert: value == 1}"
        )


def _validate(step: Any, names: Collection[str]) -> None:
    decode(step, dict)
    keys = [str(key) for key in cast("Mapping[Any, Any]", step)]
    kinds = [key for key in keys if key in KINDS]
    if len(kinds) != 1:
        found = ", ".join(keys) or "nothing"
        problem = "two kinds" if kinds else "no kind"
        raise UsageError(f"the step has {problem}: {found}", hint=f"one of {', '.join(KINDS)}")
    known = (kinds[0], *FIELDS[kinds[0]], "skip")
    for key in keys:
        require_known(f"a step with {kinds[0]!r} has no key", key, known)
    if kinds[0] in {"set", "push"} and FIELDS[kinds[0]][0] not in step:
        raise UsageError(f"{kinds[0]!r} needs {FIELDS[kinds[0]][0]!r}")
    if kinds[0] == "assert":
        _validate_expression(str(step["assert"]), names)


def _validate_expression(expression: str, names: Collection[str]) -> None:
    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise UsageError(f"invalid expression: {expression} ({reason})") from None
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    # What is neither of the pattern nor of the expression is reported when it is evaluated.
    own = {*FUNCTIONS, *(node.id for node in found if isinstance(node.ctx, ast.Store))}
    if not any(node.id in names or node.id not in own for node in found):
        raise UsageError(
            f"{expression}: the expression reads nothing of the pattern",
            hint=f"compare one of its names: {', '.join(sorted(names))}",
        )


class _Recorder(ast.NodeTransformer):
    """Wraps the operands of an expression in calls that record their values."""

    def visit(self, node: ast.AST) -> ast.AST:
        # `total > limit and done`: the values of `total`, `limit` and `done` explain a failure.
        if isinstance(node, (ast.BoolOp, ast.UnaryOp, ast.Compare, ast.BinOp)):
            return self.generic_visit(node)
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
            text = ast.Constant(ast.unparse(node))
            return ast.Call(ast.Name("__record__", ast.Load()), [text, node], [])
        return node


def evaluate(expression: str, loaded: LoadedPattern) -> tuple[bool, dict[str, Any]]:
    """Evaluate an expression; return whether it is true, and the operands that were evaluated.

    Only a bool is accepted: a tuple, a list and a generator are true whatever is in them.
    """
    operands: dict[str, Any] = {}

    def record(text: str, value: Any) -> Any:
        operands[text] = value
        return value

    # The names of the pattern hide functions of the same name.
    names = dict(FUNCTIONS)
    names |= {name: loaded.cells[name].get() for name in loaded.cells}
    names |= {name: loaded.result[name] for name in loaded.result}
    tree = ast.parse(expression, mode="eval")
    tree.body = cast("ast.expr", _Recorder().visit(tree.body))
    ast.fix_missing_locations(tree)
    try:
        # The expression is code of the test, as in a Python test.
        holds = eval(  # noqa: S307
            compile(tree, "<assert>", "eval"), {"__builtins__": {}, "__record__": record, **names}
        )
    except NameError as error:
        known = [*loaded.cells, *loaded.outputs]
        missing = str(error.name)
        raise UsageError(
            f"{expression}: unknown name {missing!r}", hint=did_you_mean(missing, known)
        ) from None
    except Exception as error:
        raise UsageError(f"{expression}: {type(error).__name__}: {error}") from error
    if not isinstance(holds, bool):
        raise UsageError(
            f"{expression}: expected True or False, got {type(holds).__name__}",
            hint="write a comparison, or all(…)",
        )
    return holds, operands
