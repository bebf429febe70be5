"""Loads the extensions of an installed distribution, in the sandbox's own Python.

    python -m offbook.sandbox.load_entry_points list DISTRIBUTION REPORT
    python -m offbook.sandbox.load_entry_points library DISTRIBUTION REPORT
    python -m offbook.sandbox.load_entry_points smoke DISTRIBUTION JOB

`list` writes what was loaded as JSON, `library` the modules of a distribution without extensions.
`smoke` reads a pickled job, runs its script in a session
with the extensions, and writes the trace that the job names.
"""

from __future__ import annotations

import ast
import asyncio
import json
import pickle
import re
import sys
import traceback
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackagePath, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbook.errors import OffbookError
from offbook.runs.api import session
from offbook.sources.loading import read_script
from offbook.subjects.session.extensions import ENTRY_POINT_GROUP, install_extension
from offbook.subjects.session.tools import Hooks, ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Import names of distributions that have another name. Only those of extras matter here: what is
# installed is found by its import name.
IMPORT_NAMES = {
    "attrs": "attr",
    "beautifulsoup4": "bs4",
    "opencv-python": "cv2",
    "pillow": "PIL",
    "protobuf": "google",
    "pyjwt": "jwt",
    "pyserial": "serial",
    "python-dateutil": "dateutil",
    "python-dotenv": "dotenv",
    "pyyaml": "yaml",
    "pyzmq": "zmq",
    "scikit-learn": "sklearn",
    "websocket-client": "websocket",
}
# An `if` with one of these decides whether something can be imported.
CONDITIONS = {"TYPE_CHECKING", "find_spec", "os", "platform", "sys"}


def find_entry_points(name: str) -> dict[str, str]:
    """Return the entry points of a distribution in our group: their names and targets."""
    found = distribution(name).entry_points.select(group=ENTRY_POINT_GROUP)
    return {point.name: point.value for point in found}


async def load_all(name: str) -> dict[str, Any]:
    """Load each extension alone, so that every error is found, then all in one session."""
    points = find_entry_points(name)
    errors: list[dict[str, Any]] = []
    tools: set[str] = set()
    for point, target in points.items():
        registry = ToolRegistry({}, mock_extensions=False)
        try:
            await install_extension(point, registry, Hooks(), {})
            tools |= registry.names()
        except Exception as error:  # noqa: BLE001 - each is reported
            errors.append(describe(error, point, target))
    loaded = [point for point in points if point not in {error["name"] for error in errors}]
    report: dict[str, Any] = {"points": points, "errors": errors, "loaded": loaded}
    if not errors and loaded:
        try:
            async with (
                session(extensions=loaded, auto_assert=False) as rehearsal,
                session(auto_assert=False) as bare,
            ):
                # Hooks of the start of a session may register more.
                tools |= rehearsal.session.tools() - bare.session.tools()
                report["commands"] = sorted(rehearsal.session.commands())
        except Exception as error:  # noqa: BLE001 - as above
            errors.append(describe(error, loaded[-1], points[loaded[-1]]))
    starts = [target.partition(":")[0] for target in points.values()]
    if not errors and (missing := find_missing_imports(name, starts)):
        report["missing_imports"] = missing
    report["tools"] = sorted(tools)
    return report


def load_library(name: str) -> dict[str, Any]:
    """Import each module of a distribution that has no extensions."""
    modules, errors = list_modules(name), list[dict[str, Any]]()
    for module in modules:
        try:
            import_module(module)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - each is reported
            errors.append(describe(error, module, module))
    report: dict[str, Any] = {"points": {}, "errors": errors, "loaded": [], "tools": []}
    stubs = sorted({file.parts[0] for file in _list_files(name) if file.suffix == ".pyi"})
    # Stubs have nothing to import, and a collection of requirements has no files.
    # What a library imports in a function is its own choice: an extension has to declare it.
    report["modules"] = modules or stubs or list(distribution(name).requires or ())
    return report


def list_modules(name: str) -> list[str]:
    """Return the outermost modules of a distribution; those of namespace packages are inside."""
    found = {module: file for file in _list_files(name) if (module := _module_of(file))}
    tops = {
        module
        for module in found
        if not any(module.startswith(f"{other}.") for other in found)
        and not any(map(_is_test, module.split(".")))
    }
    return sorted(tops)


def _list_files(name: str) -> list[PackagePath]:
    return [file for file in distribution(name).files or () if ".." not in file.parts]


def _module_of(file: PackagePath) -> str:
    """Return the name of the module in a file, or "" if there is none in it."""
    stem = file.name.partition(".")[0]
    is_code = file.suffix == ".py" or file.name.endswith(tuple(EXTENSION_SUFFIXES))
    parts = [*file.parts[:-1], *([] if stem == "__init__" else [stem])]
    valid = all(part.isidentifier() for part in parts)
    # A file in a folder without an `__init__.py` is data, unless the folder is a namespace package.
    return ".".join(parts) if is_code and valid else ""


