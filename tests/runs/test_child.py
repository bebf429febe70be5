"""A fork of this process."""

import gc
import os

from offbook.runs.child import fork_process


def test_a_fork_leaves_the_garbage_collector_of_its_parent_as_it_was():
    gc.freeze()
    assert os.waitpid(fork_process(lambda: None), 0)[1] == 0
    assert gc.get_freeze_count() > 0
