"""npm packages without extensions, and archives."""

import shutil
import tarfile
from pathlib import Path

import pytest

from offbook.errors import UsageError
from offbook.sandbox import SandboxFolder, verify_sandbox_install
from offbook.sandbox.npm_package import (
    _load_library,  # pyright: ignore[reportPrivateUsage] - without npm
)
from tests.sandbox.packages import write_package

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


@pytest.fixture
def sandbox(tmp_path: Path) -> SandboxFolder:
    root = tmp_path / "root"
    root.mkdir()
    return SandboxFolder(root, 60, None)


LIBRARIES: dict[str, tuple[dict[str, str | None], list[tuple[str, str]]]] = {
    "CommonJS": ({"package.json": "{}", "index.js": "exports.a = 1;"}, []),
    "ESM": (
        {"package.json": '{"type": "module", "exports": "./a.js"}', "a.js": "await 1;"},
        [],
    ),
    "conditions": (
        {
            "package.json": '{"exports": {".": {"browser": "./b.js", "default": "./a.cjs"}}}',
            "a.cjs": "",
        },
        [],
    ),
    "types": ({"package.json": '{"types": "a.d.ts"}', "a.d.ts": ""}, []),
    "code for browsers": ({"package.json": "{}", "index.js": "window.a = 1;"}, []),
    "types that are missing": (
        {"package.json": '{"types": "a.d.ts"}'},
        [("import", "lib-7: a.d.ts does not exist")],
    ),
    "a file that is missing": (
        {"package.json": '{"main": "dist/main.js"}'},
        [("import", "lib-7: Cannot find")],
    ),
    "a package that is not declared": (
        {"package.json": "{}", "index.js": "require('no-such-7');"},
        [("dependency", "imports 'no-such-7': it is not in dependencies")],
    ),
    "an exception": (
        {"package.json": "{}", "index.js": "throw new Error('no key');"},
        [("load", "lib-7 failed to load: no key")],
    ),
}


@needs_npm
@pytest.mark.parametrize("name", LIBRARIES)
async def test_a_package_without_extensions_is_imported(name: str, sandbox: SandboxFolder):
    files, expected = LIBRARIES[name]
    folder = write_package(sandbox.project / "node_modules" / "lib-7", files, {})
    loaded = await _load_library(sandbox, folder, folder, "lib-7")
    assert [fault.kind for fault in sandbox.faults] == [kind for kind, _ in expected]
    assert all(
        text in fault.message for fault, (_, text) in zip(sandbox.faults, expected, strict=True)
    )
    assert bool(loaded.modules) is not bool(expected)


@needs_npm
def test_an_archive_is_installed_as_it_is(tmp_path: Path, temp: Path):
    files = {
        "package/package.json": '{"name": "lib-7", "version": "1.0.0"}',
        "package/index.js": "",
    }
    archive = tmp_path / "lib-7.tgz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(write_package(tmp_path / "files", files, {}) / "package", "package")
    result = verify_sandbox_install(archive, expect={"extensions": 0})
    assert (result.package, result.loaded.modules) == ("lib-7", ("lib-7",))
    assert [step.name for step in result.steps] == ["install", "load"]


@pytest.mark.parametrize(
    "name, message", [("a.zip", "unsupported file type '.zip'"), ("a.tgz", "not an archive")]
)
def test_a_file_that_is_no_package_is_refused(name: str, message: str, tmp_path: Path, temp: Path):
    (tmp_path / name).write_text("x")
    with pytest.raises(UsageError, match=message):
        verify_sandbox_install(tmp_path / name)
