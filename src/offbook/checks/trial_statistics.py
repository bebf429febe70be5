"""Statistics of trials: Wilson intervals, pass@k, pass^k, kappa, paired comparisons and power."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, comb, sqrt
from statistics import NormalDist, fmean
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
C = TypeVar("C", bound=Any)  # the name of a case, which has an order
CONFIDENCE = 0.95
Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
POWER = 0.8
RESAMPLES = 2000
EXACT_PAIRS = 12  # 4,096 combinations of signs
FLIPS = 10_000


class Interval(NamedTuple):
    """A confidence interval of 95 %."""

    low: float
    high: float


def wilson(successes: int, total: int) -> Interval:
    """Return the Wilson interval of a rate; without trials nothing is known: 0 to 1.

    >>> wilson(8, 10)
    Interval(low=0.4901..., high=0.9433...)
    """
    if total == 0:
        return Interval(0.0, 1.0)
    rate = successes / total
    denominator = 1 + Z * Z / total
    centre = rate + Z * Z / (2 * total)
    spread = Z * sqrt(rate * (1 - rate) / total + Z * Z / (4 * total * total))
    return Interval(
        max(0.0, (centre - spread) / denominator), min(1.0, (centre + spread) / denominator)
    )


def pass_at_k(trials: int, passes: int, k: int) -> float:
    """Return the unbiased estimate of the chance that at least one of k trials passes."""
    if k > trials or trials == 0:
        raise ValueError(f"pass@{k} needs at least {k} trials, got {trials}")
    every = comb(trials, k)
    return (every - comb(trials - passes, k)) / every


def pass_hat_k(trials: int, passes: int, k: int) -> float:
    """Return the unbiased estimate of the chance that all of k trials pass (pass^k)."""
    if k > trials or trials == 0:
        raise ValueError(f"pass^{k} needs at least {k} trials, got {trials}")
    return comb(passes, k) / comb(trials, k)


def needed_trials(before: float, after: float, power: float = POWER) -> int:
    """Return the trials of each of two runs that show a difference of their pass rates.

    A test with a confidence of 95 % then finds it with the chance `power`.

    >>> needed_trials(0.9, 0.8)
    199
    """
    if before == after:
        raise ValueError("equal rates differ in no number of trials")
    mean = (before + after) / 2
    spread = Z * sqrt(2 * mean * (1 - mean))
    spread += NormalDist().inv_cdf(power) * sqrt(before * (1 - before) + after * (1 - after))
    return ceil((spread / (before - after)) ** 2)


class PairedDifference(NamedTuple):
    """The mean of paired differences, its bootstrap interval, and the p-value of a sign test."""

    mean: float
    interval: Interval
    p_value: float
    pairs: int

    @property
    def significant(self) -> bool:
        """True if the sign test rejects that both are equal."""
        return self.p_value < 1 - CONFIDENCE


def compare_paired(before: Sequence[float], after: Sequence[float]) -> PairedDifference:
    """Compare two runs of the same cases; the pairs are the cases."""
    if len(before) != len(after) or not before:
        raise ValueError(f"expected pairs, got {len(before)} and {len(after)} values")
    differences = [b - a for a, b in zip(before, after, strict=True)]
    interval = bootstrap(differences, fmean)
    ups = sum(difference > 0 for difference in differences)
    downs = sum(difference < 0 for difference in differences)
    return PairedDifference(fmean(differences), interval, sign_test(ups, downs), len(differences))


def compare_metrics(
    before: Mapping[C, Mapping[str, float]],
    after: Mapping[C, Mapping[str, float]],
    metrics: Iterable[str],
) -> dict[str, PairedDifference]:
    """Compare two runs by the metrics of their cases; one that no case has in both is left out."""
    both = [(before[case], after[case]) for case in sorted(before.keys() & after.keys())]
    found: dict[str, PairedDifference] = {}
    for metric in metrics:
        pairs = [(one[metric], two[metric]) for one, two in both if metric in one and metric in two]
        if pairs:
            found[metric] = compare_paired(*zip(*pairs, strict=True))
    return found


def bootstrap(values: Sequence[T], statistic: Callable[[list[T]], float]) -> Interval:
    """Return the bootstrap interval of a statistic; the same values give the same interval."""
    generator = random.Random(len(values))  # noqa: S311 - not a secret
    found = sorted(statistic(generator.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return Interval(found[int(tail * RESAMPLES)], found[int((1 - tail) * RESAMPLES) - 1])


def sign_flip_test(differences: Sequence[float]) -> float:
    """Return the chance of a sum this high if the sign of each difference were random.

    One-sided: a small p-value means that the differences are above zero. Exact for up to 12
    differences, otherwise estimated from 10,000 seeded samples.
    """
    total = sum(differences)
    sizes = [abs(difference) for difference in differences]
    margin = 1e-12 * sum(sizes)  # sums of floats in another order
    if len(sizes) <= EXACT_PAIRS:
        sums = [0.0]
        for size in sizes:
            sums = [value + sign * size for value in sums for sign in (1, -1)]
        return sum(value >= total - margin for value in sums) / len(sums)
    generator = random.Random(len(sizes))  # noqa: S311 - not a secret
    higher = 0
    for _ in range(FLIPS):
        bits = generator.getrandbits(len(sizes))
        flipped = sum(size if bits >> n & 1 else -size for n, size in enumerate(sizes))
        higher += flipped >= total - margin
    return (higher + 1) / (FLIPS + 1)  # the observed signs are one of the samples


def sign_test(ups: int, downs: int) -> float:
    """Return the two-sided p-value that ups and downs are equally likely (exact McNemar)."""
    total = ups + downs
    if total == 0:
        return 1.0
    tail = sum(comb(total, k) for k in range(min(ups, downs) + 1)) / 2**total
    return min(1.0, 2 * tail)


def cohen_kappa(table: Sequence[Sequence[int]]) -> float:
    """Return Cohen's kappa of a square table of counts; 1 if both agree on a single label."""
    total = sum(map(sum, table))
    if total == 0:
        raise ValueError("kappa needs at least one example")
    agreed = sum(table[i][i] for i in range(len(table))) / total
    rows = [sum(row) / total for row in table]
    columns = [sum(row[i] for row in table) / total for i in range(len(table))]
    chance = sum(row * column for row, column in zip(rows, columns, strict=True))
    return 1.0 if chance == 1 else (agreed - chance) / (1 - chance)
