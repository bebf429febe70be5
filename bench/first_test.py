"""The time from `pip install` to a first test: ./dev bench first_test.

The wheel is built, installed in an empty environment together with what an agent project needs, and
`offbook init` runs in a copy of the project, on a terminal that presses Enter at each question. The
index that pip is configured with must be reachable.
"""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "tests" / "first_mile" / "projects" / "openai_loop"
PACKAGES = ["pytest", "openai"]


def run_on_terminal(command: list[str], folder: Path) -> tuple[int, str]:
    """Run a command on a terminal, press Enter at each question, and return code and output."""
    process, terminal = pty.fork()
    if not process:
        os.chdir(folder)
        os.execv(command[0], command)  # noqa: S606 - the command of the new environment
    output = ""
    answered = 0
    while True:
        try:
            chunk = os.read(terminal, 65_536)
        except OSError:  # the command has ended
            break
        if not chunk:
            break
        output += chunk.decode(errors="replace")
        if output.count("which one?") > answered:
            answered += 1
            os.write(terminal, b"\n")
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), output.replace("\r\n", "\n")


def main() -> int:
    """Measure once, and print a table."""
    with tempfile.TemporaryDirectory(prefix="offbook-first-test-") as temporary:
        folder = Path(temporary)
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        [wheel] = folder.glob("*.whl")
        project = Path(shutil.copytree(PROJECT, folder / "project"))
        environment = folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        programs = environment / "bin"
        started = time.perf_counter()
        install = [str(programs / "pip"), "install", "--quiet", str(wheel), *PACKAGES]
        subprocess.run(install, check=True)
        installed = time.perf_counter()
        code, output = run_on_terminal([str(programs / "offbook"), "init"], project)
        ended = time.perf_counter()
    print(output)
    if code:
        return code
    print(f"pip install          {installed - started:6.1f} s")
    print(f"offbook init         {ended - installed:6.1f} s")
    print(f"to the first test    {ended - started:6.1f} s")
    print(f"questions asked      {output.count('which one?'):6}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
