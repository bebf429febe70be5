"""The rules of `offbook lint`, on a folder of tests, mock files and playbooks.

Python files are parsed, never imported. A line with `# noqa` or `# noqa: OB101` is not reported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from offbook.errors import FormatError, OffbookError, UsageError
from offbook.files import read_text, write_atomic
from offbook.sources.mocks.mock_file import lint_mocks, read_mocks

RULES = {
    "OB101": "test without an assertion",
    "OB102": "assertion of offbook.testing outside of tests",
    "OB103": "`require` in a test",
    "OB104": "`.then` that is never used",
    "OB105": "mocked tool that the script never calls",
    "OB201": "mock line that is unreachable",
    "OB202": "mock line that can hardly be meant so",
    "OB203": "mock file that no test loads",
    "OB204": "playbook that no test loads",
}
# Calls that fail a test by themselves: a run of a rehearsal asserts that the script was followed.
CHECKS = re.compile(
    r"(assert|expect|check|verify|raises|warns|deprecated_call|fail|run|xfail|skip)"
)
SKIPPED_FOLDERS = {"__pycache__", "node_modules", "site-packages"}
NOQA = re.compile(r"#\s*noqa(?::\s*(?P<codes>[A-Z0-9, ]+))?", re.IGNORECASE)
Function = ast.FunctionDef | ast.AsyncFunctionDef


class LintFinding(msgspec.Struct, frozen=True, order=True):
    """A finding; `fix` says how it can be fixed for certain: by removing the line."""

    path: str
    line: int
    column: int
    code: str
    message: str
    fixable: bool = False

    def __str__(self) -> str:
        mark = " [*]" if self.fixable else ""
        return f"{self.path}:{self.line}:{self.column}: {self.code}{mark} {self.message}"


class LintResult(msgspec.Struct, frozen=True):
    """The findings, and the number of files that were read."""

    findings: list[LintFinding]
    files: int


def lint_paths(paths: Iterable[Path]) -> LintResult:
    """Return the findings in files and folders."""
    files = sorted({file for path in paths for file in _find_files(path)})
    if not files:
        raise UsageError("no Python, mock or playbook file found", hint="give a folder of tests")
    findings: list[LintFinding] = []
    sources = {file: read_text(file) for file in files if file.suffix == ".py"}
    # A data file is used if a test, a scenario or a setting names it.
    texts = "\n".join([*sources.values(), *(read_text(f) for f in files if f.suffix != ".py")])
    for file, source in sources.items():
        findings += _lint_python(file, source)
    data_files = [file for file in files if file.suffix != ".py"]
    for file in data_files:
        findings += _lint_data(file, texts)
    return LintResult(sorted(findings), len(files))


def fix_findings(findings: Iterable[LintFinding]) -> int:
    """Remove the lines whose findings are fixable; return their number."""
    by_file: dict[str, set[int]] = {}
    for finding in findings:
        if finding.fixable:
            by_file.setdefault(finding.path, set()).add(finding.line)
    for name, numbers in by_file.items():
        path = Path(name)
        lines = read_text(path).splitlines(keepends=True)
        write_atomic(path, "".join(x for n, x in enumerate(lines, 1) if n not in numbers))
    return sum(map(len, by_file.values()))


def _find_files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise UsageError("no such file or folder", where=str(path))
    for file in path.rglob("*"):
        parts = file.relative_to(path).parts
        hidden = any(part.startswith(".") or part in SKIPPED_FOLDERS for part in parts)
        if not hidden and file.suffix in {".py", ".jsonl", ".yaml", ".yml"} and file.is_file():
            yield file


# --- Mock files and playbooks


def _lint_data(file: Path, texts: str) -> Iterator[LintFinding]:
    used = file.name in texts or f'"{file.stem}"' in texts or f"'{file.stem}'" in texts
    if file.suffix == ".jsonl":
        try:
            mocks = read_mocks(file)
        except FormatError:
            return  # a trace, or another kind of JSONL
        for finding in lint_mocks(mocks):
            unreachable = finding.kind == "unreachable"
            code = "OB201" if unreachable else "OB202"
            message = f"{finding.kind} mock line: {finding.message}"
            yield LintFinding(str(file), finding.line, 1, code, message, unreachable)
        if mocks.mocks and not used:
            yield LintFinding(str(file), 1, 1, "OB203", "no test loads this mock file")
        return
    if not used and _is_playbook(file):
        yield LintFinding(str(file), 1, 1, "OB204", "no test loads this playbook")


def _is_playbook(file: Path) -> bool:
    from offbook.sources.playbook.script_files import read_script  # most folders have none

    try:
        return bool(read_script(file))
    except OffbookError:
        return False


# --- Python


def _lint_python(file: Path, source: str) -> list[LintFinding]:
    try:
        tree = ast.parse(source, str(file))
    except SyntaxError as error:
        raise FormatError(f"invalid Python: {error.msg}", path=file, line=error.lineno) from error
    is_test = file.name.startswith("test_") or file.stem.endswith("_test")
    found: list[tuple[ast.AST, str, str]] = []
    if is_test:
        found += _tests_without_assertion(tree)
    found += _misplaced_assertions(tree, in_tests=is_test or file.name == "conftest.py")
    for function in _functions(tree):
        found += _unused_then(function)
        found += _unused_tool_mocks(function)
    lines = source.splitlines()
    return [
        LintFinding(str(file), line, getattr(node, "col_offset", 0) + 1, code, message)
        for node, code, message in found
        if not _is_silenced(lines[(line := getattr(node, "lineno", 1)) - 1], code)
    ]


def _is_silenced(line: str, code: str) -> bool:
    found = NOQA.search(line)
    return found is not None and (found["codes"] is None or code in found["codes"].upper())


def _functions(tree: ast.AST) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def _call_name(node: ast.Call) -> str:
    """Return the last part of the name of a called function."""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _tests_without_assertion(tree: ast.Module) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield the tests in which nothing can fail but an exception of the code under test."""
    functions = {function.name: function for function in _functions(tree)}
    checking: dict[str, bool] = {}

    def checks(function: Function) -> bool:
        # Functions of the same file may assert for the test; one that calls itself does not.
        if function.name not in checking:
            checking[function.name] = False
            checking[function.name] = any(
                isinstance(node, (ast.Assert, ast.Raise))
                or (
                    isinstance(node, ast.Call)
                    and (
                        CHECKS.match(name := _call_name(node).lstrip("_")) is not None
                        or (name in functions and checks(functions[name]))
                    )
                )
                for node in ast.walk(function)
            )
        return checking[function.name]

    classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name.startswith("Test")]
    for scope in (tree, *classes):
        for node in scope.body:
            if isinstance(node, Function) and node.name.startswith("test") and not checks(node):
                yield node, "OB101", f"{node.name} has no assertion: it passes whatever happens"


