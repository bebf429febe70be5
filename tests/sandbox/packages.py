"""The good package of each kind, which the tests of the sandbox change.

A change is a file with its new text, or None to remove it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

Files = Mapping[str, str | None]


def write_package(folder: Path, good: Files, changes: Files) -> Path:
    """Write a package, and return its folder."""
    for name, text in {**good, **changes}.items():
        if text is not None:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return folder


def list_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# --- npm


def manifest(**changes: Any) -> str:
    base: dict[str, Any] = {
        "name": "dummy-ext",
        "version": "1.0.0",
        "type": "module",
        "files": ["index.ts", "lib", "skills"],
        "pi": {"extensions": ["./index.ts"], "skills": ["./skills"]},
    }
    return json.dumps({**base, **changes})


EXTENSION = """%s
const use = (_value) => {}; // an import without a use is removed from TypeScript
const parameters = { type: "object", properties: { text: { type: "string" } } };
const tool = (name) => ({
  name, label: name, description: "Echo.", parameters,
  async execute(_id, params) {
    return { content: [{ type: "text", text: `echo: ${params.text}` }], details: {} };
  },
});
export default function (pi) {
  pi.registerTool(tool("dummy_tool"));
  %s
}
"""


def extension(body: str = "", head: str = "") -> str:
    return EXTENSION % (head, body)


SKILL = "---\nname: greeting\ndescription: Greet people.\n---\nSay hello.\n"
NPM_GOOD: Files = {
    "package.json": manifest(),
    "index.ts": extension(),
    "skills/greeting/SKILL.md": SKILL,
}


needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


def write_pi(folder: Path, version: str = "0.74.2", script: str = "exit 9") -> str:
    """Write a pi that cannot run, for packages that never reach it; return its path."""
    name = {"name": "@earendil-works/pi-coding-agent", "version": version}
    text = json.dumps(name)
    files = {"package.json": text, f"node_modules/{name['name']}/package.json": text}
    write_package(folder, {**files, "pi": f"#!/bin/sh\n{script}\n"}, {})
    (folder / "pi").chmod(0o755)
    return str(folder / "pi")


# --- Python


def project(entry: str = "shop_ext:extension", dependencies: str = "[]", more: str = "") -> str:
    return f"""
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "shop-ext"
version = "1.2.0"
dependencies = {dependencies}

[project.entry-points."offbook.extensions"]
shop = "{entry}"

[tool.hatch.build.targets.wheel]
packages = ["src/shop_ext"]
{more}
"""


TOOL = """
def extension(api):
    @api.tool("refund", "Refund an order.", {"type": "object"})
    def refund(params, ctx):
        return f"refunded {params['id']}"
"""

PYTHON_GOOD: Files = {
    "pyproject.toml": project(dependencies='["offbook"]'),
    "src/shop_ext/__init__.py": TOOL,
}
