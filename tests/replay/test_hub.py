"""The hub does what it did when its goldens were recorded."""

import pytest

from offbook.surfaces.goldens import Golden

pytestmark = pytest.mark.replay


def test_a_listener_hears_what_is_emitted(golden: Golden):
    golden.replay("hub/subscribe-basic")


def test_a_prefix_passes_its_family_only(golden: Golden):
    golden.replay("hub/subscribe-filter")


def test_a_list_passes_what_any_member_does(golden: Golden):
    golden.replay("hub/subscribe-list")


def test_whoever_stopped_hears_no_more(golden: Golden):
    golden.replay("hub/unsubscribe")


def test_scopes_nest_shallowly_and_come_back(golden: Golden):
    golden.replay("hub/scoped-context")


def test_commands_are_silent_until_the_session_starts(golden: Golden):
    golden.replay("hub/commands")


def test_an_aborted_session_says_why_and_stays_active(golden: Golden):
    golden.replay("hub/abort")


def test_the_status_is_what_it_was_set_to(golden: Golden):
    golden.replay("hub/status")


def test_a_session_is_paused_once_and_goes_on_with_a_message(golden: Golden):
    golden.replay("hub/pause-resume")
