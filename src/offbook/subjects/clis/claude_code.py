"""Claude Code, Anthropic's command-line agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import msgspec

from offbook.exchange.model import CLAUDE_CODE_ALIASES, ToolAliases
from offbook.subjects.clis.cli import AgentOutput, CliAgent, ClientPackage, CliOptions


class ClaudeCode(CliAgent):
    """Claude Code as a subject: `offbook.drive(ClaudeCode())`.

    A script calls its tools by their own names, `call("Bash", {"command": "ls", "description":
    "…"})`, or by the common ones, `call("shell", {"command": "ls"})`. `permissions` is its
    permission mode: by default every call is allowed; with `default` it refuses what a user
    would have to allow.
    """

    name = "claude-code"
    client = ClientPackage("Claude Code", "claude", "@anthropic-ai/claude-code", "2.1.325")
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
        # Root may bypass permissions only in a sandbox. Without the second variable, the tools
        # of MCP servers are not in the request: the model would have to search for them.
        search = {"ENABLE_TOOL_SEARCH": "false"} if self.mcp_servers else {}
        return {**super().environment(endpoint), **search, "IS_SANDBOX": "1"}

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints JSON
        """Return the last result and its session id."""
        results = [event for event in events if event.get("type") == "result"]
        sessions = [event["session_id"] for event in events if event.get("session_id")]
        text = str(results[-1].get("result") or "") if results else ""
        return AgentOutput(text, sessions[-1] if sessions else "")
