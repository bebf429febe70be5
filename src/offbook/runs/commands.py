"""Whole commands with another model: their clients find its address in the environment.

run        a command with any source as its model
record     the source is a recording in front of the real model
replay     the source is a cassette
serve      a server for commands that are started elsewhere, or for one that we start
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from offbook.errors import CheckFailed, DeadlineExceeded, Interrupted, RunError, UsageError
from offbook.exchange.client_environment import client_arguments
from offbook.files import make_temp_folder, remove_temp_folder
from offbook.runs.run_endings import emit_failure
from offbook.sources.server.server import Server
from offbook.subjects.process import describe_exit, run_foreground
from offbook.trace.events import RUN_END, RUN_START, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from offbook.determinism.faults import FaultInjector, Faults
    from offbook.exchange.model import ModelSource
    from offbook.sources.cassette.recording import Recording, RecordingSummary
    from offbook.sources.cassette.replay import Cassette, ReplaySummary
    from offbook.sources.mocks.mock_recording import MockRecording
    from offbook.sources.server.endpoint import Endpoint, Pacing
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
    injector = _start_faults(faults, hub)
    with Server() as server:
        endpoint = server.mount(source, run="", hub=hub, faults=injector)
        with _connect_clients(command, endpoint, environment) as (words, env):
            ended = run_foreground(words, env, deadline, keep=max_output, echo=echo, cwd=cwd)
        failures = () if endpoint.failure is None else (endpoint.failure,)
    duration = round((time.perf_counter() - started) * 1000)
    if injector is not None and hub is not None:
        hub.emit(
            RUN_END, {"ok": not ended.code, "exit": ended.code, "output": ended.stdout.strip()}
        )
    count = 0 if injector is None else injector.injected
    return CommandResult(ended.code, ended.stdout, duration, failures, ended.interrupted_by, count)


def _start_faults(plan: Faults | None, hub: Hub | None) -> FaultInjector | None:
    if plan is None or hub is None:
        return None
    from offbook.runs.fault_runs import start_faults  # few runs have faults

    return start_faults(plan, hub)


@contextmanager
def _connect_clients(
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


class Service:
    """A server with a fresh source for each run.

    The unnamed run exists from the start. Another run begins with the first request to its path,
    `/s/<name>`, with the script from its beginning.
    """

    def __init__(
        self,
        make_source: Callable[[], ModelSource],
        hub: Hub,
        *,
        port: int = 0,
        pacing: Pacing | None = None,
        lenient: Iterable[str] = (),
        faults: Faults | None = None,
    ) -> None:
        self._faults = faults
        self._make_source = make_source
        self._pacing = pacing
        self._hub = hub
        self._runs: dict[str, tuple[Endpoint, ModelSource]] = {}
        self._injectors: list[FaultInjector] = []
        self.server = Server(port=port, lenient=lenient, on_unknown_run=self._start_run)

    def __enter__(self) -> Self:
        self.server.launch()
        self.endpoint = self._start_run("")
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()

    def _start_run(self, name: str) -> Endpoint:
        source = self._make_source()
        # Each run has the same faults, counted from its own first request.
        injector = _start_faults(self._faults, self._hub)
        if injector is not None:
            self._injectors.append(injector)
        # Events of a named run have its name as their context.
        with self._hub.scoped(**({"run": name} if name else {})):
            endpoint = self.server.mount(
                source,
                run=name,
                hub=self._hub,
                pacing=self._pacing,
                faults=injector,
            )
        self._runs[name] = (endpoint, source)
        return endpoint

    def run(
        self, command: Sequence[str], *, deadline: float, allow_unused_mocks: bool = False
    ) -> CommandResult:
        """Run a command with this service as its model; the script must be used completely.

        As in a rehearsal, an error of the model is the reason before the exit code, and the exit
        code before an unused rest of the script.
        """
        self._hub.emit(RUN_START, {"subject": command[0], "command": list(command)})
        try:
            with _connect_clients(command, self.endpoint) as (words, env):
                # The answer of the command is the evidence of what it did about a fault.
                keep = MAX_OUTPUT if self._faults is not None else 0
                ended = run_foreground(words, env, deadline, keep=keep)
            if ended.interrupted_by:
                raise Interrupted(ended.interrupted_by)  # noqa: TRY301 - handled as a raised one
        except BaseException as error:
            failures = self.failures(strict=False)
            if failures and isinstance(error, DeadlineExceeded):
                # The command may have waited because of an error of its model.
                emit_failure(self._hub, failures[0])
                raise failures[0] from error
            emit_failure(self._hub, error)
            raise
        # A command that gives up after a fault leaves the rest of the script.
        faulty = any(injector.injected for injector in self._injectors)
        failures = self.failures(strict=not ended.code and not faulty)
        if not ended.code and not failures and not allow_unused_mocks and not faulty:
            failures += self._unused_mocks()
        if ended.code:
            failed = RunError(f"the command {describe_exit(ended.code)}", where=command[0])
            failures.append(failed)
        if failures:
            emit_failure(self._hub, failures[0], exit=ended.code)
        else:
            from offbook.sources.playbook.playbook import Playbook

            for _, source in self._runs.values():
                if isinstance(source, Playbook) and source.unfinished() is None:
                    verdict = Verdict("playbook consumed", "pass", actual=source.consumed)
                    self._hub.emit_verdict(verdict)
            answer = {} if self._faults is None else {"output": ended.stdout.strip()}
            self._hub.emit(RUN_END, {"ok": True, "exit": 0, **answer})
        return CommandResult(ended.code, failures=tuple(failures))

    def failures(self, *, strict: bool) -> list[BaseException]:
        """Return the errors of all runs; with `strict`, an unused rest of a script is one."""
        errors = (endpoint.failure or endpoint.refusal for endpoint, _ in self._runs.values())
        failures = [error for error in errors if error is not None]
        # After another error, an unused rest is its consequence.
        if strict and not failures:
            for _, source in self._runs.values():
                # Playbooks, mocks and cassettes end; a live model does not.
                unfinished: Callable[[], BaseException | None] | None
                unfinished = getattr(source, "unfinished", None)
                if unfinished is not None and (rest := unfinished()) is not None:
                    failures.append(rest)
        return [*failures, *self._hub.errors]

    def _unused_mocks(self) -> list[CheckFailed]:
        hint = "remove what is not used, or pass --allow-unused-mocks"
        verdicts = (getattr(source, "verdicts", tuple)() for _, source in self._runs.values())
        return [CheckFailed(verdict.message, hint=hint) for found in verdicts for verdict in found]

    def warnings(self, *, after_run: bool = False) -> list[str]:
        """Return the lint messages of mocks; after a run, unused mocks are reported as well."""
        from offbook.sources.mocks.mock_file import lint_mocks
        from offbook.sources.mocks.mocks import Mocks

        _, source = self._runs[""]
        if not isinstance(source, Mocks):
            return []
        unused = source.unused if after_run else ()
        return [str(problem) for problem in lint_mocks(source.file, unused)]


def raise_failures(failures: Sequence[BaseException]) -> None:
    """Raise the first failure, with the others as notes."""
    if not failures:
        return
    first, *others = failures
    for other in others:
        first.add_note(f"in another run: {other}")
    # Errors of callbacks are errors of the test: they fail it, with exit code 1.
    if isinstance(first, RunError):
        raise first
    message = f"a callback of the playbook raised {type(first).__name__}: {first}"
    raise RunError(message) from first
