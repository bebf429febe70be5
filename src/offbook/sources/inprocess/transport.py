"""What a transport is: the place where an HTTP library sends a request and gets its response.

To add one, write a file with a `Transport`, and name it in `interception.TRANSPORTS`. Nobody here
imports the libraries: a transport is asked when its module is there, or as soon as it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from offbook.determinism.following import follower

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextvars import ContextVar

    from offbook.exchange.dialects.dialect import Answer, Wire


class Line(Protocol):
    """Where requests of the run at work here are answered."""

    def wants(self, host: str, port: int | None) -> bool:
        """Whether requests to this address are answered here, and never sent."""
        ...

    async def answer(self, wire: Wire) -> Answer:
        """The answer to a request, for clients that await it."""
        ...

    def answer_now(self, wire: Wire) -> Answer:
        """The answer to a request, for clients that block until they have it."""
        ...


class Transport(Protocol):
    """One HTTP library."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that hold what has to be patched."""
        ...

    def patch(self, module: Any) -> Iterable[Callable[[], None]]:
        """Let the requests of this module's clients pass by the line; how to undo it."""
        ...


line: ContextVar[Line | None] = follower("offbook_line")
"""The line of the run at work here, in all its tasks and threads; None outside of any run."""


def find_line(host: str, port: int | None) -> Line | None:
    """The line that answers for this address, if we are in a run that does."""
    current = line.get()
    return current if current is not None and current.wants(host, port) else None
