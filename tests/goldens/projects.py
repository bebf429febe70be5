"""A small project with everything in its place, for tests to break."""

import asyncio
from pathlib import Path

from offbook.determinism.clock import FrozenClock
from offbook.goldens.golden_recording import promote, record
from offbook.goldens.project import Project

LIVE = '''"""The scenarios of the till."""

from offbook.goldens import Component, scenario, step


class Till(Component):
    """Counts what lies in its drawer."""

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
    """The drawer opens with what was put in."""
    till.put(1)
    till.put(coins=2)
    await till.open_drawer()
'''

TEST = """import pytest

@pytest.mark.replay
def test_the_drawer_opens(goldens):
    goldens.replay("till/open-drawer")
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


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def make_project(root: Path) -> Path:
    """A component with a spec, a golden that was recorded, a test and a live script."""
    write(root / "scripts" / "live" / "till_live.py", LIVE)
    write(root / "tests" / "replay" / "test_till.py", TEST)
    write(root / "tests" / "specs" / "till.test-spec.md", SPEC)
    project = Project(root)
    record_one(project, "till", "open-drawer")
    asyncio.run(promote(project.library, "till/open-drawer", project.registry.find))
    return root


def record_one(project: Project, component: str, name: str) -> Path:
    """Record as from a shell, where no test runs; what was written."""
    clock = FrozenClock()
    done = asyncio.run(record(project.library, project.registry, component, name, clock, {}))
    return done.written[0]
