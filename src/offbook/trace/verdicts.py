"""A verdict is an event too: so a stored trace can be reported without its run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from offbook.trace.events import VERDICT, Event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offbook.trace.hub import Hub

Status = Literal["pass", "fail", "no_data", "warn", "error"]


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a check found. `no_data` means that there was nothing to look at: never a pass."""

    check: str
    status: Status
    message: str = ""
    expected: Any = None
    actual: Any = None
    context: dict[str, Any] = {}

    @property
    def holds(self) -> bool:
        """Whether a run with this verdict is still green."""
        return self.status in {"pass", "warn"}


def deliver(hub: Hub, verdict: Verdict) -> Verdict:
    """Tell a verdict to whoever listens."""
    hub.emit(VERDICT, describe(verdict))
    return verdict


def describe(verdict: Verdict) -> dict[str, Any]:
    """A verdict as the trace tells it."""
    return msgspec.to_builtins(verdict, enc_hook=repr)


def verdicts(events: Iterable[Event]) -> Iterator[Verdict]:
    """The verdicts among these events."""
    for event in events:
        if event.event == VERDICT:
            yield msgspec.convert(event.data, Verdict)
