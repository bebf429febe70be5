"""Adding a capability takes one folder and one line; removing it takes the same."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import pytest_offbook

TOY = {
    "__init__.py": """
from offbook.capability import Capability, CommandEntry

CAPABILITY = Capability(
    heading="Toys",
    commands={"toy": CommandEntry("Print a greeting.", "offbook.toy.toy_cli:toy")},
    mcp_tools="offbook.toy.toy_tools:TOOLS",
)
""",
    "toy_cli.py": """
import click

@click.command()
def toy():
    click.echo("hello from toy")
""",
    "toy_pytest.py": """
OPTIONS = {"--toys": {"type": int, "default": 1, "help": "How many toys."}}

def pytest_configure(config):
    config.addinivalue_line("markers", "toys: loaded by the option")

def toy():
    return "a toy"

FIXTURES = (toy,)
""",
    "toy_tools.py": """
class Greeting:
    def describe(self):
        return {"name": "test_toy"}

TOOLS = {"test_toy": Greeting()}
""",
}
LINE = '    "toy": "toy_pytest",\n'


class Checkout:
    """A copy of the source, and the commands that run it."""

    def __init__(self, source: Path, root: Path, env: dict[str, str]) -> None:
        self.source = source
        self.table = source / "offbook" / "surfaces" / "capabilities.py"
        self._env = {**env, "PYTHONPATH": os.pathsep.join([str(source), str(root)])}
        self._root = root

    def python(self, *args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *args],
            cwd=cwd or self.source,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
        )

    def lint_imports(self) -> subprocess.CompletedProcess[str]:
        program = "from importlinter.cli import lint_imports_command as main; main()"
        return self.python("-c", program, "--no-logo", "--no-cache", cwd=self._root)

    def write_table(self) -> None:
        written = self.python(str(self._root / "scripts" / "pytest_table.py"))
        assert written.returncode == 0, written.stderr

    def add_toy(self) -> None:
        folder = self.source / "offbook" / "toy"
        folder.mkdir()
        for name, text in TOY.items():
            (folder / name).write_text(text)
        self.table.write_text(
            self.table.read_text().replace("CAPABILITIES = {\n", "CAPABILITIES = {\n" + LINE)
        )
        self.write_table()

    def remove_toy(self) -> None:
        shutil.rmtree(self.source / "offbook" / "toy")
        self.table.write_text(self.table.read_text().replace(LINE, ""))
        self.write_table()


@pytest.fixture(scope="module")
def checkout(
    root: Path, unwatched: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Checkout]:
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(root / "src", source, dirs_exist_ok=True)
    copy = Checkout(source, root, unwatched)
    copy.add_toy()
    yield copy
    shutil.rmtree(source)


def test_the_command_of_a_capability_is_listed_under_its_heading(checkout: Checkout):
    result = checkout.python("-m", "offbook", "--help")
    assert "Toys:\n  toy  Print a greeting." in result.stdout


def test_the_command_of_a_capability_runs(checkout: Checkout):
    assert checkout.python("-m", "offbook", "toy").stdout == "hello from toy\n"


def test_the_fixture_of_a_capability_is_available(checkout: Checkout, tmp_path: Path):
    (tmp_path / "test_toy.py").write_text("def test_toy(toy):\n    assert toy == 'a toy'\n")
    result = checkout.python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "1 passed" in result.stdout, result.stdout + result.stderr


def test_an_option_loads_the_pytest_module_of_its_capability(checkout: Checkout, tmp_path: Path):
    pytest = ("-m", "pytest", "--markers", "-p", "no:cacheprovider")
    assert "loaded by the option" not in checkout.python(*pytest, cwd=tmp_path).stdout
    assert "loaded by the option" in checkout.python(*pytest, "--toys=2", cwd=tmp_path).stdout


def test_the_mcp_tool_of_a_capability_is_listed(checkout: Checkout):
    program = "from offbook.surfaces.mcp_server import describe_tools; print(describe_tools())"
    assert "test_toy" in checkout.python("-c", program).stdout


def test_a_new_capability_keeps_the_import_contracts(checkout: Checkout):
    result = checkout.lint_imports()
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_folder_without_its_line_breaks_the_contract(
    root: Path, unwatched: dict[str, str], tmp_path: Path
):
    shutil.copytree(root / "src", tmp_path, dirs_exist_ok=True)
    copy = Checkout(tmp_path, root, unwatched)
    copy.add_toy()
    copy.table.write_text(copy.table.read_text().replace(LINE, ""))
    assert "offbook.toy is neither a capability" in copy.lint_imports().stdout


def test_a_removed_capability_has_no_command(root: Path, unwatched: dict[str, str], tmp_path: Path):
    shutil.copytree(root / "src", tmp_path, dirs_exist_ok=True)
    copy = Checkout(tmp_path, root, unwatched)
    copy.add_toy()
    copy.remove_toy()
    assert "toy" not in copy.python("-m", "offbook", "--help").stdout
    assert "--toys" not in copy.python("-m", "pytest", "--help", cwd=tmp_path).stdout
    assert copy.lint_imports().returncode == 0


def test_the_table_of_the_pytest_plugin_is_up_to_date():
    table = import_module("scripts.pytest_table")
    package = Path(pytest_offbook.__file__).read_text()
    assert ast.dump(ast.parse(package)) == ast.dump(ast.parse(table.write_table())), (
        "run ./dev docs"
    )


def test_a_deleted_capability_leaves_the_table_of_the_pytest_plugin(
    root: Path, unwatched: dict[str, str], tmp_path: Path
):
    shutil.copytree(root / "src", tmp_path, dirs_exist_ok=True)
    copy = Checkout(tmp_path, root, unwatched)
    shutil.rmtree(tmp_path / "offbook" / "patterns")
    copy.table.write_text(
        copy.table.read_text().replace('    "patterns": "patterns_pytest",\n', "")
    )
    copy.write_table()
    (tmp_path / "test_it.py").write_text("def test_it(pattern_harness): pass")
    result = copy.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py", cwd=tmp_path)
    assert "fixture 'pattern_harness' not found" in result.stdout, result.stdout + result.stderr
