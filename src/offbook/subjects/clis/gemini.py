"""Gemini CLI, Google's command-line agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import msgspec

from offbook.exchange.model import ToolAlias, ToolAliases
from offbook.subjects.clis.cli import AgentOutput, CliAgent, ClientPackage, CliOptions

SETTINGS = {
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

    def command(self, text: str, session: str) -> list[str]:
        """Return `gemini --prompt=…`; in an isolated home the latest session is the right one."""
        options = ["--model", self._model, "--output-format", "stream-json", "--skip-trust"]
        options += ["--approval-mode", self._approval]
        resume = ["--resume", "latest"] if session else []
        return [self.program, *options, *resume, *self.arguments, f"--prompt={text}"]

    def environment(self, endpoint: str) -> dict[str, str]:
        """Return the environment."""
        # It would restart itself with a larger heap, which doubles its start-up time.
        return {**super().environment(endpoint), "GEMINI_CLI_NO_RELAUNCH": "true"}

    def files(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - the base URL is in the environment
        """Return its settings."""
        servers = {name: {**server, "trust": True} for name, server in self.mcp_servers.items()}
        settings = {**SETTINGS, **({"mcpServers": servers} if servers else {})}
        return {".gemini/settings.json": msgspec.json.encode(settings).decode()}

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints JSON
        """Return the chunks of the last message, joined, and the session id."""
        chunks: list[str] = []
        for event in events:
            if event.get("type") == "message" and event.get("role") == "assistant":
                chunks.append(str(event.get("content", "")))
            elif event.get("type") != "result":  # a tool call, say: another message follows
                chunks = []
        sessions = [event["session_id"] for event in events if event.get("session_id")]
        return AgentOutput("".join(chunks), sessions[0] if sessions else "")


# --------------------------------------------------------------------------------- qwen
# Qwen Code, Alibaba's command-line agent.

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


class QwenCode(CliAgent):
    """Qwen Code as a subject: `offbook.drive(QwenCode())`.

    A script calls its tools by their own names, `call("run_shell_command", {"command": "ls",
    "is_background": False})`, or by the common ones. `approval` is its approval mode.
    """

    name = "qwen-code"
    client = ClientPackage("Qwen Code", "qwen", "@qwen-code/qwen-code", "0.24.4")
    tool_aliases: ClassVar[ToolAliases] = {
        "shell": ToolAlias("run_shell_command"),
        "bash": ToolAlias("run_shell_command"),
        "read": ToolAlias("read_file", {"path": "file_path"}),
        "write": ToolAlias("write_file", {"path": "file_path"}),
    }

    def __init__(
        self, *, model: str = "offbook", approval: str = "yolo", **options: Unpack[CliOptions]
    ) -> None:
        super().__init__(**options)
        self._model = model
        self._approval = approval

    def command(self, text: str, session: str) -> list[str]:
        """Return `qwen --prompt=…`, resumed by session id."""
        options = ["--model", self._model, "--output-format", "stream-json"]
        options += ["--approval-mode", self._approval]
        resume = ["--resume", session] if session else []
        return [self.program, *options, *resume, *self.arguments, f"--prompt={text}"]

    def environment(self, endpoint: str) -> dict[str, str]:
        """Return the environment."""
        # It would restart itself with a larger heap, which doubles its start-up time.
        return {**super().environment(endpoint), "QWEN_CODE_NO_RELAUNCH": "true"}

    def files(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - the base URL is in the environment
        """Return its settings."""
        servers = {name: {**server, "trust": True} for name, server in self.mcp_servers.items()}
        settings = {**QWEN_SETTINGS, **({"mcpServers": servers} if servers else {})}
        return {".qwen/settings.json": msgspec.json.encode(settings).decode()}

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints JSON
        """Return the last result, its session id, and the error if there is one."""
        results = [event for event in events if event.get("type") == "result"]
        sessions = [event["session_id"] for event in events if event.get("session_id")]
        last: dict[str, Any] = results[-1] if results else {}
        failure: dict[str, Any] = last.get("error") or {}
        error = str(failure.get("message") or "no error message") if last.get("is_error") else ""
        return AgentOutput(str(last.get("result") or ""), sessions[-1] if sessions else "", error)
