"""Verifies that a package installs, and that it loads what it should; `offbook sandbox`.

result = verify_sandbox_install("./pi-planner", expect={"tools": ["plan_propose"]})
assert result.loaded.extensions == 1
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

import click

from offbook.cli_options import FILE_PATH, FiniteFloat, echo, json_option, print_json
from offbook.errors import (
    OffbookError,
    SandboxFailed,
    UsageError,
    counted,
    did_you_mean,
    require_known,
)
from offbook.files import require_folder
from offbook.options import Seconds, decode
from offbook.runs.run import sync_or_async
from offbook.sandbox.npm_package import install_npm_package
from offbook.sandbox.python_package import (
    dump_smoke,
    install_python_package,
    smoke_python_package,
)
from offbook.sandbox.sandbox_folder import (
    Kind,
    Loaded,
    SandboxFolder,
    SandboxResult,
    SmokeResult,
    open_sandbox,
    unpack,
)
from offbook.trace.query import Events

if TYPE_CHECKING:
    from offbook.sandbox.npm_package import Installation
    from offbook.sandbox.sandbox_folder import Progress


DEADLINE = 300.0
# `npm pack` and a build write these; one of the last kind is built, the others are installed.
PACKED = (".tgz", ".whl")
ARCHIVES: dict[str, Kind] = {".tgz": "npm", ".whl": "python", ".tar.gz": "python"}
WHEELS_VARIABLE = "OFFBOOK_WHEELS"
EXPECT_KEYS = ("extensions", "skills", "tools")
SMOKE_KEYS = ("mock_tools", "mock_ui", "script")


class Smoke(NamedTuple):
    """A smoke test: a script, or the file that has it, and mocks for it."""

    script: Path | tuple[Any, ...]
    mock_tools: Mapping[str, Any]
    mock_ui: Mapping[str, Any]


@sync_or_async
async def verify_sandbox_install(  # noqa: PLR0913 - the options of a verification
    package: Path | str,
    *,
    expect: Mapping[str, Any] | None = None,
    smoke: Mapping[str, Any] | Iterable[Any] | Path | str | None = None,
    kind: Literal["auto", "npm", "python"] = "auto",
    program: str | None = None,
    wheels: Path | str | None = None,
    deadline: float = DEADLINE,
    allow_home_writes: bool = False,
    allow_network: bool = False,
    check: bool = True,
    progress: Progress | None = None,
) -> SandboxResult:
    """Install a package as its users do, in an empty folder, and load its extensions.

    An npm package is packed, installed and loaded in the real pi (`program`, or the installed one).
    A Python project is built, installed in a new virtual environment, and its entry points of the
    group `offbook.extensions` are loaded. An archive (.tgz, .whl, .tar.gz) is a package as well.
    With `expect={"extensions": 0}` it may be a library: its modules are imported. `wheels`, or the
    variable OFFBOOK_WHEELS, is a folder to install from without a network.

    A package must not write to HOME or outside of the sandbox, nor connect, while its install
    scripts run and while it is loaded; `allow_home_writes` and `allow_network` permit it.

    `expect` has the number of `extensions` and `skills`, and the names of `tools`. `smoke` is a
    script, the file of a playbook, or a dict with `script`, `mock_tools` and `mock_ui`. A package
    with a fault raises `SandboxFailed`; with `check=False` the result is returned in any case.
    """
    source = _absolute(package)
    expected = _check_expect(expect or {})
    test = _check_smoke(smoke)
    found = _detect_kind(source, kind)
    cache = _find_wheels(wheels)
    if found == "python":
        dump_smoke(test)  # what cannot be sent to the sandbox is refused now
    decode(deadline, Seconds, "deadline", hint="give seconds")
    with open_sandbox(deadline, progress) as sandbox:
        sandbox.network = "open" if allow_network else "sealed"
        smoked: SmokeResult | None = None
        # A package that declares no extension is a library only if that is what is expected.
        library = expected.get("extensions") == 0
        folder = unpack(sandbox, source) if source.is_file() else source
        archive = source if source.suffix in PACKED else None
        if found == "npm":
            done = await install_npm_package(sandbox, folder, program, archive, library=library)
        else:
            done = await install_python_package(sandbox, folder, cache, archive, library=library)
        if done.folder is not None:
            for message in find_unmet(done.loaded, expected):
                sandbox.fail("expectation", message, _show(done.loaded))
            if done.loaded.is_empty and not sandbox.faults:
                sandbox.fail("expectation", "the package loads nothing", _show(done.loaded))
            if test is not None and not done.loaded.extension_errors:
                with sandbox.step("smoke"):
                    smoked = await _run_smoke(sandbox, found, done, test, program)
                sandbox.check_writes("in the smoke test")
        faults = tuple(
            fault
            for fault in sandbox.faults
            if not (allow_home_writes and fault.kind == "home_write")
        )
        result = SandboxResult(
            found,
            done.package,
            done.version,
            done.host,
            done.loaded,
            faults,
            tuple(sandbox.steps),
            sandbox.not_watched,
            smoked,
        )
    if check and not result.passed:
        raise _failure(result, source)
    return result


def _absolute(path: Path | str) -> Path:
    return Path(path).resolve()


def _find_wheels(wheels: Path | str | None) -> Path | None:
    """Return the folder to install from without a network, if there is one."""
    found = wheels or os.environ.get(WHEELS_VARIABLE)
    return require_folder(Path(found).resolve(), "folder of wheels") if found else None


def _failure(result: SandboxResult, source: Path) -> SandboxFailed:
    faults = counted(len(result.faults), "fault")
    error = SandboxFailed(
        f"{faults} in the package {result.package or source.name}",
        where=str(source),
        hint="\n".join(map(str, result.faults)),
    )
    error.result = result
    return error


def _detect_kind(source: Path, kind: str) -> Kind:
    if source.is_file():
        kinds: list[Kind] = [k for end, k in ARCHIVES.items() if source.name.endswith(end)]
        if not kinds:
            raise UsageError(
                f"unsupported file type {source.suffix!r}",
                where=str(source),
                hint=f"give a folder, or one of {', '.join(ARCHIVES)}",
            )
        return kinds[0]
    require_folder(source, hint="give the folder of the package")
    if kind in get_args(Kind):
        return cast("Kind", kind)
    require_known("unknown kind", kind, ("auto", *get_args(Kind)))
    is_npm = (source / "package.json").is_file()
    is_python = any((source / name).is_file() for name in ("pyproject.toml", "setup.py"))
    if is_npm and is_python:
        raise UsageError(
            "the folder has a package.json and a pyproject.toml",
            where=str(source),
            hint="choose one: kind='npm' or kind='python' (--kind)",
        )
    if not is_npm and not is_python:
        raise UsageError(
            "no package.json and no pyproject.toml in the folder",
            where=str(source),
            hint="give the folder of an npm package or of a Python project",
        )
    return "npm" if is_npm else "python"


def _check_expect(expect: Mapping[str, Any]) -> Mapping[str, Any]:
    for key, value in expect.items():
        require_known("expect has no key", key, EXPECT_KEYS)
        names = key == "tools"
        kinds = (list, tuple, set, frozenset) if names else (int,)
        if not isinstance(value, kinds) or isinstance(value, bool):
            wanted = "a list of names" if names else "a number"
            raise UsageError(f"expect[{key!r}]: expected {wanted}, got {value!r}")
        if names and not value:
            raise UsageError(
                "expect['tools'] is empty and would check nothing", hint="name tools, or omit it"
            )
    return expect


def find_unmet(loaded: Loaded, expect: Mapping[str, Any]) -> list[str]:
    """Return a message for each expectation that does not hold."""
    found: list[str] = []
    counts = {"extensions": loaded.extensions, "skills": len(loaded.skills)}
    for key, count in counts.items():
        if key in expect and expect[key] != count:
            found.append(f"expected {counted(expect[key], key[:-1])}, got {count}")
    missing = [tool for tool in expect.get("tools", ()) if tool not in loaded.tools]
    return found + [f"expected the tool {t!r}: {did_you_mean(t, loaded.tools)}" for t in missing]


def _show(loaded: Loaded) -> str:
    return (
        f"extensions: {loaded.extensions}\n"
        f"tools: {', '.join(loaded.tools) or 'none'}\n"
        f"skills: {', '.join(loaded.skills) or 'none'}"
    )


# --- the smoke test


def _check_smoke(smoke: object) -> Smoke | None:
    if smoke is None:
        return None
    if isinstance(smoke, Mapping):
        entries = cast("Mapping[str, Any]", smoke)
        for key in entries:
            require_known("smoke has no key", key, SMOKE_KEYS)
        if "script" not in entries:
            raise UsageError("smoke has no script", hint="{'script': [when(…)]}")
        inner = _check_smoke(entries["script"])
        if inner is not None:
            mock_tools: Mapping[str, Any] = entries.get("mock_tools") or {}
            mock_ui: Mapping[str, Any] = entries.get("mock_ui") or {}
            return Smoke(inner.script, mock_tools, mock_ui)
    if isinstance(smoke, (str, Path)):
        from offbook.sources.loading import read_script

        path = Path(smoke).resolve()
        read_script(path)  # a wrong one fails now, not after the installation
        return Smoke(path, {}, {})
    if isinstance(smoke, Iterable):
        script = tuple(cast("Iterable[Any]", smoke))
        if script:
            return Smoke(script, {}, {})
    raise UsageError("smoke: expected a script", hint="[when('…', [call('…'), say('…')])]")


async def _run_smoke(
    sandbox: SandboxFolder, kind: Kind, done: Installation, smoke: Smoke, program: str | None
) -> SmokeResult | None:
    """Run the smoke script on the installed package; a failure is a fault."""
    folder = done.folder or sandbox.project
    if kind == "python":
        return await smoke_python_package(sandbox, folder, done.package, *smoke)
    from offbook.runs.api import drive
    from offbook.sources.loading import read_script
    from offbook.subjects.clis.pi import Pi

    script = read_script(smoke.script) if isinstance(smoke.script, Path) else smoke.script
    subject = Pi(
        extensions=[folder],
        mock_tools=smoke.mock_tools,
        mock_ui=smoke.mock_ui,
        program=program,
        deadline=sandbox.remaining,
    )
    try:
        async with drive(subject, trace=sandbox.root / "smoke.jsonl") as rehearsal:
            run = await rehearsal.run(*script)
            return SmokeResult(Events(run.events.all), run.output)
    except (OffbookError, AssertionError) as error:
        sandbox.fail("smoke", str(error).splitlines()[0], str(error))
        return None


EXAMPLE = """\b
Example:
  offbook sandbox .
  offbook sandbox ../pi-planner --expect-tools plan_propose,plan_list
  offbook sandbox . --smoke playbook.yaml --json
  offbook sandbox . --wheels ./wheels

