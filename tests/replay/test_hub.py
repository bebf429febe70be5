"""The hub does what it did when its goldens were recorded."""

import pytest

from offbook.goldens.goldens_pytest import Goldens

pytestmark = pytest.mark.replay


def test_a_listener_hears_what_is_emitted(goldens: Goldens):
    goldens.replay("hub/subscribe-basic")


def test_a_prefix_passes_its_family_only(goldens: Goldens):
    goldens.replay("hub/subscribe-filter")


def test_a_list_passes_what_any_member_does(goldens: Goldens):
    goldens.replay("hub/subscribe-list")


def test_whoever_stopped_hears_no_more(goldens: Goldens):
    goldens.replay("hub/unsubscribe")


def test_scopes_nest_shallowly_and_come_back(goldens: Goldens):
    goldens.replay("hub/scoped-context")


def test_commands_are_silent_until_the_session_starts(goldens: Goldens):
    goldens.replay("hub/commands")


def test_an_aborted_session_says_why_and_stays_active(goldens: Goldens):
    goldens.replay("hub/abort")


def test_the_status_is_what_it_was_set_to(goldens: Goldens):
    goldens.replay("hub/status")


def test_a_session_is_paused_once_and_goes_on_with_a_message(goldens: Goldens):
    goldens.replay("hub/pause-resume")
