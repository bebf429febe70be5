"""Every exception of Offbook, in one place.

OffbookError
├── UsageError            a call or an option of the API is wrong (exit code 2)
│   ├── PlaybookError     a playbook that could never run as written
│   ├── ExtensionError    an extension that cannot be loaded
│   └── FormatError       a file that cannot be read: path, line, the mend
│       └── FutureVersion a file written by a newer Offbook
├── RunError              the run went wrong; also an AssertionError, so a test fails
│   ├── ScriptError       the script and the agent disagree
│   │   ├── ScriptExhausted   the agent asked for more than was scripted
│   │   ├── ScriptUnfinished  the agent stopped before the script did
│   │   └── ScriptMismatch    the agent asked something the script does not answer
│   │       └── ReplayMismatch    … or something else than was recorded
│   ├── ToolFailed        a real tool or hook raised
│   ├── DeadlineExceeded  the run took longer than it may
│   ├── CheckFailed       a check on the trace did not hold
│   └── JudgeError        a judge gave no answer that counts
├── ModelError            what a provider answers instead of a reply
├── ToolBlocked           raised by a hook to block a tool call
└── IsolationError        something tried to leave the machine
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path


P = ParamSpec("P")
T = TypeVar("T")


class OffbookError(Exception):
    """What happened, where, and what to do about it. As a text, it tells no secret."""

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__("\n".join(filter(None, (f"{where}: {what}" if where else what, hint))))

    def __str__(self) -> str:
        from offbook.secrets import hide_secrets, known_secrets

        return hide_secrets(super().__str__(), known_secrets())


class UsageError(OffbookError):
    """A call or an option of the API is wrong."""


class PlaybookError(UsageError):
    """A playbook that could never run as written."""


class ExtensionError(UsageError):
    """An extension that cannot be loaded."""


class FormatError(UsageError):
    """A file that cannot be read as what it claims to be."""

    def __init__(
        self, what: str, *, path: Path | str = "", line: int | None = None, hint: str = ""
    ) -> None:
        self.path = str(path)
        self.line = line
        where = self.path if line is None else f"{self.path}:{line}"
        super().__init__(what, where=where, hint=hint)


class FutureVersion(FormatError):
    """A file written by a newer Offbook."""


class RunError(OffbookError, AssertionError):
    """The run went wrong: a test that sees it has failed."""


class ScriptError(RunError):
    """The script and the agent disagree."""


class ScriptExhausted(ScriptError):
    """The agent asked for more than was scripted."""


class ScriptUnfinished(ScriptError):
    """The agent stopped before the script did."""


class ScriptMismatch(ScriptError):
    """The agent asked something that the script does not answer."""


class ReplayMismatch(ScriptMismatch):
    """The agent asked something else than was recorded."""


class ToolFailed(RunError):
    """A real tool or hook raised while errors are propagated."""


class DeadlineExceeded(RunError):
    """The run took longer than it may."""


class CheckFailed(RunError):
    """A check on the trace did not hold."""


class JudgeError(RunError):
    """A judge gave no answer that counts."""


class ModelError(OffbookError):
    """What a provider answers instead of a reply.

    `details` are the further fields of its body (`param`, `code`, …); `rule` there is the name of
    the rule that refused the request.
    """

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


class ToolBlocked(OffbookError):
    """Raised by a `tool_call` hook to block the call, with the reason."""

    tool_blocked = True

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class IsolationError(OffbookError):
    """Something tried to leave the machine, or to write where it may not."""


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


def categorize(status: int) -> str:
    """The category of a provider error that tells only its status."""
    return CATEGORIES.get(
        status, "server_error" if status in range(500, 600) else "invalid_request"
    )


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """A clause that names what was probably meant, or all there is."""
    from difflib import get_close_matches

    known = sorted(set(options))
    close = get_close_matches(word, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {', '.join(repr(name) for name in close)}?"
    if not known:
        return "there is none"
    shown = ", ".join(repr(name) for name in known[:12])
    return f"there is {shown}{' …' if len(known) > 12 else ''}"  # noqa: PLR2004 - a screenful


def explain_call(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which tells whoever calls it with what it does not take."""

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> T:
        try:
            return function(*args, **options)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # it was called, and the error is one of its own
            raise _explain(function, options, str(error)) from None

    return call


def _explain(function: Callable[..., object], given: Iterable[str], what: str) -> UsageError:
    from inspect import signature

    known = [
        name for name, one in signature(function).parameters.items() if one.kind != one.VAR_KEYWORD
    ]
    odd = next((name for name in given if name not in known), None)
    name = getattr(function, "__name__", "it")
    if odd is None:
        return UsageError(what, hint=f"{name}() takes {', '.join(known)}")
    return UsageError(f"{name}() has no option {odd!r}", hint=did_you_mean(odd, known))
