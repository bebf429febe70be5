"""Context evals: how well each way to assemble a context serves a set of tasks.

A manifest has tasks (artifacts, transcript, tools) and modes (budget, projection, disclosure of
tools). Each task is scored in each mode without a model. The report is the same byte for byte.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast
from xml.sax.saxutils import escape

import msgspec

from offbook.checks.assertion import refuse_limits
from offbook.errors import FormatError, did_you_mean
from offbook.evals.case_kind import CaseContext, CaseOutcome
from offbook.evals.pack import EvalCase, LoadedPack
from offbook.evals.pack_file import line_of, number_ids, read_part
from offbook.evals.run_record import judge_problem
from offbook.reports.github import escape_markdown
from offbook.runs.result_identity import IdentityDigest
from offbook.trace.events import Verdict

MANIFEST_TYPE = "harn.context_eval.manifest.v1"
REPORT_TYPE = "harn.context_eval.report.v1"
BUDGETS = {
    "cold": 0,
    "scanned": 800,
    "enriched": 1200,
    "hud_pack": 1600,
    "projected": 1600,
    "compacted": 1600,
    "tool_search_limited": 1600,
    "full": 64_000,
}
DEFAULT_BUDGET = 8000
PROJECTIONS = {"projected": "last_n", "compacted": "compacted", "full": "full"}
KEEP_LAST = {"none": 0, "summary": 1, "compacted": 1, "last_n": 2, "projected": 2}
DISCLOSURES = {
    "cold": "none",
    "scanned": "none",
    "enriched": "none",
    "hud_pack": "none",
    "tool_search_limited": "tool_search_limited",
    "full": "full",
}
Projection = Literal["none", "summary", "compacted", "last_n", "projected", "full"]
Disclosure = Literal["none", "limited", "tool_search_limited", "full"]
EDIT_TOOL = re.compile(r"^(?:edit|write|apply)|patch")
READ_TOOL = re.compile(r"^(?:read|search|list)")


class ContextStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of the structs of a manifest: unknown keys and limits of nothing are errors."""

    def __post_init__(self) -> None:
        refuse_limits(self)


class ContextMode(ContextStruct, frozen=True):
    """A way to assemble a context."""

    id: str = ""
    kind: str = ""
    name: str | None = None
    description: str | None = None
    artifact_ids: list[str] = []
    include_artifact_kinds: list[str] = []
    exclude_artifact_kinds: list[str] = []
    budget_tokens: int | None = None
    assemble_strategy: Literal["relevance", "recency", "round_robin"] = "relevance"
    dedup: Literal["none", "chunked", "semantic"] = "chunked"
    microcompact_threshold: int = 2000
    semantic_overlap: float = 0.85
    projection_policy: Projection | None = None
    transcript_keep_last: int | None = None
    tool_disclosure: Disclosure | None = None
    tool_allowlist: list[str] = []
    expected_cache_hit: bool | None = None
    cache_namespace: str = "harn.context_eval"
    compaction_policy: Any = None
    preprocessing: Any = None
    metadata: dict[str, Any] = {}

    @property
    def budget(self) -> int:
        """The tokens that artifacts may have."""
        if self.budget_tokens is not None:
            return self.budget_tokens
        return BUDGETS.get(self.kind, DEFAULT_BUDGET)

    @property
    def projection(self) -> str:
        """The way in which the transcript is kept."""
        return self.projection_policy or PROJECTIONS.get(self.kind, "none")

    @property
    def disclosure(self) -> str:
        """Which tools are shown."""
        return self.tool_disclosure or DISCLOSURES.get(self.kind, "limited")


class TranscriptMessage(ContextStruct, frozen=True):
    """A message of the conversation so far."""

    role: str
    content: str
    estimated_tokens: int | None = None


class ObservedTool(ContextStruct, frozen=True):
    """A use of a tool in the recorded run."""

    name: str
    order: int | None = None
    phase: str | None = None
    success: bool | None = None
    quality: str | None = None
    recovery: bool | None = None
    metadata: dict[str, Any] = {}


class TaskExpectation(ContextStruct, frozen=True):
    """The contents that a context must have, and the tools that a run must use."""

    required_terms: list[str] = []
    expected_artifact_ids: list[str] = []
    expected_tools: list[str] = []
    max_input_tokens: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(term.strip() for term in self.required_terms):
            raise ValueError("an empty text of `required_terms` is in every context")


