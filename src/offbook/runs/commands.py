"""Whole commands with another model: their clients find its address in the environment.

run_command      a command that we start, in a rehearsal: any source is its model
record_command   … with a recording in front of the real model
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from offbook.errors import (
    CheckFailed,
    DeadlineExceeded,
    Interrupted,
    RunError,
    UsageError,
    raise_model_failure,
)
from offbook.exchange.providers import client_arguments, client_env
from offbook.files import make_temp_folder, remove_temp_folder
from offbook.runs.agents import ANY_EXIT_CODE, NoModel
from offbook.runs.rehearsal import Rehearsal, RehearsalDefaults, use_defaults
from offbook.subjects.process import ProcessResult, describe_exit, run_foreground
from offbook.subjects.subject import PlainSubject
from offbook.trace.events import REFUSED, Event, RefusedData, Verdict, read_verdicts

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping, Sequence

    from offbook.determinism.faults import Faults
    from offbook.exchange.model import ModelSource
    from offbook.sources.cassette.recording import Recording, RecordingSummary
    from offbook.sources.mocks.mock_recording import MockRecording
    from offbook.subjects.subject import ModelAccess, RunContext
    from offbook.trace.events import FileLine

DEADLINE = 600.0
MAX_OUTPUT = 64 * 1024

INCOMPLETE_REPLY = "the stream of the model ended before the reply was complete"


class CommandOptions(TypedDict, total=False):
    """The options of a command, described in `TerminalCommand`."""

    deadline: float
    echo: bool
    environment: Mapping[str, str] | None
    cwd: Path | None
    max_output: int
    stdin: bytes | None
    codes: Collection[int]


class NetworkOptions(TypedDict, total=False):
    """The network of a command: the addresses that it may reach, in addition to its model.

    One that is `sealed` runs in a network namespace, without the ports of this machine.
    """

    allow: tuple[str, ...]
    sealed: bool


class TerminalCommand(PlainSubject):
    """A command of the user as a subject: it runs once, with our environment, in the terminal.

    The first `max_output` bytes of its output are kept in `ended`, and printed with `echo`; if it
    is 0, the command writes to the terminal itself. An exit code fails the run if it is not one
    of `codes`. A command that is not `served` has the model that it finds itself.
    """

    takes_prompt = False

    def __init__(
        self, command: Sequence[str], *, served: bool = True, **options: Unpack[CommandOptions]
    ) -> None:
        self.name = command[0]
        self.model_access: ModelAccess = "endpoint" if served else "call"
        self.command_line = list(command)
        self.working_folder = options.get("cwd")
        self.ended: ProcessResult | None = None
        self._options = options

    async def prompt(self, _text: str, /) -> str | None:
        """Run the command to its end; return its output if it is kept."""
        options, context = self._options, self.context
        env = os.environ if (given := options.get("environment")) is None else given
        deadline, keep = options.get("deadline", DEADLINE), options.get("max_output", MAX_OUTPUT)
        with _connect_clients(self.command_line, context, env) as (words, connected):
            self.ended = ended = await run_foreground(
                words,
                connected,
                deadline,
                keep=keep,
                echo=options.get("echo", True),
                cwd=options.get("cwd"),
                stdin=options.get("stdin"),
                seal=context.seal,
            )
        if ended.interrupted_by:
            raise Interrupted(ended.interrupted_by)
        if ended.code not in options.get("codes", (0,)):
            raise RunError(f"the command {describe_exit(ended.code)}", where=self.name)
        return ended.stdout.strip() if keep else None

    @property
    def exit_code(self) -> int | None:
        """The exit code of a command that ended by itself."""
        return None if self.ended is None or self.ended.interrupted_by else self.ended.code


@contextmanager
def _connect_clients(
    command: Sequence[str], context: RunContext, environment: Mapping[str, str]
) -> Generator[tuple[list[str], dict[str, str]]]:
    """Yield the command and the environment in which all known clients use this model.

    A client that needs arguments for this gets them wherever it occurs in the command, such as in
    `sh -c '…'`: a script of its name is the first on the PATH.
    """
    env = {**environment, **context.hub.variables}
    if not context.endpoint:
        yield [*command], env
        return
    env |= client_env(context.endpoint, env)
    env |= context.proxy_env(env)
    needed = client_arguments(context.endpoint)
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


class CommandResult(msgspec.Struct, frozen=True):
    """The end of a command: how it exited, what its run has verified, and why it failed.

    `failure` is the error that a rehearsal raises. `exit_code` is None if the command was not
    started or did not end by itself.
    """

    exit_code: int | None
    output: str = ""
    errors: str = ""
    duration_ms: int = 0
    verdicts: tuple[Verdict, ...] = ()
    events: tuple[Event, ...] = ()
    failure: BaseException | None = None

    @property
    def ok(self) -> bool:
        """True if the run passed."""
        return self.failure is None

    @property
    def refused(self) -> list[str]:
        """The hosts and ports that the command tried to reach."""
        return [RefusedData.read(e).destination for e in self.events if e.event == REFUSED]

    def as_json(self) -> dict[str, Any]:
        """Return the result for machines."""
        shown = [
            {"check": v.check, "status": v.status, "message": v.message} for v in self.verdicts
        ]
        return {
            "ok": self.ok,
            "exit_code": self.exit_code,
            "duration_ms": self.duration_ms,
            "error": None if self.failure is None else str(self.failure),
            "refused": list(dict.fromkeys(self.refused)),
            "verdicts": shown,
        }

    def raise_failure(self) -> None:
        """Raise the failure, if there is one."""
        if self.failure is not None:
            raise_model_failure(self.failure)


def run_command(  # noqa: PLR0913 - the options of a run
    source: ModelSource | None,
    command: Sequence[str],
    *,
    trace: Path | None = None,
    place: FileLine | None = None,
    lenient: Iterable[str] = (),
    allow: Iterable[str] = (),
    sealed: bool = False,
    faults: Faults | None = None,
    allow_unused_mocks: bool = False,
    **options: Unpack[CommandOptions],
) -> CommandResult:
    """Rehearse a command with this source as its model; without one it uses its own.

    A usage error, such as a command that is not found, is raised; another failure is returned.
    `place` is the file that a failed verdict names.
    """
    subject = TerminalCommand(command, served=source is not None, **options)
    defaults = RehearsalDefaults(in_memory=trace is None, place=place)
    failure: BaseException | None = None
    started = time.perf_counter()
    with use_defaults(defaults):
        rehearsal = Rehearsal(
            subject,
            source=source or NoModel(RunError("no model is scripted for this command")),
            cwd=Path.cwd(),
            trace=trace,
            lenient=lenient,
            allow=allow,
            sealed=sealed,
            faults=faults,
            allow_unused_mocks=allow_unused_mocks,
        )
        try:
            with rehearsal:
                rehearsal.run("")
        except UsageError:
            raise
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            failure = error
    events = rehearsal.read_events()
    verdicts = tuple(read_verdicts(events))
    if failure is None and faults is not None:
        failure = _find_unknown(verdicts)
    ended = subject.ended or ProcessResult(0, "", "")
    return CommandResult(
        subject.exit_code,
        ended.stdout,
        ended.stderr,
        round((time.perf_counter() - started) * 1000),
        verdicts,
        tuple(events),
        failure,
    )


def find_command_failure(
    source: ModelSource, command: Sequence[str], *, deadline: float, **network: Any
) -> str | None:
    """Run a command and return how it failed: its exit code and its last error; None if it passed.

    Numbers in the error are masked: they differ in a shorter run.
    """
    from offbook.sources.cassette.rerunning import mask_numbers

    result = run_command(
        source,
        command,
        deadline=deadline,
        echo=False,
        max_output=sys.maxsize,
        stdin=b"",  # keeps the error output, too
        codes=ANY_EXIT_CODE,
        **network,
    )
    if isinstance(result.failure, Interrupted):
        raise result.failure
    if isinstance(result.failure, DeadlineExceeded):
        return f"no end within {deadline:g} s"
    if not result.exit_code:
        return None
    last = next((line for line in reversed(result.errors.splitlines()) if line.strip()), "")
    return ": ".join(filter(None, (describe_exit(result.exit_code), mask_numbers(last))))


def _find_unknown(verdicts: Iterable[Verdict]) -> CheckFailed | None:
    """Return the error for a fault whose outcome is unknown: no assertion reads the answer."""
    from offbook.checks.fault_outcomes import CHECK

    hint = "end with an exit code other than 0, or print the error"
    unknown = (v for v in verdicts if v.check == CHECK and v.status == "no_data")
    return next((CheckFailed(verdict.message, hint=hint) for verdict in unknown), None)


def record_command(
    recording: Recording, command: Sequence[str], **options: Any
) -> tuple[CommandResult, RecordingSummary]:
    """Run a command and record its requests and responses, its output and its exit code."""
    metadata: dict[str, Any] = {}
    try:
        result = run_command(recording, command, codes=ANY_EXIT_CODE, **options)
        recording.interrupted = recording.interrupted or isinstance(result.failure, Interrupted)
        metadata["command"] = {
            "argv": list(command),
            "exit_code": result.exit_code,
            "output": result.output,
            "duration_ms": result.duration_ms,
        }
        if result.ok:
            summary = recording.summary()
            _require_replies(summary.interactions + summary.replayed, recording)
    except UsageError:
        # There is no reply: an existing cassette stays as it is.
        recording.discard()
        raise
    except BaseException:
        # The requests until now are kept, marked as incomplete.
        recording.interrupted = True
        recording.close(metadata)
        raise
    return result, recording.close(metadata)


def record_mocks(recording: MockRecording, command: Sequence[str], **options: Any) -> CommandResult:
    """Run a command and record the responses of its model as mocks."""
    result = run_command(recording, command, codes=ANY_EXIT_CODE, **options)
    if result.ok:
        _require_replies(len(recording.lines), recording)
    return result


def _require_replies(count: int, recording: Recording | MockRecording) -> None:
    if count:
        return
    what = "the command made no request to a model"
    hint = "it must read the address of the model from OPENAI_BASE_URL or a similar variable"
    if recording.interrupted:
        what, hint = INCOMPLETE_REPLY, "run the command again"
    raise UsageError(f"{what}, so nothing was recorded", where=str(recording.path), hint=hint)


def describe_faults(events: Iterable[Event], plan: Faults) -> list[str]:
    """Return a line for each injected fault, with what the agent did about it, and the counts."""
    from offbook.checks.fault_outcomes import find_outcomes, summarize

    outcomes = find_outcomes(events)
    return [*map(str, outcomes), f"{summarize(outcomes)} (seed {plan.seed})"]