# --- imports that are not installed


def find_missing_imports(name: str, starts: Iterable[str]) -> dict[str, str]:
    """Return the modules that the code of a distribution imports and nothing installed has.

    The source is read, so that an import inside of a function counts too. Only modules that the
    first ones import count: a distribution may have others, for programs that are installed. An
    import that may fail, for type checkers, in tests, or of an extra does not count.
    """
    found = distribution(name)
    optional = {_import_name(text) for text in found.requires or () if "extra ==" in text}
    files = {module: file for file in found.files or () if (module := _module_of(file))}
    waiting = [".".join(s.split(".")[:n]) for s in starts for n in range(1, s.count(".") + 2)]
    seen: set[str] = set()
    missing: dict[str, str] = {}
    while waiting:
        own = waiting.pop()
        file = files.get(own)
        if own in seen or file is None or file.suffix != ".py" or any(map(_is_test, file.parts)):
            continue
        seen.add(own)
        try:
            tree = ast.parse(Path(str(found.locate_file(file))).read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue  # code of another version of Python
        package = own if file.name == "__init__.py" else own.rpartition(".")[0]
        for module, line in _list_imports(tree.body, package):
            waiting.append(module)
            top = module.partition(".")[0]
            if top not in missing and top not in optional and not _is_available(top):
                missing[top] = f"{file}:{line}"
    return dict(sorted(missing.items()))


def _is_test(part: str) -> bool:
    return part in {"tests", "test", "testing", "conftest.py"} or part.startswith("test_")


def _import_name(requirement: str) -> str:
    match = re.match(r"[\w.-]*", requirement)
    name = re.sub(r"[-_.]+", "-", match[0] if match else "").lower()
    return IMPORT_NAMES.get(name, name.replace("-", "_"))


def _is_available(module: str) -> bool:
    if module in sys.stdlib_module_names:
        return True
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return True  # it is loaded already, or replaces itself


def _list_imports(body: list[ast.stmt], package: str) -> Iterator[tuple[str, int]]:
    """Yield the imports that are not expected to fail, with their lines, as absolute names."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: 1 - node.level or None] if node.level else []
            module = ".".join([*parts, *filter(None, [node.module])])
            if module:
                yield module, node.lineno
                # A name may be a module as well.
                yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Try) and node.handlers:
            yield from _list_imports([*node.orelse, *node.finalbody], package)
        elif isinstance(node, ast.With) and _suppresses(node):
            continue
        elif isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return)):
            yield from _list_import_calls(node)
        elif not (isinstance(node, ast.If) and _is_condition(node.test)):
            for part in (node, *getattr(node, "cases", ())):
                for field in ("body", "orelse", "finalbody"):
                    yield from _list_imports(getattr(part, field, None) or [], package)


def _list_import_calls(node: ast.stmt) -> Iterator[tuple[str, int]]:
    """Yield the modules of `import_module("x")` and `__import__("x")`."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant):
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            module = call.args[0].value
            if name in {"import_module", "__import__"} and isinstance(module, str):
                yield from [(module, call.lineno)] if module[:1] != "." else []


def _suppresses(node: ast.With) -> bool:
    words = {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(node.items[0].context_expr)}
    return bool(words & {"suppress", "raises"})


def _is_condition(test: ast.expr) -> bool:
    words = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(test)}
    return bool(words & CONDITIONS) or any(w.lower().startswith(("has_", "have_")) for w in words)


def describe(error: BaseException, point: str, target: str) -> dict[str, Any]:
    """Return an error with its cause, for a process that does not import Offbook."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    lines = traceback.format_exception(cause)
    return {
        "name": point,
        "target": target,
        "type": type(cause).__name__,
        "message": cause.what if isinstance(cause, OffbookError) else str(cause),
        "module": getattr(cause, "name", None) if isinstance(cause, ImportError) else None,
        "file": str(getattr(cause, "filename", None) or ""),
        "output": "".join(lines)[-8000:],
    }


def run_smoke(name: str, job: dict[str, Any]) -> None:
    """Run the script of a job with all extensions of the distribution."""
    script = read_script(Path(job["file"])) if job["file"] else job["script"]
    mocks = {"mock_tools": job["mock_tools"], "mock_ui": job["mock_ui"]}
    with session(
        extensions=list(find_entry_points(name)), trace=job["trace"], **mocks
    ) as rehearsal:
        rehearsal.run(*script)


def main(command: str, name: str, path: str) -> int:
    """Do what the command says; the exit code of a failed smoke test is 1."""
    if command in {"list", "library"}:
        points = find_entry_points(name)
        library = command == "library" and not points
        report = load_library(name) if library else asyncio.run(load_all(name))
        Path(path).write_text(json.dumps(report), encoding="utf-8")
        return 0
    try:
        run_smoke(name, pickle.loads(Path(path).read_bytes()))  # noqa: S301 - our own file
    except (OffbookError, AssertionError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