class Observed(ContextStruct, frozen=True):
    """The measurements of a real run."""

    final_response: str | None = None
    latency_ms: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    cache_hit: bool | None = None
    compaction_count: int | None = None


class ContextTask(ContextStruct, frozen=True):
    """A task with all that a context may contain."""

    objective: str
    id: str = ""
    name: str | None = None
    description: str | None = None
    reference_answer: str | None = None
    artifacts: list[ContextArtifact] = []
    transcript: list[TranscriptMessage] = []
    tools: list[dict[str, Any]] = []
    tool_events: list[ObservedTool] = []
    expected: TaskExpectation = TaskExpectation()
    observed: Observed = Observed()
    mode_observations: dict[str, Observed] = {}
    metadata: dict[str, Any] = {}


class ContextManifest(ContextStruct, frozen=True):
    """The tasks and modes of a context eval."""

    tasks: list[ContextTask]
    modes: list[ContextMode]
    type_: str = msgspec.field(name="_type", default=MANIFEST_TYPE)
    version: int = 1
    id: str = "context-eval"
    name: str | None = None
    description: str | None = None
    metadata: dict[str, Any] = {}


def read_manifest(path: Path) -> ContextManifest:
    """Return the manifest of a JSON or TOML file; ids must be unique and objectives not empty."""
    manifest, text = read_part(path, ContextManifest)

    def fail(problem: str, at: str, hint: str = "") -> None:
        raise FormatError(problem, path=path, line=line_of(text, at, path), hint=hint)

    if manifest.type_ != MANIFEST_TYPE:
        fail(f"unsupported _type {manifest.type_!r}, expected {MANIFEST_TYPE}", "$._type")
    if manifest.version != 1:
        fail(f"unsupported version {manifest.version}, expected 1", "$.version")
    manifest = with_ids(manifest)
    for section, items in (("modes", manifest.modes), ("tasks", manifest.tasks)):
        if not items:
            fail(f"the manifest has no {section}", "$")
        seen: set[str] = set()
        for number, item in enumerate(items):
            if item.id in seen:
                fail(f"the id {item.id!r} is defined twice in {section}", f"$.{section}[{number}]")
            seen.add(item.id)
    for number, task in enumerate(manifest.tasks):
        if not task.objective.strip():
            fail(f"the task {task.id!r} has no objective", f"$.tasks[{number}].objective")
        modes = [mode.id for mode in manifest.modes]
        for name in task.mode_observations:
            if name not in modes:
                at = f"$.tasks[{number}].mode_observations.{name}"
                fail(f"unknown mode {name!r} in mode_observations", at, did_you_mean(name, modes))
    return manifest


def with_ids(manifest: ContextManifest) -> ContextManifest:
    """Return the manifest with an id for each mode and task, and a kind for each mode."""
    modes = [
        mode if mode.kind else msgspec.structs.replace(mode, kind=mode.id)
        for mode in number_ids(manifest.modes, "mode")
    ]
    tasks = [*number_ids(manifest.tasks, "task")]
    return msgspec.structs.replace(manifest, modes=modes, tasks=tasks)


# --- Running


def run_context_eval(manifest: ContextManifest) -> dict[str, Any]:
    """Return the report: every task in every mode."""
    runs = [_run(task, mode) for task in manifest.tasks for mode in manifest.modes]
    passed = sum(run["passed"] for run in runs)

    def mean(name: str) -> float:
        return round(sum(run[name]["score"] for run in runs) / len(runs), 4)

    def total(name: str) -> Any:
        return sum(run[name] for run in runs)

    return {
        "_type": REPORT_TYPE,
        "schema_version": 1,
        "manifest_id": manifest.id,
        "manifest_name": manifest.name,
        "pass": passed == len(runs),
        "total_runs": len(runs),
        "passed_runs": passed,
        "failed_runs": len(runs) - passed,
        "total_tasks": len(manifest.tasks),
        "total_modes": len(manifest.modes),
        "aggregate": {
            "mean_final_correctness": mean("final_correctness"),
            "mean_tool_call_quality": mean("tool_call_quality"),
            "total_latency_ms": total("latency_ms"),
            "total_input_tokens": total("input_tokens"),
            "total_output_tokens": total("output_tokens"),
            "total_cost_usd": round(total("cost_usd"), 6),
            "total_compaction_count": total("compaction_count"),
            "total_error_recovery_count": total("error_recovery_count"),
        },
        "modes": [
            {
                "id": mode.id,
                "kind": mode.kind,
                "projection_policy": mode.projection,
                "tool_disclosure": mode.disclosure,
                "preprocessing": _preprocessing(mode),
            }
            for mode in manifest.modes
        ],
        "tasks": [
            {
                "id": task.id,
                "name": task.name,
                "required_terms": task.expected.required_terms,
                "expected_artifact_ids": task.expected.expected_artifact_ids,
                "expected_tools": task.expected.expected_tools,
            }
            for task in manifest.tasks
        ],
        "runs": runs,
        "metadata": manifest.metadata,
    }


