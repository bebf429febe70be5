"""Importing Offbook costs almost nothing, and scripts import names that exist."""

import ast
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

Imported = Callable[[str], set[str]]

NEWLY_IMPORTED = """
import sys
before = set(sys.modules)
import {module}
print(*sorted({{name.partition(".")[0] for name in set(sys.modules) - before}}))
"""


@pytest.fixture
def packages_imported_by(unwatched: dict[str, str]) -> Imported:
    """Return the third-party packages that importing a module brings in, in a new process."""

    def imported(module: str) -> set[str]:
        outcome = subprocess.run(
            [sys.executable, "-c", NEWLY_IMPORTED.format(module=module)],
            env=unwatched,
            capture_output=True,
            text=True,
            check=False,
        )
        assert outcome.returncode == 0, outcome.stderr
        return set(outcome.stdout.split()) - sys.stdlib_module_names

    return imported


def test_import_offbook_imports_no_other_package(packages_imported_by: Imported):
    assert packages_imported_by("offbook") <= {"offbook"}


def test_the_command_line_imports_click_and_msgspec_only(packages_imported_by: Imported):
    assert packages_imported_by("offbook.surfaces.cli") <= {"offbook", "msgspec", "click"}


def test_the_pytest_plugin_imports_no_package_but_pytest(packages_imported_by: Imported):
    imported = packages_imported_by("pytest_offbook.plugin")
    assert imported - packages_imported_by("pytest") <= {"offbook", "pytest_offbook"}


def test_the_guard_of_a_test_imports_no_package(packages_imported_by: Imported):
    assert packages_imported_by("offbook.surfaces.pytest_session") <= {"offbook"}


MODULES_OF = """
import sys
{program}
print(*sys.modules)
"""
IMPORT_NAMES = "from offbook import call, say, session, when"
RUN_SESSION = f"""
{IMPORT_NAMES}
with session() as rehearsal:
    rehearsal.run(when("Hi", [call("bash", {{"command": "true"}}), say("Done.")]))
"""


@pytest.fixture
def modules_of(unwatched: dict[str, str]) -> Imported:
    """Return the modules that a program has imported at its end."""

    def modules(program: str) -> set[str]:
        code = MODULES_OF.format(program=program)
        outcome = subprocess.run(
            [sys.executable, "-c", code], env=unwatched, capture_output=True, text=True, check=True
        )
        return set(outcome.stdout.split())

    return modules


def test_the_names_of_a_first_test_import_the_words_of_a_script_only(modules_of: Imported):
    modules = modules_of(IMPORT_NAMES)
    assert {name for name in modules if name.startswith("offbook.")} == {
        "offbook.capability",
        "offbook.errors",
        "offbook.runs",
        "offbook.runs.api",
        "offbook.sources",
        "offbook.sources.playbook",
        "offbook.sources.playbook.actions",
        "offbook.subjects",
        "offbook.subjects.session",
        "offbook.version",
    }
    assert not {"asyncio", "shutil", "socket", "ssl", "urllib.parse"} & modules


def test_a_session_imports_no_server_no_cassette_and_no_dialect(modules_of: Imported):
    unused = ("sources.server", "sources.cassette", "sources.inprocess", "exchange.dialects")
    modules = modules_of(RUN_SESSION)
    assert "offbook.subjects.session.session" in modules  # the session has run
    assert not [name for name in modules if name.startswith(tuple(f"offbook.{n}" for n in unused))]


