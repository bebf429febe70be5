"""Loads the extensions of an installed distribution, in the sandbox's own Python.

    python -m offbook.sandbox.load_entry_points list DISTRIBUTION REPORT
    python -m offbook.sandbox.load_entry_points smoke DISTRIBUTION JOB

`list` writes what was loaded as JSON. `smoke` reads a pickled job, runs its script in a session
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
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbook.errors import OffbookError
from offbook.runs.api import session
from offbook.sources.loading import read_script
from offbook.subjects.session.extensions import ENTRY_POINT_GROUP, install_extension
from offbook.subjects.session.tools import Hooks, ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    if not errors and (missing := find_missing_imports(name)):
        report["missing_imports"] = missing
    report["tools"] = sorted(tools)
    return report


# --- imports that are not installed


def find_missing_imports(name: str) -> dict[str, str]:
    """Return the modules that the code of a distribution imports and nothing installed has.

    The source is read, so that an import inside of a function counts too. One that may fail, for
    type checkers, in tests, or of an extra of the distribution does not count.
    """
    found = distribution(name)
    optional = {_import_name(text) for text in found.requires or () if "extra ==" in text}
    missing: dict[str, str] = {}
    for file in found.files or ():
        if file.suffix != ".py" or any(_is_test(part) for part in file.parts):
            continue
        path = Path(str(found.locate_file(file)))
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue  # a template, or code of another version of Python
        for module, line in _list_imports(tree.body):
            top = module.partition(".")[0]
            if top not in missing and top not in optional and not _is_available(top):
                missing[top] = f"{file}:{line}"
    return missing


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


def _list_imports(body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Yield the absolute imports that are not expected to fail, with their lines."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module and not node.level:
                yield node.module, node.lineno
        elif isinstance(node, ast.Try) and node.handlers:
            yield from _list_imports([*node.orelse, *node.finalbody])
        elif not (isinstance(node, ast.If) and _is_condition(node.test)):
            for part in (node, *getattr(node, "cases", ())):
                for field in ("body", "orelse", "finalbody"):
                    yield from _list_imports(getattr(part, field, None) or [])


def _is_condition(test: ast.expr) -> bool:
    words = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(test)}
    return bool(words & CONDITIONS) or any(w.lower().startswith(("has_", "have_")) for w in words)


def describe(error: Exception, point: str, target: str) -> dict[str, Any]:
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
    if command == "list":
        Path(path).write_text(json.dumps(asyncio.run(load_all(name))), encoding="utf-8")
        return 0
    try:
        run_smoke(name, pickle.loads(Path(path).read_bytes()))  # noqa: S301 - our own file
    except (OffbookError, AssertionError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
