"""Whole commands with another model: their clients find its address in the environment.

run        a command with any source as its model
record     the source is a recording in front of the real model
replay     the source is a cassette
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import Interrupted, UsageError
from offbook.exchange.providers import client_arguments
from offbook.files import make_temp_folder, remove_temp_folder
from offbook.sources.server.server import Server
from offbook.subjects.process import run_foreground
from offbook.trace.events import RunEndData

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from offbook.determinism.faults import Faults
    from offbook.exchange.model import ModelSource
    from offbook.sources.cassette.recording import Recording, RecordingSummary
    from offbook.sources.cassette.replay import Cassette, ReplaySummary
    from offbook.sources.mocks.mocks import MockRecording
    from offbook.sources.server.endpoint import Endpoint
    from offbook.trace.hub import Hub

DEADLINE = 600.0
MAX_OUTPUT = 64 * 1024


class CommandResult(msgspec.Struct, frozen=True):
    """The end of a command: exit code, output, and the errors of its model.

    `interrupted_by` is the number of the signal that ended it because we received it, or 0;
    `faults` is the number of injected faults.
    """

    exit_code: int
    output: str = ""
    duration_ms: int = 0
    failures: tuple[BaseException, ...] = ()
    interrupted_by: int = 0
    faults: int = 0

    def raise_interrupt(self) -> None:
        """Raise Interrupted if a signal ended the command because we received it."""
        if self.interrupted_by:
            raise Interrupted(self.interrupted_by)


def run_with_source(  # noqa: PLR0913 - the options of a command
    source: ModelSource,
    command: Sequence[str],
    *,
    hub: Hub | None = None,
    deadline: float = DEADLINE,
    echo: bool = True,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    max_output: int = MAX_OUTPUT,
    faults: Faults | None = None,
) -> CommandResult:
    """Run a command with this source as its model; faults need a hub, which reports them."""
    started = time.perf_counter()
    injector = None
    if faults is not None and hub is not None:
        from offbook.runs.fault_runs import start_faults  # few runs have faults

        injector = start_faults(faults, hub)
    with Server() as server:
        endpoint = server.mount(source, run="", hub=hub, faults=injector)
        with connect_clients(command, endpoint, environment) as (words, env):
            ended = run_foreground(words, env, deadline, keep=max_output, echo=echo, cwd=cwd)
        failure = endpoint.history_error or endpoint.failure
        failures = () if failure is None else (failure,)
    duration = round((time.perf_counter() - started) * 1000)
    if injector is not None and hub is not None:
        answer = ended.stdout.strip()
        hub.emit_data(RunEndData(ok=not ended.code, exit=ended.code, output=answer))
    count = 0 if injector is None else injector.injected
    return CommandResult(ended.code, ended.stdout, duration, failures, ended.interrupted_by, count)


@contextmanager
def connect_clients(
    command: Sequence[str], endpoint: Endpoint, environment: Mapping[str, str] | None = None
) -> Generator[tuple[list[str], dict[str, str]]]:
    """Yield the command and the environment in which all known clients use this endpoint.

    A client that needs arguments for this gets them wherever it occurs in the command, such as in
    `sh -c '…'`: a script of its name is the first on the PATH.
    """
    env = {**(os.environ if environment is None else environment), **endpoint.variables}
    needed = client_arguments(endpoint.url)
    folder = make_temp_folder()
    try:
        for name, arguments in needed.items():
            if program := shutil.which(name, path=env.get("PATH")):
                words = shlex.join([str(Path(program).absolute()), *arguments])
                script = folder / name
                script.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
                script.chmod(0o755)
                env["PATH"] = f"{folder}{os.pathsep}{env['PATH']}"
        program, *words = command
        # A path is not searched for on the PATH.
        arguments = needed.get(Path(program).stem, []) if os.sep in program else []
        yield [program, *arguments, *words], env
    finally:
        remove_temp_folder(folder)


def record_command(
    recording: Recording, command: Sequence[str], *, hub: Hub | None = None, **options: Any
) -> tuple[CommandResult, RecordingSummary]:
    """Run a command and record its requests and responses, its output and its exit code."""
    metadata: dict[str, Any] = {}
    try:
        result = run_with_source(recording, command, hub=hub, **options)
        recording.interrupted = recording.interrupted or bool(result.interrupted_by)
        metadata["command"] = {
            "argv": list(command),
            "exit_code": result.exit_code,
            "output": result.output,
            "duration_ms": result.duration_ms,
        }
        if not result.failures and not recording.interrupted:
            summary = recording.summary()
            _require_requests(summary.interactions + summary.replayed, recording.path)
    except UsageError:
        # No request was made: an existing cassette stays as it is.
        recording.discard()
        raise
    except BaseException:
        # The requests until now are kept, marked as incomplete.
        recording.interrupted = True
        recording.close(metadata)
        raise
    return result, recording.close(metadata)


def replay_command(
    cassette: Cassette, command: Sequence[str], *, hub: Hub | None = None, **options: Any
) -> tuple[CommandResult, ReplaySummary]:
    """Run a command with a cassette as its model."""
    try:
        result = run_with_source(cassette, command, hub=hub, **options)
        return result, cassette.summary()
    finally:
        cassette.close()


def record_mocks(recording: MockRecording, command: Sequence[str], **options: Any) -> CommandResult:
    """Run a command and record the responses of its model as mocks."""
    result = run_with_source(recording, command, **options)
    if not result.failures:
        _require_requests(len(recording.lines), recording.path)
    return result


def _require_requests(count: int, path: Path) -> None:
    if not count:
        raise UsageError(
            "the command made no request to a model, so nothing was recorded",
            where=str(path),
            hint="it must read the address of the model from OPENAI_BASE_URL or a similar variable",
        )
