"""The object behind the pytest fixture `offbook`: rehearsals and cassettes that end with a test."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Unpack, cast

from offbook.checks.expected_files import update_goldens
from offbook.determinism.run_context import current_host, stable_id, use_variable
from offbook.errors import InvariantBroken, OffbookError
from offbook.files import copy_atomic
from offbook.host.fake_cli import FakeCli, fake_cli, mock_pi
from offbook.host.host_scope import HostScope
from offbook.runs.api import drive, session
from offbook.runs.mock_scopes import LlmScope, MockScopes, ScopeManager
from offbook.runs.rehearsal import Rehearsal
from offbook.runs.run import in_event_loop
from offbook.secrets import hide_secrets, outgoing
from offbook.secrets.masks import find_secrets
from offbook.trace.events import RUN_END, Verdict
from offbook.trace.reader import Trace
from offbook.trace.steps import current_step_log

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from offbook.exchange.model import ModelSource
    from offbook.explore.playing import Invariant, World
    from offbook.explore.search import Exploration
    from offbook.explore.tool_policy import ToolPolicy
    from offbook.runs.run import Run
    from offbook.runs.test_files import CassetteOptions, Cassettes, RequestGoldens
    from offbook.trace.redaction import RedactionRules

__all__ = [
    "FakeCli",
    "FakePrograms",
    "HostScope",
    "LlmScope",
    "MockScopes",
    "Offbook",
    "current_host",
    "end_with_controller",
    "find_secrets",
    "hide_secrets",
    "mock_pi",
    "update_goldens",
]
P = ParamSpec("P")
MAX_NAME_LENGTH = 120
SHOWN_LINES = 40


@contextmanager
def open_scopes(test: str, *, with_llm: bool) -> Generator[MockScopes]:
    """Open the mocks of a test. What they fail is raised by `close_scopes`, in the test.

    The steps that a test records end with it as well.
    """
    scopes = MockScopes(HostScope(where=test), LlmScope(where=test))
    llm = scopes.llm if with_llm else None
    manager = ScopeManager(lambda: (scopes, scopes.host, llm))
    with use_variable(current_step_log, None):
        manager.__enter__()
        try:
            yield scopes
        finally:
            manager.restore()


def end_with_controller() -> None:
    """End this worker of pytest-xdist if its controller is killed: it would go on for 15 s."""
    from offbook.runs.child import end_with

    end_with(os.getppid(), signal.SIGTERM)


def close_scopes(scopes: MockScopes) -> None:
    """Raise for an unused mock, and for a call without a mock that was swallowed."""
    scopes.llm.close()
    scopes.host.close()


class FakePrograms:
    """The fake programs of one test: the value of the fixture `fake_cli`."""

    def __init__(self) -> None:
        self._installed: list[FakeCli] = []

    def __call__(self, program: str, answers: Iterable[Any] = (), **options: Any) -> FakeCli:
        """Put a fake program on the PATH until the test ends, with the options of `fake_cli`."""
        return self.add(fake_cli(program, answers, **options))

    def add(self, fake: FakeCli) -> FakeCli:
        """Install a fake program until the test ends."""
        self._installed.append(fake.install())
        return fake

    def check(self) -> None:
        """Fail for an answer that was not used, and for a call without an answer."""
        for fake in self._installed:
            fake.check()

    def uninstall(self) -> None:
        """Take all of them off the PATH."""
        while self._installed:
            self._installed.pop().uninstall()


class _OpenRehearsal(NamedTuple):
    """A rehearsal, and the event loop of the test that opened it, if there was one."""

    rehearsal: Rehearsal
    loop: asyncio.AbstractEventLoop | None


class Offbook:
    """`offbook.session` and `offbook.drive` for one test, its cassettes and its goldens.

    Rehearsals are closed when the test ends, in the event loop in which they were opened.
    """

    def __init__(
        self,
        folder: Path,
        *,
        test_folder: Path,
        test: str,
        recorded: set[Path] | None,
        extend: bool,
    ) -> None:
        self._folder = folder
        self._test_folder = test_folder
        self._test = test
        self._recorded = recorded
        self._extend = extend
        self._cassettes: Cassettes | None = None
        self._goldens: RequestGoldens | None = None
        self._open: list[_OpenRehearsal] = []
        self._traces: list[Path] = []
        self.changes: list[str] = []  # by the agents, of the rehearsals that are closed
        self.session = self._tracked(session)
        self.drive = self._tracked(drive)

    def _tracked(self, function: Callable[P, Rehearsal]) -> Callable[P, Rehearsal]:
        """Return `session` or `drive` with a trace file, and closed with the test."""

        @wraps(function)
        def open_rehearsal(*args: P.args, **kwargs: P.kwargs) -> Rehearsal:
            options = cast("dict[str, Any]", kwargs)
            trace = options.get("trace") or self._folder / f"{len(self._traces) + 1}.jsonl"
            self._traces.append(Path(trace))
            rehearsal = cast("Any", function)(*args, **{**options, "trace": trace})
            loop = asyncio.get_running_loop() if in_event_loop() else None
            self._open.append(_OpenRehearsal(rehearsal, loop))
            return rehearsal

        return open_rehearsal

    def cassette(self, name: str = "", **options: Unpack[CassetteOptions]) -> ModelSource:
        """Return a cassette in the folder `cassettes` next to the test file, as a source.

        Without a name it is the cassette of the test. It is replayed, and all of it must be used;
        with `--offbook-record` it is recorded.
        """
        if self._cassettes is None:
            from offbook.runs.test_files import Cassettes

            self._cassettes = Cassettes(
                self._test_folder,
                _file_name(self._test),
                recorded=self._recorded,
                extend=self._extend,
            )
        return self._cassettes.open(name, **options)

    def check_requests(
        self,
        run: Run,
        name: str = "",
        *,
        redactions: RedactionRules | Mapping[str, Any] | None = None,
    ) -> None:
        """Compare the requests of a run with their golden in the folder `requests`.

        A changed system prompt, tool, parameter or message fails the test. `--offbook-update`
        writes the golden; without a name it is the golden of the test. Ids and times are masked,
        and the values that `redactions` select.
        """
        if self._goldens is None:
            from offbook.runs.test_files import RequestGoldens

            self._goldens = RequestGoldens(self._test_folder, _file_name(self._test))
        folders = [opened.rehearsal.cwd for opened in self._open]
        roots = {f"CWD{number or ''}": folder for number, folder in enumerate(folders)}
        self._goldens.check(run.requests, name, redactions=redactions, roots=roots)

    def explore(
        self, world: World, prompt: str, *invariants: Invariant | ToolPolicy, **options: Any
    ) -> Exploration:
        """Play generated models against an agent; the options are those of `explore`.

        Of its rehearsals only the trace of the smallest script that breaks an invariant is kept.
        """
        from offbook.explore import explore

        opened, traces = len(self._open), len(self._traces)
        found: Any = None
        try:
            return (found := explore(world, prompt, *invariants, **options))
        except InvariantBroken as error:
            found = error.exploration
            raise
        finally:
            # The search has closed them, and its trace is what the report shows.
            del self._open[opened:]
            kept = Path(found.trace) if found is not None and found.trace else None
            for trace in self._traces[traces:]:
                if trace != kept:
                    trace.unlink(missing_ok=True)
            self._traces[traces:] = [] if kept is None else [kept]

    def __repr__(self) -> str:
        return f"<offbook of {self._test}>"  # pytest shows it: without an address

    async def close_in_loop(self, failure: BaseException | None = None) -> list[Exception]:
        """Close the rehearsals of the running event loop, and return their errors."""
        loop = asyncio.get_running_loop()
        due = self._pop_open(lambda opened: opened is loop, failure)
        return await _close_all(due, failed=failure is not None)

    def close(self, failure: BaseException | None = None) -> list[Exception]:
        """Close everything that is still open, and return the errors.

        `failure` is the error of the test: a trace ends in it.
        """
        failed = failure is not None
        errors: list[Exception] = []
        for opened in self._pop_open(lambda _: True, failure):
            loop = opened.loop
            if loop is not None and not loop.is_closed():
                errors += loop.run_until_complete(_close_all([opened], failed=failed))
                continue
            try:
                opened.rehearsal.dispose(failed=failed)
            except Exception as error:  # noqa: BLE001 - the others must be closed too
                errors.append(error)
        if self._cassettes is not None:
            errors += self._cassettes.close(failed=failed or bool(errors))
        return errors

    def _pop_open(
        self,
        is_due: Callable[[asyncio.AbstractEventLoop | None], bool],
        failure: BaseException | None,
    ) -> list[_OpenRehearsal]:
        due = [opened for opened in self._open if is_due(opened.loop)]
        for opened in due:
            if failure is not None:
                _emit_test_failure(opened.rehearsal, failure)
            changes = opened.rehearsal.events.changes
            self.changes += [outgoing(change.text) for change in changes]
        self._open = [opened for opened in self._open if opened not in due]
        return due

    @property
    def traces(self) -> list[Path]:
        """The trace files that exist."""
        return [trace for trace in self._traces if trace.is_file()]

    def keep_traces(self, folder: Path, test: str) -> list[Path]:
        """Copy the traces to a folder, named after the test; traces of the user stay in place."""
        kept: list[Path] = []
        for trace in self.traces:
            if trace.parent == self._folder:
                number = f"-{len(kept) + 1}" if kept else ""
                kept.append(copy_atomic(trace, folder / f"{_file_name(test)}{number}.jsonl"))
            else:
                kept.append(trace)
        return kept

    def render_traces(self) -> str:
        """Return the last lines of each trace, as trees."""
        from offbook.reports.github import in_github_actions, neutralize
        from offbook.reports.terminal import render_last_lines

        trees: list[str] = []
        for trace in self.traces:
            try:
                trees.append(render_last_lines(Trace(trace), SHOWN_LINES))
            except OffbookError as error:
                trees.append(str(error))
        text = "\n\n".join(trees)
        return neutralize(text) if in_github_actions() else text

    def clear(self) -> None:
        """Remove the traces."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _emit_test_failure(rehearsal: Rehearsal, failure: BaseException) -> None:
    """End the trace of a run that passed in a test that did not."""
    ends = [event.data.get("ok") for event in rehearsal.events.named(RUN_END)]
    if ends and ends[-1]:
        message = f"{type(failure).__name__}: {failure}".partition("\n")[0]
        message = re.sub(r" at 0x[0-9a-fA-F]+", "", message)  # another one in each run
        rehearsal.hub.emit_verdict(Verdict("test", "fail", outgoing(message)))


async def _close_all(due: Iterable[_OpenRehearsal], *, failed: bool) -> list[Exception]:
    errors: list[Exception] = []
    for opened in due:
        try:
            await opened.rehearsal.dispose(failed=failed)
        except Exception as error:  # noqa: BLE001 - the others must be closed too
            errors.append(error)
    return errors


def _file_name(test: str) -> str:
    """Return the name of a test as a file name: readable and unique."""
    plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in test.replace("::", "-"))
    if plain == test.replace("::", "-").replace("/", "-") and len(plain) <= MAX_NAME_LENGTH:
        return plain
    # two names may become equal when characters are replaced or cut
    return f"{plain[:MAX_NAME_LENGTH]}-{stable_id('', test, length=8)}"
