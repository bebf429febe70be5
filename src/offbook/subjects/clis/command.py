"""Any command as a subject: it finds its model in the environment."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast

from offbook.errors import UsageError
from offbook.subjects.clis.cli import CliAgent, ClientPackage, CliOptions

if TYPE_CHECKING:
    from offbook.subjects.subject import RunContext


# --- Any command as a subject: it finds its model in the environment.

PROMPT = "{prompt}"


class Command(CliAgent):
    """Any command: `offbook.drive(Command("node agent.js {prompt}"))`.

    The prompt takes the place of `{prompt}`; a command without it reads the prompt from its
    standard input. `following` is the command for every prompt but the first. Base URLs and keys
    of all providers are in its environment; nothing of ours but the PATH and the language is.
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
        if self.servers:
            raise UsageError("a command has its own way to its MCP servers", hint="leave out mcp=")
        self._first = _split(command)
        self._following = self._first if following is None else _split(following)
        self.name = name or Path(self._first[0]).name
        self._prompts = 0
        self._words: list[str] = []

    async def open(self, stage: RunContext) -> None:
        """Make its home, and begin with the first prompt."""
        self._prompts = 0
        await super().open(stage)

    def command(self, text: str, session: str) -> list[str]:  # noqa: ARG002 - it keeps its own sessions
        """The words, with the prompt in its place."""
        self._words = self._following if self._prompts else self._first
        self._prompts += 1
        words = [*self._words, *self.arguments]
        return [word.replace(PROMPT, text) for word in words]

    def stdin(self, text: str) -> bytes:
        """The prompt, if no word has it."""
        return b"" if any(PROMPT in word for word in self._words) else text.encode()


def _split(command: str | Sequence[str]) -> list[str]:
    words = shlex.split(command) if isinstance(command, str) else list(command)
    if not words or not all(isinstance(word, str) for word in cast("list[object]", words)):
        raise UsageError(
            f"{command!r} is no command", hint='write Command("node agent.js {prompt}")'
        )
    return words


# --- Kiro, the agent of AWS on the command line.


class Kiro(CliAgent):
    """Kiro as a subject. It talks to a service of its own: no script can play its model."""

    name = "kiro"
    client = ClientPackage("Kiro", "kiro-cli", "", "")

    def command(self, text: str, session: str) -> list[str]:  # noqa: ARG002 - every prompt is the first
        """`kiro-cli chat`, with nobody to ask."""
        options = ["--no-interactive", "--trust-all-tools"]
        return [self.program, "chat", *options, *self.arguments, text]

    def environment(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - it knows where its model is
        """Nothing but what the caller gives."""
        return {}
