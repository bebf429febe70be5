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
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "sandbox_cli": "verify_sandbox_install",
    },
    "CAPABILITY",
    internal={
        "load_entry_points": "find_entry_points main",
        "npm_package": "install_npm_package",
        "sandbox_cli": "find_unmet",
        "sandbox_folder": "Loaded SandboxFault SandboxFolder SandboxResult SandboxStep SmokeResult",
    },
)
