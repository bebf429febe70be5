"""npm packages in the real pi: what installs and loads passes (B1 to B4), the rest has verdicts."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from offbook.errors import SandboxFailed, UsageError
from offbook.sandbox import verify_sandbox_install
from offbook.sources.playbook.actions import call, say, when
from tests.clients import PI, is_alive, needs
from tests.sandbox.packages import (
    NPM_GOOD,
    NPM_LOAD_ERRORS,
    NPM_NOT_INSTALLED,
    NPM_NOT_LOADED,
    Broken,
    manifest,
    write_package,
)

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
SMOKE = when(
    "Echo",
    [call("dummy_tool", {"text": "hello"}), call("bash", {"command": "rm -rf /"}), say("Done.")],
)


class NoPackages(BaseHTTPRequestHandler):
    """A registry without packages."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve an empty registry on loopback: no test reaches the network."""
    with HTTPServer(("127.0.0.1", 0), NoPackages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}/")
        yield
        server.shutdown()
        thread.join()


def write_pi(folder: Path, version: str = "0.74.2") -> str:
    """Write a pi that cannot run, for packages that never reach it; return its path."""
    name = {"name": "@earendil-works/pi-coding-agent", "version": version}
    write_package(folder, {"package.json": json.dumps(name), "pi": "#!/bin/sh\nexit 9\n"}, {})
    (folder / "pi").chmod(0o755)
    return str(folder / "pi")


@pytest.fixture
def not_pi(tmp_path: Path) -> str:
    return write_pi(tmp_path / "not-pi")


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_package(tmp_path / "good", NPM_GOOD, {})


def list_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def check_broken(broken: Broken, folder: Path, temp: Path, program: str | None) -> None:
    package = write_package(folder, NPM_GOOD, broken.changes)
    before = list_files(package)
    with pytest.raises(SandboxFailed) as failure:
        verify_sandbox_install(package, program=program, deadline=broken.deadline)
    kinds = {fault.kind for fault in failure.value.result.faults}
    fault = failure.value.result.faults[0]
    assert kinds == {broken.kind}, failure.value
    assert broken.message in fault.message, fault
    assert broken.output in fault.output, fault
    assert str(temp) not in fault.output
    assert list_files(package) == before


@needs_npm
@pytest.mark.parametrize("name", NPM_NOT_INSTALLED)
def test_a_package_that_does_not_install_has_its_own_verdict(
    name: str, tmp_path: Path, temp: Path, registry: None, not_pi: str
):
    check_broken(NPM_NOT_INSTALLED[name], tmp_path / "broken", temp, not_pi)


@needs(PI)
@pytest.mark.parametrize("name", NPM_NOT_LOADED)
def test_a_package_that_does_not_load_has_its_own_verdict(
    name: str, tmp_path: Path, temp: Path, registry: None, long_check: None
):
    check_broken(NPM_NOT_LOADED[name], tmp_path / "broken", temp, None)


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


def test_a_version_of_pi_that_is_not_supported_is_refused(good: Path, temp: Path, tmp_path: Path):
    program = write_pi(tmp_path / "new-pi", "1.5.0")
    with pytest.raises(UsageError, match=r"pi 1\.5\.0 is not supported"):
        verify_sandbox_install(good, program=program)


def test_a_package_json_that_is_no_json_is_refused_with_its_path(tmp_path: Path, temp: Path):
    package = write_package(tmp_path / "wrong", NPM_GOOD, {"package.json": "{,}"})
    with pytest.raises(UsageError, match=r"package\.json: invalid JSON"):
        verify_sandbox_install(package)


@needs_npm
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_verification_leaves_no_file_and_no_process(
    tmp_path: Path, registry: None, number: signal.Signals
):
    temp, pid_file = tmp_path / "temp", tmp_path / "pid"
    temp.mkdir()
    script = {"postinstall": f"echo $$ > {pid_file}; sleep 600"}
    package = write_package(
        tmp_path / "package", NPM_GOOD, {"package.json": manifest(scripts=script)}
    )
    programs = Path(write_pi(tmp_path / "bin")).parent
    env = {**os.environ, "TMPDIR": str(temp), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    env.pop("OFFBOOK_CLIENTS", None)
    command = [sys.executable, "-m", "offbook", "sandbox", str(package)]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        while not (pid_file.exists() and pid_file.read_text().strip()):
            assert process.poll() is None
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "interrupted" in errors
    assert not is_alive(int(pid_file.read_text()))
    assert list(temp.iterdir()) == []
