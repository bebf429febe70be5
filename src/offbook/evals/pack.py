"""The schema of an eval pack: fixtures, rubrics, cases, thresholds and ladders.

A pack contains references only, no code: files of fixtures, and subjects by name. The keys may be
written with dashes or underscores. `pack_file.py` reads and checks a pack.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from offbook.checks.assertion import Assertion, assertion_class, parse_assertion, refuse_limits
from offbook.checks.record_assertions import Operator
from offbook.checks.run_assertions import refuse_folder_itself
from offbook.errors import UsageError
from offbook.evals.friction import SuggestionMade
from offbook.exchange.dialects.dialect import ModelPrice

Severity = Literal["blocking", "warning", "informational", "warn", "info"]
SEVERITIES = {"warn": "warning", "info": "informational"}

FixtureKind = Literal[
    "run-record",
    "recorded-run",
    "replay-fixture",
    "friction-events",
    "jsonl-trace",
    "provider-events",
    "connector-payload",
    "trace",
    "cassette",
    "playbook",
]
RubricKind = Literal[
    "deterministic",
    "replay",
    "budget",
    "hitl",
    "side-effect",
    "friction",
    "context-pack-suggestion",
    "llm-judge",
    "llm_as_judge",
    "judge",
]
JUDGE_KINDS = {"llm-judge", "llm_as_judge", "judge"}
FRICTION_KINDS = {"friction", "context-pack-suggestion"}

AssertionKind = Literal[
    "run-status",
    "status",
    "stage-status",
    "visible-text-contains",
    "hitl-question-contains",
    "context-pack-suggestion",
    "suggestion",
    "tool-called",
    "tool-never",
    "side-effect-level",
    "output",
    "path",
    "check",
]
Metric = Literal["latency_ms", "cost_usd", "tokens", "stage_count", "score", "confidence"]


class PackStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The base of the structs of a pack: unknown keys are errors, and so are limits of nothing."""

    def __post_init__(self) -> None:
        refuse_limits(self)


class PackageInfo(PackStruct, frozen=True):
    """The package that a pack belongs to."""

    name: str = ""
    version: str = ""
    source: str = ""
    templates: tuple[str, ...] = ()


class Thresholds(PackStruct, frozen=True):
    """Limits on the metrics of a run. A metric that the run does not have is `no data`."""

    severity: Severity | None = None
    min_score: float | None = None
    min_confidence: float | None = None
    max_cost_usd: float | None = None
    max_latency_ms: float | None = None
    max_tokens: int | None = None
    max_stage_count: int | None = None

    def limits(self) -> dict[str, tuple[str, float]]:
        """Return the limits that are set: the metric and the limit, by the name of the key."""
        found: dict[str, tuple[str, float]] = {}
        for name, metric in METRIC_OF.items():
            if (limit := getattr(self, name)) is not None:
                found[name] = metric, limit
        return found


METRIC_OF: dict[str, Metric] = {
    "max_latency_ms": "latency_ms",
    "max_cost_usd": "cost_usd",
    "max_tokens": "tokens",
    "max_stage_count": "stage_count",
    "min_score": "score",
    "min_confidence": "confidence",
}


class JudgeModel(PackStruct, frozen=True):
    """The model of a judge.

    `source` is a file (playbook, mocks, cassette) relative to the pack, or a provider, which needs
    `--live`.
    """

    model: str = ""
    source: str = ""
    temperature: float | None = None
    seed: int | None = None


class JudgeSettings(JudgeModel, frozen=True):
    """The judge of a rubric, or a `panel` of judges.

    Scores are from 0 to 1. Of several `votes`, or judges, the majority wins; `tie_break` decides if
    there is none. `min_agreement` is the lowest kappa on the calibration examples. With
    `trajectory`, the judge sees the tool calls of the run as well. `pairwise` compares the output
    with the reference of the case, in both orders: 1 is better, 0.5 as good, 0 worse.
    """

    prompt_version: str = ""
    tie_break: Literal["fail", "pass", "lowest", "highest", "median", ""] = ""
    confidence_min: float | None = None
    rubric: str = ""
    votes: Annotated[int, msgspec.Meta(ge=1)] = 1
    min_agreement: float | None = None
    panel: tuple[JudgeModel, ...] = ()
    trajectory: bool = False
    pairwise: bool = False
    metadata: dict[str, Any] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.panel and self.source:
            raise ValueError("a judge has a source or a panel, not both")
        if self.pairwise and self.trajectory:
            raise ValueError("a pair has no trajectory: the reference is a text")


