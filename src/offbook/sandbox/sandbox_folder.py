"""The temporary folder of a verification, and the processes that run in it.

    root/home      HOME: empty, so that whatever is in it afterwards was written by the package
    root/tmp       temporary files
    root/project   where the package is installed

Every process runs under the supervisor: it gets none of your secrets, its whole tree is killed at
the deadline, and the folder is removed at the end, also after Ctrl-C.
"""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from offbook.errors import FormatError, counted
from offbook.files import make_temp_folder, remove_temp_folder
from offbook.runs.run import AwaitableResult
from offbook.subjects.process import ProcessResult, describe_exit, isolated_env, run_process
from offbook.trace.query import Events

if TYPE_CHECKING:
    from collections.abc import Generator


Kind = Literal["npm", "python"]
FAULTS = {
    "no_manifest": "the package declares no extension",
    "missing_file": "a file of the project is not in the package",
    "entry_point": "the manifest or an entry point names something that does not exist",
    "pack": "the package cannot be packed or built",
    "dependency": "a dependency does not resolve, or is imported without being declared",
    "import": "an import inside the package does not resolve",
    "network": "the package registry cannot be reached",
    "install": "the package cannot be installed",
    "install_script": "an install script failed",
    "deadline": "a step took too long and was killed",
    "load": "an extension failed while it was loaded",
    "tool": "a tool was registered twice, or without a name or a function",
    "home_write": "the package wrote to the home directory",
    "outside_write": "the package changed files outside of the sandbox",
    "connection": "the package connected to another host",
    "expectation": "what was loaded is not what was expected",
    "smoke": "the smoke playbook failed",
}
OUTPUT_LINES = 30


class SandboxFault(msgspec.Struct, frozen=True):
    """A fault of a package; `kind` is a key of `FAULTS`, `output` shows it."""

    kind: str
    message: str
    output: str = ""

    def __str__(self) -> str:
        lines = self.output.strip().splitlines()[-OUTPUT_LINES:]
        return "\n".join([f"{self.kind}: {self.message}", *(f"  | {line}" for line in lines)])


class Loaded(msgspec.Struct, frozen=True):
    """The loaded parts of a package; what pi has itself is not in it.

    `commands` has the prompt templates of the package, too. `modules` are those of a package
    without extensions.
    """

    extensions: int = 0
    extension_errors: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    themes: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if nothing was loaded."""
        parts = (self.skills, self.commands, self.themes, self.modules)
        return not self.extensions and not any(parts)


class WatchReport(msgspec.Struct, frozen=True):
    """The report on a watched command, from `watch_process.py`."""

    written: list[str] = []
    connected: list[str] = []
    problem: str = ""


class SandboxStep(msgspec.Struct, frozen=True):
    """A step of the verification and its duration."""

    name: str
    seconds: float


class SmokeResult(msgspec.Struct, frozen=True):
    """The run of the smoke playbook: its events, and the agent's last answer."""

    events: Events
    output: Any = None


class SandboxResult(AwaitableResult, frozen=True):
    """The verdict on a package.

    `host` is the program that loaded it, such as `pi 0.74.2`. `smoke` is None without a playbook.
    `not_watched` is the reason why files outside of the sandbox and connections were not watched.
    """

    kind: Kind
    package: str = ""
    version: str = ""
    host: str = ""
    loaded: Loaded = Loaded()
    faults: tuple[SandboxFault, ...] = ()
    steps: tuple[SandboxStep, ...] = ()
    not_watched: str = ""
    smoke: SmokeResult | None = None

    @property
    def passed(self) -> bool:
        """True if there is no fault."""
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        """Return the result for `--json`, without the events of the smoke run."""
        data = {name: getattr(self, name) for name in self.__struct_fields__ if name != "smoke"}
        ran = None if self.smoke is None else {"tools": self.smoke.events.tool_sequence()}
        return {"passed": self.passed, **data, "smoke": ran}


# ------------------------------------------------------------------------------- folder

Progress = Callable[[str], None]
# Registries, certificates and proxies: an installer needs them wherever it runs.
INSTALLER_PREFIXES = ("npm_config_", "NPM_CONFIG_", "PIP_", "UV_")
INSTALLER_VARIABLES = ("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR")
# pip asks rustc for its version, which writes to the home of rustup.
TOOLCHAINS = {"RUSTUP_HOME": ".rustup", "CARGO_HOME": ".cargo"}
STATE_VARIABLES = ("XDG_DATA_HOME", "XDG_STATE_HOME", *TOOLCHAINS)
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")


