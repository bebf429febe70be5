"""The hub replays its goldens as recorded."""

import pytest

from offbook.goldens import Goldens

pytestmark = pytest.mark.replay


def test_listener_receives_emitted_events(goldens: Goldens):
    goldens.replay("hub/subscribe-basic")


def test_prefix_filter_selects_its_names_only(goldens: Goldens):
    goldens.replay("hub/subscribe-filter")


def test_list_filter_selects_the_names_of_any_member(goldens: Goldens):
    goldens.replay("hub/subscribe-list")


def test_unsubscribed_listener_receives_no_more_events(goldens: Goldens):
    goldens.replay("hub/unsubscribe")


def test_scopes_nest_shallowly_and_are_restored(goldens: Goldens):
    goldens.replay("hub/scoped-context")


def test_commands_emit_nothing_before_the_session_starts(goldens: Goldens):
    goldens.replay("hub/commands")


def test_aborted_session_has_a_reason_and_stays_active(goldens: Goldens):
    goldens.replay("hub/abort")


def test_status_is_set_without_an_event(goldens: Goldens):
    goldens.replay("hub/status")


def test_session_is_paused_once_and_resumed_with_a_message(goldens: Goldens):
    goldens.replay("hub/pause-resume")
