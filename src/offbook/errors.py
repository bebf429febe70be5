"""Every exception of Offbook, in one file.

OffbookError
├── UsageError            a call or an option of the API is wrong (exit code 2)
│   ├── PlaybookError     a playbook that can never run as written
│   ├── ExtensionError    an extension that cannot be loaded
│   └── FormatError       a file that cannot be read: path, line and fix
├── RunError              the run failed
│   ├── ScriptError       the script and the agent disagree
│   │   ├── ScriptExhausted   the agent sent more requests than the script has replies
│   │   ├── ScriptUnfinished  the agent stopped before the script ended
│   │   └── ScriptMismatch    a request matches nothing in the script
│   │       └── ReplayMismatch    … or nothing in the recording
│   ├── ToolFailed        a real tool or hook raised
│   ├── UnmockedCall      a call of the host or a fake program that no mock answers
│   ├── DeadlineExceeded  the run took too long
│   ├── CheckFailed       a check on the trace failed; also an AssertionError
│   │   ├── InvariantBroken   a generated model made the agent break an invariant
│   │   ├── ContractBroken    an event does not match the schema of its contract
│   │   └── SandboxFailed     a package does not install or load as it should
│   └── PatternError      an error of a pattern that its test did not expect
├── UnknownOutcome        a test asks whether a tool failed, and the run cannot know
├── ModelError            the error response of a provider
├── RequirementFailed     a condition of `require` is false
├── HostError             the error response of a host capability
├── InjectedFault         a tool or a host call that fails on purpose
├── CollectorError        spans that an OpenTelemetry collector did not accept
├── ToolBlocked           raised by a hook to block a tool call
└── IsolationError        something tried to reach the network or to write elsewhere
    └── ConnectionBlocked     … a connection; also a ConnectionRefusedError

OffbookWarning            a Python warning: the run passed, with a remark
Interrupted, a KeyboardInterrupt, is raised after a signal has ended the run.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path


__tracebackhide__ = True  # pytest shows the line that a check is about
P = ParamSpec("P")
T = TypeVar("T")


class OffbookError(Exception):
    """An error with the fact (`what`), its location (`where`) and a fix (`hint`).

    As a text it contains no secret.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__("\n".join(filter(None, (f"{where}: {what}" if where else what, hint))))

    def add_hint(self, hint: str) -> None:
        """Add lines to the fix."""
        OffbookError.__init__(
            self, self.what, where=self.where, hint="\n".join(filter(None, (self.hint, hint)))
        )

    def __str__(self) -> str:
        # imported late: most runs raise no error, and the patterns take time to load
        from offbook.secrets import outgoing

        return outgoing(super().__str__())


class UsageError(OffbookError):
    """A call or an option of the API is wrong."""


class PlaybookError(UsageError):
    """A playbook that can never run as written."""


class ExtensionError(UsageError):
    """An extension that cannot be loaded."""


class FormatError(UsageError):
    """A file that does not have the format that it should have."""

    def __init__(
        self, what: str, *, path: Path | str = "", line: int | None = None, hint: str = ""
    ) -> None:
        self.path = str(path)
        self.line = line
        where = self.path if line is None else f"{self.path}:{line}"
        super().__init__(what, where=where, hint=hint)


class RunError(OffbookError):
    """The run failed. `pytest.raises(AssertionError)` does not catch it."""


class ScriptError(RunError):
    """The script and the agent disagree."""


class ScriptExhausted(ScriptError):
    """The agent sent more requests than the script has replies."""


class ScriptUnfinished(ScriptError):
    """The agent stopped before the script ended."""


class ScriptMismatch(ScriptError):
    """A request matches nothing in the script, or differs from what was said before."""


class ReplayMismatch(ScriptMismatch):
    """A request matches nothing in the recording."""


class ToolFailed(RunError):
    """A real tool or hook raised, and errors are propagated."""


class UnmockedCall(RunError):
    """A call of the host or of a fake program that no mock answers."""


class DeadlineExceeded(RunError):
    """The run took too long."""


class CheckFailed(RunError, AssertionError):
    """A check on the trace failed."""


class InvariantBroken(CheckFailed):
    """A generated model made the agent break an invariant.

    `exploration` has what was tried and all findings.
    """

    exploration: object = None


class ContractBroken(CheckFailed):
    """An event of the run does not match the schema of its contract."""


class SandboxFailed(CheckFailed):
    """A package that does not install or load as it should; `result` has all faults."""

    result: Any = None


class PatternError(RunError):
    """An error of a pattern that its test did not expect."""


class UnknownOutcome(OffbookError):
    """A test asks whether a tool failed, and the run cannot know."""