class CalibrationExample(PackStruct, frozen=True):
    """A labelled example for a judge."""

    input: Any = None
    output: Any = None
    score: float | None = None
    scores: dict[str, float] = {}  # by criterion, where they differ from `score`
    reference: Any = None
    trajectory: str = ""
    explanation: str = ""


# The names of the pack format, by the assertion of Offbook that each means. Its fields have
# the same names.
ASSERTION_TYPES = {
    "": "record_value",
    "path": "record_value",
    "run-status": "record_status",
    "status": "record_status",
    "stage-status": "stage_status",
    "visible-text-contains": "stage_text",
    "hitl-question-contains": "question_asked",
    "tool-called": "recorded_tools",
    "tool-never": "no_recorded_tools",
    "side-effect-level": "side_effect_level",
    "output": "record_output",
}


class PackAssertion(PackStruct, frozen=True):
    """One condition of a rubric.

    - `path` with `op` and `expected`: a JSON Pointer into the run record
    - `check`: any assertion of Offbook, as in scenario files
    """

    kind: AssertionKind | Literal[""] = ""
    stage: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    op: Operator | UnsetType = UNSET
    expected: Any = UNSET
    contains: str | UnsetType = UNSET
    check: dict[str, Any] | UnsetType = UNSET
    metadata: dict[str, Any] = {}

    def __post_init__(self) -> None:
        try:
            self.parse()
        except UsageError as error:  # with the file and the line, as a pack is read
            raise ValueError(". ".join(filter(None, (error.what, error.hint)))) from error

    def parse(self) -> Assertion:
        """Return the assertion of Offbook; a key that would have no effect is refused."""
        given = {
            name: value
            for name in ("stage", "path", "op", "expected", "contains", "check")
            if (value := getattr(self, name)) is not UNSET
        }
        if not self.kind and "path" not in given:
            raise UsageError("an assertion needs a kind, or a path")
        if self.kind == "check":
            known, kind = {"check"}, Assertion
        elif self.kind in FRICTION_KINDS | {"suggestion"}:
            known, kind = {"expected", "contains"}, SuggestionMade
        else:
            kind = assertion_class(ASSERTION_TYPES[self.kind])
            known = set(kind.__struct_encode_fields__)
        if ignored := [name for name in given if name not in known]:
            raise UsageError(
                f"`{ignored[0]}` has no effect on the kind {self.kind or 'path'}",
                hint=f"it takes {', '.join(sorted(known))}",
            )
        if self.kind == "check":
            return parse_assertion(given.get("check"))
        if kind is SuggestionMade:
            return SuggestionMade.parse(given)
        required = kind.__struct_fields__[: -len(kind.__struct_defaults__) or None]
        if missing := [name for name in required if name not in given]:
            raise UsageError(f"the kind {self.kind} needs {missing[0]}")
        name = ASSERTION_TYPES[self.kind]
        try:
            return parse_assertion({**given, "type": name})
        except UsageError as error:  # in the words of the pack
            what = error.what.removeprefix(f"{name}: ")
            hint = error.hint.replace(name, self.kind or "path")
            raise UsageError(f"{self.kind or 'path'}: {what}", hint=hint) from error


class Rubric(PackStruct, frozen=True):
    """A named set of conditions; each of the `criteria` of a judged one has its own score."""

    id: str
    kind: RubricKind | Literal[""] = "deterministic"
    description: str = ""
    prompt: str = ""
    criteria: dict[str, str] = {}
    thresholds: Thresholds = Thresholds()
    judge: JudgeSettings | None = None
    calibration: tuple[CalibrationExample, ...] = ()
    assertions: tuple[PackAssertion, ...] = ()
    metadata: dict[str, Any] = {}

    @property
    def judged(self) -> bool:
        """True if a model judges it."""
        return self.kind in JUDGE_KINDS

    @property
    def has_rule(self) -> bool:
        """True if the rubric checks anything. The rule of a replay is the fixture of the case."""
        if self.judged:
            return bool(self.prompt or self.description or self.judge or self.criteria)
        return bool(self.assertions or self.thresholds.limits() or self.kind == "replay")


class FixtureRef(PackStruct, frozen=True):
    """A file, or an inline value, that cases refer to by id."""

    id: str
    kind: FixtureKind
    path: str = ""
    trace_id: str = ""
    provider: str = ""
    event_kind: str = ""
    inline: Any = None
    metadata: dict[str, Any] = {}


