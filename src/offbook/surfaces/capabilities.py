"""The capabilities of Offbook: one folder and one line each.

The line has the name of the folder, and of the module with its part of the pytest plugin, if there
is one: `add_options(parser)`, `configure(config)`, the names of its `MARKERS`, and `FIXTURES`, a
table of fixture functions. That module is imported at every start of pytest, so it imports nothing
but pytest until a hook or a fixture needs more.
"""

from functools import partial

from offbook.capability import load_declarations

CAPABILITIES = {
    "checkup": "",
    "conformance": "",
    "contracts": "limits_pytest",
    "evals": "evals_pytest",
    "explore": "coverage_pytest",
    "goldens": "goldens_pytest",
    "lint": "",
    "mcp": "",
    "patterns": "patterns_pytest",
    "protocols": "",
    "sandbox": "",
    "viewer": "viewer_pytest",
    "workflows": "",
}

load_capabilities = partial(load_declarations, tuple(CAPABILITIES))
