"""Calibration of a judge: how far it agrees with labelled examples, and where it is biased."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median

import msgspec

from offbook.checks.judge import Judge
from offbook.checks.trial_statistics import CONFIDENCE, RESAMPLES, Interval, cohen_kappa
from offbook.errors import JudgeError, UsageError, counted
from offbook.evals.judge_scores import ask_once, passing_score, target_of_example
from offbook.evals.pack import CalibrationExample, JudgeSettings, Rubric

LABELS = ("fail", "pass")
MIN_EXAMPLES = 2


class CalibrationRow(msgspec.Struct, frozen=True):
    """One example: the score of the label and of the judge."""

    number: int
    expected: float
    actual: float
    length: int
    reasoning: str = ""


class CalibrationReport(msgspec.Struct, frozen=True):
    """The agreement of a judge with labelled examples.

    `table` counts examples by label (rows) and judge (columns): fail, pass. A bias is the mean of
    judge minus label: by position, of the second half minus the first half of the examples; by
    length, of the longer minus the shorter texts.
    """

    examples: int
    agreement: float
    kappa: float
    interval: Interval
    table: tuple[tuple[int, int], tuple[int, int]]
    mean_error: float
    position_bias: float
    length_bias: float
    rows: list[CalibrationRow]


async def calibrate(judge: Judge, rubric: Rubric, settings: JudgeSettings) -> CalibrationReport:
    """Score the labelled examples of a rubric, and compare the scores with the labels."""
    labelled = [example for example in rubric.calibration if example.score is not None]
    if len(labelled) < MIN_EXAMPLES:
        raise UsageError(
            f"the rubric {rubric.id!r} has {counted(len(labelled), 'labelled example')}",
            hint=f"add at least {MIN_EXAMPLES} with a score to calibration",
        )
    rows: list[CalibrationRow] = []
    for number, example in enumerate(labelled, 1):
        text = target_of_example(example.output)
        score, reasoning = await ask_once(judge, rubric, settings, _with_input(example, text))
        rows.append(CalibrationRow(number, example.score or 0.0, score, len(text), reasoning))
    return report_agreement(rows, passing_score(rubric))


def _with_input(example: CalibrationExample, text: str) -> str:
    if example.input is None:
        return text
    return f"{target_of_example(example.input)}\n\n{text}"


def report_agreement(rows: Sequence[CalibrationRow], least: float) -> CalibrationReport:
    """Return the report of scores; `least` is the lowest score that passes."""
    table = _table(rows, least)
    errors = [row.actual - row.expected for row in rows]
    half = len(rows) // 2
    middle = median(row.length for row in rows)
    longer = [error for row, error in zip(rows, errors, strict=True) if row.length > middle]
    shorter = [error for row, error in zip(rows, errors, strict=True) if row.length <= middle]
    return CalibrationReport(
        len(rows),
        (table[0][0] + table[1][1]) / len(rows),
        cohen_kappa(table),
        _kappa_interval(rows, least),
        table,
        fmean(errors),
        fmean(errors[half:]) - fmean(errors[:half]),
        (fmean(longer) - fmean(shorter)) if longer and shorter else 0.0,
        list(rows),
    )


def _table(rows: Sequence[CalibrationRow], least: float) -> tuple[tuple[int, int], tuple[int, int]]:
    counts = [[0, 0], [0, 0]]
    for row in rows:
        counts[row.expected >= least][row.actual >= least] += 1
    return (counts[0][0], counts[0][1]), (counts[1][0], counts[1][1])


def _kappa_interval(rows: Sequence[CalibrationRow], least: float) -> Interval:
    """Return the bootstrap interval of kappa; the same rows give the same interval."""
    generator = random.Random(len(rows))  # noqa: S311 - statistics, not secrets
    values = sorted(
        cohen_kappa(_table(generator.choices(rows, k=len(rows)), least)) for _ in range(RESAMPLES)
    )
    tail = (1 - CONFIDENCE) / 2
    return Interval(values[int(tail * RESAMPLES)], values[int((1 - tail) * RESAMPLES) - 1])


def render_calibration(name: str, report: CalibrationReport) -> Iterator[str]:
    """Yield the lines for a terminal."""
    low, high = report.interval
    yield f"{name}: {report.examples} examples"
    yield f"agreement {report.agreement:.2f}, kappa {report.kappa:.2f} ({low:.2f} to {high:.2f})"
    yield "label      judge: fail   pass"
    for label, row in zip(LABELS, report.table, strict=True):
        yield f"{label:<10} {row[0]:>11} {row[1]:>6}"
    yield (
        f"mean error {report.mean_error:+.2f}, bias by position {report.position_bias:+.2f}, "
        f"by length {report.length_bias:+.2f}"
    )


_agreements: dict[bytes, float] = {}  # a pack calibrates its judge once for each process


def require_agreement(rubric: Rubric, settings: JudgeSettings, judge: Judge, base: Path) -> None:
    """Raise an error if a judge agrees less with the labelled examples than a rubric demands.

    `base` is the folder of the pack: the judge of another pack may have the same name.
    """
    least = settings.min_agreement or 0.0
    key = msgspec.json.encode((str(base.absolute()), rubric, settings))
    if key not in _agreements:
        report = asyncio.run(calibrate(judge, rubric, settings))
        _agreements[key] = report.kappa
    if _agreements[key] < least:
        raise JudgeError(
            f"the judge agrees too little with the labelled examples: kappa"
            f" {_agreements[key]:.2f}, expected at least {least:g}",
            where=rubric.id,
            hint="offbook eval run PACK --calibrate shows where they differ",
        )
