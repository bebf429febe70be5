"""The pytest plugin: the fixture `offbook` and its options.

pytest imports this module at every start. Everything else is imported when a test uses the fixture.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from offbook.surfaces.capabilities import CAPABILITIES

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from offbook.surfaces.fixtures import (
        FakeCli,
        FakePrograms,
        HostScope,
        LlmScope,
        MockScopes,
        Offbook,
    )

MOCK_FIXTURES = frozenset({"host_mocks", "llm_mocks", "mocks"})
# Loaded in a session with tests that may call a host, or record steps.
SCOPED_MODULES = ("offbook.host.host_scope", "offbook.trace.steps")

FAKE_MODULE = "offbook.host.fake_cli"

# The modules of the capabilities. They are not pytest plugins: each one costs pytest 3 ms at every
# start, used or not. So their options, fixtures and configuration are registered here.
MODULES: list[Any] = [
    import_module(f"offbook.{name}.{module}") for name, module in CAPABILITIES.items() if module
]
for _module in MODULES:
    globals().update({name: pytest.fixture(f) for name, f in _module.FIXTURES.items()})

TRACES_HELP = """Keep the traces of failing tests in the folder DIR (default: .offbook/traces); \
`all` keeps the traces of all tests, `never` keeps none."""

RECORD_HELP = """Send requests to the real model, with your keys, and record the cassettes of \
tests (`offbook.cassette()`). Without it they are replayed."""

UPDATE_HELP = """Write expected files that do not match instead of failing: goldens of requests \
(`offbook.check_requests(run)`), of transcripts (`assert_golden_transcript`), and snapshots \
(`snapshot_matches`). Refused in CI."""


ALLOW_HELP = """Addresses that tests with the fixture `offbook` may reach outside of a run, such \
as `db.internal:5432`; `allow=` of drive() permits them in a run."""

FRAMES_HELP = """Show the frames of Offbook in the tracebacks of failed runs, as `--full-trace` \
does for all frames."""

GITHUB_HELP = """In GitHub Actions, print an annotation for each failed test and write the \
summary of the step; elsewhere it does nothing."""

EXTEND_HELP = (
    """Replay the cassettes of tests, and record only the requests that they do not have."""
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for traces and recording."""
    group = parser.getgroup("offbook", "test AI agents without the model")
    group.addoption("--offbook-traces", metavar="DIR|all|never", default=None, help=TRACES_HELP)
    parser.addini("offbook_traces", TRACES_HELP, default="")
    group.addoption("--offbook-record", action="store_true", help=RECORD_HELP)
    group.addoption("--offbook-record-new", action="store_true", help=EXTEND_HELP)
    group.addoption("--offbook-update", action="store_true", help=UPDATE_HELP)
    group.addoption("--offbook-github", action="store_true", help=GITHUB_HELP)
    parser.addini("offbook_allow", ALLOW_HELP, type="linelist", default=[])
    parser.addini("offbook_full_tracebacks", FRAMES_HELP, type="bool", default=False)
    for module in MODULES:
        module.add_options(parser)


# The settings above, and those of the capabilities.
SETTINGS = ("offbook_allow", "offbook_categories", "offbook_full_tracebacks", "offbook_traces")


