"""A temporary folder that must be empty after each verification; installers without a network."""

import ensurepip
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import venv
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from offbook.sandbox import SandboxFolder, watch_process
from offbook.sandbox.python_package import (
    _copy_offbook,  # pyright: ignore[reportPrivateUsage] - with a quicker installer
    _site_packages,  # pyright: ignore[reportPrivateUsage]
)
from tests.sandbox.packages import write_pi


@pytest.fixture
def long_check(request: pytest.FixtureRequest) -> None:
    """Skip a test that takes seconds for each of many cases, except in `./dev clients`."""
    if request.config.getoption("markexpr") != "clients":
        pytest.skip("many starts of pi: run ./dev clients")


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of all temporary files of a test; nothing may be left in it."""
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture
def namespaces(tmp_path: Path) -> None:
    """Skip a test where a command cannot be watched."""
    reports = tmp_path / "reports"
    reports.mkdir()
    words = [sys.executable, "-I", "-S", watch_process.__file__, str(reports), str(tmp_path)]
    subprocess.run([*words, "sealed", "true"], check=True)
    (report,) = (json.loads(file.read_text()) for file in reports.iterdir())
    if "problem" in report:
        pytest.skip(report["problem"])


# --- npm


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


@pytest.fixture
def not_pi(tmp_path: Path) -> str:
    return write_pi(tmp_path / "not-pi")


# --- Python


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Return an empty folder of wheels: nothing is fetched from the network."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with a copy of Offbook, as an installation makes it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    _copy_offbook(_site_packages(folder))
    return folder


@pytest.fixture(scope="session")
def python_with_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python with the packages of this one, and with pip: uv makes environments without.

    It is the pip that Python brings. To install it takes 6 s, to unpack it 0.1 s.
    """
    if find_spec("pip") is not None:
        return Path(sys.executable)
    wheels = [*Path(ensurepip.__file__).parent.glob("_bundled/pip-*.whl")]
    if not wheels:
        pytest.skip("this environment has no pip, and its Python brings none")
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    packages = _site_packages(folder)
    shutil.unpack_archive(wheels[0], packages, "zip")
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


@pytest.fixture
def own_pip(python_with_pip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be one of a Python that has pip."""
    if str(python_with_pip) != sys.executable:
        monkeypatch.setattr(sys, "executable", str(python_with_pip))
        packages = str(_site_packages(python_with_pip.parents[1]))
        monkeypatch.setattr(sys, "path", [packages, *sys.path])


@pytest.fixture
def linked_offbook(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Link the files of one copy of Offbook: to copy them is a third of a verification."""

    def link(packages: Path) -> None:
        files = _site_packages(environment)
        shutil.copytree(files, packages, copy_function=os.link, dirs_exist_ok=True)

    monkeypatch.setattr("offbook.sandbox.python_package._copy_offbook", link)


@pytest.fixture
def quick_install(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build in this process, and unpack the wheel next to the one copy of Offbook.

    What is loaded, in which process, and what is reported stay. The tests without this fixture
    show the processes that build and install.
    """

    async def build(sandbox: SandboxFolder, source: Path, wheels: Path | None) -> Path:
        (wheel,) = WheelBuilder(str(source)).build(directory=str(sandbox.root / "dist"))
        return Path(wheel)

    async def install(
        sandbox: SandboxFolder, folder: Path, wheel: Path, wheels: Path | None
    ) -> bool:
        bare = shutil.ignore_patterns("site-packages")
        shutil.copytree(environment, folder, symlinks=True, ignore=bare)
        packages = folder / _site_packages(environment).relative_to(environment)
        packages.mkdir()
        (packages / "offbook.pth").write_text(str(_site_packages(environment)))
        shutil.unpack_archive(wheel, packages, "zip")
        return True

    monkeypatch.setattr("offbook.sandbox.python_package._build", build)
    monkeypatch.setattr("offbook.sandbox.python_package._install", install)
