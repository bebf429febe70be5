"""opencode, a command-line agent for any provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import msgspec

from offbook.exchange.model import ToolAlias, ToolAliases
from offbook.subjects.clis.cli import AgentOutput, CliAgent, ClientPackage, CliOptions

PROVIDER = "offbook"
CONFIG_FOLDER = ".config/opencode"


class OpenCode(CliAgent):
    """opencode as a subject: `offbook.drive(OpenCode())`.

    A script calls its tools by their own names, `call("bash", {"command": "ls", "description":
    "…"})`; `shell` is an alias of `bash`. `title` names the session; with `title=""` the client
    asks the model for a title, in a separate request, at the same time as the first prompt.
    """

    name = "opencode"
    client = ClientPackage("opencode", "opencode", "opencode-ai", "1.18.18")
    tool_aliases: ClassVar[ToolAliases] = {"shell": ToolAlias("bash")}

    def __init__(
        self, *, model: str = "offbook", title: str = "offbook", **options: Unpack[CliOptions]
    ) -> None:
        super().__init__(**options)
        self._model = model
        self._title = title

    def command(self, text: str, session: str) -> list[str]:  # noqa: ARG002 - the prompt is on stdin
        """Return `opencode run …`, continued by session id."""
        options = ["--model", f"{PROVIDER}/{self._model}", "--format", "json", "--pure"]
        if session:
            options += ["--session", session]
        elif self._title:
            options += ["--title", self._title]
        return [self.program, "run", *options, *self.arguments]

    def stdin(self, text: str) -> bytes:
        """Return the prompt: an argument that contains a space would be sent in quotes."""
        return text.encode()

    def environment(self, endpoint: str) -> dict[str, str]:
        """Return the environment, with downloads disabled."""
        switches = {f"OPENCODE_DISABLE_{name}": "1" for name in ("DEFAULT_PLUGINS", "LSP_DOWNLOAD")}
        return {**super().environment(endpoint), **switches}

    def files(self, endpoint: str) -> dict[str, str]:
        """Return its configuration, with a separate provider."""
        config: dict[str, Any] = {
            "provider": {
                PROVIDER: {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": f"{endpoint}/v1", "apiKey": "offbook"},
                    "models": {self._model: {}},
                }
            },
            "permission": {"*": "allow"},  # without a terminal, a question is a refusal
            "autoupdate": False,
            "share": "disabled",
            "mcp": {
                name: {"type": "local", "command": [server["command"], *server["args"]]}
                for name, server in self.mcp_servers.items()
            },
        }
        # It installs this package in its configuration folder, from the network, unless a lock
        # file there lists it.
        lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
        return {
            f"{CONFIG_FOLDER}/opencode.json": msgspec.json.encode(config).decode(),
            f"{CONFIG_FOLDER}/package-lock.json": msgspec.json.encode(lock).decode(),
            f"{CONFIG_FOLDER}/node_modules/.keep": "",
        }

    def parse_output(self, stdout: str, events: Sequence[dict[str, Any]]) -> AgentOutput:  # noqa: ARG002 - it prints JSON
        """Return the last text, the session id, and the error if there is one."""
        texts = [event["part"].get("text", "") for event in events if event.get("type") == "text"]
        sessions = [str(event["sessionID"]) for event in events if event.get("sessionID")]
        errors = [_error_text(event) for event in events if event.get("type") == "error"]
        return AgentOutput(
            texts[-1] if texts else "",
            sessions[0] if sessions else "",
            errors[-1] if errors else "",
        )


def _error_text(event: dict[str, Any]) -> str:
    """Return the message of an error event: `{"error": {"name": …, "data": {"message": …}}}`."""
    error: dict[str, Any] = event.get("error") or {}
    data: dict[str, Any] = error.get("data") or {}
    return str(data.get("message") or error.get("name") or "no error message")
