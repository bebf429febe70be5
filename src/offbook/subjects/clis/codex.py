"""Codex, the agent of OpenAI on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import msgspec

from offbook.exchange.tool_aliases import ToolAlias, ToolAliases
from offbook.subjects.clis.cli import AgentOutput, CliAgent, ClientPackage, CliOptions

ITEM = "item.completed"


class Codex(CliAgent):
    """Codex as a subject: `offbook.drive(Codex())`.

    Its tools are called as it calls them: `call("exec_command", {"cmd": "ls"})`. A model name
    that it does not know gives it plain function tools; one that it knows changes its requests.
    `sandbox` is its own word: read-only, workspace-write or danger-full-access. It asks a model
    that failed `retries` times more.
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
        """`codex exec`, or `codex exec resume`."""
        resumed = ["resume"] if session else []
        options = ["--skip-git-repo-check", "--json", *self.arguments]
        told = [session, text] if session else [text]
        return [self.program, "exec", *resumed, *options, "--", *told]

    def files(self, endpoint: str) -> dict[str, str]:
        """Its configuration: it ignores base URLs in the environment."""
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
        for name, server in self.servers.items():
            # Not required, a server that is slow to start is left out of the first request.
            told = {**server, "required": True, "startup_timeout_sec": 30}
            lines.append(f"[mcp_servers.{_toml(name)}]")
            lines += [f"{key} = {_toml(value)}" for key, value in told.items()]
        return {".codex/config.toml": "\n".join(lines) + "\n"}

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints JSON
        """The last message, and the thread."""
        items: list[dict[str, Any]] = [e["item"] for e in events if e.get("type") == ITEM]
        texts = [item.get("text", "") for item in items if item.get("type") == "agent_message"]
        threads = [event["thread_id"] for event in events if "thread_id" in event]
        return AgentOutput(texts[-1] if texts else "", threads[0] if threads else "")


def _toml(value: str | int | list[str]) -> str:
    """A string, a number or a list, in TOML as in JSON."""
    return msgspec.json.encode(value).decode()
