"""Published packages through `offbook sandbox`: each installs and loads, so none may be red.

Each is fetched from its registry as an archive, in a fixed version, and verified as a user does it:
libraries with `--expect-extensions 0`, packages of pi with the installed pi.

    ./dev bench published_packages                  # all, some minutes
    PACKAGES=ms,tomli ./dev bench published_packages
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("OFFBOOK_CLIENTS", str(ROOT / ".clients"))


class Published(NamedTuple):
    """A published package: `form` is what is fetched, `trait` what is particular about it."""

    name: str
    version: str
    form: str
    trait: str
    options: tuple[str, ...] = ("--expect-extensions", "0")


PACKAGES = (
    Published("bufferutil", "4.0.9", "npm", "machine code, compiled or prebuilt"),
    Published("@node-rs/crc32", "1.10.6", "npm", "machine code in optional dependencies"),
    Published("nanoid", "5.1.6", "npm", "ESM only"),
    Published("ms", "2.1.3", "npm", "CommonJS"),
    Published("preact", "10.27.2", "npm", "conditional exports"),
    Published("react-dom", "19.2.0", "npm", "a peer dependency"),
    Published("type-fest", "5.1.0", "npm", "types only"),
    Published("@tsconfig/node20", "20.1.6", "npm", "JSON only"),
    Published("@floating-ui/dom", "1.7.4", "npm", "code for browsers"),
    Published("ws", "8.18.3", "npm", "optional peers, imported in a try"),
    Published("esbuild", "0.28.2", "npm", "an install script, machine code"),
    Published("express", "5.3.0", "npm", "CommonJS, many dependencies"),
    Published("lit", "3.3.3", "npm", "exports for development"),
    Published("zod", "4.6.7", "npm", "many entries, no dependency"),
    Published("pi-themes", "1.0.1", "npm", "themes of pi", ()),
    Published("pi-prompt-template-model", "0.12.2", "npm", "an extension and a skill of pi", ()),
    Published("@aliou/pi-processes", "0.12.0", "npm", "three extensions of pi", ()),
    Published("pi-web-access", "0.28.0", "npm", "an extension of pi, many dependencies", ()),
    Published("pi-mcp-adapter", "2.36.0", "npm", "an extension of pi, MCP", ()),
    Published("markupsafe", "3.0.3", "sdist", "setuptools, C code"),
    Published("docopt", "0.6.2", "sdist", "setup.py only"),
    Published("tomli", "2.3.0", "sdist", "flit"),
    Published("structlog", "25.5.0", "sdist", "hatchling with plugins"),
    Published("rich", "14.2.0", "sdist", "poetry"),
    Published("flit_core", "3.12.0", "sdist", "a backend in its own project"),
    Published("pyyaml", "6.0.3", "sdist", "a backend in its project, Cython"),
    Published("pluggy", "1.7.0", "sdist", "a version of setuptools-scm"),
    Published("setproctitle", "1.3.8", "sdist", "C code without Python"),
    Published("tqdm", "4.67.1", "wheel", "modules for programs that are not installed"),
    Published("zope.interface", "8.0.1", "wheel", "a namespace package, machine code"),
    Published("types-requests", "2.32.4.20250913", "wheel", "stubs only"),
    Published("msgpack", "1.2.4", "wheel", "machine code with a fallback"),
    Published("python-dateutil", "4.0.0", "wheel", "modules for Windows"),
    Published("tzdata", "2025.2", "wheel", "data only"),
)


def fetch(package: Published, folder: Path) -> Path:
    """Fetch the archive of a package."""
    if package.form == "npm":
        words = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
    else:
        binary = "--no-binary" if package.form == "sdist" else "--only-binary"
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", binary, package.name]
        words = [*pip, f"{package.name}=={package.version}"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
    (archive,) = folder.iterdir()
    return archive


def main() -> int:
    """Print a line for each package; return 1 if one is red."""
    chosen = [name for name in os.environ.get("PACKAGES", "").split(",") if name]
    red = 0
    for package in PACKAGES:
        if chosen and package.name not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                archive = fetch(package, Path(folder))
            except subprocess.CalledProcessError as error:
                print(f"{package.name} {package.version}: not fetched: {error.stderr[-300:]}")
                red = 1
                continue
            words = [sys.executable, "-m", "offbook", "sandbox", str(archive), "--json"]
            done = subprocess.run(
                [*words, *package.options], capture_output=True, text=True, check=False
            )
        if done.returncode == 2:
            print(f"{package.name} {package.version}: {done.stderr}")
            red = 1
            continue
        result = json.loads(done.stdout)
        verdict = "passed" if result["passed"] else "failed"
        print(
            f"{package.name} {package.version} ({package.form}, {package.trait}): {verdict}",
            flush=True,
        )
        for fault in result["faults"]:
            red = 1
            print(f"  {fault['kind']}: {fault['message']}\n{fault['output'][-1500:]}")
    return red


if __name__ == "__main__":
    sys.exit(main())
