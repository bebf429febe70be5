"""The protocol of the assertions: read strictly, judged without a stop, told with their context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from offbook.checks.alignment import AlignedRow, render_rows
from offbook.checks.context import CheckContext, NoData, Requirement
from offbook.errors import OffbookError, UsageError
from offbook.trace.agent_output import truncate_texts
from offbook.trace.events import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.trace.events import VerdictStatus

LONGEST = 20_000


class AssertionResult(msgspec.Struct, frozen=True):
    """What an assertion saw."""

    holds: bool
    expected: Any = None
    actual: Any = None
    message: str = ""
    context: dict[str, Any] = {}
    rows: Sequence[AlignedRow] = ()


class Assertion(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One thing that must be true of a run."""

    subject: ClassVar[tuple[str, ...]] = ()

    def asks(self) -> Iterable[Requirement]:
        """What it will want to know: so all that is asked of a trace is learnt in one reading."""
        return ()

    def look(self, evidence: CheckContext) -> AssertionResult:
        """What the evidence shows."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """The type, and what it is about."""
        about = [str(getattr(self, name)) for name in self.subject if getattr(self, name, None)]
        return " ".join((str(self.__struct_config__.tag), *about))

    def judge(self, evidence: CheckContext) -> Verdict:
        """The verdict; an error of the check itself is no failure of the run."""
        try:
            found = self.look(evidence)
        except NoData as nothing:
            return self._verdict("no_data", message=f"no data: {nothing}")
        except OffbookError as error:
            return self._verdict("error", message=str(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            told = f"an event of the trace is not what it should be: {error!r}"
            return self._verdict("error", message=told)
        if found.holds:
            return self._verdict("pass", found)
        return self._verdict("fail", found)

    def _verdict(
        self, status: VerdictStatus, found: AssertionResult | None = None, message: str = ""
    ) -> Verdict:
        if found is None:
            return Verdict(self.title, status, message)
        if found.rows and status == "fail":
            found = _spread(found)
        parts = [found.message, found.expected, found.actual, found.context]
        told, expected, actual, context = truncate_texts(parts, LONGEST)
        if status == "pass":
            told = ""
        elif not told and status == "fail":
            told = f"expected {expected!r}, got {actual!r}"
        return Verdict(self.title, status, told, expected, actual, context)


def _spread(found: AssertionResult) -> AssertionResult:
    """The finding with what was expected beside what came, for people and for machines."""
    lines = render_rows(found.rows)
    said = found.message if found.message.endswith("?") else f"{found.message}:"
    told = "\n".join([said, *lines])
    return msgspec.structs.replace(found, message=told, context={**found.context, "diff": lines})


class Range(Assertion, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A number between bounds; at least one bound is given."""

    min: int | None = None
    max: int | None = None
    exact: int | None = None

    def __post_init__(self) -> None:
        if self.min is None and self.max is None and self.exact is None:
            raise ValueError("give min, max or exact")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is more than max {self.max}")

    def compare(self, actual: int, context: dict[str, Any] | None = None) -> AssertionResult:
        """Whether a number is within the bounds."""
        bounds = {k: v for k in ("min", "max", "exact") if (v := getattr(self, k)) is not None}
        holds = (
            (self.exact is None or actual == self.exact)
            and (self.min is None or actual >= self.min)
            and (self.max is None or actual <= self.max)
        )
        return AssertionResult(holds, bounds, actual, context=context or {})


def require(value: Any, what: str) -> Any:
    """The value, or the word that there is nothing to look at."""
    if value is None:
        raise NoData(what)
    return value


def require_items(values: list[str], field: str) -> list[str]:
    """A list that is not empty: an empty one would hold for everything."""
    if not values:
        raise UsageError(f"{field} is empty, so it would always hold")
    return values
