"""Golden fixtures: scenarios recorded from a real component and replayed in tests.

from offbook.goldens import Component, scenario, step
"""

from typing import TYPE_CHECKING

from offbook.capability import Capability, CommandEntry, lazy_names

if TYPE_CHECKING:
    from offbook.goldens.components import Component as Component
    from offbook.goldens.components import Harness as Harness
    from offbook.goldens.components import step as step
    from offbook.goldens.live_scripts import scenario as scenario
    from offbook.goldens.project import Goldens as Goldens
    from offbook.goldens.session_hub import Channel as Channel
    from offbook.goldens.session_hub import SessionHub as SessionHub
    from offbook.goldens.session_hub import event_envelope as event_envelope

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
# Lazy, because `offbook --help` and every start of pytest import this package.
__getattr__ = lazy_names(
    {
        "components": "Component Harness step",
        "live_scripts": "scenario",
        "project": "Goldens",
        "session_hub": "Channel SessionHub event_envelope",
    },
    __name__,
)


def __dir__() -> list[str]:
    return __all__
