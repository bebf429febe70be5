"""The result of a sandbox install: what was loaded, and each fault with its output."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from offbook.runs.run import AwaitableResult
from offbook.trace.query import Events

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
