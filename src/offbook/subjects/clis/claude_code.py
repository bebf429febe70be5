"""Claude Code, the agent of Anthropic on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import msgspec

from offbook.exchange.tool_aliases import CLAUDE_CODE_ALIASES, ToolAliases
from offbook.subjects.clis.cli import AgentOutput, CliAgent, ClientPackage, CliOptions


class ClaudeCode(CliAgent):
    """Claude Code as a subject: `offbook.drive(ClaudeCode())`.

    Its tools are called as it calls them: `call("Bash", {"command": "ls", "description": "…"})`.
    `permissions` is its own word: by default it may do all that the script says; `default` lets
    it refuse what nobody allowed, as it would at home.
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
        """`claude --print`, resumed by the name of its session."""
        options = ["--model", self._model, "--output-format", "stream-json", "--verbose"]
        options += ["--permission-mode", self._permissions, "--strict-mcp-config"]
        if self.servers:
            servers = msgspec.json.encode({"mcpServers": self.servers}).decode()
            options.append(f"--mcp-config={servers}")
        resumed = ["--resume", session] if session else []
        return [self.program, "--print", *options, *resumed, *self.arguments, "--", text]

    def environment(self, endpoint: str) -> dict[str, str]:
        """Root may skip permissions only in what counts as a sandbox; no tool need be searched."""
        search = {"ENABLE_TOOL_SEARCH": "false"} if self.servers else {}
        return {**super().environment(endpoint), **search, "IS_SANDBOX": "1"}

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints JSON
        """Its result, and the session of it."""
        results = [event for event in events if event.get("type") == "result"]
        sessions = [event["session_id"] for event in events if event.get("session_id")]
        text = str(results[-1].get("result") or "") if results else ""
        return AgentOutput(text, sessions[-1] if sessions else "")
