"""Broken packages, more than ten of each kind: each is found for a reason of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import SandboxFailed
from offbook.sandbox import verify_sandbox_install
from tests.clients import PI, needs
from tests.sandbox.packages import (
    NPM_GOOD,
    PYTHON_GOOD,
    TOOL,
    Files,
    extension,
    list_files,
    manifest,
    needs_npm,
    project,
    write_package,
)


@dataclass(frozen=True)
class Broken:
    """A broken package: the kind of its fault, and texts in the message and in the output."""

    kind: str
    message: str
    output: str
    changes: Files = field(default_factory=dict[str, str | None])
    deadline: float = 120.0

    def verify(self, package: Path, **options: Any) -> SandboxFailed:
        """Return the error of its verification.

        A machine that is too busy to come to the fault before the deadline gets more time.
        """
        for deadline in (self.deadline, 20 * self.deadline):
            with pytest.raises(SandboxFailed) as failure:
                verify_sandbox_install(package, deadline=deadline, **options)
            fault = failure.value.result.faults[0]
            if (
                self.message.format(deadline=deadline) in fault.message
                and self.output in fault.output
            ):
                return failure.value
            if fault.kind != "deadline":
                break
        pytest.fail(f"{fault} is not {self}")


# --- The table of npm

# These are found before pi starts: npm is enough.
NPM_NOT_INSTALLED = {
    "no manifest": Broken(
        "no_manifest",
        'package.json has no "pi"',
        '"pi": {"extensions"',
        {"package.json": manifest(pi=None), "skills/greeting/SKILL.md": None},
    ),
    "a script that fails while it is packed": Broken(
        "pack",
        "npm pack failed with exit code",
        "no compiler here",
        {"package.json": manifest(scripts={"prepack": "echo no compiler here >&2; exit 3"})},
    ),
    "a dependency that does not exist": Broken(
        "dependency",
        "a dependency does not resolve: no-such-package-7@^1.0.0 (E404)",
        "no-such-package-7",
        {"package.json": manifest(dependencies={"no-such-package-7": "^1.0.0"})},
    ),
    "a peer that does not exist": Broken(
        "dependency",
        "a dependency does not resolve: no-such-peer-7",
        "no-such-peer-7",
        {"package.json": manifest(peerDependencies={"no-such-peer-7": "*"})},
    ),
    "a peer range that this pi does not fit": Broken(
        "dependency",
        'a peer range does not fit: peer @earendil-works/pi-coding-agent@"^9.0.0" from dummy-ext',
        "Found: @earendil-works/pi-coding-agent@0.74.2",
        {"package.json": manifest(peerDependencies={"@earendil-works/pi-coding-agent": "^9.0.0"})},
    ),
    "a postinstall script that fails": Broken(
        "install_script",
        "an install script failed: sh -c echo cannot compile >&2; exit 4",
        "cannot compile",
        {"package.json": manifest(scripts={"postinstall": "echo cannot compile >&2; exit 4"})},
    ),
    "a postinstall script that hangs": Broken(
        "deadline",
        "npm install was still running after {deadline:g} s (",
        "waiting for ever",
        {"package.json": manifest(scripts={"postinstall": "echo waiting for ever; sleep 600"})},
        deadline=8.0,  # npm starts in it, on a busy machine too
    ),
}

# These are watched while npm installs them. HOME is two folders below what is outside.
NPM_WATCHED = {
    "a postinstall script that writes outside": Broken(
        "outside_write",
        "1 file changed outside of the sandbox while it was installed",
        "outside-7.txt",
        {"package.json": manifest(scripts={"postinstall": 'echo x > "$HOME/../../outside-7.txt"'})},
    ),
    "a postinstall script that connects": Broken(
        "connection",
        "connected to 203.0.113.7:9 while it was installed",
        "203.0.113.7:9",
        {
            "package.json": manifest(
                scripts={
                    "postinstall": "node -e \"require('net').connect(9, '203.0.113.7')"
                    ".on('error', () => 0)\""
                }
            )
        },
    ),
}

# These need pi. The six faults of the specification are marked with their numbers.
NPM_NOT_LOADED = {
    "1: a file that is not packed": Broken(
        "missing_file",
        "index.ts imports './lib/names.ts', which is not packed",
        "Cannot find module './lib/names.ts'",
        {
            "package.json": manifest(files=["index.ts", "skills"]),
            "index.ts": extension("use(NAME);", 'import { NAME } from "./lib/names.ts";'),
            "lib/names.ts": 'export const NAME = "x";\n',
        },
    ),
    "1: an extension that is not packed": Broken(
        "missing_file",
        "pi.extensions names './src/main.ts', which is not packed",
        "packed files:",
        {
            "package.json": manifest(pi={"extensions": ["./index.ts", "./src/main.ts"]}),
            "src/main.ts": extension(),
        },
    ),
    "2: a path in the manifest that does not exist": Broken(
        "entry_point",
        "pi.extensions names './indx.ts', which does not exist: did you mean 'index.ts'?",
        '"./indx.ts"',
        {"package.json": manifest(pi={"extensions": ["./indx.ts"]})},
    ),
    "3: a dependency that is not declared": Broken(
        "dependency",
        "index.ts imports 'left-pad-7': it is in devDependencies only",
        "Cannot find module 'left-pad-7'",
        {
            "package.json": manifest(devDependencies={"left-pad-7": "1"}),
            "index.ts": extension("use(pad);", 'import pad from "left-pad-7";'),
        },
    ),
    "3: a dependency that is not declared, imported late": Broken(
        "dependency",
        "lib/late.ts imports 'left-pad-7': it is not in dependencies",
        "lib/late.ts:2: left-pad-7",
        {
            "index.ts": extension(
                'pi.registerCommand("pad", {'
                ' description: "", handler: async () => { await import("./lib/late.ts"); } });'
            ),
            "lib/late.ts": '// import "left-pad-8";\nexport const pad = require("left-pad-7");\n',
        },
    ),
    "4: an import that does not resolve": Broken(
        "import",
        "index.ts imports './helper.js', which does not exist",
        "Cannot find module './helper.js'",
        {"index.ts": extension("use(help);", 'import { help } from "./helper.js";')},
    ),
    "5: an extension that throws": Broken(
        "load",
        "index.ts failed to load: no API key",
        "no API key",
        {"index.ts": extension('throw new Error("no API key");')},
    ),
    "6: a tool that is registered twice": Broken(
        "tool",
        "the tool 'dummy_tool' is registered twice",
        "dummy_tool",
        {"index.ts": extension('pi.registerTool(tool("dummy_tool"));')},
    ),
    "6: a tool without a function": Broken(
        "tool",
        "the tool half has no function execute",
        "half",
        {"index.ts": extension('pi.registerTool({ name: "half", parameters: {} });')},
    ),
    "6: a tool with a wrong schema": Broken(
        "tool",
        "the tool 'wrong' has an invalid parameter schema",
        "objekt",
        {
            "index.ts": extension(
                'pi.registerTool({ ...tool("wrong"), parameters: { type: "objekt" } });'
            )
        },
    ),
    "6: two extensions with the same tool": Broken(
        "tool",
        'Tool "dummy_tool" conflicts with',
        "dummy_tool",
        {
            "package.json": manifest(pi={"extensions": ["./index.ts", "./lib/other.ts"]}),
            "lib/other.ts": extension(),
        },
    ),
    "an extension without a function": Broken(
        "entry_point",
        "index.ts has no function as its default export",
        "factory",
        {"index.ts": "export const nothing = 1;\n"},
    ),
    "an extension that writes to HOME": Broken(
        "home_write",
        "1 file written to the home directory while it was loaded",
        "~/.dummy/config.json",
        {
            "index.ts": extension(
                'mkdirSync(home); writeFileSync(home + "/config.json", "x");',
                'import { mkdirSync, writeFileSync } from "node:fs";\n'
                'import { homedir } from "node:os";\n'
                'const home = homedir() + "/.dummy";',
            )
        },
    ),
    "an extension that never finishes loading": Broken(
        "deadline",
        "pi was still running after {deadline:g} s",
        "waiting for a server",
        {
            "index.ts": extension(
                'console.error("waiting for a server");'
                "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);"
            )
        },
        deadline=15.0,
    ),
    "a hook that fails when the session starts": Broken(
        "load",
        "a hook failed: session_start: no server",
        "no server",
        {"index.ts": extension('pi.on("session_start", () => { throw new Error("no server"); });')},
    ),
}

# The extensions of these are broken alone, so that one start of pi shows all of them.
NPM_LOAD_ERRORS = [
    NPM_NOT_LOADED[name]
    for name in (
        "3: a dependency that is not declared",
        "4: an import that does not resolve",
        "5: an extension that throws",
        "6: a tool that is registered twice",
        "6: a tool without a function",
    )
]


# --- The table of Python

SECOND_TOOL = """
    @api.tool("refund", "Again.", {"type": "object"})
    def again(params, ctx):
        return ""
