"""Where clients live whose packages do not fit together: each home has its own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from offbook.subjects.clis.claude_code import ClaudeCode
from offbook.subjects.clis.codex import Codex
from offbook.subjects.clis.gemini import GeminiCli
from offbook.subjects.clis.pi import Pi
from offbook.subjects.clis.ralph import Ralph

ROOT = Path(__file__).resolve().parents[2]
PLACE = Path(os.environ.get("OFFBOOK_CLIENTS", ROOT / ".clients"))


@dataclass(frozen=True)
class Home:
    """Where a client lives: a virtual environment or an npm prefix of its own."""

    name: str
    packages: tuple[str, ...]
    npm: bool = False
    bare: bool = False  # these packages alone, without what they ask for
    ours: bool = False  # and this checkout, for what drives its agents there

    @property
    def folder(self) -> Path:
        """The commands are where a subject looks for them, the others in folders of their own."""
        return PLACE if self.name == COMMANDS else PLACE / self.name

    @property
    def wanted(self) -> str:
        """What its stamp says when it is as it should be."""
        return "\n".join([*self.packages, *([f"with {ROOT}"] if self.ours else [])])

    @property
    def stamp(self) -> Path:
        """Says what was installed, once it was."""
        return self.folder / "installed.txt"

    @property
    def trouble(self) -> Path:
        """Says why it could not be."""
        return PLACE / f"{self.name}.log"

    @property
    def python(self) -> str:
        """Who runs Python there."""
        return str(self.folder / "bin" / "python")

    def complain(self) -> str:
        """Why it is not there."""
        why = self.trouble.read_text(encoding="utf-8") if self.trouble.exists() else "not tried"
        return f"{self.name} is not installed: {why}"

    @property
    def ready(self) -> bool:
        """Whether it is there, in these very versions."""
        return self.stamp.is_file() and self.stamp.read_text(encoding="utf-8") == self.wanted


COMMANDS = "commands"
ORCHESTRATOR = Ralph.client
assert ORCHESTRATOR is not None
CLIENTS = (Codex.client, ClaudeCode.client, GeminiCli.client, Pi.client)
HOMES = {
    home.name: home
    for home in (
        Home(COMMANDS, tuple(client.requirement for client in CLIENTS if client), npm=True),
        # it asks for an SDK of 400 MB and the way to a real model, but needs neither here
        Home(
            "ralph-orchestrator",
            (
                ORCHESTRATOR.requirement,
                "pyyaml==6.0.3",
                "psutil==7.2.2",
                "rich==15.0.0",
                "pygments==2.21.0",
                "markdown-it-py==4.3.0",
                "mdurl==0.1.2",
            ),
            bare=True,
        ),
        Home("litellm", ("litellm==1.106.2", "mcp==2.3.0"), ours=True),
        Home(
            "inspect",
            (
                "inspect-ai==0.3.285",
                "openai==3.49.0",
                "anthropic==2.8.0",
                "google-genai==3.1.0",
                "mcp==2.3.0",
            ),
            ours=True,
        ),
        Home("claude-agent-sdk", ("claude-agent-sdk==0.2.182",), ours=True),
        # strands still wants the clients of OpenAI and Anthropic that speak through httpx
        Home(
            "strands",
            ("strands-agents[openai,anthropic]==1.62.0", "openai==2.54.0", "anthropic==0.125.0"),
        ),
        Home("adk", ("google-adk==2.13.0", "google-genai==2.34.0")),
        Home(
            "node",
            (
                "openai@7.53.0",
                "@anthropic-ai/sdk@1.8.0",
                "@google/genai@2.32.0",
                "ai@7.0.169",
                "@ai-sdk/openai@4.0.114",
                "@ai-sdk/anthropic@4.0.102",
                "@ai-sdk/google@4.0.117",
                "@ai-sdk/openai-compatible@3.0.90",
                "zod@4.6.7",
            ),
            npm=True,
        ),
        Home(
            "langchain-js",
            (
                "langchain@1.5.14",
                "@langchain/core@1.2.13",
                "@langchain/openai@1.5.8",
                "@langchain/anthropic@1.5.11",
                "zod@4.6.7",
            ),
            npm=True,
        ),
    )
}
