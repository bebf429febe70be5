"""The parts of a package of pi besides tools and hooks: each works in a scripted session."""

import pytest

from offbook.sources.playbook import say, when
from tests.subjects.pi.worlds import PACKAGE, PI_WORLDS, World


@pytest.mark.parametrize("world", PI_WORLDS)
def test_a_widget_of_the_start_of_a_session_is_recorded(world: World):
    with world.open(extension=PACKAGE) as t:
        t.run(when("x", [say("ok")]))
        assert t.events.ui_calls_for("set_widget")[0].args == ["prices", ["apples 3", "pears 4"]]


@pytest.mark.parametrize("world", PI_WORLDS)
def test_a_command_switches_to_the_model_of_a_provider_of_the_package(world: World):
    with world.open(extension=PACKAGE, warm=False) as t:  # the provider reads its address once
        run = t.run(when("/switch", []), when("x", [say("ok")]))
        assert run.requests[0].model == "own-model"
        assert t.events.ui_calls_for("notify")[0].args[0] == "switched: true"


@pytest.mark.parametrize("world", PI_WORLDS)
def test_a_prompt_template_of_the_package_is_expanded(world: World):
    with world.open(extension=PACKAGE) as t:
        run = t.run(when("/review shop.py", [say("ok")]))
        assert run.requests[0].latest_prompt == "Review the file shop.py and name its faults."


@pytest.mark.parametrize("world", PI_WORLDS)
def test_a_skill_of_the_package_is_in_the_system_prompt(world: World):
    with world.open(extension=PACKAGE) as t:
        run = t.run(when("x", [say("ok")]))
        assert "Refund an order." in run.requests[0].system
