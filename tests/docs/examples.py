"""Parse the examples of a page and run them in order.

- A ``python`` block runs in a new process (a fork, see tests/forked.py, unless it shows what is
  imported); one with a ``def test_`` runs under pytest, together
  with adjacent tests.
- The lines of a ``console`` block that start with ``$ offbook`` must exit with 0, or with the
  code of a trailing ``# exit N``. They run in the same folder as the tests before them. The
  lines below a command must be in its output, in that order.
- ``<!-- file: name.py -->`` before a block of any kind writes it to that file of the page's
  folder, for the blocks that follow.
- ``<!-- not run: reason -->`` before a block skips it.
- ``<!-- needs: client -->`` before a script runs it only if that client is available: an installed
  command, or a home of tests/matrix. Otherwise the script is reported as skipped. The name may also
  be that of a Python package.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from offbook.subjects.clis import ClaudeCode, Codex, Continue, GeminiCli, OpenCode, QwenCode, Ralph
from offbook.subjects.clis.pi import Pi
from tests.forked import run_python
from tests.matrix.homes import HOMES

Run = Callable[..., str]
AGENTS = (ClaudeCode, Codex, Continue, GeminiCli, OpenCode, Pi, QwenCode, Ralph)
CLIENTS = [agent.client for agent in AGENTS]
COMMANDS = {client.program: client for client in CLIENTS if client is not None}
BLOCK = re.compile(
    r"^(?:<!--\s*(?P<directive>file|not run|needs):\s*(?P<detail>.+?)\s*-->\s*\n)?"
    r"^```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^```\s*$",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(
    r"^\$ (?P<words>offbook\b.*?)(?: +# exit (?P<code>\d+))?$(?P<output>(?:\n(?!\$ ).*)*)",
    re.MULTILINE,
)
TIMEOUT_SECONDS = 300
IMPORT = re.compile(r"^ *(?:from|import) ([\w.]+)", re.MULTILINE)
SHELL = set("|&;<>$`*?~{}")  # what only a shell understands
KEPT = {"PYTEST_ADDOPTS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTEST_PLUGINS"}
# Readers may not have these plugins. The variables leave out others, see tests/conftest.py.
DISABLED_PLUGINS = ["cacheprovider", "xdist.plugin"]


class ExampleError(AssertionError):
    """The result of an example differs from its page."""


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
        """The Python interpreter for this block, or None if its client is not installed."""
        if self.needs is None:
            return sys.executable
        if self.needs in COMMANDS:
            return sys.executable if COMMANDS[self.needs].find() else None
        if self.needs not in HOMES:
            return sys.executable if find_spec(self.needs) else None
        home = HOMES[self.needs]
        python = home.python if home.with_offbook else sys.executable
        return python if home.ready else None

    @property
    def scripts(self) -> str:
        """The folder of the commands of its client."""
        home = HOMES.get(self.needs or "")
        return str(Path((home and not home.npm and home.python) or sys.executable).parent)

    @property
    def needs_client(self) -> bool:
        return self.needs in COMMANDS or self.needs in HOMES

    @property
    def skip_reason(self) -> str | None:
        """The reason to skip this block, or None."""
        missing = f"{self.needs} is not installed: run ./dev clients"
        return self.not_run or (missing if self.runner is None else None)

    @property
    def is_test(self) -> bool:
        return self.language == "python" and "def test_" in self.code

    @property
    def is_script(self) -> bool:
        return self.language == "python" and self.file is None and not self.is_test

    @property
    def commands(self) -> list[tuple[str, int, list[str]]]:
        """The commands of a console block, each with its expected exit code and output."""
        if self.language != "console":
            return []
        return [
            (found["words"], int(found["code"] or 0), found["output"].split("\n")[1:])
            for found in COMMAND.finditer(self.code)
        ]


def parse_blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page in order."""
    for found in BLOCK.finditer(text):
        directives = {found["directive"]: found["detail"]} if found["directive"] else {}
        yield Block(
            language=found["language"],
            code=found["code"],
            line=text.count("\n", 0, found.start("code")),
            file=directives.get("file"),
            not_run=directives.get("not run"),
            needs=directives.get("needs"),
        )


