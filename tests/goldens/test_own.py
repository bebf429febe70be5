"""Our own components: the real thing still shows what the goldens expect."""

from pathlib import Path

import pytest

from offbook.goldens.project import Project, check_live

ROOT = Path(__file__).resolve().parents[2]


COMPONENTS = Project(ROOT).registry.scripts()


def test_the_hub_the_session_and_the_loop_are_among_them():
    assert {"hub", "loop", "session"} <= set(COMPONENTS)


@pytest.mark.parametrize("component", COMPONENTS)
async def test_every_scenario_of_ours_passes_live(component: str):
    shown = await check_live(Project(ROOT), component)
    assert [one.tell() for one in shown if one.state != "passed"] == []
    assert shown
