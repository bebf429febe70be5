"""A Python project with extensions: build a wheel, install it in a new environment, load it.

The environment has the Offbook that runs now, with its dependencies, and nothing else: a dependency
that the project does not declare is missing there, as it is for its users.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import shutil
import sys
from importlib.metadata import Distribution, PackageNotFoundError
from importlib.metadata import distribution as find_distribution
from importlib.util import find_spec
from operator import ge, gt, le, lt
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import UsageError
from offbook.files import parse_toml, read_text
from offbook.sandbox.npm_package import Installation
from offbook.sandbox.sandbox_folder import Loaded, SmokeResult
from offbook.trace.query import Events
from offbook.trace.reader import Trace
from offbook.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from offbook.sandbox.sandbox_folder import SandboxFolder
    from offbook.subjects.process import ProcessResult

PACKAGE = Path(__file__).resolve().parents[1]  # the code of Offbook itself
LOADER = "offbook.sandbox.load_entry_points"
NOT_COPIED = (".venv", "venv", "node_modules", "__pycache__", ".tox", ".nox", ".mypy_cache")
REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*")
LIMIT = re.compile(r"(>=|>|<=|<)([\d.]+)")
COMPARISONS = {">=": ge, ">": gt, "<=": le, "<": lt}
# The backend is called by its hooks of PEP 517, in the folder of the project. If it needs more than
# is installed here, such as `wheel`, the exit code asks for an isolated build.
NEEDS_ISOLATION = 75
BUILD = f"""
import importlib, importlib.metadata, re, sys
module, _, name = sys.argv[1].partition(":")
backend = importlib.import_module(module)
for part in filter(None, name.split(".")):
    backend = getattr(backend, part)
for requirement in getattr(backend, "get_requires_for_build_wheel", list)():
    name = re.match(r"[\\w.-]*", requirement.strip())[0]
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        sys.exit({NEEDS_ISOLATION})
    if requirement.strip() != name:
        sys.exit({NEEDS_ISOLATION})  # of a version that is not checked here
print(backend.build_wheel(sys.argv[2]))
"""
UNRESOLVED = (
    "No solution found",
    "No matching distribution found",
    "Could not find a version",
    "ResolutionImpossible",
)
UNREACHABLE = ("dns error", "error sending request", "NewConnectionError", "Failed to establish")


async def install_python_package(
    sandbox: SandboxFolder,
    source: Path,
    wheels: Path | None,
    archive: Path | None,
    *,
    library: bool,
) -> Installation:
    """Build, install and load a project; what is wrong with it is in the faults of the sandbox."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    host = f"offbook {VERSION} on Python {python}"
    installation = Installation(source.name, "", host, Loaded())
    wheel = archive
    if wheel is None:
        with sandbox.step("build"):
            wheel = await _build(sandbox, source, wheels)
    if wheel is None:
        return installation
    name, version = wheel.name.split("-")[:2]
    installation = installation._replace(package=name.replace("_", "-"), version=version)
    with sandbox.step("install"):
        environment = sandbox.project / "venv"
        installed = await _install(sandbox, environment, wheel, wheels)
    sandbox.check_writes("while it was installed")
    if not installed:
        return installation
    with sandbox.step("load"):
        loaded = await _load(sandbox, environment, source, name, library=library)
    sandbox.check_writes("while it was loaded")
    if loaded is None:
        return installation
    return installation._replace(loaded=loaded, folder=environment)


# --- building


async def _build(sandbox: SandboxFolder, source: Path, wheels: Path | None) -> Path | None:
    """Build the wheel from a copy of the project: backends write into the folder they build."""
    backend, requires = _read_build_system(source)
    copy = sandbox.root / "source"
    shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
    output = sandbox.root / "dist"
    output.mkdir()
    uv = shutil.which("uv")
    result = None
    if _is_installed(requires):
        # The backend is here already: no isolated environment has to be made for it.
        command = [sys.executable, "-P", "-c", BUILD, backend, output]
        result = await sandbox.run(command, cwd=copy, installs=True)
    if result is None or result.code == NEEDS_ISOLATION:
        if uv is not None:
            command = [uv, "build", "--wheel", "--out-dir", output, *_offline(wheels)]
        else:
            command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", output]
            command += [*_offline(wheels), "."]
        result = await sandbox.run(command, cwd=copy, installs=True)
    if sandbox.failed(result, "the build of the wheel", "pack"):
        return None
    wheel = next(output.glob("*.whl"), None)
    if wheel is None:
        sandbox.fail("pack", "the build wrote no wheel", result.stdout + result.stderr)
    return wheel


def _read_build_system(source: Path) -> tuple[str, list[str]]:
    path = source / "pyproject.toml"
    if not path.is_file():  # a project with a setup.py only
        return "setuptools.build_meta:__legacy__", ["setuptools"]
    system: dict[str, Any] = parse_toml(read_text(path), path).get("build-system", {})
    backend = str(system.get("build-backend", "setuptools.build_meta:__legacy__"))
    requires = cast("list[str]", system.get("requires", ["setuptools"]))
    # A backend inside of the project is found by an isolated build only.
    return backend, ["backend-path"] if "backend-path" in system else requires


