"""The loop does what it did when its goldens were recorded."""

import pytest

from offbook.surfaces.goldens import Golden

pytestmark = pytest.mark.replay


def test_one_hat_follows_another_until_the_promise_is_kept(goldens: Golden):
    goldens.replay("loop/hats")


def test_a_loop_without_a_promise_ends_at_its_limit(goldens: Golden):
    goldens.replay("loop/limit")
