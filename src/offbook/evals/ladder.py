"""Ladders: one task over every route and timeout tier; the first correct cell is named.

A stored transcript is compared with the limits of each tier. A live backend is a command that is
run for each cell with a real deadline, and prints its transcript.
"""

from __future__ import annotations

import hashlib
import re
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from offbook.checks.audit import (
    DEFAULT_POLICY,
    PULL_REQUEST_POLICY,
    AuditPolicy,
    AuditResult,
    audit_transcript,
    find_golden,
    read_audit_policy,
)
from offbook.checks.golden_transcript import parse_transcript, read_transcript
from offbook.errors import OffbookError
from offbook.evals.case_kind import CaseContext, CaseOutcome
from offbook.evals.live_verify import run_command, to_command
from offbook.evals.pack import LadderSpec, LoadedPack, ModelRoute, Pack, TimeoutTier
from offbook.evals.rubrics import RunMetrics
from offbook.evals.run_directory import pack_folder, write_private
from offbook.files import resolve_within
from offbook.runs.result_identity import IdentityDigest
from offbook.trace.events import LOOP_STUCK, Event, Verdict, VerdictStatus, trace_header

LadderOutcome = Literal["correct", "degraded", "loop", "timeout", "error"]
DEFAULT_ROUTE = ModelRoute(id="default")
DEFAULT_SECONDS = 600.0
NOTHING_DONE = "no data: the transcript has no model calls, no tools and no steps"
ROOT = ".offbook/evals"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class StepCoverage(msgspec.Struct, frozen=True):
    """The steps that a run took."""

    observed: int = 0
    observed_steps: list[str] = []
    transitions: list[str] = []


class LadderCell(msgspec.Struct, frozen=True):
    """The result of one route in one tier."""

    id: str
    route_id: str
    model_route: str
    timeout_tier: str
    timeout_ms: float | None
    max_cost_usd: float | None
    max_latency_ms: float | None
    passed: bool = msgspec.field(name="pass")
    outcome: LadderOutcome
    degradation_reasons: list[str]
    transcript_path: str = ""
    receipt_path: str = ""
    summary_path: str = ""
    event_count: int = 0
    cost_usd: float = 0.0
    latency_ms: float = 0
    tool_calls: int = 0
    model_calls: int = 0
    oracle_error_findings: int = 0
    oracle_warn_findings: int = 0
    state_machine_coverage: StepCoverage = StepCoverage()


class LadderReport(msgspec.Struct, frozen=True):
    """The cells of a ladder; it passes if one of them is correct."""

    id: str
    persona: str
    severity: str
    blocking: bool
    passed: bool = msgspec.field(name="pass")
    total: int
    passed_count: int = msgspec.field(name="passed")
    failed: int
    artifact_root: str
    tiers: list[LadderCell]
    first_correct_index: int | None = None
    first_correct_tier: str | None = None
    first_correct_route: str | None = None
    type_: str = msgspec.field(name="_type", default="persona_eval_ladder_report")
    version: int = 1
    metadata: dict[str, Any] = {}


class _Attempt(msgspec.Struct, frozen=True):
    """The transcript of one cell, or why there is none."""

    events: Sequence[Event] = ()
    outcome: LadderOutcome | None = None
    problem: str = ""
    millis: float | None = None


def run_ladder(spec: LadderSpec, base: Path, output: Path) -> LadderReport:
    """Run every cell of a ladder, and write its artifacts to a folder in `output`."""
    folder = base / spec.base_dir
    # In the directory of the run: a pack may be installed where nothing can be written.
    output.mkdir(parents=True, exist_ok=True)
    root = resolve_within(output, spec.artifact_root or f"ladders/{_segment(spec.id)}")
    routes = spec.model_routes or (DEFAULT_ROUTE,)
    cells: list[LadderCell] = []
    policy = _find_policy(spec, folder)
    for route in routes:
        for tier in spec.timeout_tiers:
            attempt = _attempt(spec, route, tier, folder)
            place = root / f"{len(cells) + 1:02}-{_segment(route.id)}" / _segment(tier.id)
            cells.append(_evaluate_cell(attempt, policy, route, tier, place, root))
    correct = [number for number, cell in enumerate(cells) if cell.passed]
    severity = Pack().severity_of(spec)
    first = cells[correct[0]] if correct else None
    return LadderReport(
        spec.id,
        spec.persona,
        severity,
        severity == "blocking",
        bool(correct),
        len(cells),
        len(correct),
        len(cells) - len(correct),
        str(root),
        cells,
        correct[0] if correct else None,
        first.timeout_tier if first else None,
        first.route_id if first else None,
        metadata=spec.metadata,
    )


