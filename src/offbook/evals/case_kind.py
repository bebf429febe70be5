"""The protocol of a kind of case, the table of all kinds, and those that read what is stored.

A kind is one module with two functions: `run_case` does what the case says and returns the
evidence, `identify_case` names what its result depends on. All else is the same for all kinds and
happens in `case_evaluation.py`: rubrics, judges, thresholds, the result and its report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from offbook.evals.friction import MIN_OCCURRENCES, Suggestion, suggest
from offbook.evals.pack import AnyCase, EvalCase, LoadedPack
from offbook.evals.rubrics import JudgeOptions, RunMetrics
from offbook.evals.run_record import (
    StoredRun,
    judge_problem,
    load_friction_events,
    load_run,
    read_stored_trace,
    trace_path,
)
from offbook.runs.result_identity import IdentityDigest, UsedFiles
from offbook.trace.events import Verdict

KINDS = {
    "run": "case_kind",
    "trace": "case_kind",
    "subject": "subject_cases",
    "live-verify": "live_verify",
    "friction": "case_kind",
    "ladder": "ladder",
    "context": "context_eval",
    "classifier": "classifier_eval",
}


class ClassifierOptions(msgspec.Struct, frozen=True):
    """The options of a run for its classifiers; they come before those of a case."""

    settings: str = ""
    model: str = ""
    max_cases: int | None = None


class EvalOptions(msgspec.Struct, frozen=True):
    """The options of a run that its cases need.

    `traces` is the folder for traces, `output` the directory of the run. With `watch`, a result
    names the files that its subject used.
    """

    judge: JudgeOptions = JudgeOptions()
    traces: str = ""
    output: str = ""
    watch: bool = False
    classifier: ClassifierOptions = ClassifierOptions()

    @property
    def live(self) -> bool:
        """True if real models are allowed."""
        return self.judge.live


class CaseContext(msgspec.Struct, frozen=True):
    """What a case has around it; `cleanup` ends after its checks."""

    loaded: LoadedPack
    options: EvalOptions
    trial: int
    cleanup: ExitStack
    number: int = 0  # of the case among those of all packs


class CaseOutcome(msgspec.Struct, frozen=True):
    """What a case has found: its own verdicts, and the evidence for all other checks.

    `report` is the whole report of a kind that has one, and `files` are written with it.
    """

    verdicts: Sequence[Verdict] = ()
    run: StoredRun | None = None
    trace: Path | None = None
    folder: Path | None = None
    suggestions: Sequence[Suggestion] | None = None
    metrics: RunMetrics | None = None
    stage_count: int = 0
    report: dict[str, Any] | None = None
    files: Mapping[str, bytes] = {}
    spent: bool = False  # the cost of the run was spent now
    used: UsedFiles | None = None


class CaseKind(Protocol):
    """A kind of case."""

    def run_case(self, case: Any, context: CaseContext, /) -> CaseOutcome:
        """Run a case; an exception is an error of this case."""
        ...

    def identify_case(self, case: Any, loaded: LoadedPack, identity: IdentityDigest, /) -> None:
        """Add what the result of a case depends on, besides its own fields and their files."""
        ...


def kind_of(case: AnyCase) -> CaseKind:
    """Return the kind of a case; it is imported when a case needs it."""
    return _import_kind(KINDS[case.mode])


@cache
def _import_kind(module: str) -> CaseKind:
    return cast("CaseKind", import_module(f"offbook.evals.{module}"))


# --- The kinds that read what is stored


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
        verdicts = [judge_problem("suggestions", message)]
    return CaseOutcome(verdicts, suggestions=suggestions, stage_count=len(events))


def identify_case(case: EvalCase, loaded: LoadedPack, identity: IdentityDigest) -> None:
    """Add the metadata of the pack; all else are files that the case names."""
    if case.mode == "friction":
        identity.add(loaded.pack.metadata)
