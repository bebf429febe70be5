"""Loads the extensions of an installed distribution, in the sandbox's own Python.

    python -m offbook.sandbox.load_entry_points list DISTRIBUTION REPORT
    python -m offbook.sandbox.load_entry_points smoke DISTRIBUTION JOB

`list` writes what was loaded as JSON. `smoke` reads a pickled job, runs its script in a session
with the extensions, and writes the trace that the job names.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import sys
import traceback
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from offbook.errors import OffbookError
from offbook.runs.api import session
from offbook.sources.loading import read_script
from offbook.subjects.session.extensions import ENTRY_POINT_GROUP, install_extension
from offbook.subjects.session.tools import Hooks, ToolRegistry


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
    report["tools"] = sorted(tools)
    return report


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
