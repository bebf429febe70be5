"""The fixture `offbook` and its option; everything else is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from offbook.surfaces.capabilities import load_capabilities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offbook.goldens.goldens_pytest import Goldens
    from offbook.surfaces.fixtures import Offbook

# The hooks, options and fixtures of the capabilities.
pytest_plugins = [
    capability.pytest_plugin for capability in load_capabilities() if capability.pytest_plugin
]

ABOUT = """Which traces to keep: those of failing tests in the folder DIR (default: \
.offbook/traces); `all`: those of all tests; `never`: none."""

RECORD = """Ask the real model, with your keys, and record the cassettes that tests ask for \
(`offbook.cassette()`); without it they are replayed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """What to keep, what to run, and whether to record."""
    group = parser.getgroup("offbook", "rehearse AI agents without the model")
    group.addoption("--offbook-traces", metavar="DIR|all|never", default=None, help=ABOUT)
    parser.addini("offbook_traces", ABOUT, default="")
    group.addoption("--offbook-live", action="store_true", help="Run the tests marked `live`.")
    group.addoption("--offbook-record", action="store_true", help=RECORD)


MARKERS = {
    "unit(budget=0.1)": "pure logic: no network, no process, no file but temporary ones, and fast",
    "replay(budget=1.0)": "replays what was recorded: no network, no process, no file written",
    "live(needs=[])": "asks the real thing; skipped without --offbook-live or what it `needs`",
}


def pytest_configure(config: pytest.Config) -> None:
    """Name the kinds of tests; where there are test specs, watch who shows what."""
    for marker, about in MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: {about}")
    specs = (config.rootpath / "tests" / "specs").glob("*.test-spec.md")
    if not hasattr(config, "workerinput") and any(specs):
        from offbook.goldens.goldens_pytest import COMPLETENESS_PLUGIN, Completeness

        config.pluginmanager.register(Completeness(config), COMPLETENESS_PLUGIN)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Hold tests to the promises of their kind, where there are any of a kind."""
    kinds = {marker.partition("(")[0] for marker in MARKERS}
    if any(mark.name in kinds for item in items for mark in item.iter_markers()):
        from offbook.goldens.goldens_pytest import CATEGORIES_PLUGIN, Categories

        if not config.pluginmanager.has_plugin(CATEGORIES_PLUGIN):
            config.pluginmanager.register(Categories(), CATEGORIES_PLUGIN)


@pytest.fixture
def goldens(request: pytest.FixtureRequest) -> Goldens:
    """Golden fixtures of the project: `goldens.replay("component/name")`."""
    from offbook.goldens.goldens_pytest import Goldens, open_project

    def tell(name: str) -> None:
        request.node.user_properties.append(("offbook-golden", name))

    return Goldens(open_project(request.config.rootpath), tell)


@pytest.fixture
def offbook(request: pytest.FixtureRequest) -> Iterator[Offbook]:
    """Rehearsals for this test: `offbook.session(…)` and `offbook.drive(…)`.

    They end with the test, in plain and in `async def` tests alike. `offbook.cassette()` is a
    source for them: what was recorded with `--offbook-record`.
    """
    from pytest_offbook.rehearsals import blame, watch_test

    opened = watch_test(request)
    yield opened
    blame(opened.close())
