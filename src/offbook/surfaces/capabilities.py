"""The capabilities of Offbook: one folder and one line each."""

from functools import partial

from offbook.capability import load_declarations

CAPABILITIES = (
    "checkup",
    "conformance",
    "contracts",
    "evals",
    "explore",
    "goldens",
    "lint",
    "mcp",
    "patterns",
    "protocols",
    "sandbox",
    "viewer",
    "workflows",
)

load_capabilities = partial(load_declarations, CAPABILITIES)
