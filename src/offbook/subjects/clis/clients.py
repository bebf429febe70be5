"""The command-line agents that take a prompt and print an answer, each on `cli.py`.

Any command is one (`Command`). The others are known clients: their options, the files that they
need, and the format of their output.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, cast

import msgspec

from offbook.errors import UsageError
from offbook.exchange.messages import join_text
from offbook.exchange.model import CLAUDE_CODE_ALIASES, ToolAlias, ToolAliases
from offbook.subjects.clis.cli import AcpLaunch, AgentOutput, CliAgent, ClientPackage, CliOptions
from offbook.trace.agent_output import scan_output
from offbook.trace.events import (
    ERROR,
    EXIT_CODES,
    REPLY,
    REQUEST,
    UNSET,
    IterationData,
    LoopStartData,
    PublishData,
    TerminationData,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.subjects.process import ProcessResult
    from offbook.subjects.subject import RunContext
    from offbook.trace.events import Event


# --- Any command, and Kiro

PROMPT = "{prompt}"


class Command(CliAgent):
    """Any command as a subject: `offbook.drive(Command("node agent.js {prompt}"))`.

    The prompt replaces `{prompt}`; a command without it reads the prompt from standard input.
    `following` is the command for all prompts after the first. The environment has the base URLs
    and keys of all providers; of our own environment only the PATH and the locale.
    """

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        following: str | Sequence[str] | None = None,
        name: str = "",
        **options: Unpack[CliOptions],
    ) -> None:
        super().__init__(**options)
        if self.mcp_servers:
            raise UsageError(
                "Command does not support mcp", hint="configure the MCP servers in the command"
            )
        self._first = _split(command)
        self._following = self._first if following is None else _split(following)
        self.name = name or Path(self._first[0]).name
        self._prompts = 0
        self._words: list[str] = []

    async def open(self, context: RunContext) -> None:
        """Create the home directory and start with the first command."""
        self._prompts = 0  # a subject may be driven again
        await super().open(context)

    def command(self, text: str, session: str) -> list[str]:  # noqa: ARG002 - it keeps its own sessions
        """Return the command with the prompt inserted."""
        self._words = self._following if self._prompts else self._first
        self._prompts += 1
        return [word.replace(PROMPT, text) for word in [*self._words, *self.arguments]]

    def stdin(self, text: str) -> bytes:
        """Return the prompt unless the command contains it."""
        return b"" if any(PROMPT in word for word in self._words) else text.encode()


def _split(command: str | Sequence[str]) -> list[str]:
    words = shlex.split(command) if isinstance(command, str) else list(command)
    if not words or not all(isinstance(word, str) for word in cast("list[object]", words)):
        raise UsageError(
            f"expected a command, got {command!r}", hint='write Command("node agent.js {prompt}")'
        )
    return words


def _session_ids(events: Sequence[dict[str, Any]]) -> list[str]:
    return [event["session_id"] for event in events if event.get("session_id")]


def _last(values: Sequence[Any]) -> Any:
    """Return the last value, or an empty text."""
    return values[-1] if values else ""


class Kiro(CliAgent):
    """Kiro, the agent of AWS. It uses its own service, so its model cannot be scripted."""

    name = "kiro"
    client = ClientPackage("Kiro", "kiro-cli", "", "")

    def command(self, text: str, session: str) -> list[str]:  # noqa: ARG002 - it cannot resume
        """Return `kiro-cli chat …`."""
        options = ["--no-interactive", "--trust-all-tools"]
        return [self.program, "chat", *options, *self.arguments, text]

    def environment(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - it uses its own service
        """Return nothing: only the caller's `env` is set."""
        return {}


# --- Claude Code


