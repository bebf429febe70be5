"""The program that loads extensions in the sandbox: what it reports, and its smoke test."""

import importlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from offbook.sandbox import find_entry_points, main
from offbook.sources.playbook import call, say, when
from offbook.trace import Events, Trace
from tests.sandbox.packages import TOOL

Install = Callable[..., str]
NAME = "shop-ext-7"
LATE_IMPORT = """
def later():
    import more_7
"""
COMMAND = """
    @api.command("prices")
    def prices(args, ctx):
        pass
"""
LATE_TOOL = """
    @api.on("session_start")
    def started(event, ctx):
        api.register_tool("late", lambda params, ctx: "")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that installs a distribution, with a module for each entry point."""
    folder = tmp_path / "site"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(group: str = "offbook.extensions", **modules: str) -> str:
        info = folder / f"{NAME.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n")
        points = [f"{name} = {name}_extension_7:extension" for name in modules]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *points, ""]))
        for name, source in modules.items():
            (folder / f"{name}_extension_7.py").write_text(source)
            monkeypatch.delitem(sys.modules, f"{name}_extension_7", raising=False)
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        importlib.invalidate_caches()
        return NAME

    yield write
    for name in [name for name in sys.modules if name.endswith("_extension_7")]:
        del sys.modules[name]


def load(name: str, folder: Path) -> dict[str, Any]:
    report = folder / "report.json"
    assert main("list", name, str(report)) == 0
    return json.loads(report.read_text())


def smoke(name: str, folder: Path, **job: Any) -> int:
    defaults: dict[str, Any] = {"file": "", "script": (), "mock_tools": {}, "mock_ui": {}}
    path = folder / "smoke.pickle"
    path.write_bytes(pickle.dumps({**defaults, "trace": str(folder / "smoke.jsonl"), **job}))
    return main("smoke", name, str(path))


def test_an_entry_point_of_another_group_is_no_extension(install: Install, tmp_path: Path):
    name = install("other.group", shop=TOOL)
    assert find_entry_points(name) == {}
    assert load(name, tmp_path) == {"points": {}, "errors": [], "loaded": [], "tools": []}


def test_the_report_names_what_each_extension_registers(install: Install, tmp_path: Path):
    name = install(shop=TOOL + COMMAND, more=TOOL.replace("refund", "charge"))
    report = load(name, tmp_path)
    assert report["points"]["shop"] == "shop_extension_7:extension"
    assert report["loaded"] == ["shop", "more"]
    assert report["errors"] == []
    assert report["tools"] == ["charge", "refund"]
    assert "prices" in report["commands"]


def test_a_tool_of_a_session_start_hook_is_reported(install: Install, tmp_path: Path):
    assert load(install(shop=TOOL + LATE_TOOL), tmp_path)["tools"] == ["late", "refund"]


