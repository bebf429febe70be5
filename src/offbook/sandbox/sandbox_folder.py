"""The temporary folder of a verification, and the processes that run in it.

    root/home      HOME: empty, so that whatever is in it afterwards was written by the package
    root/tmp       temporary files
    root/project   where the package is installed

Every process runs under the supervisor: it gets none of your secrets, its whole tree is killed at
the deadline, and the folder is removed at the end, also after Ctrl-C.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from offbook.files import make_temp_folder, remove_temp_folder
from offbook.runs.run import AwaitableResult
from offbook.subjects.process import ProcessResult, describe_exit, isolated_env, run_process
from offbook.trace.query import Events

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


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
    """The loaded parts of a package; tools, skills and commands are those of the package alone."""

    extensions: int = 0
    extension_errors: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if nothing was loaded."""
        return not (self.extensions or self.skills or self.commands)


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
    """

    kind: Kind
    package: str = ""
    version: str = ""
    host: str = ""
    loaded: Loaded = Loaded()
    faults: tuple[SandboxFault, ...] = ()
    steps: tuple[SandboxStep, ...] = ()
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

    @asynccontextmanager
    async def step(self, name: str) -> AsyncGenerator[None]:
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
    ) -> ProcessResult:
        """Run a command until it exits; its tree is killed at the deadline of the verification."""
        extra = {"TMPDIR": str(self.temp), **(env or {})}
        if installs:
            # Installers write their own state there rather than to HOME.
            state = dict.fromkeys(STATE_VARIABLES, str(self.root / "state"))
            extra = {**state, **installer_env(), **extra}
        variables = isolated_env(self.home, extra)
        words = [str(word) for word in command]
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

    def check_home(self, when: str) -> None:
        """Add a fault for everything new in the home directory: files, and empty folders."""
        written = {
            f"~/{path.relative_to(self.home)}"
            for path in self.home.rglob("*")
            if path.is_symlink() or not path.is_dir() or not any(path.iterdir())
        }
        names = sorted(written - self._in_home)
        self._in_home |= written
        if names:
            self.fail(
                "home_write",
                f"{len(names)} file{'s' * (len(names) != 1)} written to the home directory {when}",
                "\n".join(names),
            )


@asynccontextmanager
async def open_sandbox(
    deadline: float, progress: Progress | None = None
) -> AsyncGenerator[SandboxFolder]:
    """Make the folder of a verification, and remove it at the end."""
    root = make_temp_folder()
    try:
        yield SandboxFolder(root, deadline, progress)
    finally:
        _remove(root)


def _remove(root: Path) -> None:
    # A package may have made its folders read-only, so that their removal would fail.
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o700)
    remove_temp_folder(root)


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
