"""Assertions about which hat was worn when."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import ClassVar

from offbook.checks.alignment import align, compare_names
from offbook.checks.assertions.assertion import Assertion, Finding, Range, listed
from offbook.checks.evidence import Asked, Evidence, NoData
from offbook.checks.facts import Worn

LONGEST = 200


class HatSequence(Assertion, frozen=True, forbid_unknown_fields=True, tag="hat_sequence"):
    """Exactly these hats were worn, in this order."""

    hats: list[str]
    subject: ClassVar[tuple[str, ...]] = ("hats",)

    def asks(self) -> list[Asked]:
        return [(Worn, ())]

    def look(self, evidence: Evidence) -> Finding:
        wanted = listed(self.hats, "hat_sequence.hats")
        worn = _worn(evidence)
        shown = worn[: len(wanted) + LONGEST]
        pairs = align(len(shown), len(wanted), lambda a, w: shown[a] == wanted[w])
        rows = () if worn == wanted else compare_names(wanted, shown, pairs)
        return Finding(worn == wanted, wanted, worn, "the hats differ", rows=rows)


class HatTransition(
    Assertion,
    frozen=True,
    forbid_unknown_fields=True,
    tag="hat_transition",
    rename={"source": "from"},
):
    """One hat was taken off and the other put on right after."""

    source: str
    to: str
    subject: ClassVar[tuple[str, ...]] = ("source", "to")

    def asks(self) -> list[Asked]:
        return [(Worn, ())]

    def look(self, evidence: Evidence) -> Finding:
        seen = [f"{a} -> {b}" for a, b in pairwise(_worn(evidence)) if a != b]
        wanted = f"{self.source} -> {self.to}"
        context = {"transitions": list(dict.fromkeys(seen))}
        return Finding(wanted in seen, wanted, seen, context=context)


class IterationCount(
    Range, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="iteration_count"
):
    """A hat was worn so many times."""

    hat: str
    subject: ClassVar[tuple[str, ...]] = ("hat",)

    def asks(self) -> list[Asked]:
        return [(Worn, ())]

    def look(self, evidence: Evidence) -> Finding:
        worn = _worn(evidence)
        return self.compare(worn.count(self.hat), {"hats": dict(Counter(worn))})


def _worn(evidence: Evidence) -> list[str]:
    if not evidence.hats:
        raise NoData("the trace has no iteration records")
    return evidence.hats
