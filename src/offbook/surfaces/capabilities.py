"""The capabilities of Offbook: one folder and one line each."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as in offbook/capability.py: no import of typing
if TYPE_CHECKING:
    from offbook.capability import Capability

CAPABILITIES = (
    "conformance",
    "contracts",
    "evals",
    "explore",
    "goldens",
    "lint",
    "patterns",
    "sandbox",
    "viewer",
    "workflows",
)


def load_capabilities() -> list[Capability]:
    """Import the declarations of all capabilities; their code is imported when it is used."""
    return [import_module(f"offbook.{name}").CAPABILITY for name in CAPABILITIES]
