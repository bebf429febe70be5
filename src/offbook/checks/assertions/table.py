"""All assertions on one page, and how a list of them is read and judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.checks.assertions import bus, files, hats, output, run, snapshots, tools
from offbook.checks.assertions.assertion import Assertion
from offbook.checks.facts import Ending
from offbook.errors import UsageError, nearest
from offbook.trace.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.checks.evidence import Evidence

KINDS: dict[str, type[Assertion]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        run.ExitCode,
        run.TerminationReason,
        run.Iterations,
        run.Duration,
        run.CostWithin,
        files.FileExists,
        files.FileContains,
        files.FileNotContains,
        files.ScratchpadContains,
        snapshots.SnapshotMatches,
        bus.EventOccurred,
        bus.EventSequence,
        bus.EventCount,
        bus.NoEvent,
        hats.HatSequence,
        hats.HatTransition,
        hats.IterationCount,
        output.StdoutContains,
        output.StderrContains,
        tools.ToolSequence,
        tools.ToolCalled,
        tools.ToolNever,
        tools.ToolBefore,
        tools.ToolStatus,
    )
}


def read_assertion(raw: object, where: str = "") -> Assertion:
    """One assertion, from the dict that a user or an agent wrote."""
    if isinstance(raw, Assertion):
        return raw
    if not isinstance(raw, Mapping):
        raise UsageError(f"an assertion is a dict, not {type(raw).__name__}", where=where)
    fields = dict(cast("Mapping[str, Any]", raw))
    name = fields.pop("type", None)
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        wrong = f"there is no assertion {name!r}" if name else "an assertion needs a type"
        raise UsageError(wrong, where=where, hint=nearest(str(name), KINDS))
    try:
        return msgspec.convert(fields | {"type": name}, kind)
    except msgspec.ValidationError as error:
        known = kind.__struct_encode_fields__
        unknown = [key for key in fields if key not in known]
        hint = nearest(unknown[0], known) if unknown else f"{name} takes {', '.join(known)}"
        raise UsageError(f"{name}: {error}", where=where, hint=hint) from error


def judge_all(assertions: Iterable[object], evidence: Evidence) -> list[Verdict]:
    """Every assertion judged, in order; a wrong one is an error and stops nobody else."""
    read = [_try_assertion(raw, f"assertion {n}") for n, raw in enumerate(assertions, 1)]
    right = [one for one in read if isinstance(one, Assertion)]
    asked = [asked for one in right for asked in one.asks()]
    evidence.learn([(Ending, ()), *asked])  # at least that: a trace that is broken is noticed
    return [one.judge(evidence) if isinstance(one, Assertion) else one for one in read]


def _try_assertion(raw: object, where: str) -> Assertion | Verdict:
    """The assertion, or the verdict that it is none."""
    try:
        return read_assertion(raw, where)
    except UsageError as error:
        name = str(cast("dict[str, Any]", raw).get("type")) if isinstance(raw, dict) else "?"
        return Verdict(name, "error", str(error))
