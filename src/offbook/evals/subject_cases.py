"""Cases that run a subject now: with a playbook, a cassette, the real model, or no model at all.

Each subject is imported in a separate process, and each trial runs in a fork of that: no trial
sees what another one has changed, for any number of workers.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import re
import sys
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from offbook.determinism.environment import set_environment
from offbook.determinism.run_context import live_listener
from offbook.errors import ModelError, OffbookError, UsageError
from offbook.evals.case_kind import CaseContext, CaseOutcome
from offbook.evals.pack import EvalCase, LoadedPack
from offbook.evals.run_directory import PACK_SHIFT
from offbook.evals.run_record import RecordUsage, StoredRun, make_record, record_from_trace
from offbook.files import (
    find_attribute,
    make_temp_folder,
    remove_temp_folder,
    require_file,
    require_folder,
    run_source,
)
from offbook.options import require_function
from offbook.runs.result_identity import (
    REAL_MODEL,
    IdentityDigest,
    UsedFiles,
    find_module_file,
    watch_used_files,
)
from offbook.secrets import hide_lines, known_secret_bytes
from offbook.trace.correlation import new_correlation
from offbook.trace.events import RUN_END, RUN_START, Event, Verdict, trace_header
from offbook.trace.recorder import PRIVATE_MODE, to_json_value

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_encoder = msgspec.json.Encoder()


class LoadedSubject(NamedTuple):
    """The subject of a case, and the files that were used to import it."""

    subject: Any
    used: UsedFiles


# Each is imported once for all cases of a pack in a worker.
_subjects: dict[object, LoadedSubject] = {}


def run_case(case: EvalCase, context: CaseContext) -> CaseOutcome:
    """Run the subject of a case and return its record and trace."""
    if case.live and not context.options.live:
        raise UsageError("the case needs a real model", hint="allow it with --live")
    folder = _folder(context.options.traces)
    name = _UNSAFE.sub("_", case.id)[:80]
    if name != case.id or context.number >> PACK_SHIFT:  # another case may have the same one
        name += f"-{context.number:x}"
    trace = folder / f"{name}-{context.trial}.jsonl"
    subject: Any = case.subject
    used = None
    if isinstance(subject, str):
        if case.env:
            context.cleanup.enter_context(set_environment(case.env))
        subject, imported = load_subject(context.loaded, case)
        if context.options.watch:
            used = context.cleanup.enter_context(watch_used_files(imported))
    if isinstance(case.subject, str) and not (case.playbook or case.cassette or case.live):
        outcome = _call_function(case, subject, trace)
    else:
        outcome = _rehearse(context, case, subject, trace)
    return msgspec.structs.replace(outcome, used=used)


def identify_case(case: EvalCase, loaded: LoadedPack, identity: IdentityDigest) -> None:
    """Add the code of the subject; what it imports and reads is known when it has run."""
    if case.live:
        identity.add_unknown(REAL_MODEL)
    if case.shared:
        identity.add_unknown("it shares its subject with other trials")
    if isinstance(case.subject, list):
        identity.add_command(_find_words(case, loaded), loaded.base)
        return
    place = case.subject.rpartition(":")[0]
    file = loaded.base / place if place.endswith(".py") else find_module_file(place)
    identity.add_python(file)


@lru_cache(maxsize=8)
def _folder(traces: str) -> Path:
    folder = Path(traces or tempfile.gettempdir())
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# --- A function without a model


def _call_function(case: EvalCase, function: Any, trace: Path) -> CaseOutcome:
    """Call a function with the input of the case; the trace has its beginning and end."""
    hint = "an agent needs a model: playbook, cassette or live"
    require_function(function, str(case.subject), hint=hint)
    started, clock = time.time_ns() // 1_000_000, time.perf_counter()
    verdict, output, error = Verdict("run", "pass"), None, ""
    try:
        output = function(case.prompt if case.input is None else case.input)
        if inspect.isawaitable(output):
            output = asyncio.run(_await(output))
        output = to_json_value(output)
    except Exception as raised:  # noqa: BLE001 - the subject failed, which is a result
        error = f"{type(raised).__name__}: {raised}"
        verdict = Verdict("run", "error", f"the subject raised {error}")
    status = "failed" if error else "completed"
    millis = (time.perf_counter() - clock) * 1000
    record = make_record(case.id, status, RecordUsage(total_duration_ms=millis), output)
    end: dict[str, Any] = {"ok": not error, "output": output}
    events = [
        trace_header(started, subject=str(case.subject)),
        Event(started, RUN_START, {"subject": case.subject, "turns": 1, "input": case.input}, 1),
        Event(started + int(millis), RUN_END, {**end, "error": error} if error else end, 2),
    ]
    if (live := live_listener.get()) is not None:
        context = new_correlation().context
        for event in events[1:]:
            live(msgspec.structs.replace(event, context=context))
    # One write, as for a whole trace of a rehearsal: a killed worker leaves no half of it.
    file = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_MODE)
    os.write(file, hide_lines(_encoder.encode_lines(events), known_secret_bytes()))
    os.close(file)
    run = StoredRun(record, msgspec.to_builtins(record), str(case.subject))
    return CaseOutcome([verdict], run, trace)


async def _await(value: Any) -> Any:
    return await value


# --- An agent with a model


def _rehearse(context: CaseContext, case: EvalCase, subject: Any, trace: Path) -> CaseOutcome:
    from offbook.runs.api import drive
    from offbook.sources.live import LimitedSource, Live
    from offbook.sources.loading import open_source, read_script
    from offbook.sources.playbook.playbook import Playbook

    loaded = context.loaded
    if isinstance(case.subject, list):
        from offbook.subjects.clis.clients import Command

        subject = Command(_find_words(case, loaded), env=case.env)
    script: tuple[Any, ...] = (case.prompt,)
    source: Any = None
    if case.live:
        source = LimitedSource(Live(), context.options.judge.limits)
    else:
        path = _script_file(case, context)
        source = open_source(path)()
        if isinstance(source, Playbook):
            # The script has the prompts; the prompt of the case would be a second one.
            source, script = None, read_script(path)
    if source is not None and not case.prompt:
        raise UsageError("the case needs a prompt", where=case.id)
    folder = _workspace(loaded, case, context.cleanup)
    verdict = Verdict("run", "pass")
    try:
        with drive(
            subject, source=source, trace=trace, cwd=folder, faults=case.faults
        ) as rehearsal:
            rehearsal.run(*script)
    except OffbookError as error:
        # An error of a real provider says nothing about the agent.
        status = "error" if case.live and isinstance(error, ModelError) else "fail"
        verdict = Verdict("run", status, str(error))
    except Exception as error:  # noqa: BLE001 - the agent failed, which is a result
        verdict = Verdict("run", "error", f"the subject raised {type(error).__name__}: {error}")
    run = record_from_trace(trace, case.id)
    return CaseOutcome([verdict], run, trace, folder, spent=case.live)


def _script_file(case: EvalCase, context: CaseContext) -> Path:
    """Return the file of the script; the turns of a case are written to one."""
    if isinstance(case.playbook, str):
        return context.loaded.resolve(case.playbook or case.cassette)
    folder = make_temp_folder()
    context.cleanup.callback(remove_temp_folder, folder)
    path = folder / "playbook.yaml"
    path.write_bytes(msgspec.json.encode(case.playbook))  # JSON is YAML
    return path


def _workspace(loaded: LoadedPack, case: EvalCase, cleanup: ExitStack) -> Path | None:
    """Return a copy of the case's workspace: two trials must not see each other's files."""
    if not case.workspace:
        return None
    import shutil

    source = require_folder(loaded.base / case.workspace, "workspace")
    folder = make_temp_folder()
    cleanup.callback(remove_temp_folder, folder)
    shutil.copytree(source, folder, dirs_exist_ok=True)
    return folder


def _find_words(case: EvalCase, loaded: LoadedPack) -> list[str]:
    """Return the words of a command, which runs in another folder: a path of the pack as absolute.

    A path of the workspace is found there.
    """
    workspace = loaded.base / case.workspace if case.workspace else None
    return [
        str((loaded.base / word).resolve())
        if word.strip("./")
        and (loaded.base / word).exists()
        and not (workspace and (workspace / word).exists())
        else word
        for word in case.subject
    ]


def load_subject(loaded: LoadedPack, case: EvalCase) -> LoadedSubject:
    """Import the subject of a case: `module:name`, or `file.py:name` relative to the pack."""
    key = (loaded.base.absolute(), case.subject, *sorted(case.env.items()))
    if key not in _subjects:
        with watch_used_files() as used, _keys_for(case):
            subject = _import(loaded, str(case.subject))
        _subjects[key] = LoadedSubject(subject, used)
    return _subjects[key]


def _keys_for(case: EvalCase) -> AbstractContextManager[None]:
    """Return the block in which a client of a scripted case is made without a key."""
    if case.live or not (case.playbook or case.cassette):
        return nullcontext()
    from offbook.runs.wiring import set_missing_keys

    return set_missing_keys()


def _import(loaded: LoadedPack, reference: str) -> Any:
    place, _, name = reference.rpartition(":")
    if not place or not name:
        raise UsageError(f"invalid subject {reference!r}", hint="write module:name or file.py:name")
    if place.endswith(".py"):
        path = require_file((loaded.base / place).resolve(), "subject")
        module = ModuleType(f"offbook_subject_{path.stem}")
        module.__file__ = str(path)
        sys.modules[module.__name__] = module
        sys.path.insert(0, str(path.parent))  # it may import its neighbours
        run_source(module, path)
    else:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m` does
        module = importlib.import_module(place)
    return find_attribute(module, name)
