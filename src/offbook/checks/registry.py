"""All assertions on one page, and how a list of them is read and judged."""

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

ASSERTIONS: dict[str, type[Assertion]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        run_assertions.ExitCode,
        run_assertions.TerminationReason,
        run_assertions.Iterations,
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
    """One assertion, from the dict that a user or an agent wrote."""
    if isinstance(raw, Assertion):
        return raw
    if not isinstance(raw, Mapping):
        raise UsageError(f"an assertion is a dict, not {type(raw).__name__}", where=where)
    fields = dict(cast("Mapping[str, Any]", raw))
    name = fields.pop("type", None)
    kind = ASSERTIONS.get(name) if isinstance(name, str) else None
    if kind is None:
        wrong = f"there is no assertion {name!r}" if name else "an assertion needs a type"
        raise UsageError(wrong, where=where, hint=did_you_mean(str(name), ASSERTIONS))
    try:
        return msgspec.convert(fields | {"type": name}, kind)
    except msgspec.ValidationError as error:
        known = kind.__struct_encode_fields__
        unknown = [key for key in fields if key not in known]
        hint = did_you_mean(unknown[0], known) if unknown else f"{name} takes {', '.join(known)}"
        raise UsageError(f"{name}: {error}", where=where, hint=hint) from error


def evaluate_all(assertions: Iterable[object], evidence: CheckContext) -> list[Verdict]:
    """Every assertion judged, in order; a wrong one is an error and stops nobody else."""
    read = [_try_assertion(raw, f"assertion {n}") for n, raw in enumerate(assertions, 1)]
    right = [one for one in read if isinstance(one, Assertion)]
    asked = [asked for one in right for asked in one.asks()]
    evidence.learn([(Termination, ()), *asked])  # at least that: a trace that is broken is noticed
    return [one.judge(evidence) if isinstance(one, Assertion) else one for one in read]


def _try_assertion(raw: object, where: str) -> Assertion | Verdict:
    """The assertion, or the verdict that it is none."""
    try:
        return parse_assertion(raw, where)
    except UsageError as error:
        name = str(cast("dict[str, Any]", raw).get("type")) if isinstance(raw, dict) else "?"
        return Verdict(name, "error", str(error))
