"""Codex, OpenAI's command-line agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import msgspec

from offbook.exchange.model import ToolAlias, ToolAliases
from offbook.subjects.clis.cli import AgentOutput, CliAgent, ClientPackage, CliOptions

FAILED = "turn.failed"


class Codex(CliAgent):
    """Codex as a subject: `offbook.drive(Codex())`.

    A script calls its tools by their own names, `call("exec_command", {"cmd": "ls"})`, or as
    `shell`. With a model name that it does not know, it offers plain function tools; a known name
    changes its requests. `sandbox` is its sandbox mode: read-only, workspace-write or
    danger-full-access. `retries` is the number of further requests after a failed one.
    """

    name = "codex"
    client = ClientPackage("Codex", "codex", "@openai/codex", "0.166.0")
    tool_aliases: ClassVar[ToolAliases] = {
        "shell": ToolAlias("exec_command", {"command": "cmd"}),
        "bash": ToolAlias("exec_command", {"command": "cmd"}),
    }

    def __init__(
        self,
        *,
        model: str = "gpt-offbook",
        sandbox: str = "danger-full-access",
        retries: int = 0,
        **options: Unpack[CliOptions],
    ) -> None:
        super().__init__(**options)
        self._model = model
        self._sandbox = sandbox
        self._retries = retries

    def command(self, text: str, session: str) -> list[str]:
        """Return `codex exec …` or `codex exec resume …`."""
        options = ["--skip-git-repo-check", "--json", *self.arguments, "--"]
        if session:
            return [self.program, "exec", "resume", *options, session, text]
        return [self.program, "exec", *options, text]

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
            'approval_policy = "never"',
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
        return AgentOutput(
            texts[-1] if texts else "",
            threads[0] if threads else "",
            failed[-1] if failed else "",
        )


def _toml(value: str | int | list[str]) -> str:
    """Return a string, a number or a list in TOML, which writes them as JSON does."""
    return msgspec.json.encode(value).decode()