def _preprocessing(mode: ContextMode) -> dict[str, Any]:
    value = mode.preprocessing
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {"mode": "deterministic", "llm_enabled": False, **fields}
    return {"mode": str(value or "deterministic"), "llm_enabled": False}


def _run(task: ContextTask, mode: ContextMode) -> dict[str, Any]:
    """Return the result of one task in one mode."""
    selection = select_artifacts(task.artifacts, task.objective, mode)
    kept = _project(task.transcript, mode)
    transcript = "\n".join(f"{message.role}: {message.content}" for message in kept)
    tools = exposed_tools(task, mode)
    observed = task.mode_observations.get(mode.id, task.observed)
    surface = observed.final_response
    # Without an answer, the terms must at least be in what the model would have read.
    if surface is None:
        surface = "\n\n".join([task.objective, selection.text, transcript, "\n".join(tools)])
    correctness = _score_content(task.expected, surface, selection.ids, observed)
    events = [e for e in _ordered(task.tool_events) if mode.disclosure == "full" or e.name in tools]
    quality = _score_tools(task.expected.expected_tools, events)
    retained = sum(m.estimated_tokens or count_tokens(m.content) for m in kept)
    tokens = observed.input_tokens
    if tokens is None:  # estimated
        tokens = count_tokens(task.objective) + selection.tokens
        tokens += count_tokens(transcript) + count_tokens("\n".join(tools))
    failures = _failures(task.expected, correctness, quality, tokens)
    compacted = mode.kind == "compacted" or mode.compaction_policy is not None
    hit = mode.expected_cache_hit
    digest = _stable_hash(task, mode, selection.ids, selection.text, transcript, tools)
    return {
        "run_id": f"{task.id}__{mode.id}",
        "task_id": task.id,
        "mode_id": mode.id,
        "mode_kind": mode.kind,
        "status": "fail" if failures else "pass",
        "passed": not failures,
        "final_correctness": correctness,
        "reads_before_first_edit": _reads_before_edit(events),
        "tool_call_quality": quality,
        "latency_ms": observed.latency_ms or 0,
        "input_tokens": tokens,
        "output_tokens": observed.output_tokens or 0,
        "cost_usd": round(observed.cost_usd or 0.0, 6),
        "compaction_count": (observed.compaction_count or 0) + compacted,
        "projection": {
            "policy": mode.projection,
            "source_message_count": len(task.transcript),
            "retained_message_count": len(kept),
            "retained_tokens": retained,
        },
        "context": {
            "projection_policy": mode.projection,
            "tool_disclosure": mode.disclosure,
            "artifact_count": len(selection.ids),
            "selected_artifact_ids": selection.ids,
            "dropped_artifact_ids": selection.dropped,
            "rendered_bytes": len(selection.text.encode()),
            "rendered_tokens": count_tokens(selection.text),
            "budget_tokens": mode.budget,
            "assemble_strategy": mode.assemble_strategy,
            "dedup": mode.dedup,
            "exposed_tools": tools,
        },
        "cache": {
            "namespace": mode.cache_namespace,
            "key": f"{mode.cache_namespace}:{digest[:32]}",
            "stable_input_hash": digest,
            "deterministic_order": True,
            "hit": observed.cache_hit if hit is None else hit,
        },
        "error_recovery_count": sum(bool(event.recovery) for event in events),
        "preprocessing": _preprocessing(mode),
        "failures": failures,
    }


def _project(messages: list[TranscriptMessage], mode: ContextMode) -> list[TranscriptMessage]:
    if mode.projection == "full":
        return messages
    keep = mode.transcript_keep_last
    keep = KEEP_LAST.get(mode.projection, 0) if keep is None or mode.projection == "none" else keep
    return messages[-keep:] if keep else []


