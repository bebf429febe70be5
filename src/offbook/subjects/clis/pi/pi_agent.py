"""The subject: options, command line, files, and the prompts of each mode."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack, cast

import msgspec

from offbook.errors import RunError, ToolFailed, UsageError, did_you_mean, require_known
from offbook.exchange.model import ToolAlias, ToolAliases
from offbook.options import decode, require_list, require_mapping
from offbook.subjects.clis.cli import AgentOutput, CliAgent, ClientPackage, CliOptions
from offbook.subjects.clis.pi.pi_process import (
    CHANNEL_VARIABLE,
    WARM,
    PiChannel,
    PiProcess,
    WarmHost,
    check_version,
    find_host,
    keep_host,
    parse_version,
    quiet_options,
)
from offbook.subjects.clis.pi.pi_run import PiRun, PiTools
from offbook.subjects.mock_tools import DEFAULTS, validate_mock_ui
from offbook.subjects.subject import SKILL_HINT, Skill
from offbook.trace.events import ProcessStartData

if TYPE_CHECKING:
    from offbook.subjects.subject import RunContext
    from offbook.trace.events import Verdict

PiMode = Literal["rpc", "json", "print"]
MODES = ("rpc", "json", "print")
CONFIG_FOLDER = ".pi/agent"
WITNESS = ".offbook"
PROVIDER = "offbook"
# Without RPC, pi prints the exceptions of extensions, and does not name the hook.
EXTENSION_ERROR = re.compile(r"^Extension error \((.+?)\): (.*)$", re.MULTILINE)
# Methods of ctx.ui that the Python session does not have. RPC mode drops most of them.
MORE_UI = (
    "custom",
    "set_editor_component",
    "set_editor_text",
    "set_footer",
    "set_header",
    "set_hidden_thinking_label",
    "set_theme",
    "set_title",
    "set_tools_expanded",
    "set_working_indicator",
    "set_working_message",
    "set_working_visible",
)


class Pi(CliAgent):
    """Pi as a subject: `offbook.drive(Pi(extensions=["./guard.ts"]))`.

    `extensions` are TypeScript or JavaScript files, or folders of packages with a pi manifest.
    `mock_tools`, `mock_ui`, `mock_extension_tools` and `propagate_errors` are those of `session()`.
    A script calls pi's tools by their own names: `call("bash", {"command": "ls"})`.

    `mode` is `"rpc"` with a user interface, or `"json"` or `"print"` without one. `settings` are
    added to pi's settings file, `system_prompt` replaces its system prompt, `skills` are added.
    `home_files` are files of an extension in pi's home, such as its configuration:
    `{".pi/agent/extensions/guard/config.json": "{}"}`.

    With `warm`, one process serves all tests with the same options, each with a new session: state
    in the modules of an extension stays.

    Installed extensions, skills, prompt templates and themes of the user are not loaded.
    """

    name = "pi"
    client = ClientPackage("pi", "pi", "@earendil-works/pi-coding-agent", "0.74.2")
    tool_aliases: ClassVar[ToolAliases] = {"shell": ToolAlias("bash")}

    def __init__(  # noqa: PLR0913 - the options of a session
        self,
        *,
        extensions: Iterable[Path | str] = (),
        mock_tools: Mapping[str, Any] | None = None,
        mock_ui: Mapping[str, Any] | None = None,
        mock_extension_tools: bool = False,
        propagate_errors: bool = True,
        mode: PiMode = "rpc",
        warm: bool = False,
        system_prompt: str = "",
        skills: Iterable[Skill | Mapping[str, Any]] = (),
        settings: Mapping[str, Any] | None = None,
        home_files: Mapping[str, str] | None = None,
        model: str = "offbook",
        **options: Unpack[CliOptions],
    ) -> None:
        super().__init__(**options)
        require_known("unknown mode", mode, MODES)
        if warm and mode != "rpc":
            raise UsageError(
                f"warm has no effect in mode {mode!r}: pi exits after each prompt",
                hint='remove one of the two, or write mode="rpc"',
            )
        self.has_ui = mode == "rpc"
        self._mock_ui = validate_mock_ui(require_mapping(mock_ui, "mock_ui"), MORE_UI)
        if not self.has_ui and (answered := [m for m in self._mock_ui if m in DEFAULTS]):
            raise UsageError(
                f"mock_ui[{answered[0]!r}] has no effect: mode {mode!r} declines every question",
                hint="remove one of the two",
            )
        self._mode = mode
        self._warm = warm
        self._model = model
        self._system_prompt = system_prompt
        self._skills = decode(
            require_list(skills, "skills"), tuple[Skill, ...], "skills", hint=SKILL_HINT
        )
        self._settings = dict(require_mapping(settings, "settings"))
        self._home_files = dict(require_mapping(home_files, "home_files"))
        self._propagate_errors = propagate_errors
        self.extensions = [_find_extension(item) for item in require_list(extensions, "extensions")]
        self.tool_watch = PiTools(
            require_mapping(mock_tools, "mock_tools"),
            mock_extensions=mock_extension_tools,
            propagate_errors=propagate_errors,
        )
        self.version = ""
        self._run: PiRun | None = None
        self._channel: PiChannel | None = None
        self.process: PiProcess | None = None
        self._host: WarmHost | None = None
        self._error: BaseException | None = None
        self._commands: set[str] = set()

    @property
    def mocked(self) -> Collection[str]:
        """The names of the mocked tools."""
        return self.tool_watch.mocks.by_name

    # --- The command line and the files

    def command(self, text: str, session: str) -> list[str]:
        """Return the command line; in an isolated home the latest session is the right one."""
        command = [self.program, "--provider", PROVIDER, "--model", self._model]
        command += quiet_options(self.version)
        if self._system_prompt:
            command += ["--system-prompt", self._system_prompt]
        for number, _ in enumerate(self._skills):
            command += ["--skill", str(self.home / WITNESS / f"skill-{number}")]
        witness = self.home / WITNESS
        for extension in (witness / "first.js", *self.extensions, witness / "last.js"):
            command += ["-e", str(extension)]
        command += self.arguments
        if self._mode == "rpc":
            return [*command, "--mode", "rpc", *([] if self._warm else ["--no-session"])]
        mode = ["--mode", "json"] if self._mode == "json" else []
        return [*command, *mode, *(["--continue"] if session else []), "--print", text]

    def environment(self, endpoint: str) -> dict[str, str]:
        """Return the environment, with telemetry and update checks disabled."""
        # An extension may start `pi` itself: it gets this one.
        folder = str(Path(self.program).absolute().parent)
        return {
            **super().environment(endpoint),
            "PATH": os.pathsep.join([folder, os.environ.get("PATH", "")]),
            "PI_OFFLINE": "1",
            "PI_TELEMETRY": "0",
        }

    def files(self, endpoint: str) -> dict[str, str]:
        """Return the witness, the list of models, and the settings with retries disabled."""
        provider = {
            "baseUrl": f"{endpoint}/v1",
            "api": "openai-completions",
            "apiKey": "OPENAI_API_KEY",
            "models": [{"id": self._model}],
        }
        settings = {
            "retry": {"enabled": False},
            "defaultProvider": PROVIDER,
            "defaultModel": self._model,
            **self._settings,
        }
        configs = {"models.json": {"providers": {PROVIDER: provider}}, "settings.json": settings}
        witness = Path(__file__).with_name("witness.js").read_text(encoding="utf-8")
        return {
            **{
                f"{CONFIG_FOLDER}/{name}": msgspec.json.encode(config).decode()
                for name, config in configs.items()
            },
            **{
                f"{WITNESS}/{role}.js": f'const ROLE = "{role}";\n{witness}'
                for role in ("first", "last")
            },
            **_skill_files(self._skills),
            **self._home_files,
        }

    # --- The run

    async def open(self, context: RunContext) -> None:
        """Start pi and load the extensions; in the other modes, each prompt does."""
        await super().open(context)
        self.version = await check_version(self.program, self.process_env)
        self._warm = self._warm and parse_version(self.version) >= WARM
        self._context_variables = copy_context()
        for extension in self.extensions:
            context.hub.emit("session.extension", {"extension": extension.name})
        if self._warm:
            await self._open_warm(context)
            return
        witness = self._prepare(context)
        self._channel = PiChannel(self._answer)
        self.process_env[CHANNEL_VARIABLE] = str(await self._channel.open(witness))
        if self._mode == "rpc":
            await self._start(context)

    def _prepare(self, context: RunContext) -> Path:
        """Create the run; return the folder of its witness."""
        witness = self.home / WITNESS
        self._run = PiRun(
            self.tool_watch,
            self._mock_ui,
            context,
            has_ui=self.has_ui,
            witness=witness,
            fail=self._fail,
        )
        return witness

    async def _start(self, context: RunContext) -> None:
        command = self.command("", "")
        context.hub.emit_data(ProcessStartData(command))
        self.process = PiProcess(command, cwd=context.cwd, env=self.process_env)
        self.process.run = self._run
        await self.process.start(self.deadline)
        self._commands = await self.process.extension_commands()
        self._raise_errors(self.process.take_errors())

    async def _open_warm(self, context: RunContext) -> None:
        """Use the warm process with the same options, or start it."""
        files = self.files(context.endpoint)
        own = [text for name, text in files.items() if not name.endswith("models.json")]
        extra = sorted(self._extra_env.items())
        command = self.command("", "")[1:]
        key = (self.program, *(word.replace(str(self.home), "") for word in command), *own, *extra)
        host = find_host(key)
        if host is None:
            host = WarmHost(self.home)
            witness = self._prepare(context)
            host.handler = self._answer
            context.hub.emit_data(ProcessStartData(self.command("", "")))
            command = self.command("", "")
            await host.call(host.start(command, self.process_env, witness, self.deadline))
            keep_host(key, host)
        else:
            shutil.rmtree(self.home, ignore_errors=True)
            self.home = host.home
            self._prepare(context)
            host.handler = self._answer
        self._host, self.process = host, cast("PiProcess", host.process)
        process = self.process
        process.run = self._run
        # Each rehearsal has its own address of the model.
        models = f"{CONFIG_FOLDER}/models.json"
        (self.home / models).write_text(files[models], encoding="utf-8")
        await host.call(process.within(self.deadline, host.new_session(context.cwd)))
        self._commands = await host.call(process.extension_commands())
        self._raise_errors(process.take_errors())

    async def _reopen_warm(self, context: RunContext) -> None:
        """Start another process, in a new home, after a run that killed it."""
        self._host = None
        await super().open(context)
        await self._open_warm(context)

    def _fail(self, error: BaseException) -> None:
        """Fail the run by an error of the test, such as an exception of a mock."""
        self._error = self._error or error
        if self.process is not None:
            self.process.fail(error)

    async def _answer(self, kind: str, question: dict[str, Any]) -> Any:
        # Mocks run in the context of the test, also in the thread of a warm process.
        if self._run is None:
            return None
        work = self._run.answer(kind, question)
        return await asyncio.create_task(work, context=self._context_variables)

    async def prompt(self, text: str) -> str | None:
        """Send a prompt and wait until pi is idle; return its final text."""
        self._error = None
        self._context_variables = copy_context()
        if self._mode == "rpc":
            await self._prompt(text)
        else:
            await super().prompt(text)
            printed = "" if self.process_result is None else self.process_result.stderr
            self._raise_errors(
                [
                    {"extensionPath": path, "event": "a", "error": error}
                    for path, error in EXTENSION_ERROR.findall(printed)
                ]
            )
        if self._run is not None:
            self._run.ui.raise_errors()
        if self._error is not None:
            raise self._error
        if self.output.error:
            raise RunError(f"{self.name} failed: {self.output.error}")
        return self.output.text or None

    async def _prompt(self, text: str) -> None:
        context = self.context
        process = self.process
        if process is None or not process.running:  # killed by a run that failed
            await (self._reopen_warm(context) if self._warm else self._start(context))
            process = cast("PiProcess", self.process)
        name, _, args = text.removeprefix("/").partition(" ")
        if text.startswith("/") and name in self._commands:
            context.hub.emit("session.command", {"command": name, "args": args})
        work = process.within(self.deadline, process.prompt(text))
        await (work if self._host is None else self._host.call(work))
        self._raise_errors(process.take_errors())
        self.output = read_answer(process.messages)

    def _raise_errors(self, errors: Sequence[dict[str, Any]]) -> None:
        """Emit the exceptions of extensions, and raise the first."""
        texts = [
            f"{error.get('event')} hook failed in {Path(error['extensionPath']).name}:"
            f" {error.get('error')}"
            for error in errors
        ]
        for text in texts:
            self.context.hub.emit("session.error", {"error": text})
        if texts and self._propagate_errors:
            raise ToolFailed(
                texts[0], hint="fix the extension, or pass propagate_errors=False to continue"
            )

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:
        """Return the text of the last message, the session id, and the error if there is one."""
        if self._mode == "print":
            return AgentOutput(stdout.strip(), "print")
        messages = [event["message"] for event in events if event.get("type") == "message_end"]
        output = read_answer([m for m in messages if m.get("role") == "assistant"])
        sessions = [str(event["id"]) for event in events if event.get("type") == "session"]
        return AgentOutput(output.text, sessions[0] if sessions else "", output.error)

    async def close(self) -> None:
        """Let pi shut down, kill what is left of it, and delete its home."""
        process, self.process = self.process, None
        channel, self._channel = self._channel, None
        host, self._host = self._host, None
        if host is not None:  # it stays for the next test
            host.handler = None
            self.home = Path()
            process = None
        try:
            if process is not None:
                await process.close()
        finally:
            if channel is not None:
                await channel.close()
            await super().close()

    def tools(self) -> Collection[str] | None:
        """Return the names of its tools; None before pi has started."""
        return self.tool_watch.names or None

    def commands(self) -> tuple[str, ...]:
        """Return the commands of the extensions."""
        return tuple(self._commands)

    def verdicts(self) -> Iterable[Verdict]:
        """Return a failed verdict if mocks or answers were never used."""
        return () if self._run is None else self._run.verdicts()


def read_answer(messages: Sequence[dict[str, Any]]) -> AgentOutput:
    """Return the text of the last message of the assistant, and its error if there is one."""
    last: dict[str, Any] = messages[-1] if messages else {}
    text = "".join(b.get("text", "") for b in last.get("content", []) if b.get("type") == "text")
    error = ""
    if last.get("stopReason") == "error":  # the exit code is 0 all the same
        error = str(last.get("errorMessage") or "no error message")
    return AgentOutput(text, "", error)


def _find_extension(item: object) -> Path:
    """Return the absolute path of an extension: a file, or the folder of a package."""
    if not isinstance(item, (str, Path)):
        raise UsageError(
            f"extensions: expected a path, got {type(item).__name__}",
            hint="pi loads .ts and .js files and folders of packages",
        )
    path = Path(item).absolute()
    if not path.exists():
        names = [p.name for p in path.parent.glob("*")] if path.parent.is_dir() else []
        raise UsageError(
            "extension not found", where=str(item), hint=did_you_mean(path.name, names)
        )
    return path


def _skill_files(skills: Sequence[Skill]) -> dict[str, str]:
    files: dict[str, str] = {}
    for number, skill in enumerate(skills):
        head = f"---\nname: {skill.name}\ndescription: {skill.description}\n---\n"
        files[f"{WITNESS}/skill-{number}/{skill.name}/SKILL.md"] = f"{head}\n{skill.content}\n"
    return files
