"""Tests with a budget: each is measured from its setup to its teardown.

The runs of a fixture belong to its test. Those of a fixture that tests share belong to the whole
run only: which test needs it first is a matter of chance.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from offbook.checks.budgets import Budget, Spending, SpendingReader
from offbook.errors import CheckFailed
from offbook.trace.recorder import observe_traces

# The budget of a test, where it is set, and whether a limit without data fails.
FindBudget = Callable[[pytest.Item], tuple[Budget | None, str, bool]]


class MeasuredTest:
    """The usage of one test, without that of the fixtures that it shares with others."""

    def __init__(self) -> None:
        self.spent = Spending()
        self.passed = False  # its call is over, and was within its budget
        self._since = time.perf_counter()
        self._seconds = 0.0
        self._shared: list[object] = []  # the shared fixtures that are set up or torn down now

    @property
    def in_shared_fixture(self) -> bool:
        """True while a fixture of several tests is set up or torn down."""
        return bool(self._shared)

    def enter_shared(self, fixture: object) -> None:
        """Stop measuring: this fixture runs."""
        if not self._shared:
            self._seconds += time.perf_counter() - self._since
        self._shared.append(fixture)

    def leave_shared(self, fixture: object) -> None:
        """Continue to measure, if no other shared fixture runs."""
        if fixture in self._shared:
            self._shared.remove(fixture)
            self._since = time.perf_counter()

    def read(self) -> Spending:
        """Return the usage until now. The time of a test without an agent is no data."""
        if self.spent.requests:
            running = 0.0 if self._shared else time.perf_counter() - self._since
            self.spent.seconds = self._seconds + running
        return self.spent


class MeasuredTests:
    """The hooks that measure each test of a run, and fail those over their budget.

    `total` is the usage of all runs, also of tests that fail; `without_data` is the number of tests
    without data for a limit of the settings.
    """

    def __init__(self, find_budget: FindBudget) -> None:
        self.total = Spending()
        self.without_data = 0
        self._find_budget = find_budget
        self._test: MeasuredTest | None = None

    def observe(self) -> AbstractContextManager[None]:
        """Read every trace that is written inside the block."""
        return observe_traces(lambda: SpendingReader(self._add))

    def _add(self, spent: Spending) -> None:
        """Add the usage of a run to the test that is running, and to all of them."""
        self.total.add(spent)
        if self._test is not None and not self._test.in_shared_fixture:
            self._test.spent.add(spent)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """Measure from here on: the runs of a fixture of the test belong to it."""
        self._test = MeasuredTest()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Leave a fixture that tests share out of the test that happens to need it first."""
        if fixturedef.scope == "function":
            return (yield)
        # Finalizers run in reverse order: those of the fixture itself are between these two.
        fixturedef.addfinalizer(lambda: self._leave_shared(fixturedef))
        self._enter_shared(fixturedef)
        try:
            result = yield
        finally:
            self._leave_shared(fixturedef)
        fixturedef.addfinalizer(lambda: self._enter_shared(fixturedef))
        return result

    def _enter_shared(self, fixture: object) -> None:
        if self._test is not None:
            self._test.enter_shared(fixture)

    def _leave_shared(self, fixture: object) -> None:
        if self._test is not None:
            self._test.leave_shared(fixture)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail a test whose setup and call are over its budget."""
        self._find_budget(item)  # raises for a wrong marker, before the test runs
        result = yield
        if self._test is not None:
            self._check(item, self._test)
            self._test.passed = True
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail a test that is over its budget only with its teardown."""
        try:
            result = yield
            if self._test is not None and self._test.passed:
                self.without_data += self._check(item, self._test)
        finally:
            self._test = None
        return result

    def _check(self, item: pytest.Item, test: MeasuredTest) -> bool:
        """Fail a test over its budget; return whether a limit of the settings has no data."""
        budget, where, demands_data = self._find_budget(item)
        spent = test.read()
        if budget is None or not (demands_data or spent.requests):  # a test without an agent
            return False
        verdicts = budget.check(spent)
        failed = [verdict for verdict in verdicts if verdict.status == "fail"]
        missing = [verdict for verdict in verdicts if verdict.status == "no_data"]
        if demands_data:
            failed += missing
        if failed:
            raise CheckFailed("; ".join(verdict.message for verdict in failed), where=where)
        return bool(missing)
