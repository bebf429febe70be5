"""Commands without a client file of their own: any command, and Kiro."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast

from offbook.errors import UsageError
from offbook.subjects.clis.cli import CliAgent, ClientPackage, CliOptions

if TYPE_CHECKING:
    from offbook.subjects.subject import RunContext

PROMPT = "{prompt}"


class Command(CliAgent):
    """Any command as a subject: `offbook.drive(Command("node agent.js {prompt}"))`.

    The prompt replaces `{prompt}`; a command without it reads the prompt from standard input.
    `following` is the command for all prompts after the first. The environment has the base URLs
    and keys of all providers; of our own environment only the PATH and the locale.
    """

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        following: str | Sequence[str] | None = None,
        name: str = "",
        **options: Unpack[CliOptions],
    ) -> None:
        super().__init__(**options)
        if self.mcp_servers:
            raise UsageError(
                "Command does not support mcp", hint="configure the MCP servers in the command"
            )
        self._first = _split(command)
        self._following = self._first if following is None else _split(following)
        self.name = name or Path(self._first[0]).name
        self._prompts = 0
        self._words: list[str] = []

    async def open(self, context: RunContext) -> None:
        """Create the home directory and start with the first command."""
        self._prompts = 0  # a subject may be driven again
        await super().open(context)

    def command(self, text: str, session: str) -> list[str]:  # noqa: ARG002 - it keeps its own sessions
        """Return the command with the prompt inserted."""
        self._words = self._following if self._prompts else self._first
        self._prompts += 1
        return [word.replace(PROMPT, text) for word in [*self._words, *self.arguments]]

    def stdin(self, text: str) -> bytes:
        """Return the prompt unless the command contains it."""
        return b"" if any(PROMPT in word for word in self._words) else text.encode()


def _split(command: str | Sequence[str]) -> list[str]:
    words = shlex.split(command) if isinstance(command, str) else list(command)
    if not words or not all(isinstance(word, str) for word in cast("list[object]", words)):
        raise UsageError(
            f"expected a command, got {command!r}", hint='write Command("node agent.js {prompt}")'
        )
    return words


class Kiro(CliAgent):
    """Kiro, the agent of AWS. It uses its own service, so its model cannot be scripted."""

    name = "kiro"
    client = ClientPackage("Kiro", "kiro-cli", "", "")

    def command(self, text: str, session: str) -> list[str]:  # noqa: ARG002 - it cannot resume
        """Return `kiro-cli chat …`."""
        options = ["--no-interactive", "--trust-all-tools"]
        return [self.program, "chat", *options, *self.arguments, text]

    def environment(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - it uses its own service
        """Return nothing: only the caller's `env` is set."""
        return {}