class ClaudeCode(CliAgent):
    """Claude Code as a subject: `offbook.drive(ClaudeCode())`.

    A script calls its tools by their own names, `call("Bash", {"command": "ls", "description":
    "…"})`, or by the common ones, `call("shell", {"command": "ls"})`. `permissions` is its
    permission mode: by default every call is allowed; with `default` it refuses what a user
    would have to allow.
    """

    name = "claude-code"
    client = ClientPackage("Claude Code", "claude", "@anthropic-ai/claude-code", "2.1.325")
    acp_client = ClientPackage(
        "Claude Code for ACP", "claude-code-acp", "@zed-industries/claude-code-acp", "0.16.2"
    )
    tool_aliases: ClassVar[ToolAliases] = CLAUDE_CODE_ALIASES

    def __init__(
        self,
        *,
        model: str = "claude-offbook",
        permissions: str = "bypassPermissions",
        **options: Unpack[CliOptions],
    ) -> None:
        super().__init__(**options)
        self._model = model
        self._permissions = permissions

    def server_tool_name(self, server: str, tool: str) -> str:
        """Return the name with that of the server."""
        return f"mcp__{server}__{tool}"

    def command(self, text: str, session: str) -> list[str]:
        """Return `claude --print …`, resumed by session id."""
        options = ["--model", self._model, "--output-format", "stream-json", "--verbose"]
        options += ["--permission-mode", self._permissions, "--strict-mcp-config"]
        if self.mcp_servers:
            servers = msgspec.json.encode({"mcpServers": self.mcp_servers}).decode()
            options.append(f"--mcp-config={servers}")
        resume = ["--resume", session] if session else []
        return [self.program, "--print", *options, *resume, *self.arguments, "--", text]

    def environment(self, endpoint: str) -> dict[str, str]:
        """Return the environment."""
        # Root may bypass permissions only in a sandbox.
        return {**super().environment(endpoint), **self._search_env, "IS_SANDBOX": "1"}

    @property
    def _search_env(self) -> dict[str, str]:
        # Without it, the tools of MCP servers are not in the request: the model would have to
        # search for them.
        return {"ENABLE_TOOL_SEARCH": "false"} if self.mcp_servers else {}

    def acp_launch(self) -> AcpLaunch:
        """Return `claude-code-acp`, which runs the installed Claude Code."""
        found = self.client and self.client.find()
        executable = {"CLAUDE_CODE_EXECUTABLE": found} if found else {}
        # It selects the first model of its list, which is one of these.
        models = {f"ANTHROPIC_DEFAULT_{name}_MODEL": self._model for name in ("OPUS", "SONNET")}
        return AcpLaunch(
            [self.program, *self.arguments],
            {**self._search_env, **models, **executable},
            {"session/set_mode": {"modeId": self._permissions}},
        )

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints JSON
        """Return the last result and its session id."""
        results = [event.get("result") for event in events if event.get("type") == "result"]
        return AgentOutput(str(_last(results) or ""), _last(_session_ids(events)))


# --- Codex

FAILED = "turn.failed"


