"""Golden fixtures: scenarios recorded from a real component and replayed in tests.

`from offbook.goldens import Component, scenario, step` is all that a live script needs.
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Goldens",
    commands={
        "golden": CommandEntry(
            "Record and check golden fixtures and specs.",
            "offbook.goldens.goldens_cli:golden",
        ),
    },
    pending="offbook.goldens.project:find_recordings",
)

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "components": "Component Harness step",
        "live_scripts": "scenario",
        "project": "Goldens",
        "session_hub": "Channel SessionHub",
    },
    "CAPABILITY",
    internal={
        "components": "SessionComponent steps_of",
        "fixture_store": "FixtureStore GoldenFixture GoldenScenario MatchMode MatchRule"
        " read_scenarios write_fixture",
        "goldens_pytest": "MARKERS",
        "live_scripts": "ComponentRegistry find_problems promote record",
        "golden_replay": "GoldenReplay compare_events replay replay_all",
        "project": "Project check_live find_pytest_settings find_recordings",
        "replay_guard": "Stopwatch guard_replay leave_network native_libraries"
        " seconds_waiting_for_cpu time_budget",
        "session_hub": "Inbox",
        "specs": "Spec SpecResult SpecResults check_completeness check_static read_spec"
        " render_table tabulate write_template",
    },
)
