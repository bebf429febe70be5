"""Assertions, snapshots and judges return the right verdicts."""
