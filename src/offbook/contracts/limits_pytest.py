"""Budgets and contracts in pytest.

    @pytest.mark.offbook_budget(requests=4, tokens=2_000)     # of one test
    pytest --offbook-budget tokens=50_000                     # of the whole run
    [tool.offbook.budget]                                     # both, in pyproject.toml
    test = {requests = 10}
    suite = {cost_usd = 1.0}

pytest imports this module for a project with settings, an option or a marker.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from offbook.checks.budgets import Budget, Spending
    from offbook.files import BudgetSettings
    from offbook.trace.event_contracts import Contracts

OPTION = "--offbook-budget"
MARKER = "offbook_budget"
TEST_SETTING = "[tool.offbook.budget] test"
CONTRACTS_MODULE = "offbook.trace.event_contracts"
WORKER_KEY = "offbook_limits"

OPTIONS: dict[str, dict[str, Any]] = {
    OPTION: {
        "action": "append",
        "default": [],
        "metavar": "NAME=LIMIT",
        "help": "Limit what all tests together use: requests, tokens, cost_usd or seconds.",
    },
}
MARKERS = {
    MARKER: "(requests, tokens, cost_usd, seconds): limit what a test with an agent uses",
}
FILES = {"pyproject.toml": "offbook"}
IMPORTS = (CONTRACTS_MODULE,)


def pytest_configure(config: pytest.Config) -> None:
    """Read the budgets of the project."""
    settings = _read_settings(config)
    given = _read_option(config.getoption(OPTION) or [])
    suite = (settings.suite if settings is not None else {}) | given
    test = settings.test if settings is not None else {}
    plugin = LimitHooks(
        _make_budget(test, TEST_SETTING) if test else None,
        _make_budget(suite, OPTION if given else "[tool.offbook.budget] suite") if suite else None,
        demanded=bool(given),
        is_worker=hasattr(config, "workerinput"),
    )
    config.pluginmanager.register(plugin, "offbook-limits")


def _read_settings(config: pytest.Config) -> BudgetSettings | None:
    """Return `[tool.offbook.budget]` of the project; parsed only if the text names it."""
    try:
        text = (config.rootpath / "pyproject.toml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if "offbook" not in text:  # the table has several spellings
        return None
    from offbook.errors import FormatError
    from offbook.files import read_settings

    try:
        return read_settings(config.rootpath)[0].budget
    except FormatError as error:
        raise pytest.UsageError(str(error)) from error


def _read_option(values: list[str]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for value in values:
        name, sign, limit = value.partition("=")
        try:
            limits[name] = float(limit) if "." in limit or "e" in limit else int(limit)
        except ValueError:
            sign = ""
        if not sign:
            raise pytest.UsageError(f"{OPTION}: expected NAME=LIMIT, got {value!r}")
    return limits


def _make_budget(limits: Any, where: str) -> Budget:
    import msgspec

    from offbook.checks.budgets import FIELDS, Budget
    from offbook.options import explain_invalid

    try:
        return msgspec.convert(limits, Budget)
    except msgspec.ValidationError as error:
        problem, _, hint = explain_invalid(error, Budget)
        fix = f"{hint} the limits are {', '.join(FIELDS)}".strip()
        raise pytest.UsageError(f"{where}: {problem}; {fix}") from None


class LimitHooks:
    """Has the tests of a run with a budget measured, and reports on budgets and contracts."""

    def __init__(
        self, test: Budget | None, suite: Budget | None, *, demanded: bool, is_worker: bool
    ) -> None:
        self._test_budget = test
        self._suite_budget = suite
        self._demanded = demanded  # by the option: then a run without data fails
        self._is_worker = is_worker
        self._total: Spending | None = None
        self._started = time.perf_counter()
        self._without_data = 0
        self._contracts: dict[str, int] = {}
        self._lines: list[tuple[str, bool]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Measure the tests of a run that has a budget, or a test with one."""
        if (
            self._test_budget is None
            and self._suite_budget is None
            and all(item.get_closest_marker(MARKER) is None for item in session.items)
        ):
            return (yield)
        from offbook.checks.budgets import Spending
        from offbook.contracts.measured_pytest import MeasuredTests

        tests = MeasuredTests(self._find_budget)
        session.config.pluginmanager.register(tests, "offbook-measured-tests")
        try:
            with tests.observe():
                return (yield)
        finally:
            self._total = self._total or Spending()
            self._total.add(tests.total)
            self._without_data += tests.without_data

    def _find_budget(self, item: pytest.Item) -> tuple[Budget | None, str, bool]:
        """Return the budget of a test, where it is set, and whether it demands data.

        The marker of a test demands data, a setting does not.
        """
        marker = item.get_closest_marker(MARKER)
        if marker is None:
            return self._test_budget, TEST_SETTING, False
        if marker.args:
            raise pytest.UsageError(f"{item.nodeid}: {MARKER} takes names: requests=4")
        return _make_budget(marker.kwargs, f"{item.nodeid}: {MARKER}"), MARKER, True

    # --- The whole run

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a worker of pytest-xdist has used."""
        output: dict[str, Any] = getattr(node, "workeroutput", {}).get(WORKER_KEY, {})
        if output.get("total"):
            from offbook.checks.budgets import Spending

            self._total = self._total or Spending()
            self._total.add(Spending(**output["total"]))
        self._without_data += output.get("without_data", 0)
        for name, count in output.get("contracts", {}).items():
            self._contracts[name] = self._contracts.get(name, 0) + count

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run over its budget."""
        # The contracts of the project, if they were checked in this process.
        module = sys.modules.get(CONTRACTS_MODULE)
        held: Contracts | None = None if module is None else module.project_contracts()
        for name, count in (held.matched if held is not None else {}).items():
            self._contracts[name] = self._contracts.get(name, 0) + count
        if self._is_worker:
            import msgspec

            total = None if self._total is None else msgspec.structs.asdict(self._total)
            output = {"without_data": self._without_data, "contracts": self._contracts}
            config: Any = session.config  # of xdist
            config.workeroutput[WORKER_KEY] = {"total": total, **output}
            return
        for name, count in self._contracts.items():
            if not count:
                self._lines.append((f"contract unused, no event matched it: {name}", False))
        if self._without_data:
            from offbook.errors import counted

            self._lines.append(
                (f"no data for a limit: {counted(self._without_data, 'test')}", False)
            )
        if self._suite_budget is not None:
            from offbook.checks.budgets import Spending

            total = self._total or Spending()
            if total.requests:
                total.seconds = time.perf_counter() - self._started
            # The settings hold for every run, also of a few tests without an agent.
            demands = self._demanded or bool(total.requests)
            verdicts = [v for v in self._suite_budget.check(total, "suite: ") if not v.holds]
            self._lines += [(f"{v.check}: {v.message}", demands) for v in verdicts]
            if verdicts and demands and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print unused contracts and exceeded budgets."""
        if self._lines:
            terminalreporter.section("offbook limits")
        for line, failed in self._lines:
            terminalreporter.write_line(line, red=failed, yellow=not failed)
