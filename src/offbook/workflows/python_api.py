"""The tools that take time, for callers with and without an event loop."""

from __future__ import annotations

from offbook.runs.sync_bridge import sync_or_async
from offbook.workflows import evaluation, loop_cassette, loop_run

run = sync_or_async(loop_run.run)
record = sync_or_async(loop_cassette.record)
replay = sync_or_async(loop_cassette.replay)
evaluate = sync_or_async(evaluation.evaluate)
