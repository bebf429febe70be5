"""The registry of assertions, and the functions that parse and evaluate a list of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.checks import file_assertions, loop_assertions, run_assertions, tool_assertions
from offbook.checks.assertion import Assertion
from offbook.checks.collectors import Termination
from offbook.errors import UsageError, did_you_mean
from offbook.trace.events import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.checks.context import CheckContext

# By the `type` that users write. The order is the order of the documentation.
ASSERTIONS: dict[str, type[Assertion]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        run_assertions.ExitCode,
        loop_assertions.TerminationReason,
        loop_assertions.Iterations,
        run_assertions.Duration,
        run_assertions.CostWithin,
        file_assertions.FileExists,
        file_assertions.FileContains,
        file_assertions.FileNotContains,
        file_assertions.ScratchpadContains,
        file_assertions.SnapshotMatches,
        loop_assertions.EventOccurred,
        loop_assertions.EventSequence,
        loop_assertions.EventCount,
        loop_assertions.NoEvent,
        loop_assertions.HatSequence,
        loop_assertions.HatTransition,
        loop_assertions.IterationCount,
        run_assertions.StdoutContains,
        run_assertions.StderrContains,
        tool_assertions.ToolSequence,
        tool_assertions.ToolCalled,
        tool_assertions.ToolNever,
        tool_assertions.ToolBefore,
        tool_assertions.ToolStatus,
    )
}


def parse_assertion(raw: object, where: str = "") -> Assertion:
    """Return the assertion that a user or an agent wrote as a dict.

    >>> parse_assertion({"type": "exit_code", "expected": 0})
    ExitCode(expected=0)
    """
    if isinstance(raw, Assertion):
        return raw
    if not isinstance(raw, Mapping):
        raise UsageError(f"expected an assertion as a dict, got {type(raw).__name__}", where=where)
    fields = dict(cast("Mapping[str, Any]", raw))
    name = fields.pop("type", None)
    kind = ASSERTIONS.get(name) if isinstance(name, str) else None
    if kind is None:
        message = f"unknown assertion type {name!r}" if name else "an assertion needs a type"
        raise UsageError(message, where=where, hint=did_you_mean(str(name), ASSERTIONS))
    try:
        return msgspec.convert(fields | {"type": name}, kind)
    except msgspec.ValidationError as error:
        # A misspelled field is more often the cause than a wrong value.
        known = kind.__struct_encode_fields__
        unknown = [key for key in fields if key not in known]
        hint = did_you_mean(unknown[0], known) if unknown else f"{name} takes {', '.join(known)}"
        raise UsageError(f"{name}: {error}", where=where, hint=hint) from error


def evaluate_all(assertions: Iterable[object], context: CheckContext) -> list[Verdict]:
    """Evaluate all assertions in order; an invalid one becomes an `error` verdict."""
    parsed: list[Assertion | Verdict] = []
    for number, raw in enumerate(assertions, 1):
        try:
            parsed.append(parse_assertion(raw, f"assertion {number}"))
        except UsageError as error:
            name = str(cast("dict[str, Any]", raw).get("type")) if isinstance(raw, dict) else "?"
            parsed.append(Verdict(name, "error", str(error)))
    valid = [item for item in parsed if isinstance(item, Assertion)]
    required = [requirement for item in valid for requirement in item.requires()]
    # Termination is always collected: a broken trace is noticed even if no assertion reads it.
    context.collect([(Termination, ()), *required])
    return [item.judge(context) if isinstance(item, Assertion) else item for item in parsed]