class Codex(CliAgent):
    """Codex as a subject: `offbook.drive(Codex())`.

    A script calls its tools by their own names, `call("exec_command", {"cmd": "ls"})`, or as
    `shell`. With a model name that it does not know, it offers plain function tools; a known name
    changes its requests. `sandbox` is its sandbox mode: read-only, workspace-write or
    danger-full-access. `approval` is its approval policy: with `untrusted` it asks a person, which
    needs `Acp(Codex(…))`. `retries` is the number of further requests after a failed one.
    """

    name = "codex"
    client = ClientPackage("Codex", "codex", "@openai/codex", "0.166.0")
    acp_client = ClientPackage("Codex for ACP", "codex-acp", "@zed-industries/codex-acp", "0.16.0")
    tool_aliases: ClassVar[ToolAliases] = {
        "shell": ToolAlias("exec_command", {"command": "cmd"}),
        "bash": ToolAlias("exec_command", {"command": "cmd"}),
    }

    def __init__(
        self,
        *,
        model: str = "gpt-offbook",
        sandbox: str = "danger-full-access",
        approval: str = "never",
        retries: int = 0,
        **options: Unpack[CliOptions],
    ) -> None:
        super().__init__(**options)
        self._model = model
        self._sandbox = sandbox
        self._approval = approval
        self._retries = retries

    def command(self, text: str, session: str) -> list[str]:
        """Return `codex exec …` or `codex exec resume …`."""
        options = ["--skip-git-repo-check", "--json", *self.arguments, "--"]
        if session:
            return [self.program, "exec", "resume", *options, session, text]
        return [self.program, "exec", *options, text]

    def acp_launch(self) -> AcpLaunch:
        """Return `codex-acp`, which has its own Codex and reads the same configuration."""
        return AcpLaunch([self.program, *self.arguments])

    def files(self, endpoint: str) -> dict[str, str]:
        """Return its configuration, because it ignores base URLs in the environment."""
        # Without retries by default: a scripted failure should reach the test at once.
        provider: dict[str, Any] = {
            "name": "offbook",
            "base_url": f"{endpoint}/v1",
            "env_key": "OPENAI_API_KEY",
            "wire_api": "responses",
            "request_max_retries": self._retries,
            "stream_max_retries": self._retries,
        }
        lines = [
            f"model = {_toml(self._model)}",
            'model_provider = "offbook"',
            f"approval_policy = {_toml(self._approval)}",
            f"sandbox_mode = {_toml(self._sandbox)}",
            "[analytics]",
            "enabled = false",
            "[features]",
            "plugins = false",
            "[model_providers.offbook]",
            *(f"{key} = {_toml(value)}" for key, value in provider.items()),
        ]
        for name, server in self.mcp_servers.items():
            # A server that is not required may be missing in the first request if it starts slowly.
            server_config = {**server, "required": True, "startup_timeout_sec": 30}
            lines.append(f"[mcp_servers.{_toml(name)}]")
            lines += [f"{key} = {_toml(value)}" for key, value in server_config.items()]
        return {".codex/config.toml": "\n".join(lines) + "\n"}

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints JSON
        """Return the last message and the thread id."""
        items = [event["item"] for event in events if event.get("type") == "item.completed"]
        texts = [item.get("text", "") for item in items if item.get("type") == "agent_message"]
        threads = [event["thread_id"] for event in events if "thread_id" in event]
        # An `error` may be a retry; only a failed turn is the end.
        failed = [event["error"]["message"] for event in events if event.get("type") == FAILED]
        return AgentOutput(_last(texts), next(iter(threads), ""), _last(failed))


def _toml(value: str | int | list[str]) -> str:
    """Return a string, a number or a list in TOML, which writes them as JSON does."""
    return msgspec.json.encode(value).decode()


# --- Gemini CLI, and Qwen Code, which is a fork of it

SETTINGS: dict[str, Any] = {
    # Without a selected way to sign in, it ignores the base URL and asks the user.
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
}