def exposed_tools(task: ContextTask, mode: ContextMode) -> list[str]:
    """Return the names of the tools that the mode shows, sorted."""
    names = {str(tool.get("name", "")) for tool in task.tools}
    if mode.disclosure == "none":
        return []
    if mode.disclosure != "full":
        names &= set(mode.tool_allowlist)
        if mode.disclosure == "tool_search_limited":
            names.add("tool_search")
    return sorted(names)


def _ordered(events: list[ObservedTool]) -> list[ObservedTool]:
    # Events without an order keep their place in the list.
    numbered = list(enumerate(events))
    numbered.sort(key=lambda item: (item[0] if item[1].order is None else item[1].order, item[0]))
    return [event for _, event in numbered]


# --- Scoring


def _score_content(
    expected: TaskExpectation, surface: str, selected: Sequence[str], observed: Observed
) -> dict[str, Any]:
    folded = surface.lower()
    terms = expected.required_terms
    present = [term for term in terms if term.lower() in folded]
    artifacts = [name for name in expected.expected_artifact_ids if name in selected]
    fractions: list[float] = []
    if terms:
        fractions.append(len(present) / len(terms))
    if expected.expected_artifact_ids:
        fractions.append(len(artifacts) / len(expected.expected_artifact_ids))
    score = sum(fractions) / len(fractions) if fractions else 1.0
    missing = [term for term in terms if term not in present]
    lost = [name for name in expected.expected_artifact_ids if name not in artifacts]
    source = "context_projection" if observed.final_response is None else "final_response"
    return {
        "passed": not missing and not lost,
        "score": round(score, 4),
        "required_terms_present": present,
        "required_terms_missing": missing,
        "expected_artifact_ids_present": artifacts,
        "expected_artifact_ids_missing": lost,
        "source": source,
    }


def _score_tools(expected: list[str], events: Sequence[ObservedTool]) -> dict[str, Any]:
    used = list(dict.fromkeys(event.name for event in events))
    matched = [name for name in expected if name in used]
    unnecessary = [name for name in used if name not in expected and not EDIT_TOOL.search(name)]
    # An unnecessary tool costs as much as a missing one.
    total = len(expected) + len(unnecessary)
    return {
        "score": round(len(matched) / total, 4) if total else 1.0,
        "expected_tools": expected,
        "observed_tools": used,
        "matched_tools": matched,
        "missing_tools": [name for name in expected if name not in used],
        "unnecessary_tools": unnecessary,
    }


def _reads_before_edit(events: Sequence[ObservedTool]) -> int:
    count = 0
    for event in events:
        if event.phase == "edit" or EDIT_TOOL.search(event.name):
            break
        count += event.phase in {"read", "scan"} or bool(READ_TOOL.search(event.name))
    return count


def _failures(
    expected: TaskExpectation, content: dict[str, Any], tools: dict[str, Any], tokens: int
) -> list[str]:
    failures: list[str] = []
    for name, items in (
        ("required terms", content["required_terms_missing"]),
        ("expected artifacts", content["expected_artifact_ids_missing"]),
        ("tools", tools["missing_tools"]),
    ):
        if items:
            failures.append(f"missing {name}: {', '.join(items)}")
    limit = expected.max_input_tokens
    if limit is not None and tokens > limit:
        failures.append(f"input tokens {tokens} exceed the maximum {limit}")
    return failures


def _stable_hash(
    task: ContextTask,
    mode: ContextMode,
    selected: Sequence[str],
    context: str,
    transcript: str,
    tools: Sequence[str],
) -> str:
    digest = hashlib.sha256()
    parts = [task.id, mode.id, "\n".join(selected), context, transcript, "\n".join(tools)]
    # With the length before each part, two lists of parts never have the same bytes.
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


# --- As a case of a pack


def run_case(case: EvalCase, context: CaseContext) -> CaseOutcome:
    """Score every task in every mode; each of them is a verdict."""
    manifest = read_manifest(context.loaded.resolve(case.manifest))
    report = run_context_eval(manifest)
    unchecked = {task.id for task in manifest.tasks if task.expected == TaskExpectation()}
    verdicts: list[Verdict] = []
    for run in report["runs"]:
        name, score = run["run_id"], run["final_correctness"]["score"]
        if run["task_id"] in unchecked:
            message = f"no data: the task {run['task_id']!r} expects nothing"
            verdicts.append(Verdict(name, "no_data", message))
        else:
            message = "" if run["passed"] else f"{name}: {'; '.join(run['failures'])}"
            verdicts.append(judge_problem(name, message, actual=score))
    return CaseOutcome(verdicts, report=report, files=report_files(report))


