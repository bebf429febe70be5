"""Host calls: code asks its host through `host_call`, and a test mocks the answers.

    mock_host_result("workspace", "read_text", "file contents")
    host_call("workspace.read_text", {"path": "test.txt"})      # "file contents"
    assert_host_called("workspace", "read_text", {"path": "test.txt"})

Mocks and the log of all calls belong to a `HostScope`, which follows the current context: other
tasks and threads do not see it. In a scope, and in any test under pytest, a call that no mock
answers is refused unless the scope allows it. Elsewhere the real provider answers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from types import NoneType
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from offbook.determinism.run_context import SystemClock, current_host
from offbook.errors import (
    CheckFailed,
    HostError,
    UnmockedCall,
    UsageError,
    counted,
    did_you_mean,
    explain_call,
    require_known,
)
from offbook.exchange.tool_track import HOST, RecordedException, ToolEnd, ToolRun, running_tool
from offbook.files import resolve_within, write_atomic
from offbook.options import Count, decode
from offbook.trace.events import HostCallData
from offbook.trace.hub import current_faults, current_hub
from offbook.trace.matching import contains, find_mismatches, render_value

Outcome = Literal["mocked", "real", "refused"]


class HostCall(msgspec.Struct, frozen=True):
    """A call of the host: `outcome` says whether a mock or the real provider answered."""

    capability: str
    operation: str
    params: dict[str, Any] = {}
    outcome: Outcome = "mocked"

    def __str__(self) -> str:
        shown = render_value(self.params) if self.params else ""
        return f"{self.capability}.{self.operation}({shown})"


class HostAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of an operation, as a test writes it."""

    params: dict[str, Any] | None = None
    result: Any = None
    results: Annotated[list[Any], msgspec.Meta(min_length=1)] | UnsetType = UNSET
    error: Any = None  # a message or an exception
    times: Count | None = None


class HostEntry(HostAnswer, frozen=True, kw_only=True):
    """An answer with its operation."""

    capability: str
    operation: str


class HostMock:
    """The mocked answer to some calls: a value, an error, or several in order."""

    def __init__(self, entry: HostEntry) -> None:
        self.capability = entry.capability
        self.operation = entry.operation
        self.params: Mapping[str, Any] = entry.params or {}
        error = HostError(entry.error) if isinstance(entry.error, str) else entry.error
        self._in_order = entry.results is not UNSET
        single = entry.result if error is None else error
        self._answers: Sequence[Any] = [single] if entry.results is UNSET else entry.results
        self._times: int | None = len(self._answers) if self._in_order else entry.times
        self.used = 0

    def matches(self, call: HostCall) -> bool:
        """Return whether it is for this call: the parameters are a subset, exact below."""
        return self.names(call) and contains(call.params, self.params, subset="top")

    def names(self, call: HostCall) -> bool:
        """Return whether it is for this operation, whatever its parameters."""
        return (self.capability, self.operation) == (call.capability, call.operation)

    @property
    def exhausted(self) -> bool:
        """True if it has answered as often as it may."""
        return self._times is not None and self.used >= self._times

    @property
    def remaining(self) -> int:
        """The number of answers that were not used: all of a list, otherwise one."""
        return len(self._answers) - self.used if self._in_order else int(not self.used)

    def next_answer(self) -> Any:
        """Return the next answer."""
        answer = self._answers[self.used if self._in_order else 0]
        self.used += 1
        return answer

    def __str__(self) -> str:
        shown = f" with {render_value(self.params)}" if self.params else ""
        return f"{self.capability}.{self.operation}{shown}"