HELP = """
import runpy
sys.argv = ["offbook", "--help"]
runpy.run_module("offbook", run_name="__main__")
"""
SERVE = """
import http.client, json, os, signal, sys, threading
from offbook.surfaces.cli import main

imported = set()

def ask(line):
    port = line.partition("127.0.0.1:")[2].partition("/")[0]
    client = http.client.HTTPConnection("127.0.0.1", int(port))
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    client.request("POST", "/v1/chat/completions", json.dumps(body))
    assert client.getresponse().status == 200
    imported.update(sys.modules)
    os.kill(os.getpid(), signal.SIGTERM)

class Output:
    asked = False
    def write(self, text):
        if "OPENAI_BASE_URL" in text and not self.asked:
            self.asked = True
            threading.Thread(target=ask, args=(text,)).start()
    def flush(self): pass
    def isatty(self): return False

shown, sys.stdout = sys.stdout, Output()
try:
    main(["serve", "mocks.jsonl"])
except SystemExit:
    pass
sys.stdout = shown
for name in set(sys.modules) - imported:  # after the first reply
    del sys.modules[name]
"""
COMMAND = """
import os
from offbook.surfaces.cli import main
os.environ["TMPDIR"] = os.getcwd()
for arguments in {commands}:
    try:
        main(arguments.split())
    except SystemExit as end:
        assert not end.code
"""
SNAPSHOT = COMMAND.format(commands=["workspace setup flow", "workspace snapshot flow"])
SCENARIO = COMMAND.format(commands=["scenario run flow.yaml"])
FLOW = """
name: flow
run: {task: Go, mock_responses: [{output: LOOP_COMPLETE}]}
assert: [{type: exit_code, expected: 0}]
"""
# What the first test, command or reply of a process waits for: modules of Offbook, and thousands of
# bytes of their code. The packages are those of the tests above.
BUDGETS = [
    (IMPORT_NAMES, 11, 60),
    (HELP, 19, 35),
    ("import pytest_offbook.plugin", 2, 20),
    (SERVE, 51, 570),
    (SNAPSHOT, 42, 415),
    (SCENARIO, 68, 835),
]
IDS = ["names", "help", "plugin", "serve", "snapshot", "scenario"]


@pytest.fixture
def modules_in_folder(tmp_path: Path, modules_of: Imported) -> Imported:
    """Return the modules of a program in a folder with mocks and a scenario."""
    (tmp_path / "mocks.jsonl").write_text('{"match": "*hello*", "text": "Hi."}')
    (tmp_path / "flow.yaml").write_text(FLOW)
    return lambda program: modules_of(f"import os\nos.chdir({str(tmp_path)!r})\n{program}")


@pytest.mark.parametrize("program, modules, kilobytes", BUDGETS, ids=IDS)
def test_an_entry_point_imports_no_more_than_its_budget(
    modules_in_folder: Imported, program: str, modules: int, kilobytes: int
):
    imported = modules_in_folder(program)
    own = [name for name in imported if name.partition(".")[0] in {"offbook", "pytest_offbook"}]
    files = [spec.origin for name in own if (spec := find_spec(name)) and spec.origin]
    assert own
    assert len(own) <= modules, sorted(own)
    assert sum(Path(file).stat().st_size for file in files) <= 1000 * kilobytes


def test_a_served_reply_imports_no_compression(modules_in_folder: Imported):
    modules = modules_in_folder(SERVE)
    assert "offbook.sources.server.server" in modules
    assert not {"bz2", "lzma", "shutil"} & modules


def test_a_snapshot_imports_no_event_loop_and_no_paths(modules_in_folder: Imported):
    modules = modules_in_folder(SNAPSHOT)
    assert "offbook.workflows.snapshot_tools" in modules
    assert not {"asyncio", "jsonpath_rfc9535", "logging", "ssl"} & modules


def test_a_scenario_imports_no_report_format_and_no_paths(modules_in_folder: Imported):
    modules = modules_in_folder(SCENARIO)
    assert "offbook.workflows.scenario_cli" in modules
    assert not {"jsonpath_rfc9535", "xml.etree.ElementTree"} & modules


@pytest.mark.parametrize("folder", ["bench", "scripts"])
def test_the_scripts_of_a_folder_import_names_that_exist(folder: str):
    files = sorted((Path(__file__).parents[2] / folder).glob("*.py"))
    imports = [
        (file.name, node.module, alias.name)
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("offbook.")
        for alias in node.names
    ]
    assert imports
    missing = [row for row in imports if not _exists(str(row[1]), row[2])]
    assert not missing


def _exists(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name) or find_spec(f"{module}.{name}") is not None
    except ModuleNotFoundError:
        return False
