"""The parts of one test: the rehearsals of the fixture `offbook`, its mocks, and its network.

The hooks are registered by the first test that needs them.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from functools import partial, wraps
from hashlib import blake2b
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from offbook.surfaces.fixtures import (
    FakePrograms,
    MockScopes,
    Offbook,
    close_scopes,
    current_host,
    end_with_controller,
    open_scopes,
)
from pytest_offbook.failures import (
    CHANGE_PROPERTY,
    hide_internal_frames,
    shows_all_frames,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from offbook.surfaces.pytest_session import ConnectionBlocked, NetworkGuard

# --- The rehearsals of the fixture `offbook`

PLUGIN_NAME = "offbook-rehearsals"
TRACES_FOLDER = Path(".offbook") / "traces"
OFFBOOK_KEY = pytest.StashKey[Offbook]()


def open_offbook(request: pytest.FixtureRequest) -> Offbook:
    """Return the value of the fixture `offbook`, and register the hooks that close it."""
    plugins = request.config.pluginmanager
    hooks = plugins.get_plugin(PLUGIN_NAME)
    if hooks is None:
        # below the temporary folder of pytest, where every test may write
        scratch = request.getfixturevalue("tmp_path_factory").mktemp("offbook-traces")
        hooks = RehearsalHooks(request.config, scratch)
        plugins.register(hooks, PLUGIN_NAME)
        if hasattr(request.config, "workerinput"):
            end_with_controller()
    return hooks.open(request.node)


class RehearsalHooks:
    """Closes the rehearsals of each test, and shows and keeps the traces of failed tests."""

    def __init__(self, config: pytest.Config, scratch: Path) -> None:
        setting = config.getoption("--offbook-traces") or config.getini("offbook_traces")
        self._keep_all = setting == "all"
        self._keep_none = setting == "never"
        self._own_folder = not setting or self._keep_all or self._keep_none
        self._root = config.rootpath
        self._folder = (
            self._root / TRACES_FOLDER
            if self._own_folder
            else config.invocation_params.dir / str(setting)
        )
        self._full_traceback = shows_all_frames(config)
        self._scratch = scratch
        self._tests = 0
        self._extend = bool(config.getoption("--offbook-record-new"))
        records = self._extend or config.getoption("--offbook-record")
        self._recorded: set[Path] | None = set() if records else None
        # of --offbook-html: the traces of all tests are copied here
        self._page_folder: str | None = config.getoption("offbook_html_traces", None)
        config.add_cleanup(lambda: shutil.rmtree(self._scratch, ignore_errors=True))

    def open(self, item: pytest.Item) -> Offbook:
        """Return the rehearsals of this test."""
        self._tests += 1
        folder = self._scratch / str(self._tests)
        folder.mkdir()
        test = f"{item.path.stem}-{item.name}"
        opened = Offbook(
            folder,
            test_folder=item.path.parent,
            test=test,
            recorded=self._recorded,
            extend=self._extend,
        )
        item.stash[OFFBOOK_KEY] = opened
        return opened

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Close the rehearsals when the test function returns; their errors fail the test."""
        opened = item.stash.get(OFFBOOK_KEY, None)
        if opened is None:
            return (yield)
        test: Callable[..., Any] | None = getattr(item, "obj", None)
        if iscoroutinefunction(test):
            item.obj = _close_in_test(test, opened)  # pyright: ignore[reportAttributeAccessIssue] - a Function has obj
        try:
            result = yield
        except BaseException as error:
            _add_notes(error, opened.close(error))
            if not self._full_traceback:
                hide_internal_frames(error)
            raise
        finally:
            if iscoroutinefunction(test):
                item.obj = test  # pyright: ignore[reportAttributeAccessIssue] - as above
        raise_errors(opened.close())
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the traces of a failed test, and the changes of a passed one; keep wanted traces."""
        report = yield
        opened = item.stash.get(OFFBOOK_KEY, None)
        if opened is None:
            return report
        if report.failed:
            lines = [opened.render_traces() or "no rehearsal was run", *self._keep(opened, item)]
            report.sections.append(("offbook trace", "\n".join(lines)))
        elif report.when == "call":
            # A property of the test is also in the JUnit XML of pytest.
            report.user_properties += [(CHANGE_PROPERTY, change) for change in opened.changes]
            if self._keep_all:
                self._keep(opened, item)
        if self._page_folder is not None and (report.failed or report.when == "call"):
            self._copy_for_page(opened, item.nodeid, Path(self._page_folder))
        if report.when == "teardown":
            opened.clear()
        return report

    def _copy_for_page(self, opened: Offbook, test: str, folder: Path) -> None:
        """Copy the traces of a test to the folder that `--offbook-html` reads at the end."""
        own = folder / blake2b(test.encode(), digest_size=12).hexdigest()
        own.mkdir(exist_ok=True)
        for number, trace in enumerate(opened.traces):
            if trace.is_file():
                shutil.copyfile(trace, own / f"{number:04}.jsonl")

    def _keep(self, opened: Offbook, item: pytest.Item) -> list[str]:
        """Copy the traces of a test to the folder, and return a line for each."""
        if self._keep_none:
            return []
        try:
            kept = opened.keep_traces(self._folder, item.nodeid)
            if kept and self._own_folder:
                ignore = self._folder.parent / ".gitignore"
                if ignore.parent.is_dir() and not ignore.exists():
                    ignore.write_text("*\n", encoding="utf-8")
        except OSError as error:
            return [f"not kept: {error}"]
        return [
            f"kept: {path.relative_to(self._root) if path.is_relative_to(self._root) else path}"
            for path in kept
        ]


def _close_in_test(test: Callable[..., Any], opened: Offbook) -> Callable[..., Any]:
    """Return an async test that closes its rehearsals in its own event loop."""

    @wraps(test)
    async def closing(*args: Any, **kwargs: Any) -> Any:
        try:
            result = await test(*args, **kwargs)
        except BaseException as error:
            _add_notes(error, await opened.close_in_loop(error))
            raise
        raise_errors(await opened.close_in_loop())
        return result

    return closing


def raise_errors(errors: list[Exception]) -> None:
    """Fail a test whose rehearsals had errors when they were closed."""
    if not errors:
        return
    first, *others = errors
    _add_notes(first, others)
    raise first


def _add_notes(error: BaseException, others: list[Exception]) -> None:
    """Add further errors below the error of the test itself."""
    for other in others:
        error.add_note(f"also, when the rehearsal was closed: {_title(other)}")


def _title(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


# --- The mocks of one test: opened before its fixtures, checked when the test function returns

SCOPES_KEY = pytest.StashKey[MockScopes]()
FAKES_KEY = pytest.StashKey[FakePrograms]()
LLM_FIXTURES = frozenset({"llm_mocks", "mocks"})


@contextmanager
def open_test_scopes(item: pytest.Item) -> Generator[None]:
    """Open the scopes of a test in its context, which its tasks inherit."""
    with_llm = bool(LLM_FIXTURES.intersection(getattr(item, "fixturenames", ())))
    with open_scopes(item.nodeid, with_llm=with_llm) as item.stash[SCOPES_KEY]:
        yield


def scopes_of(item: pytest.Item) -> MockScopes:
    """Return the scopes of a test."""
    return item.stash[SCOPES_KEY]


def fakes_of(item: pytest.Item) -> FakePrograms:
    """Return the fake programs of a test, made for the first fixture that needs them."""
    return item.stash.setdefault(FAKES_KEY, FakePrograms())


def close_test_scopes(item: pytest.Item) -> None:
    """Raise for a mock that was not used, and for a call without a mock that was swallowed."""
    if (fakes := item.stash.get(FAKES_KEY, None)) is not None:
        fakes.check()
    scopes = item.stash.get(SCOPES_KEY, None)
    if scopes is not None:
        close_scopes(scopes)
        return
    # The test itself imported the functions: its mocks must not reach the next test.
    scope = current_host.get()
    current_host.set(None)
    if scope is not None:
        scope.close()


# --- The network of a test that uses the fixture `offbook`, from its fixtures to its last thread.
# Without a permission nothing leaves the machine. A connection that is refused fails the test, also
# if the test swallowed it or a thread tries it after its end. If a thread tries one when even the
# teardown is over, the whole session fails.

ISOLATION_NAME = "offbook-isolation"
GUARD_KEY: pytest.StashKey[NetworkGuard] = pytest.StashKey()


@contextmanager
def isolate_test(item: pytest.Item) -> Generator[None]:
    """Block the network in all phases of this test."""
    from offbook.surfaces.pytest_session import block_network, disable_telemetry, explain_refusal

    plugins = item.config.pluginmanager
    late: LateConnections | None = plugins.get_plugin(ISOLATION_NAME)
    if late is None:
        late = LateConnections()
        plugins.register(late, ISOLATION_NAME)
    allow = tuple(item.config.getini("offbook_allow"))

    def on_late(error: ConnectionBlocked) -> None:
        late.errors.append((item.nodeid, error))

    explain = partial(explain_refusal, place="test")
    with (
        disable_telemetry(),
        block_network(allow=allow, on_late=on_late, explain=explain) as guard,
    ):
        item.stash[GUARD_KEY] = guard
        yield


class LateConnections:
    """The connections that threads tried after the end of their test."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, ConnectionBlocked]] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail a test for the connections that were refused in it, or after its end."""
        guard = item.stash.get(GUARD_KEY, None)
        if guard is None:
            return (yield)
        during, guard.refused = guard.refused, []
        result = yield
        if guard.refused:
            raise pytest.fail.Exception(f"after the end of the test: {guard.refused[0]}")
        if during:
            raise pytest.fail.Exception(f"a connection was refused: {during[0]}")
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """A test that failed shows its own error only."""
        if call.excinfo is not None and (guard := item.stash.get(GUARD_KEY, None)) is not None:
            guard.refused.clear()

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a session in which a thread tried a connection after its test."""
        if self.errors and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the tests and their connections."""
        if self.errors:
            terminalreporter.section("connections after the end of a test", red=True)
            for test, error in self.errors:
                terminalreporter.line(f"{test}: {error}")
