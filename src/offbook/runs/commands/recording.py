"""Records and replays whole commands: their clients find the model in their environment.

To record is to serve a recording source in front of a live one; to replay is to serve a replay.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import UsageError
from offbook.exchange.variables import tell_command
from offbook.runs.commands.command import DEADLINE, INTERRUPTED, KEPT, run_command
from offbook.sources.cassette.replay import Replay
from offbook.sources.recording import Recording
from offbook.sources.server.server import Server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from offbook.exchange.source import ModelSource
    from offbook.sources.cassette.replay import Summary as Replayed
    from offbook.sources.mocks.recording import MockRecording
    from offbook.sources.recording import Summary as Recorded
    from offbook.trace.hub import Hub


class Done(msgspec.Struct, frozen=True):
    """How a command went: its exit code, what it printed, and what its model complained about."""

    code: int
    output: str
    duration_ms: int
    failure: BaseException | None = None


def run_with(
    source: ModelSource,
    command: Sequence[str],
    *,
    hub: Hub | None = None,
    deadline: float = DEADLINE,
    echo: bool = True,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    keep: int = KEPT,
) -> Done:
    """Run a command with this source as its model."""
    began = time.perf_counter()
    with Server() as server:
        endpoint = server.mount(source, run="", hub=hub)
        env = {**(os.environ if environment is None else environment), **endpoint.variables}
        words = tell_command(command, endpoint.url)
        code, output = run_command(words, env, deadline, keep=keep, echo=echo, cwd=cwd)
        failure = endpoint.failure
    return Done(code, output, round((time.perf_counter() - began) * 1000), failure)


def record_command(
    recording: Recording, command: Sequence[str], *, hub: Hub | None = None, **options: Any
) -> tuple[Done, Recorded]:
    """Run a command and keep what it asks, what it is answered, what it prints and how it ends."""
    about: dict[str, Any] = {}
    try:
        done = run_with(recording, command, hub=hub, **options)
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
    replay: Replay, command: Sequence[str], *, hub: Hub | None = None, **options: Any
) -> tuple[Done, Replayed]:
    """Run a command whose model is a cassette."""
    try:
        done = run_with(replay, command, hub=hub, **options)
        return done, replay.summary()
    finally:
        replay.close()


def record_mocks(recording: MockRecording, command: Sequence[str], **options: Any) -> Done:
    """Run a command and keep what it is answered, as mocks."""
    done = run_with(recording, command, **options)
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
