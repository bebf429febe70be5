"""Whole commands, whose clients find their model in the environment."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Self

import msgspec

from offbook.errors import RunError, UsageError
from offbook.exchange.providers import add_client_arguments
from offbook.sources.cassette.recording import Recording
from offbook.sources.cassette.replay import Cassette
from offbook.sources.mocks.mock_file import lint_mocks
from offbook.sources.mocks.mocks import Mocks
from offbook.sources.playbook import Playbook
from offbook.sources.server.server import Server
from offbook.subjects.process import INTERRUPTED, run_foreground
from offbook.trace.events import RUN_END, RUN_START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from offbook.exchange.model import ModelSource
    from offbook.sources.cassette.recording import RecordingSummary as Recorded
    from offbook.sources.cassette.replay import ReplaySummary as Replayed
    from offbook.sources.mocks.mock_recording import MockRecording
    from offbook.sources.server.endpoint import Endpoint, Pacing
    from offbook.trace.hub import Hub


# --- Whole commands, whose clients find their model in the environment.


DEADLINE = 600.0
KEPT = 64 * 1024


# --- Records and replays whole commands: their clients find the model in their environment.


class CommandResult(msgspec.Struct, frozen=True):
    """How a command went: its exit code, what it printed, and what its model complained about."""

    code: int
    output: str
    duration_ms: int
    failure: BaseException | None = None


def run_with_source(
    source: ModelSource,
    command: Sequence[str],
    *,
    hub: Hub | None = None,
    deadline: float = DEADLINE,
    echo: bool = True,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    keep: int = KEPT,
) -> CommandResult:
    """Run a command with this source as its model."""
    began = time.perf_counter()
    with Server() as server:
        endpoint = server.mount(source, run="", hub=hub)
        env = {**(os.environ if environment is None else environment), **endpoint.variables}
        words = add_client_arguments(command, endpoint.url)
        code, output = run_foreground(words, env, deadline, keep=keep, echo=echo, cwd=cwd)
        failure = endpoint.failure
    return CommandResult(code, output, round((time.perf_counter() - began) * 1000), failure)


def record_command(
    recording: Recording, command: Sequence[str], *, hub: Hub | None = None, **options: Any
) -> tuple[CommandResult, Recorded]:
    """Run a command and keep what it asks, what it is answered, what it prints and how it ends."""
    about: dict[str, Any] = {}
    try:
        done = run_with_source(recording, command, hub=hub, **options)
        recording.interrupted = recording.interrupted or done.code == INTERRUPTED
        about["command"] = {
            "argv": list(command),
            "exit_code": done.code,
            "output": done.output,
            "duration_ms": done.duration_ms,
        }
        if done.failure is None and not recording.interrupted:
            _expect(recording.summary().interactions, recording.path)
    except UsageError:  # nothing was asked
        recording.discard()
        raise
    except BaseException:
        recording.interrupted = True
        recording.close(about)
        raise
    return done, recording.close(about)


def replay_command(
    replay: Cassette, command: Sequence[str], *, hub: Hub | None = None, **options: Any
) -> tuple[CommandResult, Replayed]:
    """Run a command whose model is a cassette."""
    try:
        done = run_with_source(replay, command, hub=hub, **options)
        return done, replay.summary()
    finally:
        replay.close()


def record_mocks(recording: MockRecording, command: Sequence[str], **options: Any) -> CommandResult:
    """Run a command and keep what it is answered, as mocks."""
    done = run_with_source(recording, command, **options)
    if done.failure is None:
        _expect(len(recording.lines), recording.path)
    return done


def _expect(kept: int, path: Path) -> None:
    """Nothing recorded is no recording."""
    if not kept:
        raise UsageError(
            "the command asked no model, so there is nothing to keep",
            where=str(path),
            hint="it must find the model in its environment, as OPENAI_BASE_URL and the like",
        )


# --- A source, served: for agents that somebody else starts, and for one command that we start.


class Service:
    """A server for a source, made anew for each run.

    The run without a name is there from the start; any other that a client names in its path,
    `/s/<name>`, begins when it is first asked, with the source as it was in the beginning.
    """

    def __init__(
        self,
        make: Callable[[], ModelSource],
        hub: Hub,
        *,
        port: int = 0,
        pacing: Pacing | None = None,
        lenient: Iterable[str] = (),
    ) -> None:
        self._make = make
        self._pacing = pacing
        self._hub = hub
        self._runs: dict[str, tuple[Endpoint, ModelSource]] = {}
        self.server = Server(port=port, lenient=lenient, on_unknown_run=self._begin)

    def __enter__(self) -> Self:
        self.server.launch()
        self.endpoint = self._begin("")
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()

    def _begin(self, name: str) -> Endpoint:
        source = self._make()
        with self._hub.scoped(**({"run": name} if name else {})):
            endpoint = self.server.mount(source, run=name, hub=self._hub, pacing=self._pacing)
        self._runs[name] = (endpoint, source)
        return endpoint

    def tell(self, event: str, data: dict[str, object]) -> None:
        """Tell something to the trace."""
        self._hub.emit(event, data)

    def complaints(self, *, strict: bool) -> list[BaseException]:
        """What went wrong in each run; if strict, also what of its script was never reached."""
        found = [endpoint.failure for endpoint, _ in self._runs.values() if endpoint.failure]
        if strict and not found:
            for _, source in self._runs.values():
                if isinstance(source, (Mocks, Playbook, Cassette)) and (
                    left := source.unfinished()
                ):
                    found.append(left)
        return [*found, *self._hub.errors]

    def remarks(self, *, used: bool = False) -> list[str]:
        """What can be said about mocks; if they are used by now, also which of them nobody was."""
        _, source = self._runs[""]
        if not isinstance(source, Mocks):
            return []
        return [str(found) for found in lint_mocks(source.file, source.unused if used else ())]


class ServedCommandResult(msgspec.Struct, frozen=True):
    """How a command went: its exit code, and what its model had to complain about."""

    code: int
    complaints: tuple[BaseException, ...] = ()


def serve_command(
    service: Service, command: Sequence[str], *, deadline: float
) -> ServedCommandResult:
    """Run a command whose clients find the service in their environment, then judge."""
    service.tell(RUN_START, {"subject": command[0], "command": list(command)})
    words = add_client_arguments(command, service.endpoint.url)
    code, _ = run_foreground(words, {**os.environ, **service.endpoint.variables}, deadline)
    complaints = tuple(service.complaints(strict=True))
    service.tell(RUN_END, {"ok": code == 0 and not complaints, "exit": code})
    return ServedCommandResult(code, complaints)


def raise_failures(complaints: Sequence[BaseException]) -> None:
    """Raise the first complaint, with the others noted on it."""
    if not complaints:
        return
    first, *others = complaints
    for other in others:
        first.add_note(f"and in another run: {other}")
    if isinstance(first, RunError):
        raise first
    raise RunError(f"a callback of the playbook raised {type(first).__name__}: {first}") from first
