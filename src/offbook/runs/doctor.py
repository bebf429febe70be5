"""The installed agents and SDKs, with the versions that Offbook is tested with."""

from __future__ import annotations

import asyncio
import re
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from offbook.subjects.clis.claude_code import ClaudeCode
from offbook.subjects.clis.cli import ClientPackage
from offbook.subjects.clis.codex import Codex
from offbook.subjects.clis.continue_cli import Continue
from offbook.subjects.clis.gemini import GeminiCli, QwenCode
from offbook.subjects.clis.opencode import OpenCode
from offbook.subjects.clis.pi import Pi
from offbook.subjects.process import isolated_env, run_process

# Offbook does not drive it: `offbook sandbox` installs packages of pi with it.
NPM = ClientPackage("npm", "npm", "", "")
AGENTS = (Codex, ClaudeCode, GeminiCli, Pi, OpenCode, QwenCode, Continue)
CLIENTS = tuple(agent.client for agent in AGENTS)
# The versions in requirements.lock; a test compares them.
PACKAGES = {
    "anthropic": "2.8.0",
    "google-genai": "3.1.0",
    "openai": "3.49.0",
    "openai-agents": "0.24.0",
    "pydantic-ai-slim": "2.66.0",
}
DEADLINE = 30.0
VERSION = re.compile(r"\d+\.\d+[\w.]*")


class InstalledTool(msgspec.Struct, frozen=True):
    """A client or package: its tested version, and the installed one if there is any.

    `error` is the last line that a client printed which is installed and does not run.
    """

    name: str
    kind: str
    tested: str
    installed: str | None = None
    path: str | None = None
    fix: str | None = None
    error: str | None = None


def find_installed() -> list[InstalledTool]:
    """Find every client and package that Offbook is tested with."""
    tools = asyncio.run(_find_clients())
    for name, tested in PACKAGES.items():
        try:
            tools.append(InstalledTool(name, "package", tested, version(name)))
        except PackageNotFoundError:
            fix = f"pip install {name}=={tested}"
            tools.append(InstalledTool(name, "package", tested, fix=fix))
    return tools


async def _find_clients() -> list[InstalledTool]:
    # A client writes to its home even for --version; all are asked at once, they take seconds.
    with tempfile.TemporaryDirectory(prefix="offbook-home-") as home:
        wanted = [client for client in (*CLIENTS, NPM) if client is not None]
        clients = [_find_client(client, Path(home)) for client in wanted]
        return list(await asyncio.gather(*clients))


async def _find_client(client: ClientPackage, home: Path) -> InstalledTool:
    path = client.find()
    fix = client.install_command
    tool = InstalledTool(client.title, "client", client.tested_version, None, path, fix)
    if path is None:
        return tool
    env = isolated_env(home / client.program)
    result = await run_process([path, "--version"], cwd=home, env=env, deadline=DEADLINE)
    match = VERSION.search(result.stdout) or VERSION.search(result.stderr)  # pi uses stderr
    # A client that is installed but broken, for example without its Node.
    if result.timed_out or result.code or match is None:
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
        error = f"no answer in {DEADLINE:g} s" if result.timed_out else (lines or [None])[-1]
        return msgspec.structs.replace(tool, fix=f"reinstall it: {fix}", error=error)
    return msgspec.structs.replace(tool, installed=match[0], fix=None)
