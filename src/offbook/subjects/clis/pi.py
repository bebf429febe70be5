"""Pi, the small agent on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import msgspec

from offbook.exchange.tool_aliases import ToolAlias, ToolAliases
from offbook.subjects.clis.cli import AgentOutput, CliAgent, ClientPackage, CliOptions

HOME = ".pi/agent"
QUIET = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"}


class Pi(CliAgent):
    """Pi as a subject: `offbook.drive(Pi())`.

    Its tools are called as it calls them: `call("bash", {"command": "ls"})`. Extensions, skills
    and themes of this machine stay out; `arguments` may name extensions: `["-e", "mine.ts"]`.
    """

    name = "pi"
    client = ClientPackage("pi", "pi", "@earendil-works/pi-coding-agent", "0.74.2")
    tool_aliases: ClassVar[ToolAliases] = {"shell": ToolAlias("bash")}

    def __init__(self, *, model: str = "offbook", **options: Unpack[CliOptions]) -> None:
        super().__init__(**options)
        self._model = model

    def command(self, text: str, session: str) -> list[str]:
        """`pi --print`; the home is its own, so the latest session is the right one."""
        options = ["--provider", "offbook", "--model", self._model, "--mode", "json"]
        options += ["--no-extensions", "--no-skills", "--no-prompt-templates", "--no-themes"]
        resumed = ["--continue"] if session else []
        return [self.program, *options, *resumed, *self.arguments, "--print", text]

    def environment(self, endpoint: str) -> dict[str, str]:
        """It asks nobody but its model."""
        return {**super().environment(endpoint), **QUIET}

    def files(self, endpoint: str) -> dict[str, str]:
        """Its models and settings: it tries nothing again."""
        provider = {
            "baseUrl": f"{endpoint}/v1",
            "api": "openai-completions",
            "apiKey": "OPENAI_API_KEY",
            "models": [{"id": self._model}],
        }
        settings = {"retry": {"enabled": False}, "defaultProvider": "offbook"}
        return {
            f"{HOME}/models.json": _json({"providers": {"offbook": provider}}),
            f"{HOME}/settings.json": _json({**settings, "defaultModel": self._model}),
        }

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints JSON
        """The text of its last message, and the session."""
        ended = [event["message"] for event in events if event.get("type") == "message_end"]
        said = [message for message in ended if message.get("role") == "assistant"]
        blocks: list[dict[str, Any]] = said[-1].get("content", []) if said else []
        text = "".join(block.get("text", "") for block in blocks if block.get("type") == "text")
        sessions = [str(event["id"]) for event in events if event.get("type") == "session"]
        failed = bool(said) and said[-1].get("stopReason") == "error"
        error = str(said[-1].get("errorMessage") or "it does not say why") if failed else ""
        return AgentOutput(text, sessions[0] if sessions else "", error)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
