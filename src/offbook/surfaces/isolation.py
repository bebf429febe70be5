"""The names with which the pytest plugin isolates a test from the network."""

from __future__ import annotations

from offbook.determinism.network_guard import NetworkGuard, block_network
from offbook.errors import ConnectionBlocked, OffbookWarning
from offbook.sources.inprocess.telemetry import disable_telemetry

__all__ = [
    "ConnectionBlocked",
    "NetworkGuard",
    "OffbookWarning",
    "block_network",
    "disable_telemetry",
]