def identify_case(case: EvalCase, loaded: LoadedPack, identity: IdentityDigest) -> None:
    """Add nothing: the manifest is the only file."""
    _ = case, loaded, identity


def report_files(report: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of a report by their names; the same report gives the same bytes."""
    lines = [msgspec.json.encode(run, order="sorted") + b"\n" for run in report["runs"]]
    return {
        "summary.json": msgspec.json.format(msgspec.json.encode(report, order="sorted")) + b"\n",
        "per_run.jsonl": b"".join(lines),
        "summary.md": render_context_markdown(report).encode(),
    }


def render_context_line(report: dict[str, Any]) -> str:
    """Return the one line for a terminal."""
    aggregate = report["aggregate"]
    return (
        f"context eval: {report['passed_runs']}/{report['total_runs']} passed, "
        f"mean_correctness={aggregate['mean_final_correctness']:.2f}, "
        f"mean_tool_quality={aggregate['mean_tool_call_quality']:.2f}"
    )


def render_context_markdown(report: dict[str, Any]) -> str:
    """Return the report as a table; the failures follow it."""
    lines = [f"# {escape_markdown(report['manifest_name'] or report['manifest_id'])}", ""]
    lines += [render_context_line(report), ""]
    lines += [
        "| task | mode | result | correctness | tools | input tokens |",
        "|---|---|---|---|---|---|",
    ]
    for run in report["runs"]:
        score, quality = run["final_correctness"]["score"], run["tool_call_quality"]["score"]
        names = " | ".join(escape_markdown(run[key]) for key in ("task_id", "mode_id", "status"))
        lines.append(f"| {names} | {score:.2f} | {quality:.2f} | {run['input_tokens']} |")
    failures = [(run["run_id"], failure) for run in report["runs"] for failure in run["failures"]]
    lines += ["", *(f"- {escape_markdown(': '.join(pair))}" for pair in failures)]
    return "\n".join(lines) + "\n"


BYTES_PER_TOKEN = 4
TIERED_KINDS = {"scanned", "enriched"}  # they show only artifacts with a tier
MIN_TERM = 3
TERM_WEIGHT, DENSITY_WEIGHT = 0.7, 0.3
DENSITY_CHARS = 400


class ContextArtifact(msgspec.Struct, frozen=True):
    """A text that a context may contain."""

    id: str
    kind: str = ""
    title: str | None = None
    text: str | None = None
    source: str | None = None
    created_at: str | None = None
    freshness: str | None = None
    priority: int | None = None
    estimated_tokens: int | None = None
    metadata: dict[str, Any] = {}

    @property
    def tier(self) -> str:
        """The tier that labels the artifact; empty without one."""
        return str(self.metadata.get("context_tier", ""))


class _Chunk(NamedTuple):
    artifact: ContextArtifact
    number: int
    text: str
    total: int = 1

    @property
    def id(self) -> str:
        """The artifact and a hash of the text: it stays the same in every run."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()
        return f"{self.artifact.id}#{digest[:16]}"


class Selection(NamedTuple):
    """The artifacts of a context, and its text."""

    ids: list[str]
    dropped: list[str]
    text: str
    tokens: int


def count_tokens(text: str) -> int:
    """Return the estimated tokens of a text: four bytes each."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def select_artifacts(
    artifacts: Sequence[ContextArtifact], objective: str, mode: ContextMode
) -> Selection:
    """Return the artifacts that a mode selects for an objective."""
    if mode.kind == "cold":
        return Selection([], [], "", 0)
    budget = mode.budget
    if budget == 0:
        return Selection([], sorted(artifact.id for artifact in artifacts), "", 0)
    chosen = [artifact for artifact in artifacts if _is_wanted(artifact, mode)]
    split = mode.microcompact_threshold
    chunks = [chunk for artifact in chosen for chunk in _split(artifact, split)]
    chunks = _without_duplicates(chunks, mode.dedup, mode.semantic_overlap)
    kept: list[_Chunk] = []
    used = 0
    for chunk in _rank(chunks, mode.assemble_strategy, objective):
        # A chunk that does not fit is skipped: a smaller one may still fit.
        size = count_tokens(chunk.text)
        if used + size <= budget:
            kept.append(chunk)
            used += size
    selected = sorted({chunk.artifact.id for chunk in kept})
    dropped = sorted({artifact.id for artifact in chosen} - set(selected))
    parts = [_render(chunk) for chunk in kept]
    parts.append(
        f"<context_budget>\n<used_tokens>{used}</used_tokens>\n<budget_tokens>{budget}"
        f"</budget_tokens>\n<strategy>{mode.assemble_strategy}</strategy>\n"
        f"<dedup>{mode.dedup}</dedup>\n"
        "</context_budget>"
    )
    text = "\n\n".join(parts)
    return Selection(selected, dropped, text, count_tokens(text))


def _is_wanted(artifact: ContextArtifact, mode: ContextMode) -> bool:
    labels, ids = {artifact.kind, artifact.tier} - {""}, mode.artifact_ids
    if labels & {*mode.exclude_artifact_kinds} or (ids and artifact.id not in ids):
        return False
    if mode.include_artifact_kinds:
        return bool(labels & {*mode.include_artifact_kinds})
    return bool(ids or artifact.tier) if mode.kind in TIERED_KINDS else True


def _split(artifact: ContextArtifact, chunk_tokens: int) -> list[_Chunk]:
    text = artifact.text or ""
    if count_tokens(text) <= chunk_tokens:
        return [_Chunk(artifact, 0, text)]
    parts = [*_cut(text.encode(), max(1, chunk_tokens) * BYTES_PER_TOKEN)]
    return [_Chunk(artifact, number, part, len(parts)) for number, part in enumerate(parts)]


def _cut(raw: bytes, size: int) -> Iterator[str]:
    """Yield parts of at most this size, which is that of the longest character or more."""
    start = 0
    while start < len(raw):
        part = raw[start : start + size].decode(errors="ignore")  # without half a character
        yield part
        start += len(part.encode())


def _without_duplicates(chunks: Sequence[_Chunk], dedup: str, overlap: float) -> list[_Chunk]:
    if dedup == "none":
        return list(chunks)
    kept: list[_Chunk] = []
    seen: set[str] = set()
    words: list[set[str]] = []
    for chunk in chunks:
        normal = " ".join(chunk.text.split())
        own = set(normal.lower().split())
        if normal in seen:
            continue
        if dedup == "semantic" and any(
            len(own & other) / max(1, len(own | other)) >= overlap for other in words
        ):
            continue
        seen.add(normal)
        words.append(own)
        kept.append(chunk)
    return kept


def _rank(chunks: Sequence[_Chunk], strategy: str, objective: str) -> list[_Chunk]:
    if strategy == "recency":
        # Newest first; of equal times by id, so that the order is always the same.
        ordered = sorted(chunks, key=lambda chunk: (chunk.artifact.id, chunk.number))
        return sorted(ordered, key=lambda chunk: chunk.artifact.created_at or "", reverse=True)
    if strategy == "round_robin":
        return sorted(chunks, key=lambda chunk: (chunk.number, chunk.artifact.id))
    terms = {word for word in objective.lower().split() if len(word) >= MIN_TERM}

    def score(chunk: _Chunk) -> float:
        folded = chunk.text.lower()
        matched = sum(term in folded for term in terms)
        density = min(matched / (len(chunk.text) / DENSITY_CHARS + 1), 1.0)
        return TERM_WEIGHT * matched / max(1, len(terms)) + DENSITY_WEIGHT * density

    return sorted(chunks, key=lambda chunk: (-score(chunk), chunk.artifact.id, chunk.number))


def _render(chunk: _Chunk) -> str:
    """Return a chunk as a model sees it; the shape is that of the reports it is compared with."""
    artifact = chunk.artifact
    fields = {
        "title": artifact.title or f"{artifact.kind} {artifact.id}",
        "kind": artifact.kind,
        "source": artifact.source or "unknown",
        "chunk_id": chunk.id,
        "chunk_index": f"{chunk.number + 1} of {chunk.total}",
    }
    head = "\n".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields.items())
    return f"<artifact>\n{head}\n<body>\n{chunk.text}\n</body>\n</artifact>"
