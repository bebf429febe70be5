"""Backends that record the answers of an agent in a cassette, and that replay them.

A cassette of the loop contains for each iteration the hat, the prompt, the output and the files
that the agent changed. A replay writes the same files, so the next prompt is the recorded one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from offbook.checks.snapshot import list_files, read_small_text
from offbook.errors import RunError, UsageError, did_you_mean
from offbook.files import write_atomic
from offbook.runs.backends import BACKENDS, Backend, BackendConfig, BackendFactory, BackendResult
from offbook.sources.cassette.format import RecordedResponse
from offbook.sources.cassette.journal import load_cassette
from offbook.sources.cassette.replay import Cassette, ReplaySummary
from offbook.workflows.hat_loop import SCRATCHPAD
from offbook.workflows.loop_run import NullSource
from offbook.workflows.workspace import CASSETTES, NAME_PATTERN, Workspace

if TYPE_CHECKING:
    from offbook.sources.cassette.recording import Recording
    from offbook.subjects.subject import RunContext
    from offbook.trace.events import Verdict
    from offbook.trace.hub import Hub

WORKSPACE_ROOT = "WORKSPACE"  # replaces the path of the workspace in a cassette
DEFAULT_ITERATIONS = 10


def cassette_path(workspace: Workspace, name: str) -> Path:
    """Return the path of a cassette, existing or not."""
    if not NAME_PATTERN.match(name) or ".." in name:
        raise UsageError(
            f"invalid cassette name {name!r}",
            hint="expected: letters, digits, '-', '_' and '.', beginning with a letter or digit",
        )
    return workspace.resolve(f"{CASSETTES}/{name.removesuffix('.yaml')}.yaml")


def find_cassette(workspace: Workspace, name: str) -> Path:
    """Return the path of an existing cassette, or raise a UsageError that suggests one."""
    if not name:
        raise UsageError("missing cassette to replay", hint='cassette="auth_flow"')
    path = cassette_path(workspace, name)
    if not path.is_file():
        names = [file.stem for file in path.parent.glob("*.yaml")]
        raise UsageError(
            f"unknown cassette {name!r}", where=workspace.id, hint=did_you_mean(name, names)
        )
    return path


class RecordingBackend:
    """Passes prompts to a backend, and records its answers with the files that they changed."""

    def __init__(self, backend: Backend, recording: Recording, folder: Path) -> None:
        self._backend = backend
        self._recording = recording
        self._folder = folder

    async def run_turn(self, hat: str, prompt: str, deadline: float) -> BackendResult:
        """Return the backend's answer after recording it."""
        # Compared as texts: an agent may write a file twice, or write the same text again.
        before = _read_files(self._folder)
        start = time.perf_counter()
        try:
            result = await self._backend.run_turn(hat, prompt, deadline)
        except asyncio.CancelledError:
            self._recording.interrupted = True
            raise
        if result.scanned is not None:
            raise RunError("the agent wrote too much output to be recorded", hint="print less")
        after = _read_files(self._folder)
        changed: dict[str, str | None] = {
            name: after.get(name)
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        }
        response = RecordedResponse(
            output=result.output,
            exit_code=result.exit_code,
            tokens=result.tokens,
            cost_dollars=result.cost_usd,
            duration_ms=round((time.perf_counter() - start) * 1000),
            files=changed,
        )
        self._recording.record_output(prompt, response, hat=hat)
        return result


def _read_files(folder: Path) -> dict[str, str]:
    """Return the small text files of a folder; a cassette cannot contain any others."""
    texts = ((name, read_small_text(path)) for name, path in list_files(folder))
    return {name: text for name, text in texts if text is not None}


class CassetteBackend:
    """Answers with a cassette of the workspace, and writes the files that were recorded."""

    def __init__(
        self,
        workspace: Workspace,
        name: str,
        *,
        strict: bool = True,
        redactions: Mapping[str, Any] | None = None,
    ) -> None:
        self._workspace = workspace
        self._strict = strict
        self._redactions = redactions
        self._file = load_cassette(find_cassette(workspace, name))
        self._metadata = self._file.header.metadata
        self._passthrough: BackendFactory | None = None
        self._agent: Backend | None = None
        self._replay = self._open()
        self.cost: float | None = 0.0

    def _open(self, hub: Hub | None = None) -> Cassette:
        return Cassette(
            self._file,
            strict=self._strict,
            passthrough=NullSource() if self._passthrough else None,
            redactions=self._redactions,
            roots={WORKSPACE_ROOT: self._workspace.path},
            hub=hub,
        )

    @property
    def iterations(self) -> int:
        """The maximum number of iterations of the recorded run."""
        recorded = self._metadata.get("max_iterations", DEFAULT_ITERATIONS)
        return recorded if isinstance(recorded, int) and recorded > 0 else DEFAULT_ITERATIONS

    def prepare(self, task: str) -> None:
        """Reject a recording of another task, and restore the recorded scratchpad.

        The scratchpad is part of the prompts, so in a used workspace its earlier text would differ
        from the recording.
        """
        self._replay.check_task(task)
        if not self._workspace.session.exists():
            return
        scratchpad = self._workspace.resolve(SCRATCHPAD)
        recorded = self._metadata.get("scratchpad")
        if isinstance(recorded, str):
            write_atomic(scratchpad, recorded)
        elif "max_iterations" in self._metadata:  # recorded by this tool, without a scratchpad
            scratchpad.unlink(missing_ok=True)

    def allow_passthrough(self, config: BackendConfig) -> None:
        """Pass unrecorded prompts to an agent; by default to the one that was recorded."""
        if not config.backend:
            name = str(self._metadata.get("backend", ""))
            if name not in BACKENDS:
                raise UsageError("passthrough needs a backend", hint='backend="codex"')
            command = config.command or tuple(cast("list[str]", self._metadata.get("command", ())))
            config = BackendConfig(name, command, config.env, config.playbook)
        self._passthrough = BackendFactory(config, self._workspace.path)

    def __call__(self, context: RunContext) -> Backend:
        """Return itself as the backend of this run."""
        # Opened again: a replay reports drift and passthrough to the hub of its run.
        self._replay = self._open(context.hub)
        self._agent = self._passthrough(context) if self._passthrough else None
        return self

    async def run_turn(self, hat: str, prompt: str, deadline: float) -> BackendResult:
        """Return the recorded answer, or pass the prompt to the agent."""
        response = self._replay.reply_to_prompt(prompt, hat)
        if response is None:
            # Without passthrough, `reply_to_prompt` has raised a mismatch.
            assert self._agent is not None  # noqa: S101 - narrows the type
            result = await self._agent.run_turn(hat, prompt, deadline)
            # One unknown cost makes the sum unknown.
            known = self.cost is not None and result.cost_usd is not None
            self.cost = cast("float", self.cost) + cast("float", result.cost_usd) if known else None
            return result
        for name, text in response.files.items():
            path = self._workspace.resolve(name)
            if text is None:
                path.unlink(missing_ok=True)
            else:
                write_atomic(path, text)
        # The recorded cost was paid once; a replay costs nothing.
        return BackendResult(response.output or "", response.exit_code, cost_usd=0.0)

    def verdict(self) -> Verdict:
        """Return whether the whole cassette was replayed without a mismatch."""
        return self._replay.verdict()

    def summary(self) -> ReplaySummary:
        """Return the counts of the replay."""
        return self._replay.summary()
