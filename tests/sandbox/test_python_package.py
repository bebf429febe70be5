"""Python projects: what installs and loads passes, each broken one has its own verdict."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hatchling.builders.wheel import WheelBuilder

from offbook.errors import UsageError
from offbook.sandbox import SandboxFolder, SandboxResult, verify_sandbox_install
from offbook.sandbox.python_package import (
    BUILD,
    _build,  # pyright: ignore[reportPrivateUsage] - with other installers, as all of these
    _explain_install,  # pyright: ignore[reportPrivateUsage]
    _install,  # pyright: ignore[reportPrivateUsage]
    _is_installed,  # pyright: ignore[reportPrivateUsage]
    _read_build_system,  # pyright: ignore[reportPrivateUsage]
)
from offbook.sources.playbook import call, say, when
from offbook.subjects import ProcessResult
from tests.sandbox.packages import (
    PYTHON_GOOD,
    TOOL,
    list_files,
    project,
    write_package,
)

SMOKE = when("Refund order 7", [call("refund", {"id": 7}), say("Done.")])


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_package(tmp_path / "good", PYTHON_GOOD, {})


@pytest.mark.usefixtures("own_pip")
def test_a_good_project_loads_its_extensions_and_its_smoke_script(
    good: Path, wheels: Path, temp: Path
):
    before = list_files(good)
    steps: list[str] = []
    result = verify_sandbox_install(
        good,
        expect={"extensions": 1, "tools": ["refund"], "skills": 0},
        smoke=[SMOKE],
        wheels=wheels,
        progress=steps.append,
    )
    assert result.passed
    assert (result.kind, result.package, result.version) == ("python", "shop-ext", "1.2.0")
    assert (result.loaded.extensions, result.loaded.extension_errors) == (1, ())
    assert result.loaded.tools == ("refund",)
    assert result.smoke is not None
    assert result.smoke.events.tool_results_for("refund")[0].text == "refunded 7"
    assert steps == [step.name for step in result.steps] == ["build", "install", "load", "smoke"]
    assert list_files(good) == before


@pytest.mark.usefixtures("quick_install")
def test_expectations_that_do_not_hold_are_faults_with_what_was_loaded(
    good: Path, wheels: Path, temp: Path
):
    expect = {"extensions": 5, "skills": 1, "tools": ["refnd", "refund"]}
    result = verify_sandbox_install(good, expect=expect, wheels=wheels, check=False)
    assert [(fault.kind, fault.message) for fault in result.faults] == [
        ("expectation", "expected 5 extensions, got 1"),
        ("expectation", "expected 1 skill, got 0"),
        ("expectation", "expected the tool 'refnd': did you mean 'refund'?"),
    ]
    assert "tools: refund" in result.faults[0].output


@pytest.mark.usefixtures("quick_install")
def test_a_smoke_script_that_fails_is_a_fault(good: Path, wheels: Path, temp: Path):
    script = when("Refund", [call("refund", {}), say("Done.")])
    result = verify_sandbox_install(good, smoke=[script], wheels=wheels, check=False)
    (fault,) = result.faults
    assert fault.kind == "smoke"
    assert "KeyError" in fault.output
    assert result.smoke is None


@pytest.mark.usefixtures("quick_install")
def test_a_smoke_file_may_have_functions_and_mocks(
    good: Path, wheels: Path, temp: Path, tmp_path: Path
):
    file = tmp_path / "smoke.py"
    file.write_text(
        "from offbook import call, say, when\n"
        "seen = []\n"
        "playbook = [when('Go', [call('refund', {'id': 7}).then(lambda r: seen.append(r.text)),\n"
        "                        call('bash', lambda: {'command': seen[0]}), say('Done.')])]\n"
    )
    smoke = {"script": file, "mock_tools": {"bash": "mocked"}}
    result = verify_sandbox_install(good, smoke=smoke, wheels=wheels)
    assert result.smoke is not None
    (call_,) = result.smoke.events.tool_calls_for("bash")
    assert call_.input == {"command": "refunded 7"}
    assert result.smoke.events.tool_results_for("bash")[0].text == "mocked"


def test_a_function_in_a_smoke_script_belongs_into_a_file(good: Path, wheels: Path, temp: Path):
    script = when("Go", [call("refund", lambda: {"id": 7}), say("Done.")])
    with pytest.raises(UsageError, match="write functions into a playbook file"):
        verify_sandbox_install(good, smoke=[script], wheels=wheels)


@pytest.mark.usefixtures("quick_install")
def test_writes_to_home_can_be_allowed(tmp_path: Path, wheels: Path, temp: Path):
    writes = 'from pathlib import Path\n(Path.home() / ".shop").write_text("x")\n'
    changes = {"src/shop_ext/__init__.py": writes + TOOL}
    package = write_package(tmp_path / "writes", PYTHON_GOOD, changes)
    assert verify_sandbox_install(package, wheels=wheels, allow_home_writes=True).passed


@pytest.mark.usefixtures("linked_offbook", "own_pip")
def test_a_dependency_is_installed_from_the_folder_of_wheels(
    tmp_path: Path, wheels: Path, temp: Path, monkeypatch: pytest.MonkeyPatch
):
    library = write_package(
        tmp_path / "library",
        {
            "pyproject.toml": project()
            .replace("shop-ext", "prices-lib")
            .replace("shop_ext", "prices"),
            "src/prices/__init__.py": "PRICES = {7: 5}\n",
        },
        {},
    )
    assert list(WheelBuilder(str(library)).build(directory=str(wheels)))
    package = write_package(
        tmp_path / "package",
        PYTHON_GOOD,
        {
            "pyproject.toml": project(dependencies='["prices-lib>=1.2"]'),
            "src/shop_ext/__init__.py": "from prices import PRICES\n" + TOOL,
        },
    )
    monkeypatch.setenv("OFFBOOK_WHEELS", str(wheels))
    assert verify_sandbox_install(package, expect={"tools": ["refund"]}).passed


@pytest.mark.usefixtures("quick_install")
async def test_it_is_awaited_in_an_event_loop(good: Path, wheels: Path, temp: Path):
    result = await verify_sandbox_install(good, wheels=wheels)
    assert result.passed


async def test_a_cancelled_verification_leaves_nothing(good: Path, wheels: Path, temp: Path):
    started = asyncio.Event()

    def notice(step: str) -> None:
        if step == "install":
            started.set()

    async def verify() -> SandboxResult:
        return await verify_sandbox_install(good, wheels=wheels, progress=notice)

    task = asyncio.ensure_future(verify())
    waiting = asyncio.ensure_future(started.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    assert not task.done(), task
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key of expect": ({"expect": {"tool": ["x"]}}, "did you mean 'tools'"),
    "a name instead of a list": ({"expect": {"tools": "refund"}}, "expected a list of names"),
    "a text instead of a number": ({"expect": {"extensions": "1"}}, "expected a number"),
    "an empty smoke script": ({"smoke": []}, "smoke: expected a script"),
    "a smoke without a script": ({"smoke": {"mock_tools": {}}}, "smoke has no script"),
    "an unknown key of smoke": ({"smoke": {"scripts": []}}, "did you mean 'script'"),
    "a smoke file that is missing": ({"smoke": "none.yaml"}, "none.yaml"),
    "a folder of wheels that is missing": ({"wheels": "none"}, "no such folder of wheels"),
    "a deadline of 0": ({"deadline": 0}, "deadline: expected a number > 0"),
    "an unknown kind": ({"kind": "pip"}, "unknown kind 'pip'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_option_is_refused_before_anything_runs(name: str, good: Path, temp: Path):
    options, message = WRONG[name]
    with pytest.raises(UsageError, match=message):
        verify_sandbox_install(good, **options)


def test_a_folder_without_a_package_is_refused(tmp_path: Path, temp: Path):
    with pytest.raises(UsageError, match=r"no package\.json and no pyproject\.toml"):
        verify_sandbox_install(tmp_path)


def test_a_folder_with_two_packages_needs_a_choice(good: Path, temp: Path):
    (good / "package.json").write_text("{}")
    with pytest.raises(UsageError, match="kind='npm' or kind='python'"):
        verify_sandbox_install(good)


def test_a_missing_folder_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="no such folder"):
        verify_sandbox_install(tmp_path / "none")


@pytest.mark.usefixtures("linked_offbook", "own_pip")
def test_pip_is_used_without_uv_and_what_it_keeps_for_itself_is_no_write_of_the_package(
    good: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # pip asks rustc for its version, and the rustc of rustup writes its settings.
    programs = tmp_path / "bin"
    programs.mkdir()
    rustc = programs / "rustc"
    home = '"${RUSTUP_HOME:=$HOME/.rustup}"'
    rustc.write_text(f'#!/bin/sh\nmkdir -p {home} && touch "$RUSTUP_HOME/settings.toml"\n')
    rustc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")  # without uv
    monkeypatch.setenv("HOME", str(tmp_path / "empty"))
    monkeypatch.delenv("RUSTUP_HOME", raising=False)
    assert verify_sandbox_install(good, expect={"tools": ["refund"]}, wheels=wheels).passed


# --- the commands of the build and of the installation


@pytest.fixture
def sandbox(tmp_path: Path) -> SandboxFolder:
    root = tmp_path / "root"
    root.mkdir()
    return SandboxFolder(root, 60, None)


def write_program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


BUILD_SYSTEMS = {
    "setup.py only": (None, ("setuptools.build_meta:__legacy__", ["setuptools"])),
    "no build system": ("[project]\n", ("setuptools.build_meta:__legacy__", ["setuptools"])),
    "a backend": (
        '[build-system]\nrequires = ["hatchling>=1"]\nbuild-backend = "hatchling.build"\n',
        ("hatchling.build", ["hatchling>=1"]),
    ),
    "a backend in the project": (
        '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n',
        ("own", ["backend-path"]),
    ),
}


@pytest.mark.parametrize("name", BUILD_SYSTEMS)
def test_the_build_system_of_a_project_is_read(name: str, tmp_path: Path):
    text, expected = BUILD_SYSTEMS[name]
    assert _read_build_system(write_package(tmp_path, {"pyproject.toml": text}, {})) == expected


@pytest.mark.parametrize(
    "requirement, build",
    [
        ("hatchling", "installed"),
        ("hatchling >= 1, <9999", "installed"),
        ("hatchling>=9999", "isolated"),
        ("hatchling==1.*", "isolated"),
        ("hatchling; python_version > '3'", "isolated"),
        ("no-such-backend-7", "isolated"),
    ],
)
def test_a_backend_is_used_only_in_a_version_that_the_project_allows(requirement: str, build: str):
    assert _is_installed([requirement]) is (build == "installed")


def test_a_pyproject_that_is_no_toml_is_refused_with_its_path(tmp_path: Path, temp: Path):
    package = write_package(tmp_path / "wrong", PYTHON_GOOD, {"pyproject.toml": "[project\n"})
    with pytest.raises(UsageError, match=r"pyproject\.toml:1: invalid TOML"):
        verify_sandbox_install(package)


@pytest.fixture
def own_backend(tmp_path: Path) -> Path:
    """Return a project that only an isolated build can build."""
    system = '[build-system]\nrequires = ["no-such-backend-7"]\nbuild-backend = "own"\n'
    return write_package(tmp_path / "own", {"pyproject.toml": system}, {})


async def test_a_backend_that_is_not_installed_is_built_by_uv(
    own_backend: Path, sandbox: SandboxFolder, wheels: Path, monkeypatch: pytest.MonkeyPatch
):
    programs = sandbox.root / "bin"
    write_program(programs, "uv", 'echo "$@" > "$TMPDIR/arguments"; touch "$4/own-1-any.whl"')
    monkeypatch.setenv("PATH", f"{programs}:{os.defpath}")
    assert await _build(sandbox, own_backend, wheels) == sandbox.root / "dist" / "own-1-any.whl"
    assert (sandbox.temp / "arguments").read_text().split() == [
        *("build", "--wheel", "--out-dir", str(sandbox.root / "dist")),
        *("--no-index", "--find-links", str(wheels)),
    ]


@pytest.mark.parametrize("requirement", ["no-such-package-7", "pytest>=1"])
async def test_a_backend_that_needs_more_is_built_in_isolation(
    requirement: str,
    tmp_path: Path,
    sandbox: SandboxFolder,
    wheels: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """As setuptools without its own `bdist_wheel` needs the package wheel."""
    (tmp_path / "backend_7.py").write_text(
        f"def get_requires_for_build_wheel(settings=None): return [{requirement!r}]\n"
        "def build_wheel(*_): raise SystemExit(\"invalid command 'bdist_wheel'\")\n"
    )
    build = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{BUILD}"
    monkeypatch.setattr("offbook.sandbox.python_package.BUILD", build)
    system = '[build-system]\nrequires = ["pytest"]\nbuild-backend = "backend_7"\n'
    source = write_package(tmp_path / "needs", {"pyproject.toml": system}, {})
    write_program(sandbox.root / "bin", "uv", 'touch "$4/own-1-any.whl"')
    monkeypatch.setenv("PATH", f"{sandbox.root / 'bin'}:{os.defpath}")
    assert await _build(sandbox, source, wheels) == sandbox.root / "dist" / "own-1-any.whl"
    assert sandbox.faults == []


@pytest.mark.usefixtures("own_pip")
async def test_a_backend_that_is_not_installed_is_built_by_pip_without_uv(
    own_backend: Path, sandbox: SandboxFolder, wheels: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", os.defpath)
    assert await _build(sandbox, own_backend, wheels) is None
    (fault,) = sandbox.faults
    assert fault.kind == "pack"
    assert "no-such-backend-7" in fault.output


async def test_a_build_without_a_wheel_is_a_fault(
    own_backend: Path, sandbox: SandboxFolder, monkeypatch: pytest.MonkeyPatch
):
    write_program(sandbox.root / "bin", "uv", "echo nothing to build")
    monkeypatch.setenv("PATH", f"{sandbox.root / 'bin'}:{os.defpath}")
    assert await _build(sandbox, own_backend, None) is None
    (fault,) = sandbox.faults
    assert (fault.kind, fault.message) == ("pack", "the build wrote no wheel")
    assert fault.output == "nothing to build\n"


@pytest.mark.usefixtures("linked_offbook")
async def test_uv_installs_into_the_environment(
    sandbox: SandboxFolder, wheels: Path, monkeypatch: pytest.MonkeyPatch
):
    write_program(sandbox.root / "bin", "uv", 'echo "$@" > "$TMPDIR/arguments"')
    monkeypatch.setenv("PATH", f"{sandbox.root / 'bin'}:{os.defpath}")
    environment, wheel = sandbox.project / "venv", sandbox.root / "own-1-any.whl"
    assert await _install(sandbox, environment, wheel, wheels)
    assert (sandbox.temp / "arguments").read_text().split() == [
        *("pip", "install", "--python", str(environment / "bin" / "python")),
        *("--no-index", "--find-links", str(wheels), str(wheel)),
    ]
    (offbook,) = environment.glob("lib/python*/site-packages/offbook/__init__.py")
    assert not offbook.is_symlink()


PYTHON = """
echo "$@" >> "$TMPDIR/arguments"
[ "$3" = venv ] || exit 0
for folder; do :; done
mkdir -p "$folder/bin" "$folder/lib/python3/site-packages"
cp "$0" "$folder/bin/python"
"""


@pytest.mark.parametrize("pip", ["of this Python", "of the environment"])
async def test_without_uv_an_environment_gets_a_pip_only_if_this_python_has_none(
    pip: str, sandbox: SandboxFolder, wheels: Path, monkeypatch: pytest.MonkeyPatch
):
    write_program(sandbox.root / "bin", "python", PYTHON)
    monkeypatch.setenv("PATH", os.defpath)  # without uv
    module = "offbook.sandbox.python_package"
    this_python = SimpleNamespace(executable=str(sandbox.root / "bin" / "python"))
    monkeypatch.setattr(f"{module}.sys", this_python)
    found = Mock(return_value=object() if pip == "of this Python" else None)
    monkeypatch.setattr(f"{module}.find_spec", found)
    monkeypatch.setattr(f"{module}._copy_offbook", Mock())
    environment, wheel = sandbox.project / "venv", sandbox.root / "own-1-any.whl"
    assert await _install(sandbox, environment, wheel, wheels), sandbox.faults
    last = ["install", "--no-input", "--no-index", "--find-links", str(wheels), str(wheel)]
    python = str(environment / "bin" / "python")
    commands = {
        "of this Python": [
            ["-I", "-m", "venv", "--without-pip", str(environment)],
            ["-P", "-m", "pip", "--python", python, *last],
        ],
        "of the environment": [
            ["-I", "-m", "venv", str(environment)],
            ["-I", "-m", "pip", *last],
        ],
    }
    lines = (sandbox.temp / "arguments").read_text().splitlines()
    assert [line.split() for line in lines] == commands[pip]
    found.assert_called_with("pip")


async def test_an_environment_that_cannot_be_made_is_a_fault(sandbox: SandboxFolder):
    environment = sandbox.project / "venv"
    environment.write_text("in the way")
    assert not await _install(sandbox, environment, sandbox.root / "own-1-any.whl", None)
    (fault,) = sandbox.faults
    assert fault.kind == "install"
    assert fault.message.startswith("python -m venv failed with exit code")


OUTPUTS = {
    "no index": (
        "error sending request for url (https://pypi.org/)",
        ("network", "the package index cannot be reached"),
    ),
    "no such package": (
        "No solution found when resolving dependencies",
        ("dependency", "a dependency does not resolve"),
    ),
    "anything else": (
        "No space left on device",
        ("install", "the installation of the wheel failed with exit code 2"),
    ),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_output_of_the_installer_tells_its_fault(name: str, sandbox: SandboxFolder):
    output, expected = OUTPUTS[name]
    _explain_install(sandbox, ProcessResult(2, "", output))
    (fault,) = sandbox.faults
    assert (fault.kind, fault.message) == expected
    assert fault.output == output


def test_an_installation_that_runs_too_long_is_a_fault_of_the_deadline(sandbox: SandboxFolder):
    _explain_install(sandbox, ProcessResult(-9, "No solution found", "", timed_out=True))
    (fault,) = sandbox.faults
    assert (fault.kind, fault.message) == (
        "deadline",
        "the installation of the wheel was still running after 60 s",
    )
