"""Which agents and SDKs of others are here, and which versions of them were tried."""

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
from offbook.subjects.clis.gemini import GeminiCli
from offbook.subjects.clis.pi import Pi
from offbook.subjects.process import isolated_env, run_process

CLIENTS = (Codex.client, ClaudeCode.client, GeminiCli.client, Pi.client)
PACKAGES = {
    "anthropic": "2.8.0",
    "google-genai": "3.1.0",
    "openai": "3.49.0",
    "openai-agents": "0.24.0",
    "pydantic-ai-slim": "2.66.0",
}
PATIENCE = 30.0
VERSION = re.compile(r"\d+\.\d+[\w.]*")


class InstalledTool(msgspec.Struct, frozen=True):
    """One thing that can be tested here: the version that is installed, if any, and was tried."""

    name: str
    kind: str
    tested: str
    installed: str | None = None
    place: str | None = None
    do: str | None = None


def find_installed() -> list[InstalledTool]:
    """Look for every client and package that there are tests for."""
    packages = [_find_package(name, tested) for name, tested in PACKAGES.items()]
    return [*asyncio.run(_find_clients()), *packages]


def _find_package(name: str, tested: str) -> InstalledTool:
    try:
        found = version(name)
    except PackageNotFoundError:
        return InstalledTool(name, "package", tested, do=f"pip install {name}=={tested}")
    return InstalledTool(name, "package", tested, found)


async def _find_clients() -> list[InstalledTool]:
    with tempfile.TemporaryDirectory(prefix="offbook-home-") as home:
        asked = [_find_client(client, Path(home)) for client in CLIENTS if client is not None]
        return list(await asyncio.gather(*asked))


async def _find_client(client: ClientPackage, home: Path) -> InstalledTool:
    place = client.find()
    mend = client.install_command
    if place is None:
        return InstalledTool(client.title, "client", client.tested_version, do=mend)
    env = isolated_env(home / client.program)
    ended = await run_process([place, "--version"], cwd=home, env=env, deadline=PATIENCE)
    told = VERSION.search(ended.stdout)
    if ended.code or told is None:
        return InstalledTool(
            client.title, "client", client.tested_version, None, place, f"mend it: {mend}"
        )
    return InstalledTool(client.title, "client", client.tested_version, told[0], place)
