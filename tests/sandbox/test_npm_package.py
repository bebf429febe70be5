"""npm packages in the real pi: what installs and loads passes (B1 to B4), the rest has verdicts."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.sandbox import (
    Loaded,
    SandboxFolder,
    install_npm_package,
    verify_sandbox_install,
)
from offbook.sandbox.npm_package import (
    _check_manifest,  # pyright: ignore[reportPrivateUsage] - without pi, as all of these
    _explain_install,  # pyright: ignore[reportPrivateUsage]
    _explain_load,  # pyright: ignore[reportPrivateUsage]
    _load,  # pyright: ignore[reportPrivateUsage]
    _parse_load_errors,  # pyright: ignore[reportPrivateUsage]
    _provide,  # pyright: ignore[reportPrivateUsage]
)
from offbook.sources.playbook import call, say, when
from offbook.subjects import ProcessResult
from tests.clients import PI, is_alive, needs
from tests.sandbox.packages import (
    NPM_GOOD,
    list_files,
    manifest,
    needs_npm,
    write_package,
    write_pi,
)
from tests.waiting import wait_until

BROKEN_PI = """
echo 'Error: Failed to load extension "FOLDER/index.ts": no API key' >&2
echo '{"type": "extension_error", "event": "session_start", "error": "no server"}'
"""
NOT_A_TYPE = "\"objekt\" is not valid under any of the schemas listed in the 'anyOf' keyword"
SMOKE = when(
    "Echo",
    [call("dummy_tool", {"text": "hello"}), call("bash", {"command": "rm -rf /"}), say("Done.")],
)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_package(tmp_path / "good", NPM_GOOD, {})


@needs(PI)
def test_b1_b4_a_good_package_loads_and_passes_its_smoke_test(
    good: Path, temp: Path, registry: None
):
    before = list_files(good)
    steps: list[str] = []
    result = verify_sandbox_install(
        good,
        expect={"extensions": 1, "tools": ["dummy_tool"], "skills": 1},
        smoke={"script": [SMOKE], "mock_tools": {"bash": "mocked"}},
        progress=steps.append,
    )
    assert (result.kind, result.package, result.version) == ("npm", "dummy-ext", "1.0.0")
    assert result.host == f"pi {PI.client.tested_version}"
    assert (result.loaded.extensions, result.loaded.extension_errors) == (1, ())
    assert (result.loaded.tools, result.loaded.skills) == (("dummy_tool",), ("greeting",))
    assert result.smoke is not None
    assert result.smoke.events.tool_results_for("dummy_tool")[0].text == "echo: hello"
    assert result.smoke.events.tool_results_for("bash")[0].text == "mocked"
    assert steps == [step.name for step in result.steps] == ["pack", "install", "load", "smoke"]
    assert list_files(good) == before


@needs(PI)
def test_b2_b3_expectations_that_do_not_hold_are_faults(good: Path, temp: Path, registry: None):
    expect = {"extensions": 5, "tools": ["nonexistent_tool"]}
    result = verify_sandbox_install(good, expect=expect, check=False)
    assert [fault.message for fault in result.faults] == [
        "expected 5 extensions, got 1",
        "expected the tool 'nonexistent_tool': available: 'dummy_tool'",
    ]


@needs(PI)
def test_a_smoke_script_that_fails_is_a_fault(
    good: Path, temp: Path, registry: None, long_check: None
):
    script = [when("Echo", [call("dummy_tool", {"text": "x"})])]
    result = verify_sandbox_install(good, smoke=script, check=False)
    (fault,) = result.faults
    assert fault.kind == "smoke"
    assert result.smoke is None


def test_without_pi_the_fix_is_named(
    good: Path, temp: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("OFFBOOK_CLIENTS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"pi is not installed(?s:.)*npm install -g @"):
        verify_sandbox_install(good)


def test_without_npm_it_is_refused(
    good: Path, temp: Path, monkeypatch: pytest.MonkeyPatch, not_pi: str
):
    monkeypatch.setenv("PATH", str(good))
    with pytest.raises(UsageError, match="npm is not installed"):
        verify_sandbox_install(good, program=not_pi)


def test_a_package_json_that_is_no_json_is_refused_with_its_path(tmp_path: Path, temp: Path):
    package = write_package(tmp_path / "wrong", NPM_GOOD, {"package.json": "{,}"})
    with pytest.raises(UsageError, match=r"package\.json: invalid JSON"):
        verify_sandbox_install(package)


@needs_npm
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_verification_leaves_no_file_and_no_process(
    tmp_path: Path, registry: None, number: signal.Signals
):
    temp = tmp_path / "temp"
    temp.mkdir()
    script = {"postinstall": 'echo $$ > "$TMPDIR/pid"; sleep 600'}
    package = write_package(
        tmp_path / "package", NPM_GOOD, {"package.json": manifest(scripts=script)}
    )
    programs = Path(write_pi(tmp_path / "bin")).parent
    env = {**os.environ, "TMPDIR": str(temp), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    env.pop("OFFBOOK_CLIENTS", None)
    command = [sys.executable, "-m", "offbook", "sandbox", str(package)]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: any(file.read_text() for file in temp.rglob("tmp/pid")), process)
        (pid,) = (int(file.read_text()) for file in temp.rglob("tmp/pid"))
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert "interrupted" in errors
    assert not is_alive(pid)
    assert list(temp.iterdir()) == []


# --- without npm and pi


@pytest.fixture
def sandbox(tmp_path: Path) -> SandboxFolder:
    root = tmp_path / "root"
    root.mkdir()
    return SandboxFolder(root, 60, None)


PEER_ERROR = """npm error code ERESOLVE
npm error Found: pad@2.0.0
npm error Could not resolve dependency:
npm error peer pad@"^1" from x@1.0.0
"""
INSTALLS = {
    "no registry": (
        "npm error code ECONNREFUSED\n",
        ("network", "the npm registry cannot be reached: ECONNREFUSED"),
    ),
    "no such version": (
        "npm error code ETARGET\nnpm error notarget No matching version found for pad@^9.\n",
        ("dependency", "a dependency does not resolve: pad@^9 (ETARGET)"),
    ),
    "versions that exclude each other": (
        "npm ERR! code ERESOLVE\n",
        ("dependency", "a dependency does not resolve (ERESOLVE)"),
    ),
    "a peer that does not fit": (
        PEER_ERROR,
        ("dependency", 'a peer range does not fit: peer pad@"^1" from x@1.0.0, found pad@2.0.0'),
    ),
    "a script": (
        "npm error code 3\nnpm error command failed\nnpm error command sh -c make\n",
        ("install_script", "an install script failed: sh -c make"),
    ),
    "anything else": (
        "npm error code EACCES\n",
        ("install", "npm install failed with exit code 1"),
    ),
}


@pytest.mark.parametrize("name", INSTALLS)
def test_the_output_of_npm_install_tells_its_fault(name: str, sandbox: SandboxFolder):
    output, expected = INSTALLS[name]
    _explain_install(sandbox, ProcessResult(1, "", output))
    (fault,) = sandbox.faults
    assert (fault.kind, fault.message) == expected
    assert fault.output == output


@pytest.mark.parametrize(
    "output, during",
    [("> x@1 postinstall\n> sleep 600\n", " (sleep 600)"), ("resolving\n", "")],
)
def test_a_timeout_names_the_script_that_was_running(
    output: str, during: str, sandbox: SandboxFolder
):
    _explain_install(sandbox, ProcessResult(-9, output, "", timed_out=True))
    (fault,) = sandbox.faults
    assert fault.message == f"npm install was still running after 60 s{during}"


MISSING = "Cannot find module '%s'\nRequire stack:"
LOADS = {
    "a conflict": (
        'Tool "x" conflicts with FOLDER/lib/other.ts',
        ("tool", 'Tool "x" conflicts with ./lib/other.ts'),
    ),
    "no factory": (
        "Extension does not export a valid factory function: index.ts",
        ("entry_point", "index.ts has no function as its default export"),
    ),
    "a file that is not packed": (
        MISSING % "./lib/names",
        ("missing_file", "index.ts imports './lib/names', which is not packed"),
    ),
    "a path that is not packed": (
        MISSING % "FOLDER/lib/names.ts",
        ("missing_file", 'which is not packed: add it to "files"'),
    ),
    "a file that does not exist": (
        MISSING % "./none.js",
        ("import", "index.ts imports './none.js', which does not exist"),
    ),
    "a file outside of the package": (
        MISSING % "../../none.js",
        ("import", "index.ts imports '../../none.js', which does not exist"),
    ),
    "a development dependency": (
        MISSING % "vitest",
        ("dependency", "index.ts imports 'vitest': it is in devDependencies only"),
    ),
    "no dependency": (
        MISSING % "left-pad",
        ("dependency", "index.ts imports 'left-pad': it is not in dependencies"),
    ),
    "an export that does not exist": (
        "The module 'pad' does not provide an export named 'x'",
        ("import", "index.ts: The module 'pad' does not provide an export named 'x'"),
    ),
    "an exception": ("no API key", ("load", "index.ts failed to load: no API key")),
    "an exception without a text": ("", ("load", "index.ts failed to load: no message")),
}


@pytest.mark.parametrize("name", LOADS)
def test_the_reason_of_pi_tells_the_fault_of_an_extension(
    name: str, sandbox: SandboxFolder, tmp_path: Path
):
    message, (kind, text) = LOADS[name]
    folder = sandbox.project / "node_modules" / "dummy-ext"
    source = write_package(
        tmp_path / "source",
        {"package.json": manifest(devDependencies={"vitest": "3"}), "lib/names.ts": ""},
        {},
    )
    path = str(folder / "index.ts")
    _explain_load(sandbox, folder, source, path, message.replace("FOLDER", str(folder)))
    (fault,) = sandbox.faults
    assert (fault.kind, text in fault.message) == (kind, True), fault


def test_every_load_error_of_pi_is_found():
    text = (
        'Error: Failed to load extension "/p/a.ts": Failed to load extension: no key\n  at x\n'
        'Error: Failed to load extension "/p/b.ts": late\n'
    )
    assert _parse_load_errors(text) == [("/p/a.ts", "no key\n  at x"), ("/p/b.ts", "late")]


PATHS: dict[str, tuple[dict[str, list[Any]], list[tuple[str, str]]]] = {
    "a pattern that matches": ({"skills": ["./skills/*"]}, []),
    "a pattern that matches nothing": (
        {"prompts": ["prompts/*.md"]},
        [("entry_point", "pi.prompts names 'prompts/*.md', which does not exist")],
    ),
    "the package itself": ({"extensions": ["./"]}, []),
    "exclusions, and what is no path": ({"extensions": ["!a.ts", "+b.ts", "-c.ts", 7]}, []),
    "a file that is not packed": (
        {"themes": ["dark.json"]},
        [("missing_file", "pi.themes names 'dark.json', which is not packed")],
    ),
    "a name with a typo": (
        {"extensions": ["./indx.ts"]},
        [("entry_point", "which does not exist: did you mean 'index.ts'?")],
    ),
}


@pytest.mark.parametrize("name", PATHS)
def test_each_path_of_the_manifest_must_be_packed(
    name: str, sandbox: SandboxFolder, tmp_path: Path
):
    section, expected = PATHS[name]
    folder = write_package(tmp_path / "packed", NPM_GOOD, {"node_modules/a/index.ts": ""})
    source = write_package(tmp_path / "source", NPM_GOOD, {"dark.json": "{}"})
    _check_manifest(sandbox, {"pi": section, "files": ["index.ts"]}, folder, source)
    assert [fault.kind for fault in sandbox.faults] == [kind for kind, _ in expected]
    for fault, (_, text) in zip(sandbox.faults, expected, strict=True):
        assert text in fault.message


def test_the_packed_files_are_shown_without_those_of_dependencies(
    sandbox: SandboxFolder, tmp_path: Path
):
    folder = write_package(tmp_path / "packed", NPM_GOOD, {"node_modules/a/index.ts": ""})
    source = write_package(tmp_path / "source", NPM_GOOD, {"dark.json": "{}"})
    _check_manifest(sandbox, {"pi": {"themes": ["dark.json"]}}, folder, source)
    assert sandbox.faults[0].output == (
        '"files": "not set"\npacked files:\n  index.ts\n  package.json\n  skills/greeting/SKILL.md'
    )


async def test_what_pi_prints_is_reported_as_faults(sandbox: SandboxFolder, good: Path):
    folder = write_package(sandbox.project / "node_modules" / "dummy-ext", NPM_GOOD, {})
    program = write_pi(sandbox.root / "pi", script=BROKEN_PI.replace("FOLDER", str(folder)))
    loaded = await _load(sandbox, folder, good, program)
    assert [(fault.kind, fault.message) for fault in sandbox.faults] == [
        ("load", "index.ts failed to load: no API key"),
        ("load", "a hook failed: session_start: no server"),
    ]
    assert loaded.extension_errors == ("index.ts: no API key",)


async def test_what_pi_reports_is_what_the_package_registers(sandbox: SandboxFolder, good: Path):
    folder = write_package(sandbox.project / "node_modules" / "dummy-ext", NPM_GOOD, {})
    own, other = str(folder / "index.ts"), str(sandbox.root / "pi_watch.ts")
    report = {
        "resolved": {"extensions": [own]},
        "tools": [{"name": "dummy_tool", "path": own}, {"name": "bash", "path": other}],
        "commands": [
            {"name": "skill:greeting", "kind": "skill", "path": own},
            {"name": "hello", "kind": "extension", "path": own},
            {"name": "quit", "kind": "extension", "path": other},
        ],
        "duplicates": ["dummy_tool"],
        "invalid": ["the tool half has no function execute"],
        "schemas": {
            "dummy_tool": {"type": "object", "properties": {"text": {"type": "string"}}},
            "wrong": {"type": "objekt"},
        },
    }
    (sandbox.root / "report.txt").write_text(json.dumps(report))
    script = f'cp {sandbox.root}/report.txt "$OFFBOOK_REPORT"'
    loaded = await _load(sandbox, folder, good, write_pi(sandbox.root / "pi", script=script))
    assert loaded == Loaded(1, (), ("dummy_tool",), ("greeting",), ("hello",))
    assert [(fault.kind, fault.message) for fault in sandbox.faults] == [
        ("tool", "the tool 'dummy_tool' is registered twice"),
        ("tool", "the tool half has no function execute"),
        ("tool", f"the tool 'wrong' has an invalid parameter schema: {NOT_A_TYPE}"),
    ]


async def test_a_pack_without_an_archive_is_a_fault(
    sandbox: SandboxFolder, good: Path, not_pi: str, monkeypatch: pytest.MonkeyPatch
):
    npm = write_package(sandbox.root / "bin", {"npm": "#!/bin/sh\necho nothing to pack\n"}, {})
    (npm / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{npm}:{os.environ['PATH']}")
    installation = await install_npm_package(sandbox, good, not_pi)
    (fault,) = sandbox.faults
    assert (fault.kind, fault.message) == ("pack", "npm pack wrote no archive")
    assert fault.output == "nothing to pack\n"
    assert installation.folder is None


def test_an_optional_peer_that_pi_provides_is_not_resolved(sandbox: SandboxFolder, not_pi: str):
    name = "@earendil-works/pi-coding-agent"
    peers = {"peerDependencies": {name: "^9"}}
    optional = {"peerDependenciesMeta": {name: {"optional": True}}}
    assert [*_provide(sandbox, peers, not_pi)] == [name]
    assert _provide(sandbox, {**peers, **optional}, not_pi) == {}
