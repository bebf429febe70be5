"""Kiro, the agent of AWS on the command line."""

from __future__ import annotations

from offbook.subjects.clis.cli import Cli, Client


class Kiro(Cli):
    """Kiro as a subject. It talks to a service of its own: no script can play its model."""

    name = "kiro"
    client = Client("Kiro", "kiro-cli", "", "")

    def command(self, text: str, session: str) -> list[str]:  # noqa: ARG002 - every prompt is the first
        """`kiro-cli chat`, with nobody to ask."""
        options = ["--no-interactive", "--trust-all-tools"]
        return [self.program, "chat", *options, *self.arguments, text]

    def environment(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - it knows where its model is
        """Nothing but what the caller gives."""
        return {}