def refuse_unknown_settings(config: pytest.Config) -> None:
    """Refuse a misspelt setting: pytest only warns of it, and it would limit nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and nothing else has the unknown ones
        names: list[str] = list(getattr(config, "inicfg", ()))
    for name in names:
        if name.startswith("offbook") and name not in SETTINGS:
            from difflib import get_close_matches

            close = get_close_matches(name, SETTINGS, n=1, cutoff=0)[0]
            raise pytest.UsageError(f"unknown setting {name!r}: did you mean {close!r}?")


def pytest_configure(config: pytest.Config) -> None:
    """Let the capabilities register the hooks that this project needs."""
    refuse_unknown_settings(config)
    for module in MODULES:
        module.configure(config)
    if config.getoption("--offbook-update"):
        from offbook.surfaces.fixtures import update_goldens

        update_goldens.set(True)
        config.add_cleanup(lambda: update_goldens.set(None) and None)
    if config.getoption("--offbook-github") and not hasattr(config, "workerinput"):
        from offbook.surfaces.pytest_session import in_github_actions

        if in_github_actions():
            from pytest_offbook.failures import GitHubHooks

            config.pluginmanager.register(GitHubHooks(config), "offbook-github")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show a failure at the lines of the user, and hide its secrets."""
    if call.excinfo is not None:
        from pytest_offbook.failures import show_user_lines

        call.excinfo = show_user_lines(item, call.excinfo)
    report = yield
    if report.failed and "offbook.runs" in sys.modules:
        from pytest_offbook.failures import ReportMask

        ReportMask(call.excinfo.value if call.excinfo else None).mask_report(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what the agents of passed tests changed; a worker of pytest-xdist reports it, too."""
    changed = [
        (report.nodeid, text)
        for report in terminalreporter.stats.get("passed", ())
        for name, text in report.user_properties
        if name == "offbook.change"
    ]
    if changed:
        from pytest_offbook.failures import report_changes

        report_changes(terminalreporter, changed)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a misspelt marker: pytest only warns of it, and it would limit nothing."""
    names = {mark.name for mark in item.iter_markers()}
    if not names:
        return
    lines: list[str] = item.config.getini("markers")
    registered = {line.partition(":")[0].partition("(")[0].strip() for line in lines}
    for name in names - registered:
        from difflib import get_close_matches

        # Those of the categories are registered if the project uses them.
        ours = [each for module in MODULES for each in module.MARKERS if each in registered]
        if close := get_close_matches(name, ours, n=1, cutoff=0.75):
            raise pytest.UsageError(f"unknown marker {name!r}: did you mean {close[0]!r}?")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Give a test its own mocks, and block the network if it uses the fixture `offbook`."""
    fixtures = getattr(item, "fixturenames", ())
    mocks = MOCK_FIXTURES.intersection(fixtures) or any(map(sys.modules.get, SCOPED_MODULES))
    if not mocks and "offbook" not in fixtures:
        return (yield)
    with ExitStack() as stack:
        if mocks:
            from pytest_offbook.rehearsals import open_test_scopes

            stack.enter_context(open_test_scopes(item))
        if "offbook" in fixtures:
            from pytest_offbook.rehearsals import isolate_test

            stack.enter_context(isolate_test(item))
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that did not use its mocks."""
    result = yield
    if SCOPED_MODULES[0] in sys.modules or FAKE_MODULE in sys.modules:
        from pytest_offbook.rehearsals import close_test_scopes

        close_test_scopes(item)
    return result


@pytest.fixture
def host_mocks(request: pytest.FixtureRequest) -> HostScope:
    """The host mocks of this test, and its log of host calls."""
    from pytest_offbook.rehearsals import scopes_of

    return scopes_of(request.node).host


@pytest.fixture
def llm_mocks(request: pytest.FixtureRequest) -> LlmScope:
    """The LLM mocks of this test, which answer the HTTP clients of this process."""
    from pytest_offbook.rehearsals import scopes_of

    return scopes_of(request.node).llm


@pytest.fixture
def mocks(request: pytest.FixtureRequest) -> MockScopes:
    """Both: `mocks.host` and `mocks.llm`."""
    from pytest_offbook.rehearsals import scopes_of

    return scopes_of(request.node)


@pytest.fixture
def fake_cli(request: pytest.FixtureRequest) -> Iterator[FakePrograms]:
    """Put fake programs on the PATH of this test: `fake_cli("claude", [{"output": "Done."}])`."""
    from pytest_offbook.rehearsals import fakes_of

    fakes = fakes_of(request.node)
    yield fakes
    fakes.uninstall()


@pytest.fixture
def mock_pi(fake_cli: FakePrograms) -> FakeCli:
    """A fake `pi` on the PATH of this test; `mock_pi.add({"output": "…"})` scripts it."""
    from offbook.surfaces.fixtures import mock_pi as make_mock_pi

    return fake_cli.add(make_mock_pi())


@pytest.fixture
def offbook(request: pytest.FixtureRequest) -> Iterator[Offbook]:
    """Run agents in this test: `offbook.session(…)` and `offbook.drive(…)`.

    They are closed with the test, in plain and in `async def` tests. `offbook.cassette()` is a
    source for them, recorded with `--offbook-record`.
    """
    from pytest_offbook.rehearsals import open_offbook, raise_errors

    opened = open_offbook(request)
    yield opened
    raise_errors(opened.close())
