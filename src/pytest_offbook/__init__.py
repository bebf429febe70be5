"""The pytest plugin of Offbook. It stays outside the package, so that pytest starts without it.

This is the table of what the plugin and the capabilities add, in the one file that is imported
before the plugin. `./dev docs` writes it from the modules that it names: each is loaded when an
option, a setting, a marker, a file or a fixture needs it.
"""

# ruff: noqa: E501 - the help of an option is one line

from importlib import import_module
from typing import Any

import pytest

OPTIONS: dict[str, Any] = {
    "--offbook-traces": (
        "pytest_offbook.options",
        {
            "metavar": "DIR|all|never",
            "default": None,
            "help": "Keep the traces of failing tests in the folder DIR (default: .offbook/traces); `all` keeps the traces of all tests, `never` keeps none.",
        },
    ),
    "--offbook-record": (
        "pytest_offbook.options",
        {
            "action": "store_true",
            "default": False,
            "help": "Send requests to the real model, with your keys, and record the cassettes of tests (`offbook.cassette()`). Without it they are replayed.",
        },
    ),
    "--offbook-record-new": (
        "pytest_offbook.options",
        {
            "action": "store_true",
            "default": False,
            "help": "Replay the cassettes of tests, and record only the requests that they do not have.",
        },
    ),
    "--offbook-update": (
        "pytest_offbook.options",
        {
            "action": "store_true",
            "default": False,
            "help": "Write expected files that do not match instead of failing: goldens of requests (`offbook.check_requests(run)`), of transcripts (`assert_golden_transcript`), and snapshots (`snapshot_matches`). Refused in CI.",
        },
    ),
    "--offbook-github": (
        "pytest_offbook.options",
        {
            "action": "store_true",
            "default": False,
            "help": "In GitHub Actions, print an annotation for each failed test and write the summary of the step; elsewhere it does nothing.",
        },
    ),
    "--offbook-budget": (
        "offbook.contracts.limits_pytest",
        {
            "action": "append",
            "default": [],
            "metavar": "NAME=LIMIT",
            "help": "Limit what all tests together use: requests, tokens, cost_usd or seconds.",
        },
    ),
    "--offbook-evals": (
        "offbook.evals.evals_pytest",
        {
            "action": "store_true",
            "default": False,
            "help": "Collect eval packs (*.eval.toml): one test for each case.",
        },
    ),
    "--offbook-coverage": (
        "offbook.explore.coverage_pytest",
        {
            "nargs": "?",
            "const": "",
            "default": None,
            "metavar": "FILE.json",
            "help": "Show which tools, hooks, answers, hats, nodes and handoffs of the agents were used; with a file, write it as JSON as well.",
        },
    ),
    "--offbook-coverage-fail-under": (
        "offbook.explore.coverage_pytest",
        {
            "type": float,
            "default": None,
            "metavar": "PERCENT",
            "help": "Fail the run if fewer parts of the agents are covered. Implies --offbook-coverage.",
        },
    ),
    "--offbook-coverage-agent": (
        "offbook.explore.coverage_pytest",
        {
            "default": "",
            "metavar": "NAME",
            "help": "Measure one of several agents. Implies --offbook-coverage.",
        },
    ),
    "--offbook-live": (
        "offbook.goldens.goldens_pytest",
        {"action": "store_true", "default": False, "help": "Run the tests marked `live`."},
    ),
    "--offbook-offline": (
        "offbook.goldens.goldens_pytest",
        {
            "action": "store_true",
            "default": False,
            "help": "Run in a network with loopback only, also for native code (Linux).",
        },
    ),
    "--offbook-html": (
        "offbook.viewer.viewer_pytest",
        {
            "metavar": "FILE",
            "default": None,
            "help": "Write the rehearsals of all tests as one HTML page to FILE.",
        },
    ),
}
SETTINGS: dict[str, Any] = {
    "offbook_traces": (
        "pytest_offbook.options",
        {
            "help": "Keep the traces of failing tests in the folder DIR (default: .offbook/traces); `all` keeps the traces of all tests, `never` keeps none.",
            "default": "",
        },
    ),
    "offbook_allow": (
        "pytest_offbook.options",
        {
            "help": "Addresses that tests with the fixture `offbook` may reach outside of a run, such as `db.internal:5432`; `allow=` of drive() permits them in a run.",
            "type": "linelist",
            "default": [],
        },
    ),
    "offbook_full_tracebacks": (
        "pytest_offbook.options",
        {
            "help": "Show the frames of Offbook in the tracebacks of failed runs, as `--full-trace` does for all frames.",
            "type": "bool",
            "default": False,
        },
    ),
    "offbook_categories": (
        "offbook.goldens.goldens_pytest",
        {
            "help": "Enforce the limits of tests marked `unit` and `replay`, and skip tests marked `live`.",
            "type": "bool",
            "default": False,
        },
    ),
}
MARKERS: dict[str, Any] = {
    "offbook_budget": (
        "offbook.contracts.limits_pytest",
        "(requests, tokens, cost_usd, seconds): limit what a test with an agent uses",
        "",
    ),
    "unit": (
        "offbook.goldens.goldens_pytest",
        "(budget=0.1): no network, no process, only temporary files; fails after 0.1 s",
        "offbook_categories",
    ),
    "replay": (
        "offbook.goldens.goldens_pytest",
        "(budget=1.0): replays goldens; the same limits as unit; fails after 1 s",
        "offbook_categories",
    ),
    "live": (
        "offbook.goldens.goldens_pytest",
        "(needs=[]): runs for real; skipped without --offbook-live and the variables `needs`",
        "offbook_categories",
    ),
}
FILES: dict[str, Any] = {
    "pyproject.toml": (
        "offbook.contracts.limits_pytest",
        "offbook",
    ),
    "tests/specs/*.test-spec.md": (
        "offbook.goldens.goldens_pytest",
        "",
    ),
}
IMPORTS = {
    "offbook.trace.event_contracts": "offbook.contracts.limits_pytest",
    "offbook.patterns.harness": "offbook.patterns.patterns_pytest",
}


@pytest.fixture
def goldens(request: Any) -> Any:
    """Golden fixtures of the project: `goldens.replay("component/name")`."""
    return import_module("offbook.goldens.goldens_pytest").goldens(request)


@pytest.fixture
def pattern_harness() -> Any:
    """A harness for one test; it is checked and disposed at the end."""
    yield from import_module("offbook.patterns.patterns_pytest").pattern_harness()


FIXTURES: dict[str, Any] = {"goldens": goldens, "pattern_harness": pattern_harness}