FAILURES = {
    "an exception": (TOOL + '    raise RuntimeError("no key")\n', "RuntimeError", "no key"),
    "a missing module": (
        "import no_such_module_7\n",
        "ModuleNotFoundError",
        "No module named 'no_such_module_7'",
    ),
    "a tool without a name": (
        'def extension(api):\n    api.tool("")(print)\n',
        "UsageError",
        "a tool needs a name: expected a text of length >= 1, got ''",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_an_error_is_reported_with_its_cause_and_the_others_still_load(
    case: str, install: Install, tmp_path: Path
):
    source, kind, message = FAILURES[case]
    report = load(install(broken=source, shop=TOOL), tmp_path)
    (error,) = report["errors"]
    assert (error["name"], error["target"]) == ("broken", "broken_extension_7:extension")
    assert (error["type"], error["message"]) == (kind, message)
    assert error["module"] == ("no_such_module_7" if kind == "ModuleNotFoundError" else None)
    assert kind in error["output"]
    assert report["loaded"] == ["shop"]
    assert "commands" not in report  # no session was started with them


def test_the_file_that_an_extension_misses_is_reported(install: Install, tmp_path: Path):
    missing = tmp_path / "prices.json"
    report = load(install(shop=f"open({str(missing)!r})\n"), tmp_path)
    assert report["errors"][0]["file"] == str(missing)


def test_extensions_that_only_fail_together_have_an_error(install: Install, tmp_path: Path):
    report = load(install(shop=TOOL, more=TOOL), tmp_path)
    (error,) = report["errors"]
    assert (error["name"], error["type"]) == ("more", "UsageError")
    assert "tool 'refund' is registered twice" in error["message"]


SCRIPT = [when("Refund", [call("refund", {"id": 7}), say("Done.")])]


def test_a_smoke_job_writes_its_trace(install: Install, tmp_path: Path):
    assert smoke(install(shop=TOOL), tmp_path, script=SCRIPT) == 0
    (result,) = Events(list(Trace(tmp_path / "smoke.jsonl"))).tool_results_for("refund")
    assert result.text == "refunded 7"


def test_a_smoke_job_may_name_a_file(install: Install, tmp_path: Path):
    file = tmp_path / "playbook.yaml"
    file.write_text(
        "- when: Go\n  do:\n    - call: bash\n      with: {command: ls}\n    - say: Done.\n"
    )
    assert smoke(install(shop=TOOL), tmp_path, file=str(file), mock_tools={"bash": "mock"}) == 0
    (result,) = Events(list(Trace(tmp_path / "smoke.jsonl"))).tool_results_for("bash")
    assert result.text == "mock"


def test_a_smoke_job_that_fails_exits_with_1_and_its_error(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    script = [when("Refund", [call("refnd", {}), say("Done.")])]
    assert smoke(install(shop=TOOL), tmp_path, script=script) == 1
    assert "refnd" in capsys.readouterr().err


def test_it_runs_as_a_module(install: Install, tmp_path: Path):
    name, report = install(shop=TOOL), tmp_path / "report.json"
    command = [sys.executable, "-m", "offbook.sandbox.load_entry_points", "list", name, str(report)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, env=env, check=True)
    assert json.loads(report.read_text())["tools"] == ["refund"]


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    import no_such_7\nexcept ImportError:\n    no_such_7 = None\n",
        "import typing\nif typing.TYPE_CHECKING:\n    import no_such_7\n",
        "import sys\nif sys.platform == 'win32':\n    import no_such_7\n",
        "import contextlib\nwith contextlib.suppress(ImportError):\n    import no_such_7\n",
        "def read():\n    import json, os.path, msgspec\n",
        "def read():\n    from . import no_such_7\n",
        "def read():\n    import extra_of_7\n",
        "def read():\n    import yaml\n",
        "def read(x):\n    return import_module(x), import_module('.no_such_7', __package__)\n",
        "try:\n    x = import_module('no_such_7')\nexcept ImportError:\n    x = None\n",
    ],
)
def test_an_import_that_may_fail_is_not_missing(source: str, tmp_path: Path, install: Install):
    name = install(shop=TOOL + LATE_IMPORT)
    (tmp_path / "site" / "more_7.py").write_text(source)
    info = tmp_path / "site" / f"{NAME.replace('-', '_')}-1.0.dist-info"
    (info / "RECORD").write_text("shop_extension_7.py,,\nmore_7.py,,\ntests/test_more.py,,\n")
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n"
        "Provides-Extra: more\nRequires-Dist: extra-of-7; extra == 'more'\n"
        "Requires-Dist: PyYAML>=6; extra == 'more'\n"
    )
    assert "missing_imports" not in load(name, tmp_path)


@pytest.mark.parametrize(
    "source",
    [
        "def read():\n    import no_such_7.part\n",
        "class A:\n    async def b(self):\n        with self:\n            import no_such_7\n",
        "def read(fast):\n    if fast:\n        import no_such_7\n",
        "def read(kind):\n    match kind:\n        case 1:\n            import no_such_7\n",
        "try:\n    import json\nfinally:\n    import no_such_7\n",
        "def read():\n    return importlib.import_module('no_such_7').value\n",
        "def read():\n    x = __import__('no_such_7.part')\n",
    ],
)
def test_an_import_in_a_function_that_nothing_installs_is_missing(
    source: str, tmp_path: Path, install: Install
):
    name = install(shop=TOOL + LATE_IMPORT)
    (tmp_path / "site" / "more_7.py").write_text(source)
    info = tmp_path / "site" / f"{NAME.replace('-', '_')}-1.0.dist-info"
    (info / "RECORD").write_text("shop_extension_7.py,,\nmore_7.py,,\n")
    line = source[: source.index("no_such_7")].count("\n") + 1
    assert load(name, tmp_path)["missing_imports"] == {"no_such_7": f"more_7.py:{line}"}


@pytest.mark.parametrize(
    "files, modules",
    [
        ({"shop_7/__init__.py": "", "shop_7/prices.py": "", "tests/test_x.py": ""}, ["shop_7"]),
        ({"one_7.py": "", "two_7.py": ""}, ["one_7", "two_7"]),
        ({"space_7/part/__init__.py": "", "space_7/other/__init__.py": ""},
         ["space_7.other", "space_7.part"]),
        ({"shop_7-stubs/__init__.pyi": ""}, ["shop_7-stubs"]),
        ({}, ["extra-of-7"]),
    ],
)  # fmt: skip
def test_a_distribution_without_extensions_is_a_library(
    files: dict[str, str], modules: list[str], tmp_path: Path, install: Install
):
    name = install("other.group", shop=TOOL)
    info = tmp_path / "site" / f"{NAME.replace('-', '_')}-1.0.dist-info"
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    with (info / "METADATA").open("a") as metadata:
        metadata.write("Requires-Dist: extra-of-7\n")
    for file, text in files.items():
        (tmp_path / "site" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / file).write_text(text)
    assert main("library", name, str(tmp_path / "report.json")) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["modules"], report["errors"]) == (modules, [])
