"""The pytest plugin: the fixture `offbook` and its options.

pytest imports this module and its package, a table of the capabilities, at every start. Everything
else is imported when a test uses the fixture, and the module of a capability by the table.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import nullcontext, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from pytest_offbook import FILES, FIXTURES, IMPORTS, MARKERS, OPTIONS, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Iterable, Iterator

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

globals().update(FIXTURES)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the settings of the table."""
    group = parser.getgroup("offbook", "test AI agents without the model")
    for name, (_, keywords) in OPTIONS.items():
        group.addoption(name, **keywords)
    for name, (_, keywords) in SETTINGS.items():
        parser.addini(name, **keywords)


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
    """Register the markers, and the capabilities that this project or its options need."""
    refuse_unknown_settings(config)
    for name, (_, description, setting) in MARKERS.items():
        if not setting or config.getini(setting):
            config.addinivalue_line("markers", f"{name}{description}")
    # A hook that ends a session passes over a run that another has failed: the order is fixed.
    load(config, sorted({*find_configured(config)}))


# --- The capabilities: each is registered as a separate plugin when the run needs it


def load(config: pytest.Config, modules: Iterable[str]) -> None:
    """Register the modules of capabilities, each once."""
    plugins = config.pluginmanager
    for name in modules:
        if not plugins.has_plugin(name):
            plugins.register(import_module(name), name)


def find_configured(config: pytest.Config) -> Iterator[str]:
    """Yield the modules whose options are given, whose settings are set, or that have a file."""
    for option, (module, keywords) in OPTIONS.items():
        if config.getoption(option) != keywords["default"]:
            yield module
    for setting, (module, keywords) in SETTINGS.items():
        if config.getini(setting) != keywords["default"]:
            yield module
    for pattern, (module, text) in FILES.items():
        for path in config.rootpath.glob(pattern):
            with suppress(OSError):  # what cannot be read has no text
                if not text or text.encode() in path.read_bytes():
                    yield module


def find_used(markers: Container[str], imported: Container[str]) -> Iterator[str]:
    """Yield the modules for these markers, and those that watch these imports."""
    for marker, (module, _, setting) in MARKERS.items():
        if marker in markers and not setting:  # by the setting it is loaded already
            yield module
    for name, module in IMPORTS.items():
        if name in imported:
            yield module


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Load the capabilities that the markers of this session need."""
    markers = {mark.name for item in session.items for mark in item.iter_markers()}
    load(session.config, find_used(markers, ()))  # what is imported is checked after a test


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Load what the markers in a worker of pytest-xdist may need: this process has no tests."""
    load(node.config, find_used(MARKERS, ()))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Load the capabilities for what the test has imported; an error of its end comes first."""
    result = yield
    load(item.config, find_used((), sys.modules))
    return result


# --- The tests


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
        ours = MARKERS.keys() & registered
        if close := get_close_matches(name, ours, n=1, cutoff=0.75):
            raise pytest.UsageError(f"unknown marker {name!r}: did you mean {close[0]!r}?")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Give a test its own mocks, and block the network if it uses the fixture `offbook`."""
    fixtures = getattr(item, "fixturenames", ())
    mocks = MOCK_FIXTURES.intersection(fixtures) or any(map(sys.modules.get, SCOPED_MODULES))
    if not mocks and "offbook" not in fixtures:
        return (yield)
    from pytest_offbook.rehearsals import isolate_test, open_test_scopes

    with (
        open_test_scopes(item) if mocks else nullcontext(),
        isolate_test(item) if "offbook" in fixtures else nullcontext(),
    ):
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
