"""Sandbox installs: pack a package, install it in an empty folder, and load its extensions.

from offbook.sandbox import verify_sandbox_install
"""

from offbook.capability import Capability, CommandEntry, lazy_names

CAPABILITY = Capability(
    heading="Sandbox",
    commands={
        "sandbox": CommandEntry(
            "Install a package of extensions in an empty folder, and load it.",
            "offbook.sandbox.sandbox_cli:sandbox",
        ),
    },
)

# Lazy, because `offbook --help` and every start of pytest import this package.
# `__init__.pyi` lists the same names for type checkers.
_MODULES = {
    "sandbox_result": "SandboxFault Loaded SandboxResult SandboxStep SmokeResult",
    "verify": "verify_sandbox_install",
}

_NAMES = sorted(name for names in _MODULES.values() for name in names.split())
__all__ = ["CAPABILITY", *_NAMES]  # noqa: PLE0604 # pyright: ignore[reportUnsupportedDunderAll] - only strings
__getattr__ = lazy_names(_MODULES, __name__)


def __dir__() -> list[str]:
    return __all__
