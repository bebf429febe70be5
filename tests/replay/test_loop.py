"""The loop does what it did when its goldens were recorded."""

import pytest

from offbook.goldens.goldens_pytest import Goldens

pytestmark = pytest.mark.replay


def test_one_hat_follows_another_until_the_promise_is_kept(goldens: Goldens):
    goldens.replay("loop/hats")


def test_a_loop_without_a_promise_ends_at_its_limit(goldens: Goldens):
    goldens.replay("loop/limit")
