"""What Offbook says on a system where a part of it, or all of it, does not run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.forked import run_python

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "platforms.md"

# Windows as Offbook sees it. What other packages see stays as it is here.
ON_WINDOWS = """
import signal, sys
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
del signal.SIGHUP
sys.platform = "win32"
sys.argv = ["offbook", "doctor"]
"""


def run_on_windows(code: str) -> subprocess.CompletedProcess[str]:
    return run_python("-c", f"import os, subprocess, asyncio\n{ON_WINDOWS}\n{code}")


@pytest.mark.parametrize(
    "code",
    [
        "from offbook import say",
        "import offbook\noffbook.drive",
        "from offbook.clis import Codex",
        "from offbook.evals import read_pack",
        "from offbook.__main__ import main\nmain()",
    ],
)
def test_windows_is_refused_on_first_use_with_what_to_do(code: str):
    ended = run_on_windows(code)
    assert ended.returncode == 1
    assert "Offbook does not run on Windows; fix: install it in WSL" in ended.stderr


@pytest.mark.parametrize("code", ["import offbook", "import pytest_offbook.plugin"])
def test_being_installed_breaks_nothing_on_windows(code: str):
    ended = run_on_windows(code)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_sealed_command_is_refused_on_macos_with_what_to_do(tmp_path: Path):
    (tmp_path / "hi.yaml").write_text("- {when: Hi, do: [{say: Hello.}]}\n")
    code = """
import sys
from offbook.__main__ import main
sys.platform = "darwin"
sys.argv = ["offbook", "run", "--script", "hi.yaml", "--sealed", "--", "true"]
main()
"""
    ended = run_python("-c", code, cwd=tmp_path)
    assert ended.returncode == 2
    assert "it needs Linux" in ended.stderr
    assert "remove sealed= (--sealed)" in ended.stderr


LINUX_ONLY = re.compile(r"/proc/|prctl|unshare\(|pidfd_open|AF_NETLINK")


def test_every_file_with_a_part_for_linux_is_on_the_page():
    """A new use of something that only Linux has needs a line: what others do instead."""
    files = {
        str(path.relative_to(ROOT / "src/offbook"))
        for path in (ROOT / "src/offbook").rglob("*.py")
        if LINUX_ONLY.search(path.read_text(encoding="utf-8"))
    }
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE.read_text(encoding="utf-8")))
    assert files == named
