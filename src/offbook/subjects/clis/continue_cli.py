"""Continue's command-line agent, `cn`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import msgspec

from offbook.exchange.model import ToolAlias, ToolAliases
from offbook.subjects.clis.cli import AgentOutput, CliAgent, ClientPackage, CliOptions

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