class SandboxFolder:
    """The folders of one verification, its deadline, its steps and its faults."""

    def __init__(self, root: Path, deadline: float, progress: Progress | None) -> None:
        self.root = root
        self.home, self.temp, self.project = root / "home", root / "tmp", root / "project"
        for folder in (self.home, self.temp, self.project):
            folder.mkdir()
        self.faults: list[SandboxFault] = []
        self.steps: list[SandboxStep] = []
        self.deadline = deadline
        self.not_watched = ""  # why files outside and connections are not watched
        self.network = "sealed"  # or "open", if the package may connect
        self.reports = root / "reports"
        self.reports.mkdir()
        self._in_home: set[str] = set()
        self._end = monotonic() + deadline
        self._progress = progress

    @property
    def remaining(self) -> float:
        """The seconds until the deadline, at least a tenth."""
        return max(self._end - monotonic(), 0.1)

    def fail(self, kind: str, message: str, output: str = "") -> None:
        """Add a fault, once."""
        fault = SandboxFault(kind, message, output.replace(str(self.root), "SANDBOX"))
        if fault not in self.faults:
            self.faults.append(fault)

    @contextmanager
    def step(self, name: str) -> Generator[None]:
        """Report the start of a step, and measure it."""
        if self._progress is not None:
            self._progress(name)
        start = monotonic()
        try:
            yield
        finally:
            self.steps.append(SandboxStep(name, round(monotonic() - start, 3)))

    async def run(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        installs: bool = False,
        watched: bool = False,
    ) -> ProcessResult:
        """Run a command until it exits; its tree is killed at the deadline of the verification.

        What a `watched` one changes outside of the sandbox, and where it connects, is reported.
        """
        extra = {"TMPDIR": str(self.temp), **(env or {})}
        if installs:
            # Installers write their own state there rather than to HOME.
            state = dict.fromkeys(STATE_VARIABLES, str(self.root / "state"))
            extra = {**state, **installer_env(), **extra}
        variables = isolated_env(self.home, extra)
        before = self.watcher(self.network) if watched else []
        words = [str(word) for word in (*before, *command)]
        return await run_process(
            words, cwd=cwd or self.project, env=variables, deadline=self.remaining
        )

    def failed(self, result: ProcessResult, what: str, kind: str) -> bool:
        """Add a fault if a process failed or ran into the deadline; return whether it did."""
        output = result.stdout + result.stderr
        if result.timed_out:
            self.fail("deadline", f"{what} was still running after {self.deadline:g} s", output)
        elif result.code:
            self.fail(kind, f"{what} {describe_exit(result.code)}", output)
        return bool(result.timed_out or result.code)

    def watcher(self, network: str) -> list[str]:
        """Return the beginning of a command that is watched."""
        program = Path(__file__).with_name("watch_process.py")
        words = (sys.executable, "-I", "-S", program, self.reports, self.root, network)
        return [str(word) for word in words]

    def check_writes(self, when: str) -> None:
        """Add faults for files in the home directory, and for what the watched commands did."""
        # Everything new counts: files, and empty folders.
        written = {
            f"~/{path.relative_to(self.home)}"
            for path in self.home.rglob("*")
            if path.is_symlink() or not path.is_dir() or not any(path.iterdir())
        }
        names = sorted(written - self._in_home)
        self._in_home |= written
        if names:
            message = f"{counted(len(names), 'file')} written to the home directory {when}"
            self.fail("home_write", message, "\n".join(names))
        for file in sorted(self.reports.iterdir()):
            report = msgspec.json.decode(file.read_bytes(), type=WatchReport)
            file.unlink()
            self.not_watched = report.problem or self.not_watched
            if report.written:
                files = counted(len(report.written), "file")
                message = f"{files} changed outside of the sandbox {when}"
                self.fail("outside_write", message, "\n".join(report.written))
            if report.connected:
                hosts = ", ".join(report.connected)
                self.fail("connection", f"connected to {hosts} {when}", hosts)


@contextmanager
def open_sandbox(deadline: float, progress: Progress | None) -> Generator[SandboxFolder]:
    """Make the folder of a verification, and remove it at the end."""
    root = make_temp_folder()
    try:
        yield SandboxFolder(root, deadline, progress)
    finally:
        # A package may have made its folders read-only, so that their removal would fail.
        for folder, _, _ in os.walk(root):
            Path(folder).chmod(0o700)
        remove_temp_folder(root)


def unpack(sandbox: SandboxFolder, archive: Path) -> Path:
    """Return the folder of a package that is an archive; a wheel is not an archive of a project."""
    folder = sandbox.root / "unpacked"
    folder.mkdir()
    if archive.suffix == ".whl":
        return folder
    try:
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise FormatError(f"not an archive: {error}", path=archive) from error
    tops = [path for path in folder.iterdir() if path.is_dir()]
    return tops[0] if len(tops) == 1 else folder


def installer_env() -> dict[str, str]:
    """Return the variables with which npm, pip and uv reach their registries and their caches.

    HOME is isolated, so their configuration files and caches are named one by one.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(INSTALLER_PREFIXES)
        or name in INSTALLER_VARIABLES
        or name in TOOLCHAINS
        or name.lower() in PROXIES
    }
    home = Path.home()
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    files = {
        "npm_config_userconfig": home / ".npmrc",
        "PIP_CONFIG_FILE": config / "pip" / "pip.conf",
        "UV_CONFIG_FILE": config / "uv" / "uv.toml",
    }
    files |= {name: home / folder for name, folder in TOOLCHAINS.items()}
    found = {name: str(path) for name, path in files.items() if path.exists()}
    caches = {
        "npm_config_cache": str(home / ".npm"),
        "PIP_CACHE_DIR": str(cache / "pip"),
        "UV_CACHE_DIR": str(cache / "uv"),
    }
    quiet = {"npm_config_update_notifier": "false", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {**found, **caches, **quiet, **kept}