"""

PYTHON_WATCHED = {
    "an extension that writes outside": Broken(
        "outside_write",
        "1 file changed outside of the sandbox while it was loaded",
        "outside-7.txt",
        {
            "src/shop_ext/__init__.py": "from pathlib import Path\n"
            '(Path.home().parents[1] / "outside-7.txt").write_text("x")\n' + TOOL
        },
    ),
    "an extension that connects": Broken(
        "connection",
        "connected to 203.0.113.7:9 while it was loaded",
        "203.0.113.7:9",
        {
            "src/shop_ext/__init__.py": "import contextlib, socket\n"
            "with contextlib.suppress(OSError):\n"
            '    socket.create_connection(("203.0.113.7", 9), timeout=1)\n' + TOOL
        },
    ),
}

PYTHON_BROKEN = {
    "3: a dependency that is not declared, imported in a function": Broken(
        "dependency",
        "'no_such_module_7' is imported, and no dependency of the project has it",
        "shop_ext/prices.py:2: import no_such_module_7",
        {
            "src/shop_ext/__init__.py": TOOL + "def late():\n    from shop_ext import prices\n",
            "src/shop_ext/prices.py": "def read():\n    import no_such_module_7.prices\n",
        },
    ),
    "6: a tool whose schema is none": Broken(
        "tool",
        'a tool has an invalid schema: "objekt"',
        "jsonschema",
        {"src/shop_ext/__init__.py": TOOL.replace('"type": "object"', '"type": "objekt"')},
    ),
    "no entry point": Broken(
        "no_manifest",
        "no entry point in the group offbook.extensions",
        'entry-points."offbook.extensions"',
        {"pyproject.toml": project().replace("offbook.extensions", "other.group")},
    ),
    "a build that fails": Broken(
        "pack",
        "the build of the wheel failed with exit code",
        "not a version",
        {"pyproject.toml": project().replace("1.2.0", "not a version")},
    ),
    "1: a module that is not in the wheel": Broken(
        "missing_file",
        "shop_ext.prices is not in the wheel",
        "ModuleNotFoundError",
        {
            "pyproject.toml": project(more='exclude = ["prices.py"]'),
            "src/shop_ext/prices.py": "PRICES = {}\n",
            "src/shop_ext/__init__.py": "from shop_ext.prices import PRICES\n" + TOOL,
        },
    ),
    "1: a data file that is not in the wheel": Broken(
        "missing_file",
        "shop_ext/prices.json is not in the wheel",
        "FileNotFoundError",
        {
            "pyproject.toml": project(more='exclude = ["*.json"]'),
            "src/shop_ext/prices.json": "{}",
            "src/shop_ext/__init__.py": "from pathlib import Path\n"
            'open(Path(__file__).with_name("prices.json")).close()\n' + TOOL,
        },
    ),
    "2: an entry point without its module": Broken(
        "entry_point",
        "there is no module 'shop_extension'",
        "ModuleNotFoundError",
        {"pyproject.toml": project("shop_extension:extension")},
    ),
    "2: an entry point without its function": Broken(
        "entry_point",
        "module 'shop_ext' has no attribute 'extend'",
        "AttributeError",
        {"pyproject.toml": project("shop_ext:extend")},
    ),
    "3: a dependency that does not resolve": Broken(
        "dependency",
        "a dependency does not resolve",
        "no-such-package-7",
        {"pyproject.toml": project(dependencies='["no-such-package-7>=1"]')},
    ),
    # pytest is installed where these tests run, and Offbook does not depend on it.
    "3: a dependency that is not declared": Broken(
        "dependency",
        "'pytest' is imported, and no dependency of the project has it",
        "No module named 'pytest'",
        {"src/shop_ext/__init__.py": "import pytest\n" + TOOL},
    ),
    "4: an import that does not resolve": Broken(
        "import",
        "there is no module 'shop_ext.price'",
        "shop_ext.price",
        {"src/shop_ext/__init__.py": "import shop_ext.price\n" + TOOL},
    ),
    "4: a name that cannot be imported": Broken(
        "import",
        "cannot import name 'nothing' from 'json'",
        "ImportError",
        {"src/shop_ext/__init__.py": "from json import nothing\n" + TOOL},
    ),
    "5: an extension that raises": Broken(
        "load",
        "RuntimeError: no API key",
        'raise RuntimeError("no API key")',
        {"src/shop_ext/__init__.py": TOOL + '    raise RuntimeError("no API key")\n'},
    ),
    "6: a tool that is registered twice": Broken(
        "tool",
        "tool 'refund' is registered twice",
        "already registered by shop",
        {"src/shop_ext/__init__.py": TOOL + SECOND_TOOL},
    ),
    "6: two extensions with the same tool": Broken(
        "tool",
        "tool 'refund' is registered twice",
        "already registered by more",
        {
            "pyproject.toml": project().replace(
                "[tool.", 'more = "shop_ext.more:extension"\n[tool.'
            ),
            "src/shop_ext/more.py": TOOL,
        },
    ),
    "an extension that writes to HOME": Broken(
        "home_write",
        "1 file written to the home directory while it was loaded",
        "~/.shop",
        {
            "src/shop_ext/__init__.py": "from pathlib import Path\n"
            '(Path.home() / ".shop").write_text("x")\n' + TOOL
        },
    ),
    "an extension that never finishes loading": Broken(
        "deadline",
        "loading the extensions was still running after {deadline:g} s",
        "waiting for a server",
        {
            "src/shop_ext/__init__.py": "import time\n"
            'print("waiting for a server", flush=True)\ntime.sleep(600)\n' + TOOL
        },
        deadline=6.0,  # Python starts in it, on a busy machine too
    ),
    "an extension that ends the process": Broken(
        "load",
        "loading the extensions failed with exit code 7",
        "leaving",
        {
            "src/shop_ext/__init__.py": "import os, sys\n"
            'print("leaving", file=sys.stderr, flush=True)\nos._exit(7)\n' + TOOL
        },
    ),
}


NPM = {**NPM_NOT_INSTALLED, **NPM_WATCHED, **NPM_NOT_LOADED}
PYTHON = {**PYTHON_BROKEN, **PYTHON_WATCHED}


@pytest.mark.parametrize("packages", [NPM, PYTHON], ids=["npm", "python"])
def test_at_least_ten_packages_are_broken_and_no_two_have_the_same_reason(
    packages: Mapping[str, Broken],
):
    reasons = {(broken.kind, broken.message, broken.output) for broken in packages.values()}
    assert len(reasons) == len(packages) >= 10


# --- npm


def check_npm_package(broken: Broken, folder: Path, temp: Path, program: str | None) -> None:
    package = write_package(folder, NPM_GOOD, broken.changes)
    before = list_files(package)
    failure = broken.verify(package, program=program)
    assert {fault.kind for fault in failure.result.faults} == {broken.kind}, failure
    assert str(temp) not in failure.result.faults[0].output
    assert list_files(package) == before


@needs_npm
@pytest.mark.parametrize("name", NPM_NOT_INSTALLED)
def test_a_package_that_does_not_install_has_its_own_verdict(
    name: str, tmp_path: Path, temp: Path, registry: None, not_pi: str
):
    check_npm_package(NPM_NOT_INSTALLED[name], tmp_path / "broken", temp, not_pi)


@needs_npm
@pytest.mark.parametrize("name", NPM_WATCHED)
def test_what_an_install_script_does_outside_of_the_sandbox_is_a_fault_and_undone(
    name: str, tmp_path: Path, temp: Path, registry: None, not_pi: str, namespaces: None
):
    broken = NPM_WATCHED[name]
    package = write_package(tmp_path / "broken", NPM_GOOD, broken.changes)
    failure = broken.verify(package, program=not_pi)
    kinds = [fault.kind for fault in failure.result.faults]
    assert kinds == [broken.kind, "load"]  # the pi of this test cannot load anything


@needs(PI)
@pytest.mark.parametrize("name", NPM_NOT_LOADED)
def test_a_package_that_does_not_load_has_its_own_verdict(
    name: str, tmp_path: Path, temp: Path, registry: None, long_check: None
):
    check_npm_package(NPM_NOT_LOADED[name], tmp_path / "broken", temp, None)


@needs(PI)
def test_each_extension_that_does_not_load_has_its_own_verdict(
    tmp_path: Path, temp: Path, registry: None
):
    # Each has a tool of its own, so that only what is meant is registered twice.
    cases = {f"lib/{n}.ts": (case, f"tool_{n}") for n, case in enumerate(NPM_LOAD_ERRORS)}
    changes = {
        path: str(case.changes["index.ts"]).replace("dummy_tool", tool)
        for path, (case, tool) in cases.items()
    }
    entries = ["./index.ts", *(f"./{path}" for path in cases)]
    text = manifest(pi={"extensions": entries}, devDependencies={"left-pad-7": "1"})
    package = write_package(tmp_path / "broken", NPM_GOOD, {**changes, "package.json": text})
    result = verify_sandbox_install(package, check=False)
    expected = {
        (case.kind, case.message.replace("index.ts", path).replace("dummy_tool", tool))
        for path, (case, tool) in cases.items()
    }
    assert {(fault.kind, fault.message) for fault in result.faults} == expected
    assert (result.loaded.extensions, len(result.loaded.extension_errors)) == (3, 3)


# --- Python


BROKEN_BEFORE_LOADING = ("a build that fails", "3: a dependency that does not resolve")


@pytest.mark.usefixtures("linked_offbook", "own_pip")
@pytest.mark.parametrize("name", BROKEN_BEFORE_LOADING)
def test_a_project_that_does_not_install_has_one_fault_of_its_kind(
    name: str, tmp_path: Path, wheels: Path, temp: Path
):
    check_python_package(name, tmp_path, wheels, temp)


@pytest.mark.usefixtures("quick_install")
@pytest.mark.parametrize(
    "name", [name for name in PYTHON_BROKEN if name not in BROKEN_BEFORE_LOADING]
)
def test_a_project_that_does_not_load_has_one_fault_of_its_kind(
    name: str, tmp_path: Path, wheels: Path, temp: Path
):
    check_python_package(name, tmp_path, wheels, temp)


@pytest.mark.usefixtures("quick_install", "namespaces")
@pytest.mark.parametrize("name", PYTHON_WATCHED)
def test_what_a_project_does_outside_of_the_sandbox_is_a_fault_and_undone(
    name: str, tmp_path: Path, wheels: Path, temp: Path
):
    broken = PYTHON_WATCHED[name]
    failure = broken.verify(
        write_package(tmp_path / "broken", PYTHON_GOOD, broken.changes), wheels=wheels
    )
    assert [fault.kind for fault in failure.result.faults] == [broken.kind]
    assert failure.result.not_watched == ""


def check_python_package(name: str, tmp_path: Path, wheels: Path, temp: Path) -> None:
    broken = PYTHON_BROKEN[name]
    package = write_package(tmp_path / "broken", PYTHON_GOOD, broken.changes)
    before = list_files(package)
    failure = broken.verify(package, wheels=wheels)
    (fault,) = failure.result.faults
    assert fault.kind == broken.kind
    assert str(temp) not in fault.output
    assert fault.message in str(failure)
    assert list_files(package) == before