def _find_policy(spec: LadderSpec, folder: Path) -> AuditPolicy:
    """Return the rules of the audit: the named golden, that of the transcript, or the defaults."""
    if spec.golden:
        return read_audit_policy(folder / spec.golden)
    found = find_golden(folder / spec.backend.path) if spec.backend.path else None
    if found is not None:
        return read_audit_policy(found)
    return PULL_REQUEST_POLICY if spec.persona == "merge_captain" else DEFAULT_POLICY


def _segment(name: str) -> str:
    """Return a name for a folder; two names are never the same one."""
    safe = _UNSAFE.sub("_", name)
    return safe if safe == name else f"{safe}-{zlib.crc32(name.encode()):08x}"


def _attempt(spec: LadderSpec, route: ModelRoute, tier: TimeoutTier, folder: Path) -> _Attempt:
    """Return the transcript of a cell: the stored one, or that of a live run."""
    if spec.backend.kind != "live":
        events = read_transcript(folder / spec.backend.path)
        return _Attempt(_repeat(events, tier.max_sweeps or 1))
    request = {"ladder": spec.id, "persona": spec.persona, "route": route, "tier": tier}
    seconds = DEFAULT_SECONDS if tier.timeout_ms is None else tier.timeout_ms / 1000
    started = time.perf_counter()
    command = spec.backend.command
    end = run_command(command, folder, msgspec.json.encode(request).decode(), seconds)
    millis = (time.perf_counter() - started) * 1000
    if "did not end within" in end.problem:
        return _Attempt(outcome="timeout", problem=end.problem, millis=millis)
    if end.problem:
        return _Attempt(outcome="error", problem=end.problem, millis=millis)
    try:
        events = parse_transcript(end.stdout, Path("the output of the command"))
    except OffbookError as error:
        return _Attempt(outcome="error", problem=f"no transcript: {error}", millis=millis)
    return _Attempt(events, millis=millis)


def _repeat(events: list[Event], sweeps: int) -> list[Event]:
    """Return the events of several sweeps, with shifted indices and times."""
    times = [event.ts for event in events]
    span = max(times) - min(times) + 1
    return [
        msgspec.structs.replace(
            event, seq=event.seq + sweep * len(events), ts=event.ts + sweep * span
        )
        for sweep in range(sweeps)
        for event in events
    ]


def _evaluate_cell(
    attempt: _Attempt,
    policy: AuditPolicy,
    route: ModelRoute,
    tier: TimeoutTier,
    place: Path,
    root: Path,
) -> LadderCell:
    events = attempt.events
    report = audit_transcript(events, policy) if events else None
    times = [event.ts for event in events]
    latency = attempt.millis
    if latency is None:
        latency = max(times) - min(times) if times else 0
    cost = sum(float(event.data.get("cost_usd") or 0) for event in events)
    tools = report.tool_call_count if report else 0
    models = report.model_call_count if report else 0
    reasons = [attempt.problem] if attempt.problem else []
    reasons += _exceeded(tools, "tool calls", tier.max_tool_calls)
    limit = tier.max_model_calls if tier.max_model_calls is not None else route.max_model_calls
    reasons += _exceeded(models, "model calls", limit)
    cost_limit = tier.max_cost_usd if tier.max_cost_usd is not None else route.max_cost_usd
    if cost_limit is not None and cost > cost_limit:
        reasons.append(f"cost {cost:g} USD exceeded tier budget {cost_limit:g} USD")
    deadline = tier.max_latency_ms if tier.max_latency_ms is not None else tier.timeout_ms
    if deadline is not None and latency > deadline and attempt.outcome != "timeout":
        reasons.append(f"latency {latency:g}ms exceeded tier timeout {deadline:g}ms")
    errors = sum(f.severity == "error" for f in report.findings) if report else 0
    warnings = sum(f.severity == "warn" for f in report.findings) if report else 0
    if report is not None and not report.passed:
        reasons.append(
            f"oracle reported {errors} error finding(s) and {warnings} warning finding(s)"
        )
    coverage = _coverage(report)
    if report is not None and not (tools or models or coverage.observed):
        reasons.append(NOTHING_DONE)
    passed = report is not None and report.passed and not reasons
    outcome: LadderOutcome = attempt.outcome or ("correct" if passed else "degraded")
    if attempt.outcome is None and any(event.event == LOOP_STUCK for event in events):
        outcome, passed = "loop", False
    cell = LadderCell(
        f"{route.id}::{tier.id}",
        route.id,
        route.route,
        tier.id,
        tier.timeout_ms,
        cost_limit,
        deadline,
        passed,
        outcome,
        reasons,
        event_count=len(events),
        cost_usd=cost,
        latency_ms=latency,
        tool_calls=tools,
        model_calls=models,
        oracle_error_findings=errors,
        oracle_warn_findings=warnings,
        state_machine_coverage=coverage,
    )
    return _write_artifacts(cell, events, report, place, root)


