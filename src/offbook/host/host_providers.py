"""The real providers of host capabilities, and the registry to which others are added.

A provider is an object: each public method is an operation, called with the parameters by name.

    class Project:
        def skills(self, kind: str = "all") -> list[str]: ...

    register_host_provider("project", Project())
    host_call("project.skills", {"kind": "own"})
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from offbook.determinism.clock import SystemClock
from offbook.errors import HostError, UsageError, did_you_mean, explain_call
from offbook.files import resolve_within, write_atomic

Operation = Callable[..., Any]
DEFAULT_SECONDS = 60.0


class HostWorkspace:
    """Files below a folder, by default the current one. A path that leaves it is refused."""

    def __init__(self, root: Path | str | None = None) -> None:
        self._root = root

    def read_text(self, path: str) -> str:
        """Return the text of a file."""
        return self._resolve(path).read_text(encoding="utf-8")

    def write_text(self, path: str, content: str) -> None:
        """Write a file; its folder is created."""
        write_atomic(self._resolve(path), content)

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        return self._resolve(path).exists()

    def list(self, path: str = "") -> list[str]:
        """Return the names in a folder, sorted."""
        folder = self._resolve(path) if path else self._folder
        return sorted(entry.name for entry in folder.iterdir())

    def delete(self, path: str) -> None:
        """Remove a file."""
        self._resolve(path).unlink()

    @property
    def _folder(self) -> Path:
        # Asked at each call: the current folder may change.
        return Path(self._root or Path.cwd())

    def _resolve(self, path: str) -> Path:
        return resolve_within(self._folder, path, "workspace")


class HostProcesses:
    """Commands of this machine."""

    def exec(
        self,
        argv: list[str],
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        timeout_s: float = DEFAULT_SECONDS,
    ) -> dict[str, Any]:
        """Run a command to its end; return `stdout`, `stderr` and `exit_code`."""
        if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
            raise UsageError("argv must be a list of words", hint='write {"argv": ["git", "log"]}')
        # Its own group, so that the command and all that it started end together.
        with subprocess.Popen(  # noqa: S603 - this is what the capability is for
            argv,
            cwd=cwd,
            env=None if env is None else {**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                stdout, stderr = process.communicate(stdin, timeout=timeout_s)
            except BaseException as error:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise HostError(f"{argv[0]} took longer than {timeout_s:g} s") from error
                raise
        return {"stdout": stdout, "stderr": stderr, "exit_code": process.returncode}


class HostClock:
    """The time of this machine."""

    def now_ms(self) -> int:
        """Return the milliseconds since 1970."""
        return SystemClock().millis()

    def now(self) -> str:
        """Return the time in UTC as ISO 8601."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC).isoformat()

    def sleep(self, ms: float) -> None:
        """Wait."""
        time.sleep(ms / 1000)


class HostHttp:
    """Requests over HTTP. A test has to allow the address as for any other client."""

    def request(
        self,
        url: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: str | None = None,
        timeout_s: float = DEFAULT_SECONDS,
    ) -> dict[str, Any]:
        """Send a request; return `status`, `headers` and `body`. An error status does not raise."""
        from urllib.error import HTTPError, URLError  # most hosts never send one
        from urllib.request import Request, urlopen

        if not url.startswith(("http://", "https://")):  # urllib would also read files
            raise UsageError(f"unsupported address {url!r}", hint="http:// or https://")
        data = None if body is None else body.encode()
        request = Request(url, data, dict(headers or {}), method=method)  # noqa: S310 - as above
        try:
            with urlopen(request, timeout=timeout_s) as response:  # noqa: S310 - as above
                return _http_result(response)
        except HTTPError as error:
            with error:
                return _http_result(error)
        except URLError as error:
            raise HostError(f"{method} {url}: {error.reason}") from error


def _http_result(response: Any) -> dict[str, Any]:
    body = response.read().decode("utf-8", "replace")
    return {"status": response.status, "headers": dict(response.headers), "body": body}


class HostProviders:
    """The providers by capability."""

    def __init__(self, providers: Mapping[str, object]) -> None:
        self._providers = dict(providers)

    def register(self, capability: str, provider: object) -> Callable[[], None]:
        """Add or replace a provider; return a function that undoes it."""
        if not isinstance(capability, str) or not capability or "." in capability:
            raise UsageError(f"invalid name of a host capability: {capability!r}")
        if not _operations(provider):
            kind = type(provider).__name__
            raise UsageError(
                f"the provider of {capability!r} has no operation, got {kind}",
                hint="give an object with methods, or a dict of functions",
            )
        before = self._providers.get(capability)
        self._providers[capability] = provider

        def undo() -> None:
            if before is None:
                self._providers.pop(capability, None)
            else:
                self._providers[capability] = before

        return undo

    def find(self, capability: str, operation: str, where: str = "") -> Operation:
        """Return the function of an operation; an unknown one is an error with the nearest name."""
        if capability not in self._providers:
            raise UsageError(
                f"no provider knows the host capability {capability!r}",
                where=where,
                hint=f"{did_you_mean(capability, self._providers)}\n"
                f"a new one: register_host_provider({capability!r}, provider)",
            )
        operations = _operations(self._providers[capability])
        if operation not in operations:
            raise UsageError(
                f"the host capability {capability!r} has no operation {operation!r}",
                where=where,
                hint=did_you_mean(operation, operations),
            )
        return operations[operation]

    def names(self, pattern: str) -> set[str]:
        """Return the operations that `clock.now`, `clock.*`, `clock` or `*` selects."""
        capability, _, operation = pattern.partition(".")
        selected = list(self._providers) if pattern == "*" else [capability]
        names: set[str] = set()
        for name in selected:
            if operation in {"", "*"}:
                self.find(name, next(iter(_operations(self._providers.get(name))), ""))
                names |= {f"{name}.{each}" for each in _operations(self._providers[name])}
            else:
                self.find(name, operation)
                names.add(pattern)
        return names


def _operations(provider: object) -> dict[str, Operation]:
    if isinstance(provider, Mapping):
        return dict(cast("Mapping[str, Operation]", provider))
    names = [name for name in dir(provider) if not name.startswith("_")]
    return {name: value for name in names if callable(value := getattr(provider, name))}


def call_provider(operation: Operation, params: Mapping[str, Any]) -> Any:
    """Call an operation; a wrong parameter is a UsageError, an OSError a HostError."""
    try:
        return explain_call(operation)(**params)
    except OSError as error:
        raise HostError(f"{error.filename or ''}: {error.strerror or error}".strip(": ")) from error


# The process has one registry: providers are its configuration, as logging handlers are.
providers = HostProviders(
    {
        "workspace": HostWorkspace(),
        "process": HostProcesses(),
        "clock": HostClock(),
        "http": HostHttp(),
    }
)
register_host_provider = providers.register
