"""A server for commands that are started elsewhere, or for one that we start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from offbook.errors import CheckFailed, DeadlineExceeded, Interrupted, RunError
from offbook.sources.server.server import Server
from offbook.trace.events import UNSET, RunEndData, RunStartData, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from offbook.determinism.faults import FaultInjector, Faults
    from offbook.exchange.model import ModelSource
    from offbook.runs.commands import CommandResult
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
        self._runs: dict[str, tuple[Endpoint, ModelSource]] = {}
        self._injectors: list[FaultInjector] = []
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
        source = self._make_source()
        # Each run has the same faults, counted from its own first request.
        injector = None
        if self._faults is not None:
            from offbook.runs.fault_runs import start_faults  # few runs have faults

            injector = start_faults(self._faults, self._hub)
            self._injectors.append(injector)
        # Events of a named run have its name as their context.
        with self._hub.scoped(**({"run": name} if name else {})):
            endpoint = self.server.mount(
                source,
                run=name,
                hub=self._hub,
                pacing=self._pacing,
                faults=injector,
            )
        self._runs[name] = (endpoint, source)
        return endpoint

    def run(
        self, command: Sequence[str], *, deadline: float, allow_unused_mocks: bool = False
    ) -> CommandResult:
        """Run a command with this service as its model; the script must be used completely.

        As in a rehearsal, an error of the model is the reason before the exit code, and the exit
        code before an unused rest of the script.
        """
        from offbook.runs.commands import MAX_OUTPUT, CommandResult, connect_clients
        from offbook.runs.run import emit_failure
        from offbook.subjects.process import describe_exit, run_foreground

        self._hub.emit_data(RunStartData(command[0], command=list(command)))
        try:
            with connect_clients(command, self.endpoint) as (words, env):
                # The answer of the command is the evidence of what it did about a fault.
                keep = MAX_OUTPUT if self._faults is not None else 0
                ended = run_foreground(words, env, deadline, keep=keep)
            if ended.interrupted_by:
                raise Interrupted(ended.interrupted_by)  # noqa: TRY301 - handled as a raised one
        except BaseException as error:
            failures = self.failures(strict=False)
            if failures and isinstance(error, DeadlineExceeded):
                # The command may have waited because of an error of its model.
                emit_failure(self._hub, failures[0])
                raise failures[0] from error
            emit_failure(self._hub, error)
            raise
        # A command that gives up after a fault leaves the rest of the script.
        faulty = any(injector.injected for injector in self._injectors)
        failures = self.failures(strict=not ended.code and not faulty)
        if not ended.code and not failures and not allow_unused_mocks and not faulty:
            failures += self._unused_mocks()
        if ended.code:
            failed = RunError(f"the command {describe_exit(ended.code)}", where=command[0])
            failures.append(failed)
        if failures:
            emit_failure(self._hub, failures[0], exit=ended.code)
        else:
            from offbook.sources.playbook.playbook import Playbook

            for _, source in self._runs.values():
                if isinstance(source, Playbook) and source.unfinished() is None:
                    verdict = Verdict("playbook consumed", "pass", actual=source.consumed)
                    self._hub.emit_verdict(verdict)
            answer = UNSET if self._faults is None else ended.stdout.strip()
            self._hub.emit_data(RunEndData(ok=True, exit=0, output=answer))
        return CommandResult(ended.code, failures=tuple(failures))

    def failures(self, *, strict: bool) -> list[BaseException]:
        """Return the errors of all runs; with `strict`, an unused rest of a script is one."""
        errors = (
            endpoint.history_error or endpoint.failure or endpoint.refusal
            for endpoint, _ in self._runs.values()
        )
        failures = [error for error in errors if error is not None]
        # After another error, an unused rest is its consequence.
        if strict and not failures:
            for _, source in self._runs.values():
                # Playbooks, mocks and cassettes end; a live model does not.
                unfinished: Callable[[], BaseException | None] | None
                unfinished = getattr(source, "unfinished", None)
                if unfinished is not None and (rest := unfinished()) is not None:
                    failures.append(rest)
        return [*failures, *self._hub.errors]

    def _unused_mocks(self) -> list[CheckFailed]:
        hint = "remove what is not used, or pass --allow-unused-mocks"
        verdicts = (getattr(source, "verdicts", tuple)() for _, source in self._runs.values())
        return [CheckFailed(verdict.message, hint=hint) for found in verdicts for verdict in found]

    def warnings(self, *, after_run: bool = False) -> list[str]:
        """Return the lint messages of mocks; after a run, unused mocks are reported as well."""
        from offbook.sources.mocks.mock_file import lint_mocks
        from offbook.sources.mocks.mocks import Mocks

        _, source = self._runs[""]
        if not isinstance(source, Mocks):
            return []
        unused = source.unused if after_run else ()
        return [str(problem) for problem in lint_mocks(source.file, unused)]


def raise_failures(failures: Sequence[BaseException]) -> None:
    """Raise the first failure, with the others as notes."""
    if not failures:
        return
    first, *others = failures
    for other in others:
        first.add_note(f"in another run: {other}")
    # Errors of callbacks are errors of the test: they fail it, with exit code 1.
    if isinstance(first, RunError):
        raise first
    message = f"a callback of the playbook raised {type(first).__name__}: {first}"
    raise RunError(message) from first
