"""Golden fixtures: scenarios recorded from a real component and replayed in tests.

from offbook.goldens import Component, scenario, step
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
    pytest_plugin="offbook.goldens.goldens_pytest",
)

# Imported on first use: `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
_MODULES = {
    "goldens.components": "Component Harness step",
    "goldens.live_scripts": "scenario",
    "goldens.project": "Goldens",
    "goldens.session_hub": "Channel SessionHub event_envelope",
}

__all__ = [
    "CAPABILITY",
    "Channel",
    "Component",
    "Goldens",
    "Harness",
    "SessionHub",
    "event_envelope",
    "scenario",
    "step",
]
__getattr__ = lazy_names(_MODULES, "offbook")


def __dir__() -> list[str]:
    return __all__