class HostScope:
    """Mocks of the host, and the log of every call.

    Of several mocks that match a call the last registered one answers. `allow` names operations
    that reach the real provider: `clock.now`, `clock.*` or `clock`.
    """

    def __init__(self, *, allow: Iterable[str] = (), where: str = "") -> None:
        self._where = where
        self._mocks: list[HostMock] = []
        self._lock = RLock()
        self._allowed: set[str] = set()
        self.calls: list[HostCall] = []
        self.refusals: list[UnmockedCall] = []
        self.allow(*allow)

    def allow(self, *names: str) -> None:
        """Let these operations reach the real provider."""
        for name in names:
            self._allowed |= providers.names(name)

    def add(self, entry: Mapping[str, Any], where: str = "") -> None:
        """Register a mock: `capability`, `operation`, and what it answers."""
        where = where or self._where
        mock = HostMock(_decode_entry(entry, where))
        # A misspelled mock would never answer.
        providers.find(mock.capability, mock.operation, where)
        with self._lock:
            self._mocks.append(mock)

    def clear(self) -> None:
        """Remove all mocks of this scope, and empty its log."""
        with self._lock:
            self._mocks.clear()
            self.calls.clear()
            self.refusals.clear()

    def call(self, name: str, params: Mapping[str, Any] | None = None) -> Any:
        """Answer a call by the last matching mock, or by the real provider if it is allowed."""
        capability, operation = _split_name(name)
        # Copies: the caller may change its parameters afterwards, and the answer as well.
        call = HostCall(capability, operation, deepcopy(dict(params or {})))
        with self._lock:
            usable = [mock for mock in self._mocks if not mock.exhausted and mock.matches(call)]
            answer = usable[-1].next_answer() if usable else None
            outcome: Outcome = (
                "mocked" if usable else "real" if name in self._allowed else "refused"
            )
            call = msgspec.structs.replace(call, outcome=outcome)
            self.calls.append(call)
        if outcome == "refused":
            refusal = self._refuse(call)
            self.refusals.append(refusal)
            _emit(call, error=refusal.what)
            raise refusal
        try:
            if (faults := current_faults()) is not None:
                faults.call_blocking("host", name)
            if outcome == "real":
                result = _call_real(call)
            else:
                result = answer(call.params) if callable(answer) else answer
            if isinstance(result, Exception):
                raise result  # noqa: TRY301 - a mock may be an exception, as in mock_tools
            result = deepcopy(result) if outcome == "mocked" else result
        except Exception as error:
            _emit(call, error=f"{type(error).__name__}: {error}")
            raise
        _emit(call, result=result)
        return result

    def _refuse(self, call: HostCall) -> UnmockedCall:
        """Return the error for a call without a mock, with the nearest mock."""
        lines: list[str] = []
        same = [mock for mock in self._mocks if mock.names(call)]
        for mock in same[-1:]:
            if mock.exhausted and mock.matches(call):
                lines.append(f"used up: {mock}, {counted(mock.used, 'time')}")
            else:
                mismatch = next(find_mismatches(call.params, mock.params, subset="top"), None)
                lines.append(f"nearest: {mock}; {mismatch}")
        if not same and self._mocks:
            name = f"{call.capability}.{call.operation}"
            mocked = [f"{mock.capability}.{mock.operation}" for mock in self._mocks]
            lines.append(f"mocked: {did_you_mean(name, mocked)}")
        words = f'"{call.capability}", "{call.operation}"'
        lines.append(f"fix: mock_host_result({words}, …), or allow the real one in the scope")
        return UnmockedCall(
            f"no mock for the host call {call}",
            where=self._where,
            hint="\n".join(f"  {line}" for line in lines),
        )

    def unused(self) -> list[str]:
        """Return the mocks that were never used, and answers that are left in a list."""
        return [str(mock) for mock in self._mocks if mock.remaining]

    def raise_refusals(self) -> None:
        """Raise the first refused call, which the code under test may have swallowed."""
        if self.refusals:
            raise self.refusals[0]

    def close(self, *, allow_unused: bool = False) -> None:
        """Fail for a refused call that was swallowed, and for a mock that was never used."""
        self.raise_refusals()
        unused = self.unused()
        if unused and not allow_unused:
            raise CheckFailed(
                f"never used: host mock {'; '.join(unused)}",
                where=self._where,
                hint="remove it, or pass allow_unused_mocks=True",
            )


def host_call(name: str, params: Mapping[str, Any] | None = None) -> Any:
    """Call an operation of the host: `host_call("workspace.read_text", {"path": "a.txt"})`.

    It blocks. In async code, write `await asyncio.to_thread(host_call, …)`.
    """
    scope = current_host.get()
    if scope is None and "PYTEST_CURRENT_TEST" in os.environ:
        scope = HostScope()  # fail closed: a test without mocks, or a thread that left its scope
    if scope is not None:
        return scope.call(name, params)
    return call_provider(providers.find(*_split_name(name)), params or {})


def _call_real(call: HostCall) -> Any:
    """Return the answer of the real provider, or that of the tape of the run."""
    provider = providers.find(call.capability, call.operation)
    hub = current_hub.get()
    track = None if hub is None else hub.tool_track
    # What a tool asks of the host is part of the tool.
    if track is None or running_tool.get() is not None:
        return call_provider(provider, call.params)
    run = ToolRun(f"{HOST}{call.capability}.{call.operation}", call.params)
    end = track.find(run) if track.replays else None
    if end is not None:
        if end.error is not None:
            raise HostError(end.error.message)
        return end.result
    try:
        result = call_provider(provider, call.params)
    except Exception as error:
        kind = type(error)
        failed = RecordedException(f"{kind.__module__}:{kind.__qualname__}", str(error))
        track.add(run, ToolEnd(error=failed, exact=kind is HostError))
        raise
    track.add(run, ToolEnd(result))
    return result


def _split_name(name: object) -> tuple[str, str]:
    capability, dot, operation = name.partition(".") if isinstance(name, str) else ("", "", "")
    if not dot or not capability or not operation:
        raise UsageError(
            f"invalid host call {name!r}", hint='write "capability.operation": "clock.now_ms"'
        )
    return capability, operation


def _decode_entry(given: Mapping[str, Any], where: str) -> HostEntry:
    """Return the mock that a test wrote as a dict, or raise for a wrong field."""
    entry = decode(given, HostEntry, "host mock", where=where)
    if "results" in given and {"result", "error", "times"} & given.keys():
        raise UsageError(
            "`results` cannot be combined with other answers: each of its items is used once",
            where=where,
        )
    if not isinstance(entry.error, (str, Exception, NoneType)):
        kind = type(entry.error).__name__
        raise UsageError(f"error must be a message or an exception, got {kind}", where=where)
    return entry


