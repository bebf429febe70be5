"""Why a loop ended, under all the names of that reason, and the exit code that goes with it."""

from __future__ import annotations

import re

EXIT_CODES = {
    "CompletionPromise": 0,
    "Cancelled": 0,
    "ConsecutiveFailures": 1,
    "LoopThrashing": 1,
    "LoopStale": 1,
    "ValidationFailure": 1,
    "Stopped": 1,
    "WorkspaceGone": 1,
    "MaxIterations": 2,
    "MaxRuntime": 2,
    "MaxCost": 2,
    "RestartRequested": 3,
    "Interrupted": 130,
}
ALIASES = {
    "completed": "CompletionPromise",
    "loopcomplete": "CompletionPromise",
    "timeout": "MaxRuntime",
}


def canonical(reason: str) -> str | None:
    """The reason's own name, whatever spelling it was given in; None when there is none such."""
    folded = re.sub(r"[^a-z]", "", reason.lower())
    for name in EXIT_CODES:
        if folded == name.lower():
            return name
    return ALIASES.get(folded)
