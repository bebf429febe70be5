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
_MODULES = {
    "components": "Component Harness step",
    "live_scripts": "scenario",
    "project": "Goldens",
    "session_hub": "Channel SessionHub event_envelope",
}

_NAMES = sorted(name for names in _MODULES.values() for name in names.split())
__all__ = ["CAPABILITY", *_NAMES]  # noqa: PLE0604 # pyright: ignore[reportUnsupportedDunderAll] - only strings
__getattr__ = lazy_names(_MODULES, __name__)


def __dir__() -> list[str]:
    return __all__
