"""Fixtures and settings of all tests."""

import compileall
import gc
import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import forked
from tests.thorough import THOROUGH

# Nothing of what the collection makes is garbage: enabled again when it is finished.
gc.disable()

# no deadline: no test asserts a time
settings.register_profile(
    "unhurried", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("same", settings.get_profile("unhurried"), derandomize=True)
settings.register_profile("quick", settings.get_profile("unhurried"), max_examples=10)
settings.register_profile("full", settings.get_profile("unhurried"), max_examples=100)
settings.register_profile("thorough", settings.get_profile("unhurried"), max_examples=3000)
settings.load_profile("full" if THOROUGH else "unhurried")

# A shell makes background jobs ignore SIGINT and SIGQUIT, and their children too; nohup does it for
# SIGHUP. A test that ends a process by such a signal would wait for ever.
for number, handler in {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}.items():
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# Tests decide themselves whether they run in CI: pytest prints more there, and nothing is updated.
for variable in ("CI", "BUILD_NUMBER"):
    os.environ.pop(variable, None)

# Clients read all authorities when they are made, and so do the processes of tests. One is enough.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("authority.pem"))

# A pytest started by a test loads these plugins and no others: to read the entry points of all
# packages, and to load what it does not need, takes longer than its tests.
USED_PLUGINS = (
    *("pytest_offbook.plugin", "pytest_asyncio.plugin"),
    *("anyio.pytest_plugin", "xdist.plugin"),
)
UNUSED_PLUGINS = ("doctest", "faulthandler", "legacypath", "pastebin", "setupplan", "stepwise")
PYTEST_VARIABLES = {
    "PYTEST_ADDOPTS": " ".join(f"-p no:{plugin}" for plugin in UNUSED_PLUGINS),
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": ",".join(USED_PLUGINS),
}

ROOT = Path(__file__).resolve().parents[1]
SHARED_DATA = ROOT.parent / "shared" / "data"
if (ROOT / ".clients").is_dir():  # installed by ./dev clients
    os.environ.setdefault("OFFBOOK_CLIENTS", str(ROOT / ".clients"))

# `./dev test --quick` leaves these out: they start processes, or import SDKs and frameworks.
SLOW_PATHS = [
    "architecture/test_borders.py",
    "architecture/test_capability.py",
    "architecture/test_claims.py",
    "architecture/test_dialects.py",
    "architecture/test_entered_files.py",
    "architecture/test_imports.py",
    "architecture/test_names.py",
    "checks/test_agent_coverage.py",
    "checks/test_comparison.py",
    "checks/test_file_states.py",
    "checks/test_judge.py",
    "checks/test_no_vacuous_check.py",
    "checkup/test_checkup_run.py",
    "checkup/test_frameworks.py",
    "checkup/test_outcomes.py",
    "conformance/test_conformance_cli.py",
    "conformance/test_conformance_run.py",
    "contracts/test_contracts_of_runs.py",
    "contracts/test_event_contracts.py",
    "determinism/test_escapes.py",
    "determinism/test_fault_plans.py",
    "docs/test_ci_files.py",
    "docs/test_ci_workflow.py",
    "docs/test_examples.py",
    "docs/test_first_pattern.py",
    "docs/test_readme.py",
    "evals/test_builders.py",
    "evals/test_cluster.py",
    "evals/test_datasets.py",
    "evals/test_evals_cli.py",
    "evals/test_imported_suites.py",
    "evals/test_judges_view.py",
    "evals/test_ladder.py",
    "evals/test_live_verify.py",
    "evals/test_long_runs.py",
    "evals/test_one_contract.py",
    "evals/test_one_runner.py",
    "evals/test_ralph_tasks.py",
    "evals/test_result_identity.py",
    "evals/test_subjects.py",
    "examples",
    "exchange/dialects/test_anthropic.py",
    "exchange/dialects/test_anthropic_client.py",
    "exchange/dialects/test_bedrock.py",
    "exchange/dialects/test_chat_client.py",
    "exchange/dialects/test_functions_client.py",
    "exchange/dialects/test_gemini.py",
    "exchange/dialects/test_gemini_client.py",
    "exchange/dialects/test_invalid_requests.py",
    "exchange/dialects/test_media.py",
    "exchange/dialects/test_openai_round_trips.py",
    "exchange/dialects/test_prefix_cache.py",
    "exchange/dialects/test_provider_tools.py",
    "exchange/dialects/test_responses_client.py",
    "exchange/dialects/test_stores.py",
    "exchange/dialects/test_unusual_requests.py",
    "exchange/test_history.py",
    "explore/test_authority.py",
    "explore/test_bench_cli.py",
    "explore/test_documented_ends.py",
    "explore/test_explore_cli.py",
    "explore/test_long_search.py",
    "explore/test_oracles.py",
    "explore/test_planner_example.py",
    "explore/test_planted_bugs.py",
    "explore/test_playing.py",
    "explore/test_scripts.py",
    "explore/test_sdk_conversions.py",
    "explore/test_search.py",
    "explore/test_side_by_side.py",
    "explore/test_worker.py",
    "fossils/test_fossils.py",
    "fuzz/test_fuzz.py",
    "goldens/test_categories.py",
    "goldens/test_completeness.py",
    "goldens/test_fixture_store.py",
    "goldens/test_golden_review.py",
    "goldens/test_goldens_cli.py",
    "goldens/test_proposed_goldens.py",
    "goldens/test_pytest_settings.py",
    "goldens/test_recording.py",
    "goldens/test_replay_guard.py",
    "host/test_fake_cli.py",
    "host/test_mock_pi.py",
    "lies",
    "matrix",
    "mcp/test_real_server.py",
    "mcp/test_scripted_server.py",
    "mcp/test_server_subject.py",
    "mcp/test_servers_in_runs.py",
    "patterns/test_as_subject.py",
    "patterns/test_clock.py",
    "patterns/test_composition.py",
    "patterns/test_harness.py",
    "patterns/test_runtime.py",
    "people/test_approvals.py",
    "people/test_people.py",
    "pytest_offbook",
    "reports/test_agreement.py",
    "reports/test_formats.py",
    "reports/test_otel_spans.py",
    "runs/test_backends.py",
    "runs/test_benchmark.py",
    "runs/test_broken_agents.py",
    "runs/test_changed_history.py",
    "runs/test_clock_tracks.py",
    "runs/test_closed_world.py",
    "runs/test_command_escapes.py",
    "runs/test_command_recording.py",
    "runs/test_commands.py",
    "runs/test_determinism.py",
    "runs/test_engines.py",
    "runs/test_faults.py",
    "runs/test_file_tracks.py",
    "runs/test_http_tracks.py",
    "runs/test_judge_factory.py",
    "runs/test_killed.py",
    "runs/test_killed_writers.py",
    "runs/test_missing_results.py",
    "runs/test_mock_scopes.py",
    "runs/test_real_clients.py",
    "runs/test_result_identity.py",
    "runs/test_run.py",
    "runs/test_self_prompting.py",
    "runs/test_several_agents.py",
    "runs/test_shrunk_tapes.py",
    "runs/test_signals.py",
    "runs/test_tape_events.py",
    "runs/test_tapes.py",
    "runs/test_tool_changes.py",
    "runs/test_two_writers.py",
    "runs/test_wiring.py",
    "sandbox",
    "scripts",
    "sources/cassette/test_journal.py",
    "sources/cassette/test_maintenance.py",
    "sources/cassette/test_mismatch.py",
    "sources/cassette/test_normalize.py",
    "sources/cassette/test_replay.py",
    "sources/cassette/test_replay_matching.py",
    "sources/cassette/test_secrets.py",
    "sources/importers/test_emitters.py",
    "sources/inprocess/test_patching.py",
    "sources/inprocess/test_sdks.py",
    "sources/playbook/test_role_suggestion.py",
    "sources/server/test_clients.py",
    "sources/server/test_growth.py",
    "sources/server/test_misses.py",
    "sources/server/test_websocket.py",
    "sources/test_relay.py",
    "subjects/clis",
    "subjects/frameworks",
    "subjects/session/test_builtin_tools.py",
    "subjects/session/test_extensions.py",
    "subjects/session/test_growth.py",
    "subjects/test_process.py",
    "surfaces",
    "test_one_playbook.py",
    "test_secret_corpus.py",
    "test_yaml_files.py",
    "testing/test_subjects.py",
    "testing/test_wrong_implementations.py",
    "trace/test_hostile_sessions.py",
    "trace/test_instrument.py",
    "trace/test_redaction.py",
    "viewer/test_commands.py",
    "viewer/test_live_server.py",
    "viewer/test_watched_page.py",
    "workflows/test_evaluation.py",
    "workflows/test_evidence.py",
    "workflows/test_five_scenarios.py",
    "workflows/test_killed_run.py",
    "workflows/test_measuring_tools.py",
    "workflows/test_presets.py",
    "workflows/test_record_replay.py",
    "workflows/test_review_command.py",
    "workflows/test_scenario.py",
    "workflows/test_tool_errors.py",
    "workflows/test_tool_guarantees.py",
    "workflows/test_workflows_cli.py",
]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the workers of `-n auto`: their tests wait for a quarter of the time."""
    processors = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return processors + processors // 2


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if not os.environ.get("OFFBOOK_TEST_QUICK") or not collection_path.is_relative_to(ROOT):
        return None
    path = collection_path.relative_to(ROOT).as_posix().removeprefix("tests/")
    return True if path in SLOW_PATHS else None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Prepare the process of tests, and the environment of what they start."""
    if not hasattr(session.config, "workerinput"):
        # The processes that tests start write no bytecode, so they would compile again and again.
        compileall.compile_dir(ROOT / "src", quiet=1)
    if session.config.pluginmanager.has_plugin("dsession"):
        return  # the process that starts xdist's workers runs no test
    os.environ.update(PYTEST_VARIABLES, PYTHONDONTWRITEBYTECODE="1")
    # Imported now rather than by the first test that uses it: a run of pytest in this process
    # forgets what it has imported, and the next one would import it again. In Python 3.11, a
    # garbage collection while a module is compiled can fail it, too ("AST constructor recursion
    # depth mismatch").
    forked.import_offbook()
    forked.start_pytest_faster()
    if hasattr(session.config, "workerinput") and not session.config.getoption("xmlpath"):
        send_fewer_reports(session.config)


def send_fewer_reports(config: pytest.Config) -> None:
    """Send no report of a set-up or a teardown that passed and has nothing to show.

    To send and receive two thirds of the reports takes 10 s of the processor. JUnit XML needs them.
    """
    [worker] = [
        plugin
        for plugin in config.pluginmanager.get_plugins()
        if type(plugin).__name__ == "WorkerInteractor"  # of xdist, which runs it from its source
    ]
    send = worker.sendevent

    def send_event(name: str, **event: Any) -> None:
        report = event.get("data", {})
        if (
            name != "testreport"
            or report["when"] == "call"
            or report["outcome"] != "passed"
            or report["duration"] >= SHOWN_SECONDS
            or report["user_properties"]
            or report["sections"]
        ):
            send(name, **event)

    worker.sendevent = send_event


def pytest_collection_finish() -> None:
    """Write no bytecode of modules that tests write, and look for garbage in what follows only.

    Python takes bytecode for that of another version, if both have the same size and second.
    """
    sys.dont_write_bytecode = True
    freeze_memory()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def forked_servers() -> None:
    """Start the servers of forked processes before a test does.

    One that a process under test starts ends with it, and other workers may use it.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        for server in forked.SERVERS.values():
            server.open()


def pytest_unconfigure() -> None:
    forked.close_servers()


SHOWN_SECONDS = 0.1  # by --durations
MANY_BLOCKS = 200_000
COUNTED_TESTS = 20  # to count the blocks takes as long as a small test
frozen_blocks = 0
started_tests = itertools.count()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if next(started_tests) % COUNTED_TESTS:
        return
    if sys.getallocatedblocks() > frozen_blocks + MANY_BLOCKS:
        gc.collect()
        freeze_memory()


def freeze_memory() -> None:
    """Exclude what stays in memory from garbage collection: pytest in a test collects often."""
    global frozen_blocks  # noqa: PLW0603 - of this process
    gc.freeze()
    frozen_blocks = sys.getallocatedblocks()


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root of the checkout."""
    return ROOT


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return pytest's own fixture; it removes PYTEST_ADDOPTS."""
    monkeypatch.setenv("PYTEST_ADDOPTS", PYTEST_VARIABLES["PYTEST_ADDOPTS"])
    return pytester


@pytest.fixture(scope="session")
def unwatched() -> dict[str, str]:
    """Return an environment without coverage, for processes whose imports or time are measured."""
    return {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}


@pytest.fixture
def shared_data(request: pytest.FixtureRequest) -> Path:
    """Return the shared data next to the checkout, for tests marked `external`."""
    if request.node.get_closest_marker("external") is None:
        pytest.fail("a test that reads shared_data is marked @pytest.mark.external")
    return SHARED_DATA


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SHARED_DATA.is_dir():
        return
    skip = pytest.mark.skip(reason="external: ../shared/data does not exist")
    for item in items:
        if item.get_closest_marker("external"):
            item.add_marker(skip)
