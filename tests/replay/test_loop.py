"""The loop replays its goldens as recorded."""

import pytest

from offbook.goldens import Goldens

pytestmark = pytest.mark.replay


def test_hats_run_in_order_until_the_completion_promise(goldens: Goldens):
    goldens.replay("loop/hats")


def test_loop_without_promise_ends_at_its_limit(goldens: Goldens):
    goldens.replay("loop/limit")