def _exceeded(count: int, noun: str, limit: int | None) -> list[str]:
    if limit is None or count <= limit:
        return []
    return [f"{noun} {count} exceeded tier budget {limit}"]


def _coverage(report: AuditResult | None) -> StepCoverage:
    if report is None:
        return StepCoverage()
    steps = [transition.step for transition in report.state_transitions]
    return StepCoverage(len(set(steps)), sorted(set(steps)), steps)


def _write_artifacts(
    cell: LadderCell,
    events: Sequence[Event],
    report: AuditResult | None,
    place: Path,
    root: Path,
) -> LadderCell:
    """Write transcript, receipt and summary; paths in reports are relative to the root."""
    names = {
        "transcript_path": place / "event_log.jsonl",
        "receipt_path": place / "receipt.json",
        "summary_path": place / "summary.json",
    }
    cell = msgspec.structs.replace(
        cell, **{name: str(path.relative_to(root)) for name, path in names.items()}
    )
    lines = [msgspec.json.encode(event, order="sorted") for event in events]
    header = msgspec.json.encode(trace_header(events[0].ts if events else 0))
    write_private(names["transcript_path"], b"".join(line + b"\n" for line in (header, *lines)))
    write_private(names["receipt_path"], _receipt(lines, report))
    summary = msgspec.json.format(msgspec.json.encode(cell))
    write_private(names["summary_path"], summary + b"\n")
    return cell


def _receipt(lines: Sequence[bytes], report: AuditResult | None) -> bytes:
    """Return the receipt of a transcript: no path, backend or time, so equal ones are identical."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(len(line).to_bytes(8, "little") + line)
    receipt = {"_type": "ladder_receipt", "run_id": f"run-{digest.digest()[:8].hex()}"}
    body = {**receipt, "audit": report}
    return msgspec.json.format(msgspec.json.encode(body, order="sorted")) + b"\n"


# --- As a case of a pack

_reports: dict[tuple[str, str], LadderReport] = {}  # each ladder runs once for a worker


def run_case(spec: LadderSpec, context: CaseContext) -> CaseOutcome:
    """Run a ladder; one whose predecessor failed is not run."""
    loaded, output = context.loaded, pack_folder(context.options.output or ROOT, context.number)
    for name in spec.after:
        if not _run_once(loaded, loaded.ladders[name], output).passed:
            message = f"not run: the ladder {name!r} has no correct cell"
            return CaseOutcome([Verdict("ladder", "no_data", message)])
    report = _run_once(loaded, spec, output)
    cells = "; ".join(f"{cell.id} {cell.outcome}" for cell in report.tiers)
    status: VerdictStatus = "pass"
    message = ""
    if not report.passed:
        status, message = "fail", f"no tier was correct: {cells}"
        if all(NOTHING_DONE in cell.degradation_reasons for cell in report.tiers):
            status, message = "no_data", NOTHING_DONE
    first = report.first_correct_index
    verdict = Verdict(
        "first correct tier",
        status,
        message,
        None,
        None if first is None else report.tiers[first].id,
    )
    return CaseOutcome(
        [verdict],
        report=msgspec.to_builtins(report),
        metrics=RunMetrics(cost_usd=sum(cell.cost_usd for cell in report.tiers)),
    )


def identify_case(spec: LadderSpec, loaded: LoadedPack, identity: IdentityDigest) -> None:
    """Add the files of a ladder, and those of the ladders before it."""
    folder = loaded.base / spec.base_dir
    if spec.backend.kind == "live":
        command = to_command(spec.backend.command)
        identity.add_command(command.argv or command.command.split(), folder)
    for path in filter(None, (spec.backend.path, spec.golden)):
        identity.add_file(folder / path)
    if spec.backend.path and (golden := find_golden(folder / spec.backend.path)) is not None:
        identity.add_file(golden)
    for name in spec.after:
        identity.add(loaded.ladders[name])
        identify_case(loaded.ladders[name], loaded, identity)


def _run_once(loaded: LoadedPack, spec: LadderSpec, output: Path) -> LadderReport:
    key = (f"{loaded.path} {output}", spec.id)
    if key not in _reports:
        _reports[key] = run_ladder(spec, loaded.base, output)
    return _reports[key]
