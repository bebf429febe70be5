"""Cases of the kind `live-verify`: an executor does a task, a command verifies the result.

The executor gets a JSON request on standard input and prints a JSON outcome; its last line counts.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, cast

import msgspec

from offbook.errors import DeadlineExceeded, Interrupted, UsageError
from offbook.evals.case_kind import CaseContext, CaseOutcome
from offbook.evals.pack import CommandRef, CommandSpec, EvalCase, LoadedPack
from offbook.evals.run_record import (
    RunRecord,
    RunStage,
    StoredRun,
    judge_problem,
    parse_run_record,
)
from offbook.files import require_folder
from offbook.runs import commands
from offbook.runs.result_identity import IdentityDigest
from offbook.secrets.masks import ending
from offbook.trace.events import Verdict

REQUEST_TYPE = "harn.eval.live_verify.executor_request.v1"
EXECUTOR_SECONDS = 600.0
VERIFY_SECONDS = 120.0
MAX_TAIL = 400


class CommandEnd(msgspec.Struct, frozen=True):
    """The end of a command; `problem` says why it did not exit with 0."""

    stdout: str
    problem: str = ""


def run_case(case: EvalCase, context: CaseContext) -> CaseOutcome:
    """Run the executor and the verification in a copy of the workspace."""
    loaded = context.loaded
    source = require_folder(loaded.base / (case.workspace or "."), "workspace")
    with tempfile.TemporaryDirectory(prefix="offbook-eval-") as name:
        folder = Path(name).resolve() / "workspace"
        # Without our own results: the workspace may be the folder of the pack.
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns(".offbook", ".git"))
        run, verdicts = _run_in(folder, loaded, case)
    return CaseOutcome(verdicts, run=run, spent=True)


def identify_case(case: EvalCase, loaded: LoadedPack, identity: IdentityDigest) -> None:
    """Add the files of the two commands, and the workspace."""
    folder = loaded.base / (case.workspace or ".")
    for reference in (case.executor or loaded.pack.executor, case.verify_command):
        spec = to_command(reference)
        identity.add_command(spec.argv or spec.command.split(), folder)
    identity.add_folder(folder)


def _run_in(folder: Path, loaded: LoadedPack, case: EvalCase) -> tuple[StoredRun, list[Verdict]]:
    before = _find_files(folder)
    request = {
        "_type": REQUEST_TYPE,
        "pack_id": loaded.id,
        "case_id": case.id,
        "task": case.task,
        "workspace": str(folder),
        "project": case.project,
        "metadata": case.metadata,
    }
    executor = case.executor or loaded.pack.executor
    end = run_command(executor, folder, json.dumps(request), EXECUTOR_SECONDS)
    verdicts = [judge_problem("executor", end.problem)]
    outcome = _last_json(end.stdout)
    record = _record(case, outcome, failed=bool(end.problem))
    if not end.problem:
        verify = run_command(case.verify_command, folder, "", VERIFY_SECONDS)
        verdicts.append(judge_problem("verify_command", verify.problem))
    after = _find_files(folder)
    produced = [path for path, stamp in after.items() if stamp != before.get(path)]
    for path in case.expected_output_paths:
        # A folder is produced with a file in it; either may be behind a link.
        places = folder / path, (folder / path).resolve()
        ok = any(file.is_relative_to(place) for file in produced for place in places)
        message = "" if ok else f"expected output {path} was not produced"
        verdicts.append(judge_problem(f"output {path}", message))
    texts = [path.read_text("utf-8", "replace") for path in produced]
    for snippet in case.required_output_snippets:
        ok = any(snippet in text for text in texts)
        message = "" if ok else f"no produced file contains {snippet!r}"
        verdicts.append(judge_problem("output snippet", message))
    counts = Counter(tool.tool_name for tool in record.record.tool_recordings)
    for tool, budget in case.tool_budgets.items():
        name = f"budget {tool}"
        if "tool_recordings" not in record.raw:
            message = f"no data: the executor did not report its tools, and {tool} has a budget"
            verdicts.append(Verdict(name, "no_data", message))
        else:
            message = f"{tool} was called {counts[tool]} times, budget {budget}"
            verdicts.append(judge_problem(name, message if counts[tool] > budget else ""))
    return record, verdicts


def _find_files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return the files of a folder, each with its time of change and its size."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: ((status := path.stat()).st_mtime_ns, status.st_size) for path in files}


def _record(case: EvalCase, outcome: dict[str, Any] | None, *, failed: bool) -> StoredRun:
    status = "failed" if failed else "completed"
    if outcome is not None:
        value = outcome.get("run_record", outcome)
        if isinstance(value, dict) and "status" in value:
            return parse_run_record(value, case.id)
    stage = RunStage(node_id="executor", status=status)
    record = RunRecord(id=case.id, status=status, stages=[stage], output=outcome)
    raw = msgspec.to_builtins(record)
    del raw["tool_recordings"]  # they are not known
    return StoredRun(record, raw, case.id)


def _last_json(output: str) -> dict[str, Any] | None:
    for text in (output, *reversed(output.split("\n"))):
        try:
            value = json.loads(text)
        except ValueError:
            continue
        return cast("dict[str, Any]", value) if isinstance(value, dict) else None
    return None


def run_command(
    reference: CommandRef | None, folder: Path, stdin: str, seconds: float
) -> CommandEnd:
    """Run a command with a deadline; the whole group of its processes ends with it."""
    spec = to_command(reference)
    words = list(spec.argv) or ["/bin/sh", "-c", spec.command]
    deadline = spec.timeout_seconds or seconds
    try:
        result = commands.run_command(
            None,
            words,
            cwd=folder / spec.cwd,
            environment={**os.environ, **spec.env},
            stdin=stdin.encode(),
            deadline=deadline,
            max_output=sys.maxsize,
            echo=False,
        )
    except UsageError as error:
        return CommandEnd("", error.what)
    if isinstance(result.failure, Interrupted):
        raise result.failure
    if isinstance(result.failure, DeadlineExceeded):
        return CommandEnd("", f"{words[0]} did not end within {deadline:g} s")
    if result.failure is not None:
        tail = ending(result.errors.strip() or result.output.strip(), MAX_TAIL)
        return CommandEnd(result.output, f"{words[0]} exited with {result.exit_code}: {tail}")
    return CommandEnd(result.output)


def to_command(reference: CommandRef | None) -> CommandSpec:
    """Return the command of a reference: a text is for the shell."""
    if isinstance(reference, str):
        return CommandSpec(command=reference)
    if isinstance(reference, list):
        return CommandSpec(argv=tuple(reference))
    if reference is None or not (reference.argv or reference.command):
        raise UsageError("the command is empty", hint='argv = ["…"]')
    return reference
