"""A source, served: for agents that somebody else starts, and for one command that we start."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

import msgspec

from offbook.errors import RunError
from offbook.exchange.variables import tell_command
from offbook.runs.commands.command import run_command
from offbook.sources.cassette.replay import Replay
from offbook.sources.mocks.linter import lint
from offbook.sources.mocks.mocks import Mocks
from offbook.sources.playbook import Playbook
from offbook.sources.server.server import Server
from offbook.trace.events import RUN_END, RUN_START

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from offbook.exchange.source import ModelSource
    from offbook.sources.server.endpoint import Endpoint
    from offbook.sources.server.pacing import Pacing
    from offbook.trace.hub import Hub


class Service:
    """A server for a source, made anew for each run.

    The run without a name is there from the start; any other that a client names in its path,
    `/s/<name>`, begins when it is first asked, with the source as it was in the beginning.
    """

    def __init__(
        self,
        make: Callable[[], ModelSource],
        hub: Hub,
        *,
        port: int = 0,
        pacing: Pacing | None = None,
        lenient: Iterable[str] = (),
    ) -> None:
        self._make = make
        self._pacing = pacing
        self._hub = hub
        self._runs: dict[str, tuple[Endpoint, ModelSource]] = {}
        self.server = Server(port=port, lenient=lenient, spare=self._begin)

    def __enter__(self) -> Self:
        self.server.launch()
        self.endpoint = self._begin("")
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()

    def _begin(self, name: str) -> Endpoint:
        source = self._make()
        with self._hub.scoped(**({"run": name} if name else {})):
            endpoint = self.server.mount(source, run=name, hub=self._hub, pacing=self._pacing)
        self._runs[name] = (endpoint, source)
        return endpoint

    def tell(self, event: str, data: dict[str, object]) -> None:
        """Tell something to the trace."""
        self._hub.emit(event, data)

    def complaints(self, *, strict: bool) -> list[BaseException]:
        """What went wrong in each run; if strict, also what of its script was never reached."""
        found = [endpoint.failure for endpoint, _ in self._runs.values() if endpoint.failure]
        if strict and not found:
            for _, source in self._runs.values():
                if isinstance(source, (Mocks, Playbook, Replay)) and (left := source.unfinished()):
                    found.append(left)
        return [*found, *self._hub.errors]

    def remarks(self, *, used: bool = False) -> list[str]:
        """What can be said about mocks; if they are used by now, also which of them nobody was."""
        _, source = self._runs[""]
        if not isinstance(source, Mocks):
            return []
        return [str(found) for found in lint(source.script, source.unused if used else ())]


class Outcome(msgspec.Struct, frozen=True):
    """How a command went: its exit code, and what its model had to complain about."""

    code: int
    complaints: tuple[BaseException, ...] = ()


def serve_command(service: Service, command: Sequence[str], *, deadline: float) -> Outcome:
    """Run a command whose clients find the service in their environment, then judge."""
    service.tell(RUN_START, {"subject": command[0], "command": list(command)})
    words = tell_command(command, service.endpoint.url)
    code, _ = run_command(words, {**os.environ, **service.endpoint.variables}, deadline)
    complaints = tuple(service.complaints(strict=True))
    service.tell(RUN_END, {"ok": code == 0 and not complaints, "exit": code})
    return Outcome(code, complaints)


def raise_all(complaints: Sequence[BaseException]) -> None:
    """Raise the first complaint, with the others noted on it."""
    if not complaints:
        return
    first, *others = complaints
    for other in others:
        first.add_note(f"and in another run: {other}")
    if isinstance(first, RunError):
        raise first
    raise RunError(f"a callback of the playbook raised {type(first).__name__}: {first}") from first