class CommandSpec(PackStruct, frozen=True):
    """A command: `argv`, or `command` for the shell."""

    argv: tuple[str, ...] = ()
    command: str = ""
    cwd: str = ""
    env: dict[str, str] = {}
    timeout_seconds: float | None = None


CommandRef = str | list[str] | CommandSpec
CaseKind = Literal["replay", "live-verify", "friction", "subject", "context", "classifier", ""]


class EvalCase(PackStruct, frozen=True, gc=False):
    """One case: it reads a stored run, or runs a subject now.

    - `run`: a run record; `trace`: a trace; `friction_events`: friction events
    - `subject` with `prompt`: "module:name", "file.py:name" or a command. Its model is a
      `playbook` (a file, or its turns), a `cassette` or, with `live` and the option `--live`, the
      real one. Without any of
      them, a function is called with `input`. `faults` break some of the model's responses, and
      some tools. `env` are environment variables. Each trial has a fresh subject, unless it is
      `shared`: then a trial sees what those before it in the same worker have changed.
    - `task` with `executor` and `verify_command`: a command does the work, another one verifies it
    - `reference`: a right answer, for judges; `assertions`: those of this case alone
    - `manifest`: a context eval; `dataset` with `settings` and `model`: an eval of a classifier
    """

    id: str = ""
    name: str = ""
    description: str = ""
    kind: CaseKind = ""
    run: str = ""
    trace: str = ""
    friction_events: str = ""
    fixture: str = ""
    compare_to: str = ""
    rubrics: tuple[str, ...] = ()
    assertions: tuple[PackAssertion, ...] = ()
    severity: Severity | None = None
    thresholds: Thresholds = Thresholds()
    metadata: dict[str, Any] = {}
    trials: Annotated[int, msgspec.Meta(ge=1)] | None = None
    timeout_seconds: float | None = None
    # running a subject
    subject: str | list[str] = ""
    prompt: str = ""
    input: Any = None
    reference: Any = None
    playbook: str | list[dict[str, Any]] = ""
    cassette: str = ""
    live: bool = False
    faults: dict[str, Any] | list[str] | None = None
    env: dict[str, str] = {}
    shared: bool = False
    # live-verify
    task: str = ""
    workspace: str = ""
    project: str = ""
    executor: CommandRef | None = None
    verify_command: CommandRef | None = None
    expected_output_paths: tuple[str, ...] = ()
    required_output_snippets: tuple[str, ...] = ()
    tool_budgets: dict[str, int] = {}
    # context evals, and evals of a classifier
    manifest: str = ""
    dataset: str = ""
    settings: str = ""
    model: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for path in self.expected_output_paths:
            refuse_folder_itself(path)
        if "" in self.required_output_snippets:
            raise ValueError("an empty text of `required_output_snippets` is in every output")

    @property
    def label(self) -> str:
        """The name for reports."""
        return self.name or self.id

    @property
    def mode(self) -> str:
        """The kind of the case, as `KINDS` names it."""
        if self.manifest or self.kind == "context":
            return "context"
        if self.dataset or self.kind == "classifier":
            return "classifier"
        if self.friction_events or self.kind == "friction":
            return "friction"
        if self.kind == "live-verify" or self.verify_command is not None:
            return "live-verify"
        if self.subject or self.kind == "subject":
            return "subject"
        return "trace" if self.trace else "run"


class LadderBackend(PackStruct, frozen=True):
    """The source of a ladder's transcripts: a stored one, or a command that is run now."""

    kind: Literal["replay", "mock", "live"] = "replay"
    path: str = ""
    command: CommandRef | None = None


class ModelRoute(PackStruct, frozen=True):
    """A model, and how it is reached."""

    id: str = ""
    route: str = ""
    provider: str = ""
    model: str = ""
    profile: str = ""
    max_cost_usd: float | None = None
    max_model_calls: int | None = None
    metadata: dict[str, Any] = {}


class TimeoutTier(PackStruct, frozen=True):
    """The budget of a cell."""

    id: str = ""
    timeout_ms: float | None = None
    max_latency_ms: float | None = None
    max_cost_usd: float | None = None
    max_tool_calls: int | None = None
    max_model_calls: int | None = None
    max_sweeps: int | None = None
    watch_backoff_ms: int | None = None
    metadata: dict[str, Any] = {}


