"""The options and settings of the plugin itself, declared as those of a capability.

`offbook/surfaces/capabilities.py` explains the constants. This module is loaded by a run that gives
one of them.
"""

from __future__ import annotations

from typing import Any

import pytest

TRACES_HELP = """Keep the traces of failing tests in the folder DIR (default: .offbook/traces); \
`all` keeps the traces of all tests, `never` keeps none."""

OPTIONS: dict[str, dict[str, Any]] = {
    "--offbook-traces": {"metavar": "DIR|all|never", "default": None, "help": TRACES_HELP},
    "--offbook-record": {
        "action": "store_true",
        "default": False,
        "help": "Send requests to the real model, with your keys, and record the cassettes of"
        " tests (`offbook.cassette()`). Without it they are replayed.",
    },
    "--offbook-record-new": {
        "action": "store_true",
        "default": False,
        "help": "Replay the cassettes of tests, and record only the requests that they do not"
        " have.",
    },
    "--offbook-update": {
        "action": "store_true",
        "default": False,
        "help": "Write expected files that do not match instead of failing: goldens of requests"
        " (`offbook.check_requests(run)`), of transcripts (`assert_golden_transcript`), and"
        " snapshots (`snapshot_matches`). Refused in CI.",
    },
    "--offbook-github": {
        "action": "store_true",
        "default": False,
        "help": "In GitHub Actions, print an annotation for each failed test and write the"
        " summary of the step; elsewhere it does nothing.",
    },
}
SETTINGS: dict[str, dict[str, Any]] = {
    "offbook_traces": {"help": TRACES_HELP, "default": ""},
    "offbook_allow": {
        "help": "Addresses that tests with the fixture `offbook` may reach outside of a run, such"
        " as `db.internal:5432`; `allow=` of drive() permits them in a run.",
        "type": "linelist",
        "default": [],
    },
    "offbook_full_tracebacks": {
        "help": "Show the frames of Offbook in the tracebacks of failed runs, as `--full-trace`"
        " does for all frames.",
        "type": "bool",
        "default": False,
    },
}


def pytest_configure(config: pytest.Config) -> None:
    """Update expected files, and report to GitHub."""
    if config.getoption("--offbook-update"):
        from offbook.surfaces.fixtures import update_goldens

        update_goldens.set(True)
        config.add_cleanup(lambda: update_goldens.set(None) and None)
    if config.getoption("--offbook-github") and not hasattr(config, "workerinput"):
        from offbook.surfaces.pytest_session import in_github_actions

        if in_github_actions():
            from pytest_offbook.failures import GitHubHooks

            config.pluginmanager.register(GitHubHooks(config), "offbook-github")