def _is_installed(requirements: list[str]) -> bool:
    try:
        return all(map(_is_satisfied, requirements))
    except PackageNotFoundError:
        return False


def _is_satisfied(requirement: str) -> bool:
    """Return whether a requirement with simple limits is installed; of any other, False."""
    name = _name_of(requirement)
    installed = _numbers(find_distribution(name).version)
    for limit in filter(None, requirement.strip()[len(name) :].replace(" ", "").split(",")):
        found = LIMIT.fullmatch(limit)
        if found is None or not COMPARISONS[found[1]](installed, _numbers(found[2])):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _name_of(requirement: str) -> str:
    match = REQUIREMENT.match(requirement.strip())
    return match[0] if match else requirement


def _offline(wheels: Path | None) -> list[str | Path]:
    return [] if wheels is None else ["--no-index", "--find-links", wheels]


# --- installing


async def _install(
    sandbox: SandboxFolder, environment: Path, wheel: Path, wheels: Path | None
) -> bool:
    """Make the environment, copy Offbook into it, and install the wheel with its dependencies."""
    uv = shutil.which("uv")
    own_pip = find_spec("pip") is not None
    bare = ["--without-pip"] if uv or own_pip else []
    make = [sys.executable, "-I", "-m", "venv", *bare, environment]
    if sandbox.failed(await sandbox.run(make, installs=True), "python -m venv", "install"):
        return False
    _copy_offbook(_site_packages(environment))
    python = environment / "bin" / "python"
    pip: list[str | Path]
    if uv:
        pip = [uv, "pip", "install", "--python", python]
    elif own_pip:  # saves the seconds that the installation of pip takes
        pip = [sys.executable, "-P", "-m", "pip", "--python", python, "install", "--no-input"]
    else:
        pip = [python, "-I", "-m", "pip", "install", "--no-input"]
    result = await sandbox.run([*pip, *_offline(wheels), wheel], installs=True)
    if result.timed_out or result.code:
        _explain_install(sandbox, result)
        return False
    return True


def _explain_install(sandbox: SandboxFolder, result: ProcessResult) -> None:
    output = result.stdout + result.stderr
    if result.timed_out or not any(text in output for text in (*UNRESOLVED, *UNREACHABLE)):
        sandbox.failed(result, "the installation of the wheel", "install")
    elif any(text in output for text in UNREACHABLE):
        sandbox.fail("network", "the package index cannot be reached", output)
    else:
        sandbox.fail("dependency", "a dependency does not resolve", output)


def _site_packages(environment: Path) -> Path:
    (packages,) = environment.glob("lib/python*/site-packages")
    return packages


def _copy_offbook(packages: Path) -> None:
    """Copy the Offbook that runs now, and the distributions it depends on.

    Copied, not linked: an installer that replaces one of them removes the files of the old one.
    The compiled files are copied as well, as they are valid for a copy with the same time.
    """
    for dist in _runtime_distributions():
        root = Path(str(dist.locate_file("")))
        tops = {file.parts[0] for file in dist.files or () if ".." not in file.parts}
        for top in sorted(name for name in tops if not name.endswith((".pth", "__pycache__"))):
            found, target = root / top, packages / top
            if found.is_dir():
                shutil.copytree(found, target, copy_function=_copy_file, dirs_exist_ok=True)
            elif found.is_file():
                _copy_file(str(found), str(target))
    shutil.copytree(PACKAGE, packages / "offbook", dirs_exist_ok=True)
    for note in packages.glob("offbook-*.dist-info/direct_url.json"):
        note.unlink()  # of an editable installation, which this is not


def _copy_file(source: str, target: str) -> None:
    """Copy a file; a library of machine code, which nothing changes in place, is linked."""
    if source.endswith(".so"):
        with contextlib.suppress(OSError):  # on another disk
            os.link(source, target)
            return
    shutil.copy2(source, target)


def _runtime_distributions() -> Iterator[Distribution]:
    """Yield the distribution of Offbook, and those it needs without its extras."""
    waiting, seen = ["offbook"], set[str]()
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            dist = find_distribution(name)
        except PackageNotFoundError:  # its marker excludes this platform
            continue
        waiting += [_name_of(text) for text in dist.requires or () if "extra ==" not in text]
        yield dist


# --- loading


