"""Golden fixtures: scenarios recorded from a real component and replayed in tests."""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Goldens",
    commands={
        "fixture": CommandEntry(
            "Record, promote and check golden fixtures.", "offbook.goldens.goldens_cli:golden"
        ),
        "live": CommandEntry(
            "Play the scenarios of live scripts on the real component.",
            "offbook.goldens.goldens_cli:live",
        ),
        "spec": CommandEntry("Write and check test specs.", "offbook.goldens.goldens_cli:spec"),
    },
)

_MODULES = {
    "goldens.components": "Component Harness step",
    "goldens.live_scripts": "scenario",
    "goldens.session_hub": "Channel SessionHub event_envelope",
}

__all__ = ["CAPABILITY", *sorted(name for names in _MODULES.values() for name in names.split())]
__getattr__ = lazy_names(_MODULES, "offbook")


def __dir__() -> list[str]:
    return __all__
