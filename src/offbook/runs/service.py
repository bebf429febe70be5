"""A server for commands that are started elsewhere.

It does not import what a rehearsal needs: a client waits for its first reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from offbook.errors import raise_model_failure
from offbook.sources.server.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from offbook.determinism.faults import FaultInjector, Faults
    from offbook.exchange.model import ModelSource
    from offbook.sources.server.endpoint import Endpoint, Pacing
    from offbook.trace.hub import Hub


class Service:
    """A server with a fresh source for each run.

    The unnamed run exists from the start. Another run begins with the first request to its path,
    `/s/<name>`, with the script from its beginning.
    """

    def __init__(
        self,
        make_source: Callable[[], ModelSource],
        hub: Hub,
        *,
        port: int = 0,
        pacing: Pacing | None = None,
        lenient: Iterable[str] = (),
        faults: Faults | None = None,
    ) -> None:
        self._faults = faults
        self._make_source = make_source
        self._pacing = pacing
        self._hub = hub
        self._endpoints: list[Endpoint] = []
        self.server = Server(port=port, lenient=lenient, on_unknown_run=self._start_run)

    def __enter__(self) -> Self:
        # The run exists before a client can connect.
        self.server.bind()
        self.endpoint = self._start_run("")
        self.server.launch()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()

    def _start_run(self, name: str) -> Endpoint:
        # Each run has the same faults, counted from its own first request.
        injector: FaultInjector | None = None
        if self._faults is not None:
            from offbook.runs.wiring import start_faults  # few servers have faults

            injector = start_faults(self._faults, self._hub)
        # Events of a named run have its name as their context.
        with self._hub.scoped(**({"run": name} if name else {})):
            endpoint = self.server.mount(
                self._make_source(), run=name, hub=self._hub, pacing=self._pacing, faults=injector
            )
        self._endpoints.append(endpoint)
        return endpoint

    def raise_failures(self) -> None:
        """Raise the error of the first run that has one, with the others as notes."""
        errors = [
            endpoint.history_error or endpoint.failure or endpoint.refusal
            for endpoint in self._endpoints
        ]
        failures = [*(error for error in errors if error is not None), *self._hub.errors]
        for other in failures[1:]:
            failures[0].add_note(f"in another run: {other}")
        if failures:
            raise_model_failure(failures[0])


def warn_of_mocks(source: ModelSource, *, after_run: bool) -> list[str]:
    """Return the lint messages of mocks; after a run, unused mocks are reported as well."""
    from offbook.sources.mocks.mock_file import lint_mocks
    from offbook.sources.mocks.mocks import Mocks

    if not isinstance(source, Mocks):
        return []
    unused = source.unused if after_run else ()
    return [str(problem) for problem in lint_mocks(source.file, unused)]