def _misplaced_assertions(
    tree: ast.Module, *, in_tests: bool
) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield assertions of tests in other code, and `require` in tests."""
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "offbook.testing"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        name = imported.get(node.func.id, "")
        if in_tests and name == "require":
            yield node, "OB103", "`require` is for code under test: write `assert` in a test"
        elif not in_tests and name.startswith("assert_"):
            yield node, "OB102", f"`{name}` is for tests: write `require(condition, message)` here"


def _unused_then(function: Function) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield `call(…).then(…)` that is part of no script."""
    loaded = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    for node in ast.walk(function):
        value = getattr(node, "value", None)
        if not isinstance(value, ast.Call) or not _is_then(value):
            continue
        if isinstance(node, ast.Expr):
            yield value, "OB104", "the result of `.then` is dropped: put the call into a script"
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if len(names) == len(node.targets) and not loaded.intersection(names):
                yield value, "OB104", f"`{names[0]}` is never used: `.then` is part of no script"


def _is_then(node: ast.Call) -> bool:
    function = node.func
    while isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
        if function.attr != "then":
            return False
        if _call_name(function.value) == "call":
            return True
        function = function.value.func
    return False


def _unused_tool_mocks(function: Function) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield the tools in `mock_tools` that no call of the script in the same function names."""
    calls = [n for n in ast.walk(function) if isinstance(n, ast.Call)]
    scripted = [node for node in calls if _call_name(node) == "call" and node.args]
    names = {n.args[0].value for n in scripted if isinstance(n.args[0], ast.Constant)}
    # A script that is built elsewhere, or a name that is computed, may call any tool.
    literal = all(isinstance(node.args[0], ast.Constant) for node in scripted)
    runs = [node for node in calls if _call_name(node) == "run"]
    whole = runs and all(
        isinstance(arg, ast.Call) and _call_name(arg) == "when" for run in runs for arg in run.args
    )
    if not literal or not whole:
        return
    for node in calls:
        for keyword in node.keywords:
            if keyword.arg != "mock_tools" or not isinstance(keyword.value, ast.Dict):
                continue
            for key in keyword.value.keys:
                if isinstance(key, ast.Constant) and key.value not in names:
                    yield key, "OB105", f"the script never calls the mocked tool {key.value!r}"