\b
A folder with a package.json is packed, installed by npm and loaded in the real pi.
One with a pyproject.toml is built, installed in a new virtual environment, and its
entry points of the group offbook.extensions are loaded. PATH may be an archive: .tgz,
.whl or .tar.gz. With --expect-extensions 0 a package without extensions passes if its
modules can be imported.

\b
Exit codes:
  0  the package installs and loads what is expected
  1  it has faults: each is printed with the output that shows it
  2  wrong usage, no package in the folder, or npm or pi is not installed
"""


@click.command("sandbox", epilog=EXAMPLE)
@click.argument("path", type=FILE_PATH, default=".")
@click.option(
    "--expect-tools", multiple=True, metavar="NAME,…", help="Tools that must exist; repeatable."
)
@click.option("--expect-extensions", type=click.IntRange(0), metavar="N", help="Their number.")
@click.option("--expect-skills", type=click.IntRange(0), metavar="N", help="Their number.")
@click.option("--smoke", type=FILE_PATH, metavar="FILE", help="A playbook to run with the package.")
@click.option("--kind", type=click.Choice(["auto", "npm", "python"]), default="auto")
@click.option("--wheels", type=FILE_PATH, metavar="DIR", help="Install from here, offline.")
@click.option("--allow-home-writes", is_flag=True, help="The package may write to HOME.")
@click.option("--allow-network", is_flag=True, help="The package may connect to other hosts.")
@click.option(
    "--deadline",
    default=DEADLINE,
    show_default=True,
    type=FiniteFloat(min=0, min_open=True),
    help="Seconds before everything is stopped.",
)
@json_option
def sandbox(  # noqa: PLR0913 - the options of the command
    path: Path,
    *,
    expect_tools: tuple[str, ...],
    expect_extensions: int | None,
    expect_skills: int | None,
    smoke: Path | None,
    kind: Any,
    wheels: Path | None,
    allow_home_writes: bool,
    allow_network: bool,
    deadline: float,
    as_json: bool,
) -> int:
    """Install a package of extensions as its users do, in an empty folder, and load it."""
    counts = {"extensions": expect_extensions, "skills": expect_skills}
    expect: dict[str, Any] = {key: count for key, count in counts.items() if count is not None}
    if expect_tools:
        names = [name.strip() for text in expect_tools for name in text.split(",")]
        expect["tools"] = [name for name in names if name]
    result = verify_sandbox_install(
        path,
        expect=expect,
        smoke=smoke,
        kind=kind,
        wheels=wheels,
        deadline=deadline,
        allow_home_writes=allow_home_writes,
        allow_network=allow_network,
        check=False,
        progress=None if as_json else lambda step: echo(f"{step} …", err=True),
    )
    if as_json:
        print_json(result.to_json())
    else:
        echo(_render(result))
    return int(not result.passed)


def _render(result: SandboxResult) -> str:
    """Return the verdict: what was loaded, the time of each step, and the faults."""
    loaded = result.loaded
    named = f"{result.package} {result.version}".strip()
    steps = ", ".join(f"{step.name} {step.seconds:.1f} s" for step in result.steps)
    lines = [
        f"{named}: {'passed' if result.passed else 'failed'}",
        f"  loaded in   {result.host}",
        f"  extensions  {loaded.extensions}",
        f"  tools       {', '.join(loaded.tools) or 'none'}",
        f"  skills      {', '.join(loaded.skills) or 'none'}",
    ]
    parts = ((name, getattr(loaded, name)) for name in ("commands", "modules", "themes"))
    lines += [f"  {name:<11} {', '.join(names)}" for name, names in parts if names]
    if result.not_watched:
        lines.append(f"  not watched {result.not_watched}")
    if result.smoke is not None:
        lines.append(f"  smoke       passed: {', '.join(result.smoke.events.tool_sequence())}")
    lines += [f"  steps       {steps}", *map(str, result.faults)]
    return "\n".join(lines)
