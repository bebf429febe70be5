"""Pi, a small command-line agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import msgspec

from offbook.exchange.tool_aliases import ToolAlias, ToolAliases
from offbook.subjects.clis.cli import AgentOutput, CliAgent, ClientPackage, CliOptions

CONFIG_FOLDER = ".pi/agent"


class Pi(CliAgent):
    """Pi as a subject: `offbook.drive(Pi())`.

    A script calls its tools by their own names: `call("bash", {"command": "ls"})`. Installed
    extensions, skills and themes are disabled; `arguments` can load one: `["-e", "mine.ts"]`.
    """

    name = "pi"
    client = ClientPackage("pi", "pi", "@earendil-works/pi-coding-agent", "0.74.2")
    tool_aliases: ClassVar[ToolAliases] = {"shell": ToolAlias("bash")}

    def __init__(self, *, model: str = "offbook", **options: Unpack[CliOptions]) -> None:
        super().__init__(**options)
        self._model = model

    def command(self, text: str, session: str) -> list[str]:
        """Return `pi --print …`; in an isolated home the latest session is the right one."""
        options = ["--provider", "offbook", "--model", self._model, "--mode", "json"]
        options += ["--no-extensions", "--no-skills", "--no-prompt-templates", "--no-themes"]
        resume = ["--continue"] if session else []
        return [self.program, *options, *resume, *self.arguments, "--print", text]

    def environment(self, endpoint: str) -> dict[str, str]:
        """Return the environment, with telemetry and update checks disabled."""
        return {**super().environment(endpoint), "PI_OFFLINE": "1", "PI_TELEMETRY": "0"}

    def files(self, endpoint: str) -> dict[str, str]:
        """Return its model list and its settings, with retries disabled."""
        provider = {
            "baseUrl": f"{endpoint}/v1",
            "api": "openai-completions",
            "apiKey": "OPENAI_API_KEY",
            "models": [{"id": self._model}],
        }
        settings = {
            "retry": {"enabled": False},
            "defaultProvider": "offbook",
            "defaultModel": self._model,
        }
        configs: dict[str, Any] = {
            "models.json": {"providers": {"offbook": provider}},
            "settings.json": settings,
        }
        return {
            f"{CONFIG_FOLDER}/{name}": msgspec.json.encode(config).decode()
            for name, config in configs.items()
        }

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints JSON
        """Return the text of the last message, the session id, and the error if there is one."""
        messages = [event["message"] for event in events if event.get("type") == "message_end"]
        replies = [message for message in messages if message.get("role") == "assistant"]
        last: dict[str, Any] = replies[-1] if replies else {}
        text = "".join(
            b.get("text", "") for b in last.get("content", []) if b.get("type") == "text"
        )
        sessions = [str(event["id"]) for event in events if event.get("type") == "session"]
        error = ""
        if last.get("stopReason") == "error":  # its exit code is 0 all the same
            error = str(last.get("errorMessage") or "no error message")
        return AgentOutput(text, sessions[0] if sessions else "", error)