class ModelError(OffbookError):
    """The error response of a provider.

    `details` are further fields of its body (`param`, `code`, …); the detail `rule` is the name
    of the validation rule that rejected the request. `fault` is the injected fault that it is the
    consequence of, or None. A stream that ended too early is `interrupted`.
    """

    fault: Any = None
    interrupted: bool = False

    def __init__(
        self,
        message: str,
        *,
        status: int = 500,
        category: str = "",
        retry_after: float | None = None,
        details: Mapping[str, str] | None = None,
    ) -> None:
        self.details = dict(details or {})
        self.message = message
        self.status = status
        self.category = category or categorize(status)
        self.retry_after = retry_after
        super().__init__(f"{message} ({status} {self.category})")


class RequirementFailed(OffbookError):
    """A condition that the code requires is false."""


class HostError(OffbookError):
    """The error response of a host capability, real or mocked."""


class InjectedFault(OffbookError):
    """A tool or a host call that fails on purpose: a fault of the run's plan."""


class CollectorError(OffbookError):
    """Spans that an OpenTelemetry collector did not accept."""


class ToolBlocked(OffbookError):
    """Raised by a `tool_call` hook to block the call, with the reason."""

    tool_blocked = True

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class IsolationError(OffbookError):
    """Something tried to reach the network, or to write outside of its folder."""


class ConnectionBlocked(IsolationError, ConnectionRefusedError):
    """A connection to another machine; a library handles it as one that was refused."""

    destination = ""  # its host and port


class Interrupted(KeyboardInterrupt):
    """A signal to this process has ended the run."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"interrupted by {signal_name(number)}")


def signal_name(number: int) -> str:
    """Return `SIGTERM` for 15."""
    from signal import Signals

    try:
        return Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


class OffbookWarning(UserWarning):
    """A remark on a run that passed; pytest shows it in its summary."""


MAX_RETRY_AFTER = 1e9  # seconds
CATEGORIES = {
    400: "invalid_request",
    401: "auth",
    403: "permission",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    422: "invalid_request",
    429: "rate_limit",
    500: "server_error",
    502: "server_error",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
MAX_SUGGESTIONS = 16  # about what fits on a screen


def categorize(status: int) -> str:
    """Return the category of a provider error that has only a status."""
    return CATEGORIES.get(
        status, "server_error" if status in range(500, 600) else "invalid_request"
    )


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """Return a hint with the options nearest to the word, or with all of them.

    >>> did_you_mean("bsh", ["bash", "read"])
    "did you mean 'bash'?"
    >>> did_you_mean("x", ["bash", "read"])
    "available: 'bash', 'read'"
    """
    from difflib import get_close_matches

    names = sorted(set(options))
    close = get_close_matches(word, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {', '.join(map(repr, close))}?"
    if not names:
        return "none are available"
    more = " …" if len(names) > MAX_SUGGESTIONS else ""
    return f"available: {', '.join(map(repr, names[:MAX_SUGGESTIONS]))}{more}"


def require_known(what: str, name: object, options: Collection[str], where: str = "") -> None:
    """Raise a UsageError with the nearest options, unless the name is one of them.

    >>> require_known("unknown tool", "bsh", ["bash", "read"])
    Traceback (most recent call last):
    offbook.errors.UsageError: unknown tool 'bsh': did you mean 'bash'?
    """
    if name not in options:
        hint = did_you_mean(str(name), options)
        raise UsageError(f"{what} {name!r}", where=where, hint=hint)


def raise_model_failure(error: BaseException) -> None:
    """Raise an error of a run; one that a callback of the playbook raised fails the test."""
    if isinstance(error, (OffbookError, KeyboardInterrupt)):
        raise error
    message = f"a callback of the playbook raised {type(error).__name__}: {error}"
    raise RunError(message) from error


def name_some(names: Sequence[object], most: int = 10) -> str:
    """Return names for a message; of many, the first ones: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(map(str, names[:most]))}{more}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "file"), counted(2, "file")
    ('1 file', '2 files')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def explain_call(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function with a UsageError and a suggestion for an unknown or missing argument."""

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> T:
        try:
            return function(*args, **options)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # raised inside of the function: the call itself was right
            from inspect import signature

            known = [
                name
                for name, parameter in signature(function).parameters.items()
                if parameter.kind != parameter.VAR_KEYWORD
            ]
            name = getattr(function, "__name__", "it")
            for option in options:
                if option not in known:
                    raise UsageError(
                        f"{name}() has no option {option!r}", hint=did_you_mean(option, known)
                    ) from None
            raise UsageError(str(error), hint=f"{name}() takes {', '.join(known)}") from None

    return call


# The exceptions of version 1.0 that had no use as such, and the classes that they are now.
DEPRECATED = {"FutureVersion": FormatError, "JudgeError": RunError, "LoopError": PatternError}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> type[OffbookError]:
        if name not in DEPRECATED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from warnings import warn

        new = DEPRECATED[name]
        warn(f"{name} is deprecated: use {new.__name__}", DeprecationWarning, stacklevel=2)
        return new
