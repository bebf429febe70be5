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
