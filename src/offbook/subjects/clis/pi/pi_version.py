"""The versions of pi that Offbook knows, and what is known of the others."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from offbook.errors import UsageError
from offbook.subjects.process import run_process

OLDEST_NODE = 20  # nothing older is asked for its version, which takes a while
DEADLINE = 30.0
_node_versions: dict[str, str] = {}
SUPPORTED = ("0.73", "0.74", "0.87")
PACKAGES = ("@mariozechner/pi-coding-agent", "@earendil-works/pi-coding-agent")
# The first version to which a sentence applies, the newest first.
KNOWN = (
    ((1, 0), "pi 1.x declares packages that the npm registry lacks: it was never tested"),
    ((0, 88), "newer than all tested versions"),
    ((0, 75), "between two tested versions, and not tested itself"),
    ((0, 0), "older than all tested versions; pi 0.65 changed the API of its tools"),
)


async def check_version(program: str, env: Mapping[str, str]) -> str:
    """Return the version of this pi, or raise a UsageError if it is not supported."""
    version, engine = _read_package(program) or (await _ask(program, env), "")
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if len(numbers) < 2:  # noqa: PLR2004 - major and minor
        raise UsageError("cannot read the version of pi", where=program, hint=f"got {version!r}")
    major, minor = numbers
    if f"{major}.{minor}" not in SUPPORTED:
        known = next(text for first, text in KNOWN if (major, minor) >= first)
        raise UsageError(
            f"pi {version} is not supported: {known}",
            where=program,
            hint=f"install one of {', '.join(SUPPORTED)}: npm install -g {PACKAGES[1]}@0.74.2",
        )
    await _check_node(version, engine, env)
    return version


def _read_package(program: str) -> tuple[str, str] | None:
    """Return the version and the required Node of the package that a program is part of."""
    for folder in Path(program).resolve().parents:
        manifest = folder / "package.json"
        if manifest.is_file():
            package = msgspec.json.decode(manifest.read_bytes(), type=dict[str, Any])
            if package.get("name") not in PACKAGES:
                return None
            return str(package.get("version")), str(package.get("engines", {}).get("node", ""))
    return None


async def _ask(program: str, env: Mapping[str, str]) -> str:
    """Return the first line that a program prints for `--version`."""
    result = await run_process(
        [program, "--version"], cwd=Path(env["HOME"]), env=env, deadline=DEADLINE
    )
    return (result.stdout or result.stderr).strip().partition("\n")[0]


async def _check_node(version: str, engine: str, env: Mapping[str, str]) -> None:
    """Raise a UsageError if the Node on the PATH is older than pi requires."""
    required = [int(number) for number in re.findall(r"\d+", engine)[:2]]
    node = shutil.which("node", path=env.get("PATH"))
    if node is None:
        raise UsageError(f"pi {version} needs Node, and there is no 'node' on the PATH")
    if not required or required[0] <= OLDEST_NODE:
        return
    # Once for all tests of a process: starting Node takes a tenth of the time of pi.
    found = _node_versions[node] = _node_versions.get(node) or await _ask(node, env)
    if [int(number) for number in re.findall(r"\d+", found)[:2]] < required:
        raise UsageError(
            f"pi {version} needs Node {engine}, found {found}",
            where=node,
            hint="install a newer Node, or put its folder first on the PATH",
        )
