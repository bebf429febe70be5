"""A small complete project that tests change in one place."""

import asyncio
from pathlib import Path

from offbook.determinism import FrozenClock
from offbook.goldens import Project, promote, record

LIVE = '''"""The scenarios of the till."""

from offbook.goldens import Component, scenario, step


class Till(Component):
    """Counts the coins in its drawer."""

    coins = 0

    def observe(self):
        return {**super().observe(), "coins": self.coins}

    @step
    def put(self, coins: int):
        self.coins += coins

    @step
    async def open_drawer(self, why: str = ""):
        self.hub.emit("till:open", {"coins": self.coins})


@scenario()
async def open_drawer(till):
    """The drawer opens with the coins that were put in."""
    till.put(1)
    till.put(coins=2)
    await till.open_drawer()
'''

TEST = """import pytest

@pytest.mark.replay
def test_the_drawer_opens(goldens):
    goldens.replay("till/open-drawer")
"""

PYTEST_INI = """[pytest]
asyncio_default_fixture_loop_scope = function
offbook_categories = true
"""

SPEC = """# Till Test Specification

**Component**: `till`
**Last Updated**: 2026-01-01
**Status**: Complete

## Overview

A till.

## Test Requirements

### R1: The drawer opens

**Fixture**: `fixtures/golden/till/open-drawer.jsonl`
**Test File**: `tests/replay/test_till.py`
**Test Name**: `test_the_drawer_opens`

**Scenario**:
1. Put coins in
2. Open the drawer

**Assertions**:
- The coins are counted

---

## Live Test (Authoritative)

**Script**: `scripts/live/till_live.py`
**Timeout**: 30s

## Coverage Checklist

- [x] R1: The drawer opens
- [x] Live test script
"""


def make_project(root: Path) -> Path:
    """Create a component with a spec, a recorded golden, a test and a live script."""
    files = {
        "pytest.ini": PYTEST_INI,
        "scripts/live/till_live.py": LIVE,
        "tests/replay/test_till.py": TEST,
        "tests/specs/till.test-spec.md": SPEC,
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    project = Project(root)
    record_scenario(project, "till", "open-drawer")
    asyncio.run(promote(project.fixtures, "till/open-drawer", project.registry.find))
    return root


def record_scenario(project: Project, component: str, name: str) -> Path:
    """Record with an empty environment, as outside of a test run. Return the fixture file."""
    work = record(project.fixtures, project.registry, component, name, FrozenClock(), {})
    return asyncio.run(work).written[0]
