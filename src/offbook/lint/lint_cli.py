"""The rules of `offbook lint`, on a folder of tests, mock files and playbooks.

Python files are parsed, never imported. A line with `# noqa` or `# noqa: OB101` is not reported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec

from offbook.cli_options import FILE_PATH, echo, json_option, print_json
from offbook.errors import FormatError, OffbookError, counted
from offbook.files import find_own_files, read_text, require_folder, write_atomic
from offbook.lint.empty_tests import (
    Found,
    Position,
    Replacement,
    Scope,
    call_name,
    find_empty_tests,
    scopes_in,
    start_of,
)
from offbook.options import require_some
from offbook.sources.mocks.mock_file import lint_mocks, read_mocks

RULES = {
    "OB101": "test without an assertion",
    "OB102": "assertion of offbook.testing outside of tests",
    "OB103": "`require` in a test",
    "OB104": "`.then` that is never used",
    "OB105": "mocked tool that the script never calls",
    "OB106": "assertion that is always true",
    "OB107": "assertion that never runs",
    "OB108": "assertion whose failure is dropped",
    "OB109": "test that compares the script with itself",
    "OB110": "`pytest.raises` of any exception",
    "OB111": "test whose script only talks, without an assertion",
    "OB201": "mock line that is unreachable",
    "OB202": "mock line that is probably a mistake",
    "OB203": "mock file that no test loads",
    "OB204": "playbook that no test loads",
}
RUFF = {"OB110": ("B017", "PT011")}  # the same rules of ruff, which a line may silence already
NOQA = re.compile(r"#\s*noqa(?::\s*(?P<codes>[A-Z0-9, ]+))?", re.IGNORECASE)


def _end(node: ast.stmt | ast.expr) -> Position:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


class Edit(msgspec.Struct, frozen=True, order=True):
    """A replacement of text: from one byte of a file to another one."""

    start: int
    end: int
    text: str = ""


class LintFinding(msgspec.Struct, frozen=True, order=True):
    """A finding; `fix` is set where it is certain how to fix it."""

    path: str
    line: int
    column: int
    code: str
    message: str
    fix: Edit | None = None

    def __str__(self) -> str:
        mark = " [*]" if self.fix else ""
        return f"{self.path}:{self.line}:{self.column}: {self.code}{mark} {self.message}"


class LintResult(msgspec.Struct, frozen=True):
    """The findings, and the number of files that were read."""

    findings: list[LintFinding]
    files: int


def lint_paths(paths: Iterable[Path]) -> LintResult:
    """Return the findings in files and folders."""
    files = sorted({file for path in paths for file in _find_files(path)})
    require_some(files, "no Python, mock or playbook file found", hint="give a folder of tests")
    findings: list[LintFinding] = []
    sources = {file: read_text(file) for file in files if file.suffix == ".py"}
    # A data file is used if a test, a scenario or a setting names it.
    texts = "\n".join([*sources.values(), *(read_text(f) for f in files if f not in sources)])
    for file, source in sources.items():
        findings += _lint_python(file, source)
    for file in files:
        findings += () if file in sources else _lint_data(file, texts)
    return LintResult(sorted(findings), len(files))


def fix_paths(paths: Iterable[Path]) -> int:
    """Fix what is certain in files and folders; return the number of fixes."""
    paths, fixed = list(paths), 0
    while edits := _select_edits(lint_paths(paths).findings):
        for path, of_file in edits.items():
            content = path.read_bytes()
            for edit in reversed(of_file):
                content = _apply(content, edit)
            write_atomic(path, content)
            fixed += len(of_file)
    return fixed


def _select_edits(findings: Iterable[LintFinding]) -> dict[Path, list[Edit]]:
    """Return the fixes of each file, without those that overlap: they are for the next pass."""
    selected: dict[Path, list[Edit]] = {}
    for path, edit in sorted((Path(f.path), f.fix) for f in findings if f.fix):
        of_file = selected.setdefault(path, [])
        if not of_file or of_file[-1].end <= edit.start:
            of_file.append(edit)
    return selected


def _apply(content: bytes, edit: Edit) -> bytes:
    return content[: edit.start] + edit.text.encode() + content[edit.end :]


def _find_files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for file in find_own_files(require_folder(path, "file or folder"), "*"):
        is_read = file.suffix in {".py", ".jsonl", ".yaml", ".yml"} and file.is_file()
        if is_read and not file.name.startswith("."):
            yield file


# --- Mock files and playbooks


def _lint_data(file: Path, texts: str) -> Iterator[LintFinding]:
    used = file.name in texts or f'"{file.stem}"' in texts or f"'{file.stem}'" in texts
    if file.suffix == ".jsonl":
        try:
            mocks = read_mocks(file)
        except FormatError:
            return  # a trace, or another kind of JSONL
        lines = file.read_bytes().splitlines(keepends=True)
        for finding in lint_mocks(mocks):
            message = f"{finding.kind} mock line: {finding.message}"
            start = sum(map(len, lines[: finding.line - 1]))
            fix = Edit(start, start + len(lines[finding.line - 1]))
            unreachable = finding.kind == "unreachable"
            code = "OB201" if unreachable else "OB202"
            yield LintFinding(
                str(file), finding.line, 1, code, message, fix if unreachable else None
            )
        if mocks.mocks and not used:
            yield LintFinding(str(file), 1, 1, "OB203", "no test loads this mock file")
        return
    if not used and _is_playbook(file):
        yield LintFinding(str(file), 1, 1, "OB204", "no test loads this playbook")


def _is_playbook(file: Path) -> bool:
    from offbook.sources.loading import read_script  # most folders have none

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
    found: list[Found] = []
    scopes = scopes_in(tree)
    if is_test:
        found += find_empty_tests(tree, scopes)
    found += _misplaced_assertions(tree, source, in_tests=is_test or file.name == "conftest.py")
    for scope in scopes:
        found += _unused_then(scope)
        found += _unused_tool_mocks(scope)
    content = file.read_bytes()
    lines = content.splitlines()  # of bytes, as Python does: a text also ends lines at a form feed
    return [
        LintFinding(str(file), line, column + 1, code, message, _to_edit(content, replacement))
        for (line, column), code, message, replacement in found
        if not _is_silenced(lines[line - 1].decode(), code)
    ]


def _to_edit(content: bytes, replacement: Replacement | None) -> Edit | None:
    """Return a fix as an edit, unless it would lose a comment or break the file."""
    if replacement is None:
        return None
    lines = content.splitlines(keepends=True)
    (first, column), (last, end_column), text = replacement
    start = sum(map(len, lines[: first - 1])) + column
    end = sum(map(len, lines[: last - 1])) + end_column
    edit = Edit(start, end, text)
    if b"#" in content[start:end] and "#" not in text:
        return None
    try:
        ast.parse(_apply(content, edit))
    except (SyntaxError, ValueError):  # such as a parenthesis that is part of no node
        return None
    return edit


def _is_silenced(line: str, code: str) -> bool:
    found = NOQA.search(line)
    if found is None or found["codes"] is None:
        return found is not None
    codes = re.split(r"[,\s]+", found["codes"].upper())
    return any(one in codes for one in (code, *RUFF.get(code, ())))


def _misplaced_assertions(tree: ast.Module, source: str, *, in_tests: bool) -> Iterator[Found]:
    """Yield assertions of tests in other code, and `require` in tests."""
    if "testing" not in source:  # few files import it, and to visit all nodes takes long
        return
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "offbook.testing"
        for alias in node.names
    }
    statements = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        name = imported.get(node.func.id, "")
        if in_tests and name == "require":
            message = "`require` is for code under test: write `assert` in a test"
            fix = None
            if node in statements and len(node.args) in {1, 2} and not node.keywords:
                parts = [ast.get_source_segment(source, argument) or "" for argument in node.args]
                fix = start_of(node), _end(node), f"assert {', '.join(parts)}"
            yield Found(start_of(node), "OB103", message, fix)
        elif not in_tests and name.startswith("assert_"):
            message = f"`{name}` is for tests: write `require(condition, message)` here"
            yield Found(start_of(node), "OB102", message)


def _unused_then(scope: Scope) -> Iterator[Found]:
    """Yield `call(…).then(…)` that is part of no script."""
    loaded = {
        node.id
        for node in scope.nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    for node in scope.nodes:
        value = getattr(node, "value", None)
        if not isinstance(value, ast.Call) or not _is_then(value):
            continue
        if isinstance(node, ast.Expr):
            message = "the result of `.then` is dropped: put the call into a script"
            yield Found(start_of(value), "OB104", message)
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if len(names) == len(node.targets) and not loaded.intersection(names):
                message = f"`{names[0]}` is never used: `.then` is part of no script"
                yield Found(start_of(value), "OB104", message)


def _is_then(node: ast.Call) -> bool:
    function = node.func
    while isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
        if function.attr != "then":
            return False
        if call_name(function.value) == "call":
            return True
        function = function.value.func
    return False


def _unused_tool_mocks(scope: Scope) -> Iterator[Found]:
    """Yield the tools in `mock_tools` that no call of the script in the same function names."""
    calls = [n for n in scope.nodes if isinstance(n, ast.Call)]
    scripted = [node for node in calls if call_name(node) == "call" and node.args]
    names = {n.args[0].value for n in scripted if isinstance(n.args[0], ast.Constant)}
    # A script that is built elsewhere, or a name that is computed, may call any tool.
    literal = all(isinstance(node.args[0], ast.Constant) for node in scripted)
    runs = [node for node in calls if call_name(node) == "run"]
    whole = runs and all(
        isinstance(arg, ast.Call) and call_name(arg) == "when" for run in runs for arg in run.args
    )
    if not literal or not whole:
        return
    for node in calls:
        for keyword in node.keywords:
            if keyword.arg != "mock_tools" or not isinstance(keyword.value, ast.Dict):
                continue
            for index, key in enumerate(keyword.value.keys):
                if isinstance(key, ast.Constant) and key.value not in names:
                    message = f"the script never calls the mocked tool {key.value!r}"
                    fix = _remove_entry(keyword.value, index)
                    yield Found(start_of(key), "OB105", message, fix)


def _remove_entry(node: ast.Dict, index: int) -> Replacement | None:
    """Return the fix that removes an entry of a dict with its comma."""
    keys = [key for key in node.keys if key is not None]
    if len(keys) != len(node.keys):  # a `**`: no node begins at it
        return None
    if len(keys) == 1:
        return start_of(node), _end(node), "{}"
    if index + 1 < len(keys):
        return start_of(keys[index]), start_of(keys[index + 1]), ""
    return _end(node.values[index - 1]), _end(node.values[index]), ""


# ---------------------------------------------------------------------------------- cli
# The command `offbook lint`.

EXAMPLE = """\b
Example:
  offbook lint tests/
  offbook lint tests/ --fix

A line with `# noqa: OB101` is not reported.

\b
Exit codes:
  0  nothing was found
  1  something was found, and not fixed
  2  wrong usage, or nothing to read
"""


@click.command(epilog=EXAMPLE)
@click.argument("paths", type=FILE_PATH, nargs=-1, required=True, metavar="PATH...")
@click.option("--fix", is_flag=True, help="Fix what has one certain fix.")
@json_option
def lint(paths: tuple[Path, ...], *, fix: bool, as_json: bool) -> int:
    """Find tests that prove nothing, and mocks and playbooks that nothing uses."""
    fixed = fix_paths(paths) if fix else 0
    result = lint_paths(paths)
    if as_json:
        print_json({**msgspec.to_builtins(result), "fixed": fixed})
        return int(bool(result.findings))
    for finding in result.findings:
        echo(str(finding))
    if fixed:
        echo(f"Fixed {counted(fixed, 'finding')}.")
    count, fixable = len(result.findings), sum(f.fix is not None for f in result.findings)
    if not count:
        echo(f"Nothing found in {counted(result.files, 'file')}.")
        return 0
    echo(f"Found {count} in {counted(result.files, 'file')}.")
    if fixable:
        echo(f"[*] {fixable} fixable with `--fix`.")
    return 1