def _emit(call: HostCall, **answer: Any) -> None:
    hub = current_hub.get()
    if hub is not None:
        fields = msgspec.to_builtins(call, enc_hook=repr)
        hub.emit_data(HostCallData(**fields, **answer))


# --- The functions of tests, on the scope of the current task


def _scope() -> HostScope:
    """Return the current scope; the first mock of a task opens one that lasts as long as it."""
    scope = current_host.get()
    if scope is None:
        scope = HostScope()
        current_host.set(scope)
    return scope


def _recording() -> HostScope:
    """Return the current scope, or raise: without one no call is recorded."""
    scope = current_host.get()
    if scope is None:
        raise UsageError(
            "host calls are not recorded here, because there is no scope",
            hint="call clear_host_mocks() first, or use `with with_host_mocks([…]):`",
        )
    return scope


def clear_host_mocks() -> None:
    """Remove the host mocks of the current scope, and empty its log of calls."""
    _scope().clear()


def mock_host_result(
    capability: str, operation: str, result: Any, params: Mapping[str, Any] | None = None
) -> None:
    """Answer a host call with a value, or with a function of its parameters.

    With `params`, only calls that have these parameters are answered.
    """
    entry = {"capability": capability, "operation": operation, "result": result, "params": params}
    _scope().add(entry, "mock_host_result")


def mock_host_error(
    capability: str,
    operation: str,
    message: str | Exception,
    params: Mapping[str, Any] | None = None,
) -> None:
    """Answer a host call with an error: `HostError` with this message, or this exception."""
    entry = {"capability": capability, "operation": operation, "error": message, "params": params}
    _scope().add(entry, "mock_host_error")


def mock_host_response(capability: str, operation: str, config: Mapping[str, Any]) -> None:
    """Answer a host call as configured.

    `result` or `error`, `params` to match, `times` as the largest number of answers; or `results`,
    a list of answers for one call after the other.
    """
    decode(config, HostAnswer, "host mock", where="mock_host_response")
    entry = {**config, "capability": capability, "operation": operation}
    _scope().add(entry, "mock_host_response")


def host_calls() -> list[HostCall]:
    """Return every host call in the current scope, also refused ones, in order."""
    return list(_recording().calls)


def host_calls_for(capability: str, operation: str) -> list[HostCall]:
    """Return the calls of one operation."""
    return _select(_recording(), capability, operation)


def host_call_count() -> int:
    """Return the number of host calls in the current scope."""
    return len(host_calls())


def host_call_count_for(capability: str, operation: str) -> int:
    """Return the number of calls of one operation."""
    return len(host_calls_for(capability, operation))


def host_was_called(
    capability: str, operation: str, params: Mapping[str, Any] | None = None
) -> bool:
    """Return whether the operation was called, with these parameters if they are given."""
    return bool(_select(_recording(), capability, operation, params))


def assert_host_called(
    capability: str,
    operation: str,
    params: Mapping[str, Any] | None = None,
    message: str | None = None,
) -> None:
    """Fail unless the operation was called, with these parameters if they are given."""
    scope = _recording()
    if not _select(scope, capability, operation, params):
        wanted = f" with {render_value(params)}" if params else ""
        raise CheckFailed(
            message or f"expected a host call {capability}.{operation}{wanted}",
            hint=_show_log(scope),
        )


def assert_host_call_count(
    expected_count: int, capability: str, operation: str, message: str | None = None
) -> None:
    """Fail unless the operation was called exactly this often."""
    scope = _recording()
    actual = len(_select(scope, capability, operation))
    if actual != expected_count:
        raise CheckFailed(
            message
            or f"expected {expected_count} host calls of {capability}.{operation}, got {actual}",
            hint=_show_log(scope),
        )


def assert_no_host_calls(message: str | None = None) -> None:
    """Fail if the host was called at all."""
    scope = _recording()
    if scope.calls:
        what = f"expected no host calls, got {len(scope.calls)}"
        raise CheckFailed(message or what, hint=_show_log(scope))


def _select(
    scope: HostScope, capability: str, operation: str, params: Mapping[str, Any] | None = None
) -> list[HostCall]:
    providers.find(capability, operation)  # a misspelled name would match no call
    return [
        call
        for call in scope.calls
        if (call.capability, call.operation) == (capability, operation)
        and contains(call.params, params or {}, subset="top")
    ]


def _show_log(scope: HostScope) -> str:
    lines = [f"  {call}: {call.outcome}" for call in scope.calls]
    return "\n".join(["host calls:", *(lines or ["  none"])])


# --- The real providers

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
        decode(argv, list[str], "argv", hint='write {"argv": ["git", "log"]}')
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
                f"a new one: register_host_provider({capability!r}, "
                f"{{{operation!r}: lambda **params: None}})",
            )
        operations = _operations(self._providers[capability])
        require_known(
            f"the host capability {capability!r} has no operation",
            operation,
            operations,
            where=where,
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