class LadderSpec(PackStruct, frozen=True):
    """One task over all routes and tiers. It runs after the ladders in `after`, if these passed.

    It is its own kind of case, which runs once.
    """

    mode: ClassVar[str] = "ladder"
    timeout_seconds: ClassVar[None] = None

    id: str = ""
    type_: str = msgspec.field(name="_type", default="")
    version: int = 1
    name: str = ""
    description: str = ""
    persona: str = "merge_captain"
    base_dir: str = ""
    artifact_root: str = ""
    severity: Severity | None = None
    backend: LadderBackend = LadderBackend()
    golden: str = ""
    model_routes: tuple[ModelRoute, ...] = ()
    timeout_tiers: tuple[TimeoutTier, ...] = ()
    after: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}

    @property
    def label(self) -> str:
        """The name for reports."""
        return self.name or self.id


AnyCase = EvalCase | LadderSpec


class PackDefaults(PackStruct, frozen=True):
    """The defaults of all cases."""

    severity: Severity | None = None
    fixture_root: str = ""
    judge: JudgeSettings | None = None
    thresholds: Thresholds = Thresholds()


class Dataset(PackStruct, frozen=True):
    """A file of rows, and a case with templates such as `{{column}}`: one case for each row."""

    path: str
    case: dict[str, Any]
    id: str = ""


class SliceLimit(PackStruct, frozen=True):
    """The lowest pass rate of the cases with each value of `by` in their metadata, or with one."""

    by: str
    min_pass_rate: float
    value: str = ""


class Pack(PackStruct, frozen=True):
    """An eval pack."""

    version: int = 1
    type_: str = msgspec.field(name="_type", default="")
    schema_: str = msgspec.field(name="$schema", default="")
    id: str = ""
    name: str = ""
    description: str = ""
    base_dir: str = ""
    baseline: str = ""
    trials: Annotated[int, msgspec.Meta(ge=1)] = 1
    executor: CommandRef | None = None
    metadata: dict[str, Any] = {}
    package: PackageInfo = PackageInfo()
    defaults: PackDefaults = PackDefaults()
    split: dict[str, tuple[str, ...]] = {}
    prices: dict[str, ModelPrice] = {}
    fixtures: tuple[FixtureRef, ...] = ()
    rubrics: tuple[Rubric, ...] = ()
    judge: JudgeSettings | None = None
    cases: tuple[EvalCase, ...] = ()
    datasets: tuple[Dataset, ...] = ()
    axes: dict[str, list[Any] | dict[str, Any]] = {}
    slices: tuple[SliceLimit, ...] = ()
    ladders: tuple[LadderSpec, ...] = ()

    def severity_of(self, case: AnyCase) -> str:
        """Return the severity of a case: its own, or the default. A ladder has no default."""
        found = case.severity
        if isinstance(case, EvalCase):
            defaults = self.defaults
            found = found or case.thresholds.severity or defaults.severity
            found = found or defaults.thresholds.severity
        found = found or "blocking"
        return SEVERITIES.get(found, found)

    def trials_of(self, case: AnyCase, wanted: int | None = None) -> int:
        """Return how often a case runs; `wanted` is that of the whole run."""
        if isinstance(case, LadderSpec):
            return 1
        return max(1, wanted or case.trials or self.trials)


class LoadedPack:
    """A pack with its file: it resolves references and finds fixtures and rubrics by id."""

    def __init__(self, pack: Pack, path: Path, digest: str) -> None:
        self.pack = pack
        self.path = path
        self.digest = digest
        self.base = path.parent / pack.base_dir
        self.cases: tuple[AnyCase, ...] = (*pack.cases, *pack.ladders)
        self.fixtures = {fixture.id: fixture for fixture in pack.fixtures}
        self.rubrics = {rubric.id: rubric for rubric in pack.rubrics}
        self.ladders = {ladder.id: ladder for ladder in pack.ladders}
        self.id = pack.id or pack.name or path.stem

    def fixture_path(self, fixture: FixtureRef) -> Path:
        """Return the file of a fixture: relative to `fixture_root`, else to the pack."""
        return self.base / self.pack.defaults.fixture_root / fixture.path

    def resolve(self, reference: str) -> Path:
        """Return the file of a reference: of a fixture with this id, else relative to the pack."""
        fixture = self.fixtures.get(reference)
        return self.fixture_path(fixture) if fixture is not None else self.base / reference
