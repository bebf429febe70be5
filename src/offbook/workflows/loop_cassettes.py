"""Cassettes of the loop: the turns of an agent are recorded, and an agent that replays them.

A cassette of the loop contains for each iteration the hat, the prompt, the output and the files
that the agent changed. A replay writes the same files, so the next prompt is the recorded one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from offbook.checks.expected_files import MAX_TEXT_SIZE, capture_snapshot, read_small_text
from offbook.errors import RunError, UsageError, did_you_mean, name_some
from offbook.exchange.model import ModelSource
from offbook.files import write_atomic
from offbook.runs.agents import BACKENDS, BackendConfig, NoModel, open_backend
from offbook.sources.cassette.format import RecordedResponse
from offbook.sources.cassette.journal import load_cassette
from offbook.sources.cassette.replay import Cassette, ReplaySummary
from offbook.subjects.subject import PlainSubject
from offbook.trace.events import ProcessExitData, ProcessOutputData
from offbook.workflows.hat_loop import SCRATCHPAD, SUMMARY, AgentTurn
from offbook.workflows.workspace import CASSETTES, Workspace, check_name

if TYPE_CHECKING:
    from offbook.exchange.model import ToolAliases
    from offbook.sources.cassette.recording import Recording
    from offbook.subjects.subject import ModelAccess, RunContext, Subject
    from offbook.trace.events import Verdict
    from offbook.trace.hub import Hub

WORKSPACE_ROOT = "WORKSPACE"  # replaces the path of the workspace in a cassette
DEFAULT_ITERATIONS = 10


def cassette_path(workspace: Workspace, name: str) -> Path:
    """Return the path of a cassette, existing or not."""
    check_name("cassette", name)
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


class TurnRecorder:
    """Records each turn of the loop, with the files that it changed.

    A cassette contains small texts only. Another new file is left out, with a warning: an
    assertion on it fails in a replay. Another changed file is an error, since a replay would keep
    its old text.
    """

    def __init__(self, recording: Recording, folder: Path) -> None:
        self._recording = recording
        self._folder = folder
        self._files = capture_snapshot(folder).files
        self._left_out: set[str] = set()

    def __call__(self, turn: AgentTurn) -> None:
        """Record a turn."""
        if turn.truncated:
            raise RunError("the agent wrote too much output to be recorded", hint="print less")
        # Compared by content: an agent may write a file twice, or write the same text again.
        before, self._files = self._files, capture_snapshot(self._folder).files
        changed: dict[str, str | None] = {}
        for name in sorted(before.keys() | self._files.keys()):
            if before.get(name) == self._files.get(name):
                continue
            text = read_small_text(self._folder / name)
            if text is not None or name not in self._files:
                changed[name] = text
            elif name not in before or name in self._left_out:
                self._left_out.add(name)
            else:
                raise RunError(
                    f"the change of {name} cannot be recorded: it is now not a text of up to "
                    f"{MAX_TEXT_SIZE >> 20} MiB",
                    hint="fix: let the agent write a new file instead, and keep this one",
                )
        self._left_out -= changed.keys()
        response = RecordedResponse(
            output=turn.output,
            exit_code=turn.exit_code,
            tokens=turn.tokens,
            cost_dollars=turn.cost_usd,
            duration_ms=round(turn.seconds * 1000),
            files=changed,
        )
        self._recording.record_output(turn.prompt, response, hat=turn.hat)

    def warnings(self) -> list[str]:
        """Return a warning that names the new files without a place in the cassette."""
        if not self._left_out:
            return []
        fact = f"not in the cassette, which has texts of up to {MAX_TEXT_SIZE >> 20} MiB only"
        return [f"{fact}: {name_some(sorted(self._left_out))}"]


class CassetteAgent(PlainSubject):
    """A subject that answers with a cassette of the workspace, and writes the recorded files.

    With `passthrough`, prompts that were not recorded go to that agent.
    """

    name = "cassette"

    def __init__(
        self,
        workspace: Workspace,
        cassette: str,
        *,
        strict: bool = True,
        redactions: Mapping[str, Any] | None = None,
    ) -> None:
        self._workspace = workspace
        self._strict = strict
        self._redactions = redactions
        self._file = load_cassette(find_cassette(workspace, cassette))
        self._metadata = self._file.header.metadata
        self._passthrough: Subject | None = None
        self._replay = self._open_replay()

    def _open_replay(self, hub: Hub | None = None) -> Cassette:
        return Cassette(
            self._file,
            strict=self._strict,
            passthrough=NoModel() if self._passthrough else None,
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
        """Reject a recording of another task if strict, and restore the recorded scratchpad.

        The scratchpad is part of the prompts, so in a used workspace its earlier text would differ
        from the recording.
        """
        if self._strict:
            self._replay.check_task(task)
        if not self._workspace.session.exists():
            return
        scratchpad = self._workspace.resolve(SCRATCHPAD)
        recorded = self._metadata.get("scratchpad")
        if isinstance(recorded, str):
            write_atomic(scratchpad, recorded)
        elif "max_iterations" in self._metadata:  # recorded by this tool, without a scratchpad
            scratchpad.unlink(missing_ok=True)

    def allow_passthrough(self, config: BackendConfig) -> ModelSource | None:
        """Pass unrecorded prompts to an agent, by default the one that was recorded.

        Return the model of that agent.
        """
        if not config.backend:
            name = str(self._metadata.get("backend", ""))
            if name not in BACKENDS:
                raise UsageError("passthrough needs a backend", hint='backend="codex"')
            command = config.command or tuple(cast("list[str]", self._metadata.get("command", ())))
            config = BackendConfig(name, command, config.env, config.playbook)
        self._passthrough, source = open_backend(config, self._workspace.path)
        return source

    @property
    def model_access(self) -> ModelAccess:
        """The way in which the agent of unrecorded prompts reaches its model."""
        return "call" if self._passthrough is None else self._passthrough.model_access

    @property
    def emits_tool_calls(self) -> bool:
        """True unless the agent of unrecorded prompts emits none."""
        return self._passthrough is None or self._passthrough.emits_tool_calls

    @property
    def tool_aliases(self) -> ToolAliases:
        """The tool names of the agent of unrecorded prompts."""
        return getattr(self._passthrough, "tool_aliases", {})

    async def open(self, context: RunContext, /) -> None:
        """Report to the hub of this run from now on."""
        # Opened again: a replay reports drift and passthrough to the hub of its run.
        if self._context is None:
            self._replay = self._open_replay(context.hub)
        self._context = context
        if self._passthrough is not None:
            await self._passthrough.open(context)

    async def prompt(self, text: str, /) -> object:
        """Return the recorded answer, or pass the prompt to the agent."""
        hub, hat = self.context.hub, self.context.variables["OFFBOOK_HAT"]
        response = self._replay.reply_to_prompt(text, hat)
        if response is None:
            # Without passthrough, `reply_to_prompt` has raised a mismatch.
            assert self._passthrough is not None  # noqa: S101 - narrows the type
            return await self._passthrough.prompt(text)
        for name, content in response.files.items():
            path = self._workspace.resolve(name)
            if content is None:
                path.unlink(missing_ok=True)
            else:
                write_atomic(path, content)
        output = response.output or ""
        if output:
            hub.emit_data(ProcessOutputData("stdout", output, hat))
        if response.exit_code:
            hub.emit_data(ProcessExitData(response.exit_code))
        # The recorded cost was paid once; a replay costs nothing.
        hub.emit(SUMMARY, {"hat": hat, "cost_usd": 0.0})
        return output

    async def close(self) -> None:
        """Close the agent of unrecorded prompts."""
        if self._passthrough is not None:
            await self._passthrough.close()

    def verdicts(self) -> Iterable[Verdict]:
        """Return whether the whole cassette was replayed without a mismatch."""
        return (self._replay.verdict(),)

    def summary(self) -> ReplaySummary:
        """Return the counts of the replay."""
        return self._replay.summary()
