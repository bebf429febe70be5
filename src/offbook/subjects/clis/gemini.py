"""Gemini CLI, the agent of Google on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import msgspec

from offbook.exchange.tool_aliases import ToolAlias, ToolAliases
from offbook.subjects.clis.cli import AgentOutput, CliAgent, ClientPackage, CliOptions

SETTINGS = {  # without a chosen way to sign in, it refuses a base URL of ours
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
}


class GeminiCli(CliAgent):
    """Gemini CLI as a subject: `offbook.drive(GeminiCli())`.

    Its tools are called as it calls them: `call("run_shell_command", {"command": "ls"})`. It is
    always told its model: without one, it asks a router first.
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
        """`gemini --prompt`; the home is its own, so the latest session is the right one."""
        options = ["--model", self._model, "--output-format", "stream-json", "--skip-trust"]
        options += ["--approval-mode", self._approval]
        resumed = ["--resume", "latest"] if session else []
        return [self.program, *options, *resumed, *self.arguments, f"--prompt={text}"]

    def environment(self, endpoint: str) -> dict[str, str]:
        """That it need not start itself again with more room, which takes as long again."""
        return {**super().environment(endpoint), "GEMINI_CLI_NO_RELAUNCH": "true"}

    def files(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - it takes the base URL from the environment
        """Its settings."""
        servers = {name: {**server, "trust": True} for name, server in self.servers.items()}
        settings = {**SETTINGS, **({"mcpServers": servers} if servers else {})}
        return {".gemini/settings.json": msgspec.json.encode(settings).decode()}

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints JSON
        """The pieces of its last message, and the session."""
        pieces: list[str] = []
        for event in events:
            if event.get("type") != "message" or event.get("role") != "assistant":
                pieces = pieces if event.get("type") == "result" else []
            else:
                pieces.append(str(event.get("content", "")))
        sessions = [event["session_id"] for event in events if event.get("session_id")]
        return AgentOutput("".join(pieces), sessions[0] if sessions else "")
