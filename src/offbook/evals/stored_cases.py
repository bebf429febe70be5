"""Cases that read what is stored: a run record, a trace, or friction events."""

from __future__ import annotations

from offbook.evals.case_kind import CaseContext, CaseOutcome
from offbook.evals.friction import MIN_OCCURRENCES, suggest
from offbook.evals.pack import EvalCase, LoadedPack
from offbook.evals.run_record import (
    load_friction_events,
    load_run,
    read_stored_trace,
    trace_path,
)
from offbook.runs.result_identity import IdentityDigest
from offbook.trace.events import Verdict


def run_case(case: EvalCase, context: CaseContext) -> CaseOutcome:
    """Read the stored run of a case, or the suggestions of its friction events."""
    loaded = context.loaded
    if case.mode == "friction":
        return _suggest(case, loaded)
    if case.mode == "run":
        return CaseOutcome(run=load_run(loaded, case.run))
    trace = trace_path(loaded, case.trace)
    fixture = loaded.fixtures.get(case.trace)
    run = read_stored_trace(trace, (fixture.trace_id if fixture else "") or None)
    return CaseOutcome(run=run, trace=trace)


def _suggest(case: EvalCase, loaded: LoadedPack) -> CaseOutcome:
    events = load_friction_events(loaded, case.friction_events)
    metadata = {**loaded.pack.metadata, **case.metadata}
    suggestions = suggest(
        events,
        min_occurrences=int(metadata.get("min_occurrences", MIN_OCCURRENCES)),
        owner=str(metadata.get("owner", "")),
    )
    verdicts: list[Verdict] = []
    if not case.rubrics:
        message = "" if suggestions else "no context-pack suggestion was generated"
        verdicts = [Verdict("suggestions", "pass" if suggestions else "fail", message)]
    return CaseOutcome(verdicts, suggestions=suggestions, stage_count=len(events))


def identify_case(case: EvalCase, loaded: LoadedPack, identity: IdentityDigest) -> None:
    """Add the metadata of the pack; all else are files that the case names."""
    if case.mode == "friction":
        identity.add(loaded.pack.metadata)