def run_page(page: Path, folder: Path) -> int:
    """Run every example of a page in this folder and return their number."""
    executed = 0
    run = partial(_run, find_imports(page), folder)
    pending: list[Block] = []
    for block in parse_blocks(page.read_text(encoding="utf-8")):
        if block.skip_reason is not None:
            continue
        location = f"{page.name}, line {block.line}"
        if block.file is not None:
            _write(folder / block.file, block.code)
        if block.is_test:
            pending.append(block)
        elif block.is_script:
            _link_packages(block.needs, folder)
            command = [block.runner or "", "-c", block.code]
            run(command, location, scripts=block.scripts)
            executed += 1
        for words, code, expected in block.commands:
            executed += _run_tests(page, pending, folder, run)
            pending = []
            output = run(["sh", "-c", words], f"{location}: {words}", code)
            _check_output(expected, output, f"{location}: {words}")
            executed += 1
    return executed + _run_tests(page, pending, folder, run)


def _link_packages(needs: str | None, folder: Path) -> None:
    """Link the packages of an npm prefix: Node searches them beside the script."""
    home = HOMES.get(needs or "")
    link = folder / "node_modules"
    if home is not None and home.npm and not link.exists():
        link.symlink_to(home.folder / "node_modules")


def _run_tests(page: Path, blocks: list[Block], folder: Path, run: Run) -> int:
    """Run several blocks in one pytest process, because starting it is most of the cost."""
    if not blocks:
        return 0
    files = {block.file or f"test_line_{block.line}.py": block for block in blocks}
    for file, block in files.items():
        _write(folder / file, block.code)
    flags = ["-v", "--no-header", *(f"-pno:{plugin}" for plugin in DISABLED_PLUGINS)]
    if any(block.needs == "respx" for block in blocks):
        flags.append("-prespx")
    options = ["asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function"]
    # Without --confcutdir, pytest lists the folders of all other tests, too.
    folders = ["-c", os.devnull, "--rootdir", ".", "--confcutdir", "."]
    settings = [*folders, *(f"--override-ini={option}" for option in options)]
    command = [sys.executable, "-m", "pytest", *flags, *settings, *files]
    output = run(command, f"{page.name}, tests")
    for file, block in files.items():
        if f"{file}::" not in output:
            message = f"{page.name}, line {block.line}: pytest finds no test in it"
            raise ExampleError(message)
    return len(files)


def find_imports(page: Path) -> list[str]:
    """Return the installed modules that the examples of a page import."""
    names = set(IMPORT.findall(page.read_text(encoding="utf-8")))
    tops = {name.partition(".")[0] for name in names} - {"offbook", "pytest"}
    found = {top for top in tops if (spec := find_spec(top)) and "site-packages" in str(spec)}
    return sorted(name for name in names if name.partition(".")[0] in found)


def _run(
    imports: list[str],
    folder: Path,
    command: list[str],
    location: str,
    code: int = 0,
    scripts: str = str(Path(sys.executable).parent),
) -> str:
    """Return the output of a command, or raise ExampleError for another exit code."""
    environment = {k: v for k, v in os.environ.items() if k in KEPT or not k.startswith("PYTEST_")}
    temp_folder = folder / ".tmp"  # pages may use the same workspace ids
    temp_folder.mkdir(exist_ok=True)
    path = os.pathsep.join([scripts, os.environ["PATH"]])
    environment |= {"PATH": path, "NO_COLOR": "1", "TMPDIR": str(temp_folder)}
    if command[0] == "sh" and not SHELL.intersection(command[-1]):
        command = [sys.executable, "-m", *shlex.split(command[-1])]
    if command[0] == sys.executable and "sys.modules" not in command[-1]:
        outcome = run_python(
            *command[1:],
            cwd=folder,
            env=environment,
            stderr=subprocess.STDOUT,
            imports=imports,
            forks=True,
        )
    else:
        outcome = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    if outcome.returncode != code:
        message = f"{location}: exit {outcome.returncode}, not {code}\n{outcome.stdout}"
        raise ExampleError(message)
    return outcome.stdout


def _check_output(expected: list[str], output: str, location: str) -> None:
    """Raise ExampleError unless the expected lines are in the output, in this order."""
    lines = iter(output.splitlines())
    for line in filter(None, expected):
        if line not in lines:
            message = f"{location}: it does not say {line!r}\n{output}"
            raise ExampleError(message)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
