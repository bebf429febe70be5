"""What every agent on the command line is: a recipe, a home of its own, and one process a prompt.

A client's file says how it is called for the first prompt and for the following ones, which
environment and files it needs, and how its output is read. The rest is the same for all: the
process is isolated, has a deadline, and leaves nobody behind. Its tool calls are read off the
wire.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, Unpack

import msgspec

from offbook.errors import DeadlineExceeded, RunError, UsageError
from offbook.exchange.providers import client_env
from offbook.subjects.process import ProcessResult, isolated_env, run_process
from offbook.trace.events import PROCESS_EXIT, PROCESS_OUTPUT, PROCESS_START

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.subjects.subject import ModelAccess, RunContext
    from offbook.trace.events import Verdict

CLIENTS_VARIABLE = "OFFBOOK_CLIENTS"
EVENT, RESULT = "process.event", "process.result"
TAIL = 12
DEADLINE = 120.0


class ClientPackage(msgspec.Struct, frozen=True):
    """A program that others wrote: its name, where it comes from, and the version tried here."""

    title: str
    program: str
    package: str
    tested_version: str
    manager: Literal["npm", "pip"] = "npm"

    @property
    def requirement(self) -> str:
        """What its package manager installs."""
        return f"{self.package}{'==' if self.manager == 'pip' else '@'}{self.tested_version}"

    @property
    def install_command(self) -> str:
        """The command that installs it."""
        if not self.package:
            return f"install {self.title}"
        return f"{'pip install' if self.manager == 'pip' else 'npm install -g'} {self.requirement}"

    def find(self) -> str | None:
        """Where it is: in the folder that OFFBOOK_CLIENTS names, or else on the PATH."""
        inside = f"{self.package}/bin" if self.manager == "pip" else "node_modules/.bin"
        place = os.environ.get(CLIENTS_VARIABLE)
        folder = str(Path(place).resolve() / inside) if place else ""
        return (folder and shutil.which(self.program, path=folder)) or shutil.which(self.program)


class AgentOutput(msgspec.Struct, frozen=True):
    """What came of one prompt: the agent's last words, and by which name its session goes on.

    `error` is why it gave up, for those whose exit code does not tell.
    """

    text: str = ""
    session: str = ""
    error: str = ""


class CliOptions(TypedDict, total=False):
    """What every client can be told: see `Cli`."""

    program: str | None
    arguments: Sequence[str]
    env: Mapping[str, str] | None
    deadline: float
    codes: Collection[int]
    mcp: Mapping[str, Sequence[str]]


class CliAgent(ABC):
    """A subject that is a command.

    `program` is where it is, if not on the PATH; `arguments` and `env` are added to the recipe's
    own. A prompt fails the run when it takes longer than `deadline` seconds, or ends with an exit
    code that is not among `codes`. `mcp` has servers of the Model Context Protocol for it, the
    command of each by its name: `mcp={"offbook": ["offbook", "mcp"]}`.
    """

    name: str = ""
    client: ClassVar[ClientPackage | None] = None
    model_access: ModelAccess = "endpoint"
    emits_tool_calls = False

    def __init__(self, **options: Unpack[CliOptions]) -> None:
        deadline = options.get("deadline", DEADLINE)
        if deadline <= 0:
            raise UsageError(f"a deadline of {deadline:g} s is over already", hint="give seconds")
        self.program = options.get("program") or ""
        self.arguments = tuple(options.get("arguments", ()))
        self.output = AgentOutput()
        self.process_result: ProcessResult | None = None
        self._given = options.get("program")
        self._extra = dict(options.get("env") or {})
        self._deadline = deadline
        self._codes = frozenset(options.get("codes", (0,)))
        self.servers = _list_servers(options.get("mcp", {}))
        self._env: dict[str, str] = {}
        self.home = Path()
        self._stage: RunContext | None = None

    # ------------------------------------------------------------------------- the recipe

    @abstractmethod
    def command(self, text: str, session: str) -> Sequence[str]:
        """The words that say this to it; `session` is empty for the first prompt."""

    def stdin(self, text: str) -> bytes:  # noqa: ARG002 - most clients take the prompt as a word
        """What it reads."""
        return b""

    def environment(self, endpoint: str) -> dict[str, str]:
        """What it must find in its environment."""
        return client_env(endpoint)

    def files(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - most clients need none
        """What it must find in its home."""
        return {}

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - for those who print no JSON
        """What it said, from all it printed and the JSON lines among it."""
        return AgentOutput(stdout.strip())

    # ------------------------------------------------------------------------ the subject

    async def open(self, stage: RunContext) -> None:
        """Find it, and make its home."""
        if self.client is not None:
            self.program = _locate(self.client, self._given)
        self._stage = stage
        self.output = AgentOutput()
        self.home = _furnish(self.files(stage.endpoint))
        self._env = isolated_env(self.home, {**self.environment(stage.endpoint), **self._extra})

    @property
    def stage(self) -> RunContext:
        """What it was opened on."""
        if self._stage is None:
            raise UsageError(f"{self.name} is not open", hint="drive it: offbook.drive(…)")
        return self._stage

    async def prompt(self, text: str) -> None:
        """Run it once, with this prompt."""
        stage = self.stage
        command = self.command(text, self.output.session)
        stage.hub.emit(PROCESS_START, {"command": list(command)})
        ended = await run_process(
            command,
            cwd=stage.cwd,
            env=self._env,
            deadline=self._deadline,
            stdin=self.stdin(text),
        )
        self.process_result = ended
        self.emit_result(stage, ended)
        self._judge(command, ended)

    def emit_result(self, stage: RunContext, ended: ProcessResult) -> None:
        """Tell what it printed when it is over: in between, the order would be one of chance."""
        lines = [(line, _as_event(line)) for line in ended.stdout.removesuffix("\n").split("\n")]
        plain = "\n".join(line for line, event in lines if event is None)
        for event in (event for _, event in lines if event is not None):
            stage.hub.emit(EVENT, event)
        for stream, text in (("stdout", plain), ("stderr", ended.stderr)):
            if text.strip():
                stage.hub.emit(PROCESS_OUTPUT, {"stream": stream, "text": text})
        about = {"code": ended.code, "timed_out": ended.timed_out, "truncated": ended.truncated}
        stage.hub.emit(
            PROCESS_EXIT, {**about, "leaked": list(ended.leaked)} if ended.leaked else about
        )
        said = self.parse_output(ended.stdout, [event for _, event in lines if event is not None])
        self.output = AgentOutput(said.text, said.session or self.output.session, said.error)
        stage.hub.emit(RESULT, {"text": said.text, "session": self.output.session})

    def _judge(self, command: Sequence[str], ended: ProcessResult) -> None:
        if ended.timed_out:
            raise DeadlineExceeded(
                f"{self.name} still ran after {self._deadline:g} s, and was ended",
                hint=_last_words(ended) or "it said nothing; give it more: deadline=…",
            )
        if ended.code not in self._codes:
            raise RunError(
                f"{self.name} ended with exit code {ended.code}",
                where=Path(command[0]).name,
                hint=_last_words(ended) or f"it said nothing; allowed: {sorted(self._codes)}",
            )
        if self.output.error:
            raise RunError(f"{self.name} gave up: {self.output.error}", where=Path(command[0]).name)

    async def close(self) -> None:
        """Remove its home."""
        home, self.home, self._stage = self.home, Path(), None
        if home.is_absolute():
            shutil.rmtree(home, ignore_errors=True)

    def tools(self) -> None:
        """Only its requests tell."""
        return

    def commands(self) -> tuple[str, ...]:
        """None that we know of."""
        return ()

    def verdicts(self) -> Iterable[Verdict]:
        """It has nothing to add."""
        return ()


def _furnish(files: Mapping[str, str]) -> Path:
    """A new home with these files in it."""
    home = Path(tempfile.mkdtemp(prefix="offbook-home-")).resolve()
    for name, text in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            path.chmod(0o755)
    return home


def _locate(client: ClientPackage, program: str | None) -> str:
    """The program to run: the one that was named, or the one that is installed."""
    found = program or client.find()
    if found is None:
        raise UsageError(
            f"{client.title} is not installed: there is no {client.program!r} on the PATH",
            hint=f"fix: {client.install_command}, or name it: program=…",
        )
    return found


def _list_servers(given: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Each server as every client's configuration has it: a program, and its arguments."""
    servers: dict[str, dict[str, Any]] = {}
    for name, command in given.items():
        if isinstance(command, str) or not command:
            raise UsageError(
                f"the MCP server {name!r} is no command", hint='mcp={"offbook": ["offbook", "mcp"]}'
            )
        servers[name] = {"command": command[0], "args": list(command[1:])}
    return servers


def _as_event(line: str) -> dict[str, Any] | None:
    """The object of a line that is one, and nothing else."""
    if not line.startswith("{"):
        return None
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def _last_words(ended: ProcessResult) -> str:
    words = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
    return "\n".join(f"  {line[:300]}" for line in words[-TAIL:])
