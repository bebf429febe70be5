"""The capabilities of Offbook: one folder and one line each.

The line has the name of the folder, and of the module with its part of the pytest plugin, if there
is one. That module is a pytest plugin, which Offbook's registers when a run needs it. So it adds
nothing itself, but declares in constants, of which `./dev docs` writes the table that pytest reads
at its start:

- `OPTIONS` and `SETTINGS`: the keywords of `addoption` and `addini`, with `default`. One that is
  given, or set, loads the module.
- `MARKERS`: the arguments and the description of each. A test that has one loads the module. With
  `MARKERS_SETTING`, the name of a setting, they are registered if that is on.
- `FIXTURES`: plain functions. The module is imported by a test that uses one.
- `FILES`: a pattern, relative to the root of the project, and a text. A file with it loads the
  module.
- `IMPORTS`: modules. The module is loaded after a test that has imported one.
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
