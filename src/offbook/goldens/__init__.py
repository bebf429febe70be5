"""Golden fixtures: scenarios recorded from a real component and replayed in tests.

`from offbook.goldens import Component, scenario, step` is all that a live script needs.
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Goldens",
    commands={
        "golden": CommandEntry(
            "Record, review and check golden fixtures and specs.",
            "offbook.goldens.goldens_cli:golden",
        ),
    },
    pytest_module="offbook.goldens.goldens_pytest",
    review="offbook.goldens.golden_review:review_folder",
)

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "components": "Component Harness step",
        "live_scripts": "scenario",
        "project": "Goldens",
        "session_hub": "Channel SessionHub event_envelope",
    },
    "CAPABILITY",
)
