"""The base class of all command-line agents: one process per prompt, in an isolated home.

The file of a client defines its command line for the first and the following prompts, the
environment and configuration files it needs, and how its output is parsed. The rest is the same
for all: the process gets its own home directory and a deadline, and its whole tree is killed at
the end. Tool calls are derived from its requests to the model.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, Unpack

import msgspec

from offbook.errors import DeadlineExceeded, RunError, UsageError, require_known
from offbook.exchange.providers import client_env
from offbook.options import Seconds, decode
from offbook.subjects.process import (
    MAX_OUTPUT,
    ProcessResult,
    describe_exit,
    describe_missing_file,
    isolated_env,
    last_lines,
    run_process,
)
from offbook.subjects.subject import PlainSubject
from offbook.trace.events import ProcessOutputData, ProcessStartData

if TYPE_CHECKING:
    from offbook.subjects.subject import ModelAccess, RunContext

CLIENTS_VARIABLE = "OFFBOOK_CLIENTS"
PROCESS_EVENT, PROCESS_RESULT = "process.event", "process.result"
DEADLINE = 120.0


class ClientPackage(msgspec.Struct, frozen=True):
    """A third-party client: its program, its package, and the version that is tested here."""

    title: str
    program: str
    package: str
    tested_version: str
    manager: Literal["npm", "pip"] = "npm"

    @property
    def requirement(self) -> str:
        """The tested version as its package manager writes it."""
        return f"{self.package}{'==' if self.manager == 'pip' else '@'}{self.tested_version}"

    @property
    def install_command(self) -> str:
        """The command that installs the tested version."""
        if not self.package:
            return f"install {self.title}"
        return f"{'pip install' if self.manager == 'pip' else 'npm install -g'} {self.requirement}"

    def find(self) -> str | None:
        """Return the path of the program in the folder OFFBOOK_CLIENTS, or on the PATH."""
        clients = os.environ.get(CLIENTS_VARIABLE)
        # A virtual environment per package; one npm prefix for all, or one per program.
        npm = ["node_modules/.bin", f"{self.program}/node_modules/.bin"]
        layouts = [f"{self.package}/bin"] if self.manager == "pip" else npm
        folders = [str(Path(clients).resolve() / layout) for layout in layouts] if clients else []
        found = shutil.which(self.program, path=os.pathsep.join(folders)) if folders else None
        return found or shutil.which(self.program)


class AgentOutput(msgspec.Struct, frozen=True):
    """The parsed output of one prompt.

    `text` is the agent's final message, `session` the id with which the next prompt resumes.
    `error` is the reason of a failure, for clients whose exit code does not show it.
    """

    text: str = ""
    session: str = ""
    error: str = ""


class AcpLaunch(msgspec.Struct, frozen=True):
    """The start of a client that speaks ACP: its command, and the requests for its session."""

    command: list[str]
    env: dict[str, str] = {}
    settings: dict[str, dict[str, str]] = {}


class CliOptions(TypedDict, total=False):
    """The options of every client, described in `CliAgent`."""

    program: str | None
    arguments: Sequence[str]
    env: Mapping[str, str] | None
    deadline: float
    codes: Collection[int]
    mcp: Mapping[str, Sequence[str]]


class CliAgent(PlainSubject, ABC):
    """A subject that runs a command for each prompt.

    `program` is the path of the program, if it is not on the PATH. `arguments` and `env` are added
    to those of the client. A prompt fails if it takes longer than `deadline` seconds or if its
    exit code is not one of `codes`. `mcp` lists MCP servers for the client, by name:
    `mcp={"offbook": ["offbook", "mcp"]}`.

    After a prompt, `output` is the parsed output and `process_result` the exit and the raw output.
    `process_env` is the environment of its processes, from the start of the run.
    """

    name: str = ""
    client: ClassVar[ClientPackage | None] = None
    acp_client: ClassVar[ClientPackage | None] = None  # that speaks ACP in its place
    model_access: ModelAccess = "endpoint"
    # False for a command whose output is text: it is emitted as it arrives, JSON or not.
    prints_events = True

    def __init__(self, **options: Unpack[CliOptions]) -> None:
        for name in options:
            parameters = signature(type(self).__init__).parameters.values()
            own = [p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
            known = (*own, *CliOptions.__annotations__)
            require_known(f"{type(self).__name__} has no option", name, known)
        self.program = options.get("program") or ""
        self.arguments = tuple(options.get("arguments", ()))
        self.output = AgentOutput()
        self.process_result: ProcessResult | None = None
        self._program = options.get("program")
        self._extra_env = dict(options.get("env") or {})
        self.deadline: float = decode(options.get("deadline", DEADLINE), Seconds, "deadline")
        self._codes = frozenset(options.get("codes", (0,)))
        self.mcp_servers = parse_mcp_servers(options.get("mcp", {}))
        self.process_env: dict[str, str] = {}
        self.home = Path()

    # --- defined by each client

    @abstractmethod
    def command(self, text: str, session: str) -> Sequence[str]:
        """Return the command line for a prompt; `session` is empty for the first one."""

    def stdin(self, text: str) -> bytes:  # noqa: ARG002 - most clients take the prompt as an argument
        """Return the standard input."""
        return b""

    def environment(self, endpoint: str) -> dict[str, str]:
        """Return the environment variables, by default the base URLs and keys of all providers."""
        return client_env(endpoint)

    def files(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - most clients need none
        """Return the files in the home directory, by relative path."""
        return {}

    def server_tool_name(self, server: str, tool: str) -> str:  # noqa: ARG002 - most clients add it
        """Return the name that the client gives to a tool of an MCP server."""
        return tool

    def acp_launch(self) -> AcpLaunch:
        """Return how the client is started to speak ACP."""
        raise UsageError(f"{self.name} does not speak ACP", hint="drive it without Acp(…)")

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - for clients that print JSON
        """Parse the output, given as a text and as the JSON objects on lines of their own."""
        return AgentOutput(stdout.strip())

    # --- the same for all clients

    async def open(self, context: RunContext) -> None:
        """Find the program and create its home directory."""
        await self.prepare(context, self.client)

    async def prepare(self, context: RunContext, client: ClientPackage | None) -> None:
        """Find the program of this package, and create the home directory."""
        if client is not None:
            program = self._program or client.find()
            if program is None:
                raise UsageError(
                    f"{client.title} is not installed: no {client.program!r} on the PATH",
                    hint=f"fix: {client.install_command}, or give its path: program=…",
                )
            # The client runs in another folder than the test.
            self.program = os.path.join(os.getcwd(), program) if os.sep in program else program  # noqa: PTH118, PTH109 - a join of texts
        self._context = context
        self.mcp_servers |= parse_mcp_servers({s.name: s.command for s in context.servers})
        self.output = AgentOutput()
        if context.deadline is not None:
            self.deadline = context.deadline
        self.home = _make_home(self.files(context.endpoint))
        env = {
            # A command whose model is not replaced gets no address.
            **(self.environment(context.endpoint) if context.endpoint else {}),
            **context.proxy_env(self._extra_env),
            **context.hub.variables,
            **self._extra_env,
            **context.variables,
        }
        self.process_env = isolated_env(self.home, env)

    async def prompt(self, text: str) -> str | None:
        """Run the command for this prompt until it exits; return its final text."""
        context = self.context
        command = self.command(text, self.output.session)
        # No hub for the process: between the requests, the order of its output would be random.
        # `emit_result` emits all of it at the end.
        if self.prints_events:
            context.hub.emit_data(ProcessStartData(list(command)))
        result = await run_process(
            command,
            cwd=context.cwd,
            env=self.process_env,
            deadline=self.deadline,
            stdin=self.stdin(text),
            hub=None if self.prints_events else context.hub,
            watch=context.watch,
            seal=context.seal,
        )
        self.process_result = result
        self.emit_result(context, result)
        program, printed = Path(command[0]).name, result.stderr.strip() or result.stdout
        if result.timed_out:
            raise DeadlineExceeded(
                f"{self.name} was still running after {self.deadline:g} s and was killed",
                hint=last_lines(printed) or "no output; allow more time with deadline=…",
            )
        if result.truncated and type(self).parse_output is not CliAgent.parse_output:
            # Its JSON is parsed as a whole: without the end, the answer is unknown.
            size = f"{MAX_OUTPUT >> 20} MiB"
            raise RunError(f"{self.name} wrote more than {size}, so its answer is unknown")
        if result.code not in self._codes:
            # The client's own words, where it prints them in its format.
            reason = self.output.error or last_lines(printed)
            error = RunError(
                f"{self.name} {describe_exit(result.code)}",
                where=program,
                hint=reason or f"no output; allowed codes: {sorted(self._codes)}",
            )
            error.add_hint(describe_missing_file(command, context.cwd))
            raise error
        if self.output.error and not result.code:  # an allowed code has been expected
            raise RunError(f"{self.name} failed: {self.output.error}", where=program)
        return self.output.text or None

    def emit_result(self, context: RunContext, result: ProcessResult) -> None:
        """Emit the output and the exit of the process, and parse the output."""
        if not self.prints_events:
            self.output = self.parse_output(result.stdout, ())
            return
        events: list[dict[str, Any]] = []
        plain: list[str] = []
        for line in result.stdout.removesuffix("\n").split("\n"):
            event = _parse_json_line(line)
            if event is None:
                plain.append(line)
            else:
                events.append(event)
                context.hub.emit(PROCESS_EVENT, event)
        for stream, text in (("stdout", "\n".join(plain)), ("stderr", result.stderr)):
            if text.strip():
                context.hub.emit_data(ProcessOutputData(stream, text))
        context.hub.emit_data(result.event_data())
        output = self.parse_output(result.stdout, events)
        # A prompt that printed no session id continues the session before it.
        self.output = AgentOutput(output.text, output.session or self.output.session, output.error)
        context.hub.emit(PROCESS_RESULT, {"text": output.text, "session": self.output.session})

    async def close(self) -> None:
        """Delete the home directory."""
        home, self.home, self._context = self.home, Path(), None
        if home.is_absolute():  # not the empty path of a subject that is not open
            shutil.rmtree(home, ignore_errors=True)


class PlainCommand(CliAgent):
    """A command that is sent its prompts after its start: an agent over ACP, or one that serves."""

    def __init__(self, command: str | Sequence[str], **options: Unpack[CliOptions]) -> None:
        super().__init__(**options)
        self._words = shlex.split(command) if isinstance(command, str) else [*command]
        self.name = Path(self._words[0]).name if self._words else ""

    def command(self, text: str, session: str) -> list[str]:  # noqa: ARG002 - prompts are requests
        """Return the command."""
        return [*self._words, *self.arguments]

    def acp_launch(self) -> AcpLaunch:
        """Return the command as it is."""
        return AcpLaunch(self.command("", ""))


def _make_home(files: Mapping[str, str]) -> Path:
    """Create a home directory with these files; scripts are executable."""
    home = Path(tempfile.mkdtemp(prefix="offbook-home-")).resolve()
    for name, text in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            path.chmod(0o755)
    return home


def parse_mcp_servers(servers: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Return each server as the configuration of every client has it: program and arguments."""
    parsed: dict[str, dict[str, Any]] = {}
    for name, command in servers.items():
        if isinstance(command, str) or not command:
            raise UsageError(
                f"mcp: expected a list of words as command of {name!r}, got {command!r}",
                hint='write mcp={"offbook": ["offbook", "mcp"]}',
            )
        parsed[name] = {"command": command[0], "args": list(command[1:])}
    return parsed


def _parse_json_line(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):  # a number or a string is JSON, too, but no event
        return None
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
