"""The components of this project still do what their goldens expect."""

from pathlib import Path

import pytest

from offbook.goldens import Project, check_live

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = Project(ROOT).registry.script_names()


def test_hub_session_and_loop_have_live_scripts():
    assert {"hub", "loop", "session"} <= set(COMPONENTS)


@pytest.mark.parametrize("component", COMPONENTS)
async def test_all_scenarios_of_this_project_pass_live(component: str):
    results = await check_live(Project(ROOT), component)
    assert [result.render() for result in results if result.state != "passed"] == []
    assert results