async def _load(
    sandbox: SandboxFolder, environment: Path, source: Path, name: str, *, library: bool
) -> Loaded | None:
    """Load the entry points in the environment, and return what they registered."""
    report = sandbox.root / "report.json"
    command = [environment / "bin" / "python", "-P", "-m", LOADER]
    command += ["library" if library else "list", name, report]
    result = await sandbox.run(command, watched=True)
    if sandbox.failed(result, "loading the extensions", "load"):
        return None
    data = msgspec.json.decode(report.read_bytes(), type=dict[str, Any])
    if not data["points"] and not library:
        sandbox.fail(
            "no_manifest",
            "the distribution has no entry point in the group offbook.extensions",
            '[project.entry-points."offbook.extensions"]\nNAME = "MODULE:FUNCTION"\n'
            "for a package without extensions: --expect-extensions 0",
        )
    for error in data["errors"]:
        _explain_load(sandbox, error, source, _site_packages(environment))
    for module, place in data.get("missing_imports", {}).items():
        sandbox.fail(
            "dependency",
            f"{module!r} is imported, and no dependency of the project has it",
            f"{place}: import {module}",
        )
    failed = {error["name"] for error in data["errors"]}
    return Loaded(
        extensions=len([point for point in data["loaded"] if point not in failed]),
        extension_errors=tuple(f"{e['name']}: {e['message']}" for e in data["errors"]),
        tools=tuple(data["tools"]),
        commands=tuple(data.get("commands", ())),
        modules=tuple(data.get("modules", ())),
    )


def _explain_load(
    sandbox: SandboxFolder, error: dict[str, Any], source: Path, packages: Path
) -> None:
    """Add the fault of an extension that did not load, by the exception that it raised."""
    module, kind, message = str(error["module"] or ""), error["type"], error["message"]
    target_module = error["target"].partition(":")[0]
    is_module = error["name"] == error["target"]
    where = f"the {'module' if is_module else 'extension'} {error['name']!r}"
    if not is_module:
        where += f" = {error['target']!r}"
    parts = module.split(".")
    own = bool(module) and _find_module(source, parts[:1])
    if kind == "ModuleNotFoundError" and _find_module(source, parts):
        sandbox.fail("missing_file", f"{where}: {module} is not in the wheel", error["output"])
    elif kind == "ModuleNotFoundError" and (module == target_module or own):
        fault = "entry_point" if target_module.startswith(module) else "import"
        sandbox.fail(fault, f"{where}: there is no module {module!r}", error["output"])
    elif kind == "ModuleNotFoundError":
        declared = f"{module!r} is imported, and no dependency of the project has it"
        sandbox.fail("dependency", f"{where}: {declared}", error["output"])
    elif message.startswith(f"module {target_module!r} has no") or "must be a function" in message:
        sandbox.fail("entry_point", f"{where}: {message}", error["output"])
    elif kind == "ImportError":
        sandbox.fail("import", f"{where}: {message}", error["output"])
    elif kind == "FileNotFoundError" and Path(error["file"]).is_relative_to(packages):
        file = Path(error["file"]).relative_to(packages)
        sandbox.fail("missing_file", f"{where}: {file} is not in the wheel", error["output"])
    elif kind == "ValidationError" and "jsonschema_rs" in error["output"]:
        first = message.splitlines()[0]
        sandbox.fail("tool", f"{where}: a tool has an invalid schema: {first}", error["output"])
    elif kind == "UsageError" and ("tool " in message or "tool needs" in message):
        sandbox.fail("tool", f"{where}: {message}", error["output"])
    else:
        sandbox.fail("load", f"{where}: {kind}: {message}", error["output"])


def _find_module(source: Path, parts: list[str]) -> bool:
    """Return whether the project has a module of this name, in itself or in a folder `src`."""
    paths = [root.joinpath(*parts) for root in (source, source / "src")]
    return any(path.with_suffix(".py").is_file() or path.is_dir() for path in paths)


# --- the smoke test


def dump_smoke(content: object) -> bytes:
    """Return a smoke test as bytes for the other process; a function in it cannot be sent."""
    try:
        return pickle.dumps(content)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"the smoke script cannot be sent to the sandbox: {error}",
            hint="write functions into a playbook file: smoke='playbook.py'",
        ) from error


async def smoke_python_package(
    sandbox: SandboxFolder,
    environment: Path,
    name: str,
    script: Path | tuple[Any, ...],
    mock_tools: Mapping[str, Any],
    mock_ui: Mapping[str, Any],
) -> SmokeResult | None:
    """Run a script in the environment, in a session with the extensions of the package."""
    trace, job = sandbox.root / "smoke.jsonl", sandbox.root / "smoke.pickle"
    is_file = isinstance(script, Path)
    content = {
        "file": str(script) if is_file else "",
        "script": () if is_file else script,
        "mock_tools": dict(mock_tools),
        "mock_ui": dict(mock_ui),
        "trace": str(trace),
    }
    job.write_bytes(dump_smoke(content))
    command = [environment / "bin" / "python", "-P", "-m", LOADER, "smoke", name, job]
    result = await sandbox.run(command)
    if result.timed_out or result.code:
        first = next(iter(result.stderr.strip().splitlines()), "no output")
        sandbox.fail("smoke", first, result.stdout + result.stderr)
        return None
    return SmokeResult(Events(list(Trace(trace))))
