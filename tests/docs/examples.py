"""Reads the examples of a page and runs them as a reader would, one after another.

- A ``python`` block runs in a process of its own; one that holds a ``def test_`` runs under
  pytest, together with the tests around it.
- The lines of a ``console`` block that start with ``$ offbook`` must exit with 0, or with the
  code of a trailing ``# exit N``. They see what the tests before them left behind. The lines
  below a command must be among what it says, in that order.
- ``<!-- file: name.py -->`` before a block of any kind writes it to that file of the page's
  folder, for the blocks that follow.
- ``<!-- not run: reason -->`` before a block leaves it out.
- ``<!-- needs: client -->`` before a script runs it where that client is: a command that is
  installed, or a home of tests/matrix; elsewhere it is left out, visibly.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from offbook.subjects.clis.claude_code import ClaudeCode
from offbook.subjects.clis.codex import Codex
from offbook.subjects.clis.gemini import GeminiCli
from offbook.subjects.clis.pi import Pi
from offbook.subjects.clis.ralph import Ralph
from tests.matrix.homes import HOMES

CLIENTS = (ClaudeCode.client, Codex.client, GeminiCli.client, Pi.client, Ralph.client)
COMMANDS = {client.program: client for client in CLIENTS if client is not None}
BLOCK = re.compile(
    r"^(?:<!--\s*(?P<order>file|not run|needs):\s*(?P<detail>.+?)\s*-->\s*\n)?"
    r"^```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^```\s*$",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(
    r"^\$ (?P<words>offbook\b.*?)(?: +# exit (?P<code>\d+))?$(?P<says>(?:\n(?!\$ ).*)*)",
    re.MULTILINE,
)
PATIENCE = 120
# A reader need not have these, and hypothesis alone takes a second to load.
PLUGINS_OF_OURS = ["cacheprovider", "hypothesispytest", "randomly", "xdist"]


class ExampleError(AssertionError):
    """An example did not do what its page says."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    code: str
    line: int
    file: str | None = None
    not_run: str | None = None
    needs: str | None = None

    @property
    def runner(self) -> str | None:
        """The Python that runs it; None where nobody can."""
        if self.needs is None:
            return sys.executable
        if self.needs in COMMANDS:
            return sys.executable if COMMANDS[self.needs].find() else None
        home = HOMES[self.needs]
        return home.python if home.ready else None

    @property
    def left_out(self) -> str | None:
        """Why it is not run here."""
        absent = f"{self.needs} is not installed: run ./dev clients"
        return self.not_run or (absent if self.runner is None else None)

    @property
    def is_test(self) -> bool:
        return self.language == "python" and "def test_" in self.code

    @property
    def is_script(self) -> bool:
        return self.language == "python" and self.file is None and not self.is_test

    @property
    def commands(self) -> list[tuple[str, int, list[str]]]:
        """The commands of a console block, each with the exit code and the lines it promises."""
        if self.language != "console":
            return []
        return [
            (found["words"], int(found["code"] or 0), found["says"].split("\n")[1:])
            for found in COMMAND.finditer(self.code)
        ]


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for found in BLOCK.finditer(text):
        order = {found["order"]: found["detail"]} if found["order"] else {}
        yield Block(
            language=found["language"],
            code=found["code"],
            line=text.count("\n", 0, found.start("code")),
            file=order.get("file"),
            not_run=order.get("not run"),
            needs=order.get("needs"),
        )


def run_page(page: Path, folder: Path) -> int:
    """Runs every example of a page in a folder of its own; returns how many there were."""
    executed = 0
    waiting: list[Block] = []
    for block in blocks_of(page.read_text(encoding="utf-8")):
        if block.left_out is not None:
            continue
        where = f"{page.name}, line {block.line}"
        if block.file is not None:
            _write(folder / block.file, block.code)
        if block.is_test:
            waiting.append(block)
        elif block.is_script:
            _run([block.runner or "", "-c", block.code], where, folder)
            executed += 1
        for words, code, says in block.commands:
            executed += _run_tests(page, waiting, folder)
            waiting = []
            told = _run(["sh", "-c", words], f"{where}: {words}", folder, code)
            _find(says, told, f"{where}: {words}")
            executed += 1
    return executed + _run_tests(page, waiting, folder)


def _run_tests(page: Path, blocks: list[Block], folder: Path) -> int:
    """One pytest for several blocks, because starting it is most of the cost."""
    if not blocks:
        return 0
    files = {block.file or f"test_line_{block.line}.py": block for block in blocks}
    for file, block in files.items():
        _write(folder / file, block.code)
    plain = ["-v", "--no-header", *(f"-pno:{plugin}" for plugin in PLUGINS_OF_OURS)]
    options = ["asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function"]
    settings = ["-c", os.devnull, "--rootdir", ".", *(f"--override-ini={o}" for o in options)]
    command = [sys.executable, "-m", "pytest", *plain, *settings, *files]
    told = _run(command, f"{page.name}, tests", folder)
    for file, block in files.items():
        if f"{file}::" not in told:
            message = f"{page.name}, line {block.line}: pytest finds no test in it"
            raise ExampleError(message)
    return len(files)


def _run(command: list[str], where: str, folder: Path, code: int = 0) -> str:
    """What the command said; an error when it exits with another code."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    scripts = str(Path(sys.executable).parent)
    own = folder / ".tmp"  # workspaces of one page, with whatever ids, meet nobody else's
    own.mkdir(exist_ok=True)
    path = os.pathsep.join([scripts, os.environ["PATH"]])
    environment |= {"PATH": path, "NO_COLOR": "1", "TMPDIR": str(own)}
    outcome = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if outcome.returncode != code:
        message = f"{where}: exit {outcome.returncode}, not {code}\n{outcome.stdout}"
        raise ExampleError(message)
    return outcome.stdout


def _find(promised: list[str], told: str, where: str) -> None:
    """Find the promised lines in what was told, each after the one before."""
    lines = iter(told.splitlines())
    for line in filter(None, promised):
        if line not in lines:
            message = f"{where}: it does not say {line!r}\n{told}"
            raise ExampleError(message)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