class GeminiCli(CliAgent):
    """Gemini CLI as a subject: `offbook.drive(GeminiCli())`.

    A script calls its tools by their own names, `call("run_shell_command", {"command": "ls"})`,
    or by the common ones. `model` is always passed: without it, the client sends a request to a
    router first.
    """

    name = "gemini-cli"
    client = ClientPackage("Gemini CLI", "gemini", "@google/gemini-cli", "0.61.0")
    folder = ".gemini"
    settings: ClassVar[dict[str, Any]] = SETTINGS
    tool_aliases: ClassVar[ToolAliases] = {
        "shell": ToolAlias("run_shell_command"),
        "bash": ToolAlias("run_shell_command"),
        "read": ToolAlias("read_file", {"path": "file_path"}),
        "write": ToolAlias("write_file", {"path": "file_path"}),
        "edit": ToolAlias(
            "replace", {"path": "file_path", "old": "old_string", "new": "new_string"}
        ),
    }

    def __init__(
        self,
        *,
        model: str = "gemini-2.5-pro",
        approval: str = "yolo",
        **options: Unpack[CliOptions],
    ) -> None:
        super().__init__(**options)
        self._model = model
        self._approval = approval

    def server_tool_name(self, server: str, tool: str) -> str:
        """Return the name with that of the server."""
        return f"mcp_{server}_{tool}"

    def command(self, text: str, session: str) -> list[str]:
        """Return `gemini --prompt=…`; in an isolated home the latest session is the right one."""
        options = ["--model", self._model, "--output-format", "stream-json", "--skip-trust"]
        options += ["--approval-mode", self._approval]
        resume = ["--resume", "latest"] if session else []
        return [self.program, *options, *resume, *self.arguments, f"--prompt={text}"]

    def acp_launch(self) -> AcpLaunch:
        """Return `gemini --experimental-acp …`."""
        options = ["--model", self._model, "--skip-trust", "--approval-mode", self._approval]
        return AcpLaunch([self.program, "--experimental-acp", *options, *self.arguments])

    def environment(self, endpoint: str) -> dict[str, str]:
        """Return the environment."""
        # It would restart itself with a larger heap, which doubles its start-up time.
        return {**super().environment(endpoint), "GEMINI_CLI_NO_RELAUNCH": "true"}

    def files(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - the base URL is in the environment
        """Return its settings."""
        servers = {name: {**server, "trust": True} for name, server in self.mcp_servers.items()}
        settings = {**self.settings, **({"mcpServers": servers} if servers else {})}
        return {f"{self.folder}/settings.json": msgspec.json.encode(settings).decode()}

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints JSON
        """Return the chunks of the last message, joined, and the session id."""
        chunks: list[str] = []
        for event in events:
            if event.get("type") == "message" and event.get("role") == "assistant":
                chunks.append(str(event.get("content", "")))
            elif event.get("type") != "result":  # a tool call, say: another message follows
                chunks = []
        return AgentOutput("".join(chunks), next(iter(_session_ids(events)), ""))


QWEN_SETTINGS: dict[str, Any] = {
    "security": {"auth": {"selectedType": "openai"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
    # After a prompt, background agents would ask the model what to remember.
    "memory": {
        "enableManagedAutoMemory": False,
        "enableManagedAutoDream": False,
        "enableAutoSkill": False,
    },
}


class QwenCode(GeminiCli):
    """Qwen Code, Alibaba's agent, as a subject: `offbook.drive(QwenCode())`.

    A script calls its tools by their own names, `call("run_shell_command", {"command": "ls",
    "is_background": False})`, or by the common ones. `approval` is its approval mode.
    """

    name = "qwen-code"
    client = ClientPackage("Qwen Code", "qwen", "@qwen-code/qwen-code", "0.24.4")
    folder = ".qwen"
    tool_aliases: ClassVar[ToolAliases] = {
        common: alias for common, alias in GeminiCli.tool_aliases.items() if common != "edit"
    }
    settings: ClassVar[dict[str, Any]] = QWEN_SETTINGS

    def __init__(
        self, *, model: str = "offbook", approval: str = "yolo", **options: Unpack[CliOptions]
    ) -> None:
        super().__init__(model=model, approval=approval, **options)

    def server_tool_name(self, server: str, tool: str) -> str:
        """Return the name with that of the server."""
        return f"mcp__{server}__{tool}"

    def command(self, text: str, session: str) -> list[str]:
        """Return `qwen --prompt=…`, resumed by session id."""
        options = ["--model", self._model, "--output-format", "stream-json"]
        options += ["--approval-mode", self._approval]
        resume = ["--resume", session] if session else []
        return [self.program, *options, *resume, *self.arguments, f"--prompt={text}"]

    def environment(self, endpoint: str) -> dict[str, str]:
        """Return the environment, in which it does not restart itself."""
        return {**CliAgent.environment(self, endpoint), "QWEN_CODE_NO_RELAUNCH": "true"}

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints JSON
        """Return the last result, its session id, and the error if there is one."""
        results = [event for event in events if event.get("type") == "result"]
        last: dict[str, Any] = results[-1] if results else {}
        failure: dict[str, Any] = last.get("error") or {}
        error = str(failure.get("message") or "no error message") if last.get("is_error") else ""
        return AgentOutput(str(last.get("result") or ""), _last(_session_ids(events)), error)


# --- opencode

PROVIDER = "offbook"
CONFIG_FOLDER = ".config/opencode"


class OpenCode(CliAgent):
    """opencode as a subject: `offbook.drive(OpenCode())`.

    A script calls its tools by their own names, `call("bash", {"command": "ls", "description":
    "…"})`; `shell` is an alias of `bash`. `title` names the session; with `title=""` the client
    asks the model for a title, in a separate request, at the same time as the first prompt.
    `permissions` is `allow`, `deny` or `ask` for all tools; without a terminal, a question is a
    refusal, unless it is driven by `Acp(OpenCode(…))`.
    """

    name = "opencode"
    client = ClientPackage("opencode", "opencode", "opencode-ai", "1.18.18")
    tool_aliases: ClassVar[ToolAliases] = {"shell": ToolAlias("bash")}

    def __init__(
        self,
        *,
        model: str = "offbook",
        title: str = "offbook",
        permissions: str = "allow",
        **options: Unpack[CliOptions],
    ) -> None:
        super().__init__(**options)
        self._model = model
        self._permissions = permissions
        self._title = title

    def server_tool_name(self, server: str, tool: str) -> str:
        """Return the name with that of the server."""
        return f"{server}_{tool}"

    def command(self, text: str, session: str) -> list[str]:  # noqa: ARG002 - the prompt is on stdin
        """Return `opencode run …`, continued by session id."""
        options = ["--model", f"{PROVIDER}/{self._model}", "--format", "json", "--pure"]
        if session:
            options += ["--session", session]
        elif self._title:
            options += ["--title", self._title]
        return [self.program, "run", *options, *self.arguments]

    def acp_launch(self) -> AcpLaunch:
        """Return `opencode acp`; the configuration has its model."""
        return AcpLaunch([self.program, "acp", "--pure", *self.arguments])

    def stdin(self, text: str) -> bytes:
        """Return the prompt: an argument that contains a space would be sent in quotes."""
        return text.encode()

    def environment(self, endpoint: str) -> dict[str, str]:
        """Return the environment, with downloads disabled."""
        switches = {f"OPENCODE_DISABLE_{name}": "1" for name in ("DEFAULT_PLUGINS", "LSP_DOWNLOAD")}
        return {**super().environment(endpoint), **switches}

    def files(self, endpoint: str) -> dict[str, str]:
        """Return its configuration, with a separate provider."""
        config: dict[str, Any] = {
            "provider": {
                PROVIDER: {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": f"{endpoint}/v1", "apiKey": "offbook"},
                    "models": {self._model: {}},
                }
            },
            "model": f"{PROVIDER}/{self._model}",
            "permission": {"*": self._permissions},
            # Over ACP no option gives the title.
            "agent": {"title": {"disable": True}} if self._title else {},
            "autoupdate": False,
            "share": "disabled",
            "mcp": {
                name: {"type": "local", "command": [server["command"], *server["args"]]}
                for name, server in self.mcp_servers.items()
            },
        }
        # It installs this package in its configuration folder, from the network, unless a lock
        # file there lists it.
        lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
        return {
            f"{CONFIG_FOLDER}/opencode.json": msgspec.json.encode(config).decode(),
            f"{CONFIG_FOLDER}/package-lock.json": msgspec.json.encode(lock).decode(),
            f"{CONFIG_FOLDER}/node_modules/.keep": "",
        }

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints JSON
        """Return the last text, the session id, and the error if there is one."""
        texts = [event["part"].get("text", "") for event in events if event.get("type") == "text"]
        sessions = [str(event["sessionID"]) for event in events if event.get("sessionID")]
        errors = [_error_text(event) for event in events if event.get("type") == "error"]
        return AgentOutput(_last(texts), next(iter(sessions), ""), _last(errors))


def _error_text(event: dict[str, Any]) -> str:
    """Return the message of an error event: `{"error": {"name": …, "data": {"message": …}}}`."""
    error: dict[str, Any] = event.get("error") or {}
    data: dict[str, Any] = error.get("data") or {}
    return str(data.get("message") or error.get("name") or "no error message")


# --- Continue, with its program `cn`

CONFIG_FILE = ".continue/config.yaml"


class Continue(CliAgent):
    """Continue as a subject: `offbook.drive(Continue())`.

    A script calls its tools by their own names, `call("Bash", {"command": "ls"})`, or by the
    common ones.
    """

    name = "continue"
    client = ClientPackage("Continue", "cn", "@continuedev/cli", "1.5.47")
    tool_aliases: ClassVar[ToolAliases] = {
        "shell": ToolAlias("Bash"),
        "bash": ToolAlias("Bash"),
        "read": ToolAlias("Read", {"path": "filepath"}),
        "write": ToolAlias("Write", {"path": "filepath"}),
    }

    def __init__(self, *, model: str = "offbook", **options: Unpack[CliOptions]) -> None:
        super().__init__(**options)
        self._model = model

    def command(self, text: str, session: str) -> list[str]:
        """Return `cn --print …`; in an isolated home the latest session is the right one."""
        options = ["--config", str(self.home / CONFIG_FILE), "--auto"]
        resume = ["--resume"] if session else []
        return [self.program, "--print", *options, *resume, *self.arguments, "--", text]

    def files(self, endpoint: str) -> dict[str, str]:
        """Return its configuration. JSON is YAML, too."""
        config: dict[str, Any] = {
            "name": "offbook",
            "version": "1.0.0",
            "schema": "v1",
            "models": [
                {
                    "name": self._model,
                    "provider": "openai",
                    "model": self._model,
                    "apiBase": f"{endpoint}/v1",
                    "apiKey": "offbook",
                    "roles": ["chat"],
                }
            ],
        }
        return {CONFIG_FILE: msgspec.json.encode(config).decode()}

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints text
        """Return its text; it prints no session id."""
        return AgentOutput(stdout.strip(), session="latest")


# --- Ralph, an orchestrator: it runs an agent in a loop until the task is done
#
# The loop is the real one; the agent in it is ours. That agent sends each prompt to the model and
# prints the reply, so a script defines what the agent says in each iteration. The termination
# reason is derived from what happened, because the PyPI package (1.2.3) exits with 0 in all cases.

RALPH_HAT = "ralph"
# The agent. It has no dependencies, because it runs with `-IS`, without any package.
RALPH_AGENT = """\
import json, os, signal, sys, urllib.error, urllib.request
body = {"model": "ralph", "messages": [{"role": "user", "content": sys.argv[-1]}]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
request = urllib.request.Request(url, json.dumps(body).encode())
try:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        print(json.load(answer)["choices"][0]["message"]["content"])
except urllib.error.HTTPError as error:
    if error.headers["x-should-retry"] == "false":  # the script is exhausted: end the loop
        os.kill(os.getppid(), signal.SIGKILL)
    sys.exit(error.read().decode())
"""
# If its agent fails, Ralph falls back to any other that is installed, and so to a real provider.
OTHER_ADAPTERS = ("acp", "claude", "gemini", "q", "qchat")
RALPH_CONFIG = "adapters:\n" + "".join(f"  {name}: {{enabled: false}}\n" for name in OTHER_ADAPTERS)


class Ralph(CliAgent):
    """The orchestrator `ralph` as a subject: `offbook.drive(Ralph(max_iterations=3))`.

    Its prompt is a task, and each reply of the script is the agent's output in one iteration. The
    trace has the iterations, the events that the agent published, and the termination reason. A
    verdict compares the exit code with that reason.
    """

    name = "ralph"
    client = ClientPackage("Ralph", "ralph", "ralph-orchestrator", "1.2.3", manager="pip")
    request_metadata: ClassVar[dict[str, str]] = {"hat": RALPH_HAT}

    def __init__(
        self,
        *,
        max_iterations: int = 5,
        promise: str = "LOOP_COMPLETE",
        **options: Unpack[CliOptions],
    ) -> None:
        super().__init__(**options)
        self._max_iterations = max_iterations
        self._promise = promise
        self._started = 0.0
        self._replies: list[str | None] = []  # one for each iteration; None until it arrives
        self._verdicts: list[Verdict] = []

    async def open(self, context: RunContext) -> None:
        """Subscribe to the requests and replies of the agent."""
        await super().open(context)
        for name in (REQUEST, REPLY, ERROR):
            context.hub.subscribe(self._on_model_event, name)

    def command(self, text: str, session: str) -> list[str]:  # noqa: ARG002 - it has no sessions
        """Return `ralph run …` with `kiro`, the only agent whose command can be configured."""
        options = ["--config", str(self.home / "ralph.yml"), "--agent", "kiro", "--no-git"]
        options += ["--no-archive", "--max-iterations", str(self._max_iterations)]
        options += ["--completion-promise", self._promise]
        return [self.program, "run", *options, *self.arguments, "--prompt-text", text]

    def environment(self, endpoint: str) -> dict[str, str]:
        """Return the environment, with the path of our agent."""
        return {**super().environment(endpoint), "RALPH_KIRO_COMMAND": str(self.home / "agent")}

    def files(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - the base URL is in the environment
        """Return our agent, and a configuration that disables all others."""
        return {"agent": f"#!{sys.executable} -IS\n{RALPH_AGENT}", "ralph.yml": RALPH_CONFIG}

    async def prompt(self, text: str) -> str | None:
        """Run the loop for this task; return its output."""
        self._started = time.monotonic()
        self._replies = []
        self.context.hub.emit_data(LoopStartData(self._max_iterations))
        self.context.hub.emit_data(PublishData("task.start", text))
        return await super().prompt(text)

    def _on_model_event(self, event: Event) -> None:
        """Emit a request as an iteration, and the event tags of a reply as published events."""
        if event.event == REQUEST:
            self._replies.append(None)
            elapsed = int((time.monotonic() - self._started) * 1000)
            self.context.hub.emit_data(IterationData(len(self._replies), elapsed, RALPH_HAT))
        elif event.event == REPLY and self._replies:
            text = self._replies[-1] = join_text(event.data["blocks"])
            for tag in scan_output(text).tags:
                data = PublishData(tag.topic, tag.payload, RALPH_HAT, tag.target or UNSET)
                self.context.hub.emit_data(data)

    def emit_result(self, context: RunContext, result: ProcessResult) -> None:
        """Emit the output and the termination, and compare the exit code with it."""
        super().emit_result(context, result)
        reason = self._termination_reason(result)
        code = EXIT_CODES[reason]
        seconds = round(time.monotonic() - self._started, 3)
        context.hub.emit_data(
            TerminationData(reason, len(self._replies), seconds, code, result.code)
        )
        message = f"exit code {result.code}, but the loop ended with {reason}"
        ended = {"reason": reason, "iterations": len(self._replies)}
        self._verdicts.append(
            Verdict("exit code of ralph", "pass", "", code, result.code)
            if result.code == code
            else Verdict("exit code of ralph", "fail", message, code, result.code, ended)
        )

    def _termination_reason(self, result: ProcessResult) -> str:
        last = self._replies[-1] if self._replies else None
        # The order matters: the last allowed iteration may also have kept the promise.
        if result.timed_out:
            return "MaxRuntime"
        if last is not None and scan_output(last).ends_with(self._promise):
            return "CompletionPromise"
        if len(self._replies) >= self._max_iterations:
            return "MaxIterations"
        return "ConsecutiveFailures" if last is None else "Stopped"

    def verdicts(self) -> Iterable[Verdict]:
        """Return a verdict on each exit code."""
        return self._verdicts
