"""The protocol of a kind of case, and the table of all kinds.

A kind is one module with two functions: `run_case` does what the case says and returns the
evidence, `identify_case` names what its result depends on. All else is the same for all kinds and
happens in `case_evaluation.py`: rubrics, judges, thresholds, the result and its report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from offbook.evals.friction import Suggestion
from offbook.evals.judging import JudgeOptions
from offbook.evals.pack import AnyCase, LoadedPack
from offbook.evals.rubrics import RunMetrics
from offbook.evals.run_record import StoredRun
from offbook.runs.result_identity import IdentityDigest, UsedFiles
from offbook.trace.events import Verdict

KINDS = {
    "run": "stored_cases",
    "trace": "stored_cases",
    "subject": "subject_cases",
    "live-verify": "live_verify",
    "friction": "stored_cases",
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
        """Add what the result of a case depends on, beside its own fields and their files."""
        ...


def kind_of(case: AnyCase) -> CaseKind:
    """Return the kind of a case; it is imported when a case needs it."""
    return cast("CaseKind", import_module(f"offbook.evals.{KINDS[case.mode]}"))
