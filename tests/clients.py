"""The third-party clients that the tests drive, each with its own shell tool."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from offbook.subjects.clis import (
    ClaudeCode,
    CliAgent,
    ClientPackage,
    Codex,
    Continue,
    GeminiCli,
    OpenCode,
    QwenCode,
)
from offbook.subjects.clis.pi import Pi
from tests.matrix.rows import WHOLE

DEADLINE = 240  # seconds: a client takes minutes to start on a busy machine


@dataclass(frozen=True)
class Shell:
    """A client, and the call with which its model runs a shell command."""

    make: type[CliAgent]
    tool: str
    word: str
    more: tuple[tuple[str, str | bool], ...] = ()
    slow: bool = False
    edit: Mapping[str, str] = field(default_factory=dict[str, str])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def client(self) -> ClientPackage:
        assert self.make.client is not None
        return self.make.client

    def __str__(self) -> str:
        return self.client.program

    def start(self) -> CliAgent:
        """Return the subject, for a test that is not about the process of the client."""
        return self.make(deadline=DEADLINE, **self.options)

    def params(self, command: str) -> dict[str, Any]:
        return {self.word: command, **dict(self.more)}


CODEX = Shell(Codex, "exec_command", "cmd")
CLAUDE = Shell(ClaudeCode, "Bash", "command", (("description", "Try it"),))
GEMINI = Shell(
    GeminiCli, "run_shell_command", "command", slow=True, edit={"instruction": "Make it two"}
)
# To start pi takes three seconds of the processor: one process serves the tests of a worker.
PI = Shell(Pi, "bash", "command", slow=True, options={"warm": True})
OPENCODE = Shell(OpenCode, "bash", "command", slow=True)
QWEN = Shell(QwenCode, "run_shell_command", "command", (("is_background", False),), slow=True)
CONTINUE = Shell(Continue, "Bash", "command", slow=True)


def needs(shell: Shell) -> Callable[[Any], Any]:
    """Skip a test, with the reason, if this client is not installed."""

    def mark(test: Any) -> Any:
        for mark in marks_of(shell):
            test = mark(test)
        return test

    return mark


def installed(shell: Shell) -> Any:
    """Return a parameter that is skipped if its client is not installed."""
    return pytest.param(shell, id=str(shell), marks=marks_of(shell))


def marks_of(shell: Shell, *, acp: bool = False) -> list[pytest.MarkDecorator]:
    """Return the marks that skip a test if this client is not installed."""
    client = shell.make.acp_client or shell.client if acp else shell.client
    reason = f"{client.title} is not installed: run ./dev clients"
    found = WHOLE or client.find() is not None  # ./dev clients fails without the client
    marks = [pytest.mark.clients, pytest.mark.skipif(not found, reason=reason)]
    return [*marks, pytest.mark.slow] if shell.slow or acp else marks


def is_alive(pid: int) -> bool:
    """Return True if a process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(") ")[2][:1] not in {"Z", "X"}
